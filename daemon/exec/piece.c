/* Pieces of memory: those that a value has left are kept for the next one of that size. And what the executor shares
 * with its owner: room out of them, which the owner writes and gives back as a value, or as nothing (exec_room); a
 * value that the owner reads beyond the end of its instruction (exec_keep). What is out counts as in use: together with
 * the pieces that are kept it is no more than was planned. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "exec/int.h"

static void piece_drop(struct exec *x, uint32_t k)
{
	big_free(x->spare[k].p, x->spare[k].bytes);
	x->spare_bytes -= x->spare[k].bytes;
	memmove(&x->spare[k], &x->spare[k + 1], (--x->nspare - k) * sizeof(x->spare[0]));
}

/* What is kept and what is in use are hardly ever more than what was once in use: the prediction holds for both. The
 * smallest piece that is enough goes, else the largest. */
void pieces_trim(struct exec *x)
{
	size_t ahead = x->out_bytes > x->lent_bytes ? x->out_bytes - x->lent_bytes : 0;
	size_t held = x->used[PLAN_ARENA] - x->working + ahead, most = x->peak[PLAN_ARENA] + EXEC_SPARE_BYTES, over;

	for (int k = 0; k < EXEC_SCRATCH; k++)
		held += x->scratch[k].bytes;
	while (x->nspare && held + x->spare_bytes > most) {
		uint32_t pick = 0;

		over = held + x->spare_bytes - most;
		for (uint32_t k = 1; k < x->nspare; k++) {
			size_t best = x->spare[pick].bytes, this = x->spare[k].bytes;

			if (best >= over ? this >= over && this < best : this > best)
				pick = k;
		}
		piece_drop(x, pick);
	}
}

void piece_put(struct exec *x, void *p, size_t bytes)
{
	if (!p)
		return;
#ifdef __SANITIZE_ADDRESS__
	for (size_t i = 0; i < bytes / sizeof(real); i++)       /* whoever counts on zeros is found */
		((real *)p)[i] = (real)((uintptr_t)p >> 4 & 0xffff) / 65536;
#endif
	if (x->nspare == EXEC_SPARE)
		piece_drop(x, 0);
	x->spare[x->nspare].p = p;
	x->spare[x->nspare++].bytes = bytes;
	x->spare_bytes += bytes;
	pieces_trim(x);
}

/* Each value of the next micro-batch finds the memory of one of this: no pages are asked for and cleared per step. */
void *piece_take(struct exec *x, size_t bytes)
{
	void *p = NULL;

	for (uint32_t k = x->nspare; k-- > 0 && !p;)
		if (x->spare[k].bytes == bytes) {
			p = x->spare[k].p;
			x->spare[k].p = NULL;
			piece_drop(x, k);
		}
	return p ? p : big_alloc(bytes);
}

/* --- leases */

/* exec_free waits for blocks that are kept: they are its memory. */
static void back(struct lease *l)
{
	struct out *o = container_of(l, struct out, lease);
	struct exec *x = o->x;

	list_del(&o->link);
	if (o->block) {
		block_unref(x, o->block);
		x->lent--;
		env_after(x->c.env, &x->kick, 0);
	} else if (x) {
		x->out_bytes -= l->bytes;
		piece_put(x, l->p, l->bytes);
	} else {
		big_free(l->p, l->bytes);
	}
	free(o);
}

static struct out *out_new(struct exec *x, void *p, size_t bytes)
{
	struct out *o = xcalloc(1, sizeof(*o));

	o->lease = (struct lease){ .p = p, .bytes = bytes, .refs = 1, .back = back };
	o->x = x;
	list_push(&x->out, &o->link);
	return o;
}

struct lease *exec_room(struct exec *x, size_t bytes)
{
	void *p = piece_take(x, bytes);

	if (!p)
		return NULL;
	x->out_bytes += bytes;
	pieces_trim(x);
	return &out_new(x, p, bytes)->lease;
}

struct lease *exec_keep(struct exec_wait *w, const void *p)
{
	struct op *o = container_of(w, struct op, wait);

	for (uint32_t k = 0; k < o->i->nin; k++) {
		struct block *b = o->in ? o->in[k] : NULL;
		struct out *out;

		if (!b || !b->p || (const char *)p < (const char *)b->p || (const char *)p >= (const char *)b->p + b->bytes)
			continue;
		out = out_new(o->x, b->p, b->bytes);
		out->block = b;
		b->refs++;
		o->x->lent++;
		return &out->lease;
	}
	return NULL;
}

/* Room that is out stays with whoever has it. */
void pieces_done(struct exec *x)
{
	while (x->nspare)
		piece_drop(x, 0);
	list_each_safe(it, &x->out) {
		list_entry(it, struct out, link)->x = NULL;
		list_del(it);
	}
}

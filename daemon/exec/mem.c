/* Memory of values. A slot of a ring gets its block when something is first written there and loses it when the
 * tokens say so; jobs that were abandoned keep theirs. What is handed out is counted to the byte as the plan states
 * it (instrument T5), so that it can be held against the predictor. Without a model nothing is allocated but
 * scalars, and all is counted. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "exec/int.h"

void block_unref(struct exec *x, struct block *b)
{
	if (!b || --b->refs)
		return;
	if (b->batch)
		x->c.ops->unload(x->c.ops_arg, b->batch);
	if (b->lent) {
		x->lent_bytes -= b->bytes;
		block_unref(x, b->of);
		lease_put(b->lease);
	} else if (b->filed) {
		spill_give(x->spill, b->at, b->bytes);
	} else if (!b->bound) {
		piece_put(x, b->p, b->bytes);
	}
	free(b);
}

static struct block **cell(struct program *p, uint32_t stream, uint32_t buf, uint32_t slot)
{
	const struct plan_buf *b = &p->plan.buf[buf];

	return &p->block[p->base[buf] + (b->shared ? 0 : stream) * plan_depth(b) + slot];
}

struct block *block_at(struct program *p, const struct token_bind *b)
{
	return b->slot == PLAN_NONE ? NULL : *cell(p, b->stream, b->buf, b->slot);
}

/* The tokens' hook: bytes are counted when they say so; memory comes later, with the first writer. */
static void memory(void *arg, uint32_t stream, uint32_t buf, uint32_t slot, bool taken)
{
	struct exec *x = arg;
	struct program *p = x->prog;
	struct block **at;

	at = cell(p, stream, buf, slot);
	block_count(x, &p->plan, &p->plan.buf[buf], taken);
	if (taken || !*at || (*at)->bound)
		return;
	block_unref(x, *at);
	*at = NULL;
}

/* A value that becomes another in place keeps its memory. */
static void moved(void *arg, const struct token_bind *from, const struct token_bind *to)
{
	struct exec *x = arg;
	struct block **at = cell(x->prog, from->stream, from->buf, from->slot);

	if (!*at || (*at)->bound)
		return;
	*cell(x->prog, to->stream, to->buf, to->slot) = *at;
	*at = NULL;
}

/* The owner's hooks, behind ours. */
static void miss(void *arg, struct tokens *t, struct token_run *waits, uint32_t input)
{
	const struct token_hooks *h = ((struct exec *)arg)->c.hooks;

	h->miss(h->arg, t, waits, input);
}

static void pressure(void *arg, struct tokens *t, struct token_run *waits, uint32_t tier, uint64_t bytes)
{
	const struct token_hooks *h = ((struct exec *)arg)->c.hooks;

	h->pressure(h->arg, t, waits, tier, bytes);
}

static void lost(void *arg, struct tokens *t, uint32_t rank)
{
	const struct token_hooks *h = ((struct exec *)arg)->c.hooks;

	h->lost(h->arg, t, rank);
}

static struct block *block_new(void *p, size_t bytes, bool bound)
{
	struct block *b = xcalloc(1, sizeof(*b));

	*b = (struct block){ .refs = 1, .p = p, .bytes = bytes, .bound = bound };
	return b;
}

static bool dry(const struct exec *x, const struct plan_buf *b)
{
	return !x->c.model && b->class != PLAN_SCALAR;
}

static struct block *block_make(struct exec *x, const struct plan *plan, const struct plan_buf *b, struct err *e)
{
	size_t bytes = block_bytes(b);
	void *p = NULL;

	if (x->c.model && plan_place(plan, b) == PLAN_FILE) {
		struct block *k = block_new(NULL, bytes, false);

		k->filed = true;
		k->at = spill_take(x->spill, bytes);
		return k;
	}
	if (b->class != PLAN_BATCH && !dry(x, b)) {
		p = piece_take(x, bytes ? bytes : 1);
		if (!p) {
			(void)err_set(e, ERR_NOMEM, "no memory for %zu bytes of %s", bytes, b->name);
			return NULL;
		}
	}
	return block_new(p, p ? (bytes ? bytes : 1) : 0, false);
}

/* Blocks of the program before whose buffers live on. The others go. */
static void carry(struct exec *x, struct program *p, struct program *before)
{
	for (uint32_t i = 0; before && i < before->plan.nbufs; i++) {
		const struct plan_buf *o = &before->plan.buf[i];
		uint32_t n = plan_find(&p->plan, o->name);
		const struct plan_buf *b = n == PLAN_NONE ? NULL : &p->plan.buf[n];
		bool same = b && plan_lives_on(&before->plan, o, &p->plan, b);

		for (uint32_t s = 0; s < (before->plan.streams && !o->shared ? before->plan.streams : 1); s++)
			for (uint32_t k = 0; k < plan_depth(o); k++) {
				struct block **from = cell(before, s, i, k);

				if (!*from)
					continue;
				if (same && (s == 0 || s < p->plan.streams) && tokens_slot(p->tokens, s, n, k)->bytes &&
				    !*cell(p, s, n, k)) {
					*cell(p, s, n, k) = *from;
				} else {
					block_unref(x, *from);
				}
				*from = NULL;
			}
	}
}

/* plan_runnable has looked whether it fits (binds_fit). */
static int bind_all(struct exec *x, struct program *p, struct err *e)
{
	for (uint32_t i = 0; i < p->plan.nbufs; i++) {
		const struct plan_buf *b = &p->plan.buf[i];
		const struct bound *own = bound_find(x, b->name);
		struct block **at = cell(p, 0, i, 0);

		if (own && own->p) {
			size_t room;
			void *there = bound_at(own, b, &room);

			if (!*at)
				*at = block_new(there, room, true);
		} else if (b->initial && !*at && !(*at = block_make(x, &p->plan, b, e))) {
			return -1;
		}
	}
	return 0;
}

int program_new(struct exec *x, struct plan *stolen, struct program *before, struct err *e)
{
	struct program *p = xcalloc(1, sizeof(*p));
	const struct token_hooks hooks = { .arg = x, .miss = x->c.hooks && x->c.hooks->miss ? miss : NULL,
		.pressure = x->c.hooks && x->c.hooks->pressure ? pressure : NULL,
		.lost = x->c.hooks && x->c.hooks->lost ? lost : NULL, .memory = memory,
		.moved = moved };
	uint32_t n = 0;
	int rc;

	p->refs = 1;
	p->plan = *stolen;
	p->number = ++x->programs;
	p->base = xcalloc(p->plan.nbufs + 1, sizeof(*p->base));
	for (uint32_t i = 0; i < p->plan.nbufs; i++) {
		p->base[i] = n;
		n += plan_depth(&p->plan.buf[i]) * (p->plan.streams && !p->plan.buf[i].shared ? p->plan.streams : 1);
	}
	p->nblocks = n;
	p->block = xcalloc(n + 1, sizeof(*p->block));
	x->prog = p;
	memset(x->used, 0, sizeof(x->used));    /* the new tokens count what lives on */
	p->tokens = tokens_new(&p->plan, &hooks, before ? before->tokens : NULL);
	carry(x, p, before);
	rc = bind_all(x, p, e);
	if (before)
		program_unref(x, before);
	return rc;
}

void program_unref(struct exec *x, struct program *p)
{
	if (!p || --p->refs)
		return;
	for (uint32_t i = 0; i < p->nblocks; i++)
		block_unref(x, p->block[i]);
	tokens_free(p->tokens);
	plan_free(&p->plan);
	free(p->block);
	free(p->base);
	free(p);
}

/* Batches that were loaded and not committed go back, as soon as no abandoned job reads them. */
void batches_back(struct exec *x)
{
	struct program *p = x->prog;

	for (uint32_t i = 0; i < p->plan.nbufs; i++)
		for (uint32_t k = p->base[i]; k < (i + 1 < p->plan.nbufs ? p->base[i + 1] : p->nblocks); k++)
			if (p->block[k] && p->block[k]->batch) {
				block_unref(x, p->block[k]);
				p->block[k] = NULL;
			}
}

void op_blocks(struct op *o)
{
	const struct plan_instr *i = o->i;

	o->scratch = -1;
	o->in = xcalloc(i->nin + 1, sizeof(*o->in));
	o->out = xcalloc(i->nout + 1, sizeof(*o->out));
	for (uint32_t k = 0; k < i->nin; k++)
		if (!o->run->in[k].missing && (o->in[k] = block_at(o->prog, &o->run->in[k])))
			o->in[k]->refs++;
	for (uint32_t k = 0; k < i->nout; k++)
		if ((o->out[k] = block_at(o->prog, &o->run->out[k])))
			o->out[k]->refs++;
	if (o->run->moved && !o->in[0] && (o->in[0] = o->out[0]))
		o->in[0]->refs++;
}

/* The memory of output k comes with what it brings. */
static bool lends(const struct op *o, uint32_t k)
{
	const struct exec *x = o->x;
	const struct plan *p = &o->prog->plan;

	return x->c.ops && x->c.ops->lends && x->c.model && !o->run->passed && plan_lent(p, o->i) &&
		!bound_value(x, p->buf[o->i->out[k].buf].name);
}

static struct block *block_for(struct op *o, uint32_t k, struct err *e)
{
	const struct plan_buf *b = &o->prog->plan.buf[o->i->out[k].buf];
	struct block *new;

	if (!lends(o, k))
		return block_make(o->x, &o->prog->plan, b, e);
	new = block_new(NULL, b->bytes, false);
	new->lent = true;
	o->x->lent_bytes += b->bytes;
	return new;
}

/* What is lent is never written to: others may read it still. The new value goes on from it where the instruction
 * changes it. */
static int unshare(struct op *o, uint32_t k, struct block **at, struct err *e)
{
	size_t bytes = o->prog->plan.buf[o->i->out[k].buf].bytes;
	bool goes_on = (o->i->out[k].add && !o->run->out[k].blank) || (!k && o->run->moved);
	struct block *was = *at;

	*at = block_for(o, k, e);
	if (*at && was->p && goes_on && (*at)->p)
		memcpy((*at)->p, was->p, bytes);
	block_unref(o->x, was);
	if (o->out[k])
		block_unref(o->x, o->out[k]);
	o->out[k] = NULL;
	return *at ? 0 : -1;
}

static bool must_wait(const struct op *o)
{
	if (move_must_wait(o))
		return true;
	for (uint32_t k = 0; k < o->i->nin; k++)
		if (o->in[k] && o->in[k]->writing)
			return true;
	for (uint32_t k = 0; k < o->i->nout; k++)
		if (o->out[k] && (o->out[k]->writing || o->out[k]->reading))
			return true;
	return false;
}

/* Passed over, it makes only what has a stand-in. */
static bool makes(const struct op *o, uint32_t k)
{
	return !o->run->passed || o->run->stands[k].slot != PLAN_NONE;
}

static int take_scratch(struct op *o, struct err *e)
{
	struct exec *x = o->x;
	size_t bytes = o->i->work_bytes;
	int pick = -1;

	if (!bytes || !x->c.model || o->work)
		return 0;
	for (int k = 0; k < EXEC_SCRATCH; k++)
		if (!x->scratch[k].busy && (pick < 0 || x->scratch[k].bytes >= bytes))
			pick = k;
	if (pick >= 0 && x->scratch[pick].bytes < bytes) {
		big_free(x->scratch[pick].p, x->scratch[pick].bytes);
		x->scratch[pick].p = big_alloc(bytes);
		x->scratch[pick].bytes = x->scratch[pick].p ? bytes : 0;
	}
	o->work = pick >= 0 ? x->scratch[pick].p : big_alloc(bytes);
	if (!o->work)
		return err_set(e, ERR_NOMEM, "no memory for %zu bytes of scratch (%s)", bytes, plan_kind_name(o->i->kind));
	o->work_bytes = bytes;
	o->scratch = pick;
	if (pick >= 0)
		x->scratch[pick].busy = true;
	return 0;
}

int op_memory(struct op *o, struct err *e)
{
	struct exec *x = o->x;

	if (must_wait(o))
		return 1;
	if (budgets_hold(x, e) < 0)
		return -1;
	for (uint32_t k = 0; k < o->i->nout; k++) {
		const struct plan_buf *b = &o->prog->plan.buf[o->i->out[k].buf];
		struct block **at = cell(o->prog, o->run->out[k].stream, o->run->out[k].buf, o->run->out[k].slot);

		if (!makes(o, k))
			continue;
		if (*at && b->class == PLAN_BATCH && (*at)->batch) {    /* the former batch is overwritten */
			block_unref(x, *at);
			*at = NULL;
			block_unref(x, o->out[k]);
			o->out[k] = NULL;
		}
		if (*at && (*at)->lent && !PLANTED(LENT_WRITTEN) && unshare(o, k, at, e) < 0)
			return -1;
		if (!*at && !(*at = block_for(o, k, e)))
			return -1;
		if (!o->out[k]) {
			o->out[k] = *at;
			o->out[k]->refs++;
		}
	}
	pieces_trim(x);
	return o->run->passed ? 0 : take_scratch(o, e);
}

static void *copy_of(const void *p, size_t bytes)
{
	return bytes ? xmemdup(p, bytes) : NULL;
}

/* An instruction that a hook has inserted belongs to its run: the op keeps a copy, which it may outlive. */
void op_init(struct op *o, struct exec *x, struct token_run *r)
{
	*o = (struct op){ .x = x, .prog = x->prog, .run = r, .i = r->instr, .index = r->index, .stream = r->stream };
	list_init(&o->link);
	if (!r->inserted)
		return;
	o->own = xmemdup(r->instr, sizeof(*o->own));
	o->own->piece = copy_of(o->own->piece, o->own->npiece * sizeof(*o->own->piece));
	o->own->in = copy_of(o->own->in, o->own->nin * sizeof(*o->own->in));
	o->own->out = copy_of(o->own->out, o->own->nout * sizeof(*o->own->out));
	o->i = o->own;
}

void op_uses(struct op *o, int by)
{
	for (uint32_t k = 0; k < o->i->nin; k++)
		if (o->in && o->in[k])
			o->in[k]->reading += (uint32_t)by;
	for (uint32_t k = 0; k < o->i->nout; k++) {
		if (o->out && o->out[k])
			o->out[k]->writing += (uint32_t)by;
		if (o->from && o->from[k])
			o->from[k]->reading += (uint32_t)by;
	}
}

void op_free(struct op *o)
{
	struct exec *x = o->x;

	for (uint32_t k = 0; o->in && k < o->i->nin; k++)
		block_unref(x, o->in[k]);
	for (uint32_t k = 0; o->out && k < o->i->nout; k++)
		block_unref(x, o->out[k]);
	for (uint32_t k = 0; o->from && k < o->i->nout; k++)
		block_unref(x, o->from[k]);
	if (o->work && o->scratch >= 0)
		x->scratch[o->scratch].busy = false;
	else
		big_free(o->work, o->work_bytes);
	if (o->own) {
		free(o->own->piece);
		free(o->own->in);
		free(o->own->out);
		free(o->own);
	}
	free(o->in);
	free(o->out);
	free(o->from);
	free(o->args);
	free(o->ns);
	free(o);
}

void exec_mem_done(struct exec *x)
{
	free(x->layer);
	pieces_done(x);
	for (int k = 0; k < EXEC_SCRATCH; k++)
		big_free(x->scratch[k].p, x->scratch[k].bytes);
	spill_free(x->spill);
}

/* Pieces of a model on their way into the folder of `model export`. All who have a piece say what its digest is, one of
 * them gives it, and what most say it must be; it is written when its turn has come. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "common/vote.h"
#include "run/export.h"

#define CALL_US 120000000ull            /* the first to be asked looks through its whole checkpoint */
#define REST_US 100000
#define BUSY_TRIES 200

static bool has(const struct export *x, const struct owner *o, const struct piece *p)
{
	uint64_t at = x->at[p->tensor] + p->lo;
	return o->is && export_covers(o->is, (struct extent){ at, at + p->n });
}

/* ---- answers ---- */

static void over(struct said *w, const struct err *e)
{
	struct export *x = w->p->x;
	w->open = false;
	if (e && e->code == ERR_BUSY && w->busy++ < BUSY_TRIES) {
		w->o->rest_us = env_now(x->rs->ctx.env) + REST_US;
	} else {
		w->over = true;
		w->told = !e;
		if (e) {
			w->o->is = NULL;        /* nothing more of it: others may have it */
			x->why = *e;
		}
	}
	export_soon(x);
}

static void came(struct said *w, const void *data, size_t len)
{
	struct piece *p = w->p;
	struct err e;
	if (len != p->n * sizeof(real)) {
		err_set(&e, ERR_PROTOCOL, "a piece of %zu bytes came, of %zu", len, (size_t)p->n * sizeof(real));
		over(w, &e);
		return;
	}
	buf_clear(&p->bytes);
	buf_put(&p->bytes, data, len);
	tree256_of(p->hashes, data, len, w->digest);
	over(w, NULL);
}

static void said_here(void *arg, struct buf *bytes, const struct err *e)
{
	struct said *w = arg;
	if (e)
		over(w, e);
	else if (w->gives)
		came(w, bytes->p, bytes->len);
	else {
		memcpy(w->digest, bytes->p, TREE256);
		over(w, NULL);
	}
}

static void said_there(void *arg, const struct frame *a, const struct err *error)
{
	struct said *w = arg;
	struct err e;
	w->call = NULL;
	if (error)
		over(w, error);
	else if (w->gives)
		came(w, a->blob, a->blob_len);
	else
		over(w, json_get_hex(a->json, "digest", w->digest, TREE256, &e) ? &e : NULL);
}

static void ask(struct said *w)
{
	struct piece *p = w->p;
	struct export *x = p->x;
	struct saved_ask is = { .run = x->run, .epoch = x->epoch, .lo = p->lo, .n = p->n, .look = !w->gives,
		.hashes = p->hashes };
	w->open = true;
	if (w->o->here) {
		memcpy(is.prev, x->prev, DIGEST);
		memcpy(is.tensor, x->tensor[p->tensor].name, sizeof is.tensor);
		lends_ask(x->rs->lends, &is, said_here, w);
		return;
	}
	json_t *j = json_pack("{s:s,s:I,s:o,s:s,s:I,s:I,s:b}", "run", x->hex, "epoch", (json_int_t)x->epoch, "prev",
		json_hex(x->prev, DIGEST), "tensor", x->tensor[p->tensor].name, "lo", (json_int_t)p->lo, "n",
		(json_int_t)p->n, "look", !w->gives);
	if (is.look)
		json_put_hashes(j, p->hashes);
	w->call = net_call(x->rs->ctx.net, &w->o->id, KIND_RUN_SAVED, j, NO_BLOB, CLASS_weight, CALL_US, said_there, w);
}

/* ---- a piece ---- */

static void differ(struct piece *p, const struct said *a, const struct said *b)
{
	struct export *x = p->x;
	struct err e;
	char one[9], other[9];
	err_set(&e, ERR_MISMATCH, "peers %s and %s have saved different %.80s of epoch %llu, and no COMMIT says which is "
		"right", id_short(&a->o->id, one), id_short(&b->o->id, other), x->tensor[p->tensor].name,
		(unsigned long long)x->epoch);
	export_fail(x, &e);
}

/* All have said what they have: it is here, or another gives it, or nobody can. */
static void settle(struct piece *p)
{
	struct export *x = p->x;
	const uint8_t *said[EXPORT_WORDS];
	size_t best, rival;
	for (uint32_t k = 0; k < p->nsaid; k++)
		said[k] = p->said[k].told ? p->said[k].digest : NULL;
	best = vote_most(said, p->nsaid, &rival);
	if (best == VOTE_NONE) {
		export_again(x, &x->why);
		return;
	}
	if (rival != VOTE_NONE && !PLANTED(SAVED_UNLOOKED)) {
		differ(p, &p->said[best], &p->said[rival]);
		return;
	}
	for (uint32_t k = 0; k < p->nsaid; k++) {
		struct said *w = &p->said[k];
		bool right = said[k] && (!memcmp(said[k], said[best], TREE256) || PLANTED(SAVED_UNLOOKED));
		p->ready = p->ready || (w->gives && right);
		w->gives = false;
	}
	if (!p->ready) {                        /* it gives it, after all, and may fail at that, too */
		p->said[best].gives = true;
		p->said[best].over = p->said[best].told = false;
	}
}

/* Its end: of the tensor, of a piece, of what one of the owners has. */
static bool cut(struct export *x, struct piece *p)
{
	uint64_t all = x->tensor[p->tensor].bytes / sizeof(real), at = x->at[p->tensor] + p->lo;
	uint64_t most = all - p->lo < EXPORT_PIECE ? all - p->lo : EXPORT_PIECE, n = 0;
	for (size_t i = 0; i < x->nowners; i++)
		for (uint32_t k = 0; x->owner[i].is && k < x->owner[i].is->n; k++) {
			struct extent h = x->owner[i].is->held[k];
			if (h.lo <= at && at < h.hi && h.hi - at > n)
				n = h.hi - at;
		}
	p->n = n < most ? n : most;
	return n > 0;
}

/* False: nobody has it. */
static bool begin(struct export *x, struct piece *p)
{
	size_t first = (x->tensor_next + (size_t)(x->lo_next / EXPORT_PIECE)) % x->nowners;
	*p = (struct piece){ .x = x, .tensor = x->tensor_next, .lo = x->lo_next };
	if (!cut(x, p))
		return false;
	for (size_t i = 0; i < x->nowners && p->nsaid < EXPORT_WORDS; i++) {
		struct owner *o = &x->owner[(first + i) % x->nowners];  /* each gives some */
		if (has(x, o, p))
			p->said[p->nsaid++] = (struct said){ .p = p, .o = o };
	}
	p->hashes = x->rs->ctx.hashes;
	for (uint32_t k = 0; k < p->nsaid; k++)
		if (!p->said[k].o->here)
			p->hashes = hashes_both(p->hashes, p->said[k].o->hashes);
	p->said[0].gives = true;
	for (uint32_t k = 0; k < p->nsaid; k++)
		if (p->said[k].o->here) {       /* best from here */
			p->said[0].gives = false;
			p->said[k].gives = true;
		}
	p->used = true;
	x->lo_next += p->n;
	if (x->lo_next * sizeof(real) == x->tensor[p->tensor].bytes) {
		x->tensor_next++;
		x->lo_next = 0;
	}
	return true;
}

/* Its next step; how long it rests, 0: it does not. */
static uint64_t go_on(struct export *x, struct piece *p)
{
	uint64_t now = env_now(x->rs->ctx.env), rest = 0;
	bool open = false;
	for (struct said *w = p->said; w < p->said + p->nsaid; w++) {
		open = open || !w->over;
		if (w->open || w->over)
			continue;
		if (w->o->rest_us <= now)
			ask(w);
		else if (!rest || w->o->rest_us - now < rest)
			rest = w->o->rest_us - now;
	}
	if (open)
		return rest;
	settle(p);
	return p->ready || x->step != EXPORT_TAKES ? 0 : go_on(x, p);   /* another gives it: nobody else calls */
}

static bool empty(const struct export *x, size_t tensor) { return !x->tensor[tensor].bytes; }

void export_take(struct export *x)
{
	uint64_t rest = 0, r;
	bool any = false;
	struct err e;
	for (size_t i = 0; i < EXPORT_WINDOW && x->step == EXPORT_TAKES; i++) {
		struct piece *p = &x->piece[(x->first + i) % EXPORT_WINDOW];
		while (!p->used && x->tensor_next < x->ntensors && empty(x, x->tensor_next))
			x->tensor_next++;
		if (!p->used && x->tensor_next < x->ntensors && !begin(x, p)) {
			err_set(&e, ERR_NOT_FOUND, "nobody has %.80s of epoch %llu any more", x->tensor[x->tensor_next].name,
				(unsigned long long)x->epoch);
			export_again(x, x->why.code ? &x->why : &e);
			return;
		}
		any = any || p->used;
		if (p->used && !p->ready && (r = go_on(x, p)) && (!rest || r < rest))
			rest = r;
	}
	if (x->step != EXPORT_TAKES)
		return;
	if (!any) {
		x->step = EXPORT_ENDS;
		export_work(x, EXPORT_END);
	} else if (x->piece[x->first].ready)
		export_work(x, EXPORT_PUT);
	else if (rest)
		env_after(x->rs->ctx.env, &x->timer, rest);
}

void export_put_done(struct export *x)
{
	struct piece *p = &x->piece[x->first];
	buf_free(&p->bytes);
	*p = (struct piece){ .x = x };
	x->first = (x->first + 1) % EXPORT_WINDOW;
	export_take(x);
}

void export_take_stop(struct export *x)
{
	for (size_t i = 0; i < EXPORT_WINDOW; i++) {
		struct piece *p = &x->piece[i];
		for (uint32_t k = 0; k < p->nsaid; k++) {
			if (p->said[k].call)
				net_cancel(x->rs->ctx.net, p->said[k].call);
			lends_forget(x->rs->lends, &p->said[k]);
		}
		buf_free(&p->bytes);
		*p = (struct piece){ .x = x };
	}
	x->first = x->tensor_next = 0;
	x->lo_next = 0;
}

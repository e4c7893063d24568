/* Passes over the model: what flows from piece to piece is the value that the next one begins with, what BWD takes was
 * kept by a FWD of the same piece, running statistics move once, gradients are made once and are wanted. The list is
 * walked once, in order; where a value has come from elsewhere (another peer, a VEC, an iteration before) nothing is
 * known of it and nothing is claimed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/map.h"
#include "common/mem.h"
#include "plan/check_int.h"

#define OPS_MAX 16384                   /* more than any model has */

enum what { UNKNOWN, VALUE, GRADIENT, KEPT };
struct made { enum what what; uint32_t a, b; };        /* before op a, but KEPT: all that BWD needs of ops a..b */
/* What has run of a micro-batch with some parameters: a bit for each op. */
struct ran { uint64_t *fwd, *bwd; };
struct walk { const struct plan *p; struct map *made, *ran; uint32_t nops; };

static bool has(const uint64_t *set, uint32_t o)
{
	return set[o / 64] >> o % 64 & 1;
}

static void set(uint64_t *set, uint32_t o)
{
	set[o / 64] |= 1ull << o % 64;
}

static bool piece_of(const struct plan_instr *i, uint32_t *ret_a, uint32_t *ret_b)
{
	for (uint32_t k = 1; k < i->npiece; k++)
		if (i->piece[k].a != i->piece[k - 1].b + 1)
			return false;
	if (!i->npiece)
		return false;
	*ret_a = i->piece[0].a;
	*ret_b = i->piece[i->npiece - 1].b;
	return true;
}

struct key { int64_t mb; uint64_t buf; };

static struct key key_of(const struct plan_instr *i, uint32_t buf)
{
	return (struct key){ i->mb, buf };
}

/* NULL: nothing is known of it. */
static struct made *made_of(const struct walk *w, const struct plan_instr *i, const struct plan_ref *r)
{
	struct key k = key_of(i, r->buf);

	return r->age == PLAN_EXACT && r->k == 0 ? map_get(w->made, &k, sizeof(k)) : NULL;
}

static void make(struct walk *w, const struct plan_instr *i, const struct plan_ref *r, const struct made *what)
{
	struct key k = key_of(i, r->buf);

	if (r->k != 0)
		return;
	free(map_del(w->made, &k, sizeof(k)));
	if (what && what->what != UNKNOWN)
		(void)map_put(w->made, &k, sizeof(k), xmemdup(what, sizeof(*what)));
}

static struct ran *ran_of(struct walk *w, const struct plan_instr *i)
{
	uint32_t buf = PLAN_NONE;
	struct ran *r;

	for (uint32_t k = 0; k < i->nin && buf == PLAN_NONE; k++)
		if (w->p->buf[i->in[k].buf].class == PLAN_WEIGHT)
			buf = i->in[k].buf;
	struct key key = key_of(i, buf);
	r = map_get(w->ran, &key, sizeof(key));
	if (!r) {
		r = xcalloc(1, sizeof(*r));
		r->fwd = xcalloc(w->nops / 64 + 1, sizeof(*r->fwd));
		r->bwd = xcalloc(w->nops / 64 + 1, sizeof(*r->bwd));
		(void)map_put(w->ran, &key, sizeof(key), r);
	}
	return r;
}

static int wrong(const struct walk *w, const struct plan_instr *i, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static int wrong(const struct walk *w, const struct plan_instr *i, struct err *e, const char *fmt, ...)
{
	struct buf b = { 0 };
	char why[160];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	plan_print_instr(w->p, i, &b);
	(void)err_set(e, ERR_STATE, "peer %u: %.150s: %s", w->p->me, (const char *)b.p, why);
	buf_free(&b);
	return -1;
}

/* The inputs are what the piece a..b wants. */
static int inputs(const struct walk *w, const struct plan_instr *i, uint32_t a, uint32_t b, struct err *e)
{
	for (uint32_t k = 0; k < i->nin; k++) {
		const struct made *m = made_of(w, i, &i->in[k]);

		if (m && i->in[k].role == PLAN_AS_SAVED && i->kind == PLAN_BWD && m->what == KEPT && (m->a != a || m->b != b))
			return wrong(w, i, e, "what it takes was kept of ops %u..%u", m->a, m->b);
		if (m && i->in[k].role != PLAN_AS_SAVED && m->what == VALUE && m->a != a)
			return wrong(w, i, e, "the value that it reads goes into op %u", m->a);
		if (m && i->kind == PLAN_BWD && m->what == GRADIENT && m->a != b + 1)
			return wrong(w, i, e, "the gradient that it reads is of what goes into op %u", m->a);
	}
	return 0;
}

/* A replay of op o that nothing known has run before: it may have run an iteration ago, but not if its first time is
 * still to come in this one, or nowhere in the plan. */
static bool runs_first(const struct plan *p, const struct plan_instr *i, uint32_t o)
{
	bool somewhere = false;
	uint32_t a, b;

	for (const struct plan_instr *k = p->instr; k < p->instr + p->ninstrs; k++) {
		if (k->kind != PLAN_FWD || k->replay || !piece_of(k, &a, &b) || o < a || o > b)
			continue;
		if (k > i && k->section == i->section && k->mb == i->mb)
			return false;
		somewhere = true;
	}
	return somewhere;
}

static bool read_somewhere(const struct plan *p, uint32_t buf)
{
	for (uint32_t k = 0; k < p->ninstrs; k++)
		for (uint32_t r = 0; r < p->instr[k].nin; r++)
			if (p->instr[k].in[r].buf == buf && p->instr[k].kind != PLAN_DROP)
				return true;
	return false;
}

static int forward(struct walk *w, const struct plan_instr *i, uint32_t a, uint32_t b, struct err *e)
{
	struct ran *r = ran_of(w, i);

	for (uint32_t o = a; o <= b && !i->variant[0]; o++) {
		bool before = has(r->fwd, o);

		if (before && !i->replay)
			return wrong(w, i, e, "no replay, and it has run before (running statistics would move twice): op %u", o);
		if (!before && i->replay && !runs_first(w->p, i, o))
			return wrong(w, i, e, "a replay of what has not run yet: op %u", o);
		if (!i->replay)
			set(r->fwd, o);
	}
	for (uint32_t k = 0; k < i->nout; k++) {
		bool kept = i->out[k].role == PLAN_AS_SAVED;

		make(w, i, &i->out[k], !kept ? &(struct made){ VALUE, b + 1, 0 } : i->keep != PLAN_KEEP_INPUT ?
			&(struct made){ KEPT, a, b } : &(struct made){ VALUE, a, 0 });
	}
	return 0;
}

static int backward(struct walk *w, const struct plan_instr *i, uint32_t a, uint32_t b, struct err *e)
{
	struct ran *r = ran_of(w, i);

	for (uint32_t o = a; o <= b; o++) {
		if (has(r->bwd, o))
			return wrong(w, i, e, "its gradient has been made before: op %u", o);
		set(r->bwd, o);
	}
	for (uint32_t k = 0; k < i->nout; k++) {
		bool gradient = w->p->buf[i->out[k].buf].class == PLAN_ACTIVATION_GRAD;

		if (gradient && a > 0 && !read_somewhere(w->p, i->out[k].buf))
			return wrong(w, i, e, "nobody reads the gradient that goes on to what is before op %u", a);
		make(w, i, &i->out[k], gradient ? &(struct made){ GRADIENT, a, 0 } : NULL);
	}
	return 0;
}

static int visit(struct walk *w, const struct plan_instr *i, struct err *e)
{
	uint32_t a, b;

	if ((i->kind == PLAN_FWD || i->kind == PLAN_BWD) && piece_of(i, &a, &b)) {
		if (inputs(w, i, a, b, e) < 0)
			return -1;
		return i->kind == PLAN_FWD ? forward(w, i, a, b, e) : backward(w, i, a, b, e);
	}
	for (uint32_t k = 0; k < i->nout; k++)
		make(w, i, &i->out[k], i->kind == PLAN_MOVE && k < i->nin ? made_of(w, i, &i->in[k]) : NULL);
	return 0;
}

/* Nothing is known any more. */
static void forget(struct walk *w)
{
	size_t at = 0;

	for (struct made *m; (m = map_next(w->made, &at, NULL, NULL)); )
		free(m);
	at = 0;
	for (struct ran *r; (r = map_next(w->ran, &at, NULL, NULL)); ) {
		free(r->fwd);
		free(r->bwd);
		free(r);
	}
	map_free(w->made);
	map_free(w->ran);
}

static void begin(struct walk *w)
{
	w->made = map_new(0x70617373);
	w->ran = map_new(0x72616e);
}

/* Sections lie in order; the epilogue's indexes are others than those of equal mb before it. */
int check_passes(const struct plan *p, struct err *e)
{
	struct walk w = { .p = p };
	int rc = 0;

	for (uint32_t k = 0; k < p->ninstrs; k++)
		for (uint32_t r = 0; r < p->instr[k].npiece; r++)
			w.nops = p->instr[k].piece[r].b + 1 > w.nops ? p->instr[k].piece[r].b + 1 : w.nops;
	if (w.nops > OPS_MAX)
		return err_set(e, ERR_LIMIT, "peer %u: a piece ends with op %u; no model has more than %d", p->me, w.nops - 1,
			OPS_MAX);
	begin(&w);
	for (uint32_t k = 0; k < p->ninstrs && rc == 0; k++) {
		if (k && p->instr[k].section == PLAN_EPILOGUE && p->instr[k - 1].section != PLAN_EPILOGUE) {
			forget(&w);
			begin(&w);
		}
		rc = visit(&w, &p->instr[k], e);
	}
	forget(&w);
	return rc;
}

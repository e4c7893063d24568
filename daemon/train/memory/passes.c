/* Schedules of forward and backward passes: what they hold, and how they stand in a plan. */
#include <stdio.h>
#include <stdlib.h>
#include "common/mem.h"
#include "common/planted.h"
#include "train/memory.h"

#define ALIGN(n) (((uint64_t)(n) + 63) / 64 * 64)

void passes_add(struct passes *s, enum plan_kind kind, uint32_t a, uint32_t b, enum plan_keep keep, bool replay)
{
	if (!(s->n & (s->n - 1)))       /* room for the next power of two */
		s->v = xrealloc(s->v, (s->n > 0 ? 2 * (size_t)s->n : 1) * sizeof(*s->v));
	s->v[s->n++] = (struct pass){ .kind = kind, .a = a, .b = b, .keep = keep, .replay = replay };
}

void passes_free(struct passes *s)
{
	free(s->v);
	*s = (struct passes){ 0 };
}

void passes_size(const struct profile *m, struct passes *s)
{
	for (uint32_t k = 0; k < s->n; k++)
		profile_need(m, s->v[k].a, s->v[k].b, &s->v[k].need);
}

uint32_t passes_forward_ops(const struct passes *s)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < s->n; k++)
		if (s->v[k].kind == PLAN_FWD)
			n += s->v[k].b - s->v[k].a + 1;
	return n;
}

static uint32_t turn_of(const struct passes *s)
{
	uint32_t k = 0;

	while (k < s->n && s->v[k].kind != PLAN_BWD)
		k++;
	return k;
}

/* dead[k]: what FWD k hands on is read by nobody before it is made again. The end's first value is the loss's. */
static bool *dead_of(const struct passes *s)
{
	bool *dead = xcalloc((size_t)s->n + 1, sizeof(*dead)), *read = xcalloc((size_t)(s->b - s->a) + 2, sizeof(*read));
	uint32_t turn = turn_of(s);

	for (uint32_t k = s->n; k-- > 0; ) {
		const struct pass *x = &s->v[k];

		if (k + 1 == turn)
			read[s->b + 1 - s->a] = true;
		if (x->kind == PLAN_FWD) {
			dead[k] = !read[x->b + 1 - s->a];
			read[x->b + 1 - s->a] = false;
		}
		read[x->a - s->a] = true;
	}
	free(read);
	return dead;
}

static bool forgets(const struct passes *s, const struct pass *x)
{
	return x->a > s->a && (x->kind == PLAN_BWD || x->keep == PLAN_KEEP_NONE);
}

static uint64_t work_of(const struct pass *x)
{
	return x->kind == PLAN_BWD ? x->need.work_bwd : x->keep == PLAN_KEEP_ALL ? x->need.work_fwd : x->need.work_eval;
}

static uint64_t more(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What is there, walked through in order; values by the op that they stand before. dy: the gradient that the next BWD
 * reads, which waits while what it needs is made again. */
struct held { uint64_t *x, *saved, dy, now, peak; };

static void put(struct held *h, uint64_t *slot, uint64_t bytes)
{
	h->now += bytes - *slot;
	*slot = bytes;
}

static void walk_one(struct held *h, const struct passes *s, const struct pass *x, bool dead)
{
	uint32_t a = x->a - s->a, b = x->b + 1 - s->a;

	if (x->kind == PLAN_FWD) {
		put(h, &h->x[b], ALIGN(x->need.y));
		put(h, &h->saved[a], x->keep == PLAN_KEEP_ALL && !PLANTED(SAVED_UNCOUNTED) ?
			ALIGN(x->need.saved) : h->saved[a]);
		h->peak = more(h->peak, h->now + work_of(x));
		if (dead)
			put(h, &h->x[b], 0);
	} else {                /* dx lies beside dy, and has the bytes of what it is the gradient of */
		uint64_t dx = a ? ALIGN(x->need.x) : 0;

		h->peak = more(h->peak, h->now + dx + work_of(x));
		put(h, &h->saved[a], 0);
		put(h, &h->dy, dx);
	}
	if (forgets(s, x))
		put(h, &h->x[a], 0);
}

uint64_t passes_peak(const struct passes *s, uint64_t beside, uint64_t *ret_kept)
{
	size_t n = (size_t)(s->b - s->a) + 2;
	struct held h = { .x = xcalloc(n, sizeof(uint64_t)), .saved = xcalloc(n, sizeof(uint64_t)) };
	bool *dead = dead_of(s);
	uint32_t turn = turn_of(s);

	for (uint32_t k = 0; k < s->n; k++) {
		if (k == turn) {        /* y becomes dy where it lies */
			uint64_t dy = h.x[n - 1];

			put(&h, &h.x[n - 1], 0);
			*ret_kept = h.now;
			put(&h, &h.dy, PLANTED(GRADIENT_UNCOUNTED) ? 0 : dy);
			h.now += beside;
		}
		walk_one(&h, s, &s->v[k], dead[k]);
	}
	free(dead);
	free(h.x);
	free(h.saved);
	return h.peak;
}

/* --- in a plan */

/* The value before op i, or its gradient. */
static const char *value(const struct passes *s, uint32_t i, bool gradient, char out[PLAN_NAME])
{
	if (i == s->a)
		return "batch";
	if (i > s->b)
		return gradient ? "dy" : "y";
	(void)snprintf(out, PLAN_NAME, "%c%u", gradient ? 'd' : 'x', i);
	return out;
}

static const char *saved(const struct passes *s, const struct pass *x, char out[PLAN_NAME])
{
	if (x->a == s->a && x->b == s->b)
		return "saved";
	(void)snprintf(out, PLAN_NAME, "saved%u", x->a);
	return out;
}

static void buffer(struct plan *p, const char *name, enum plan_class class, uint64_t bytes)
{
	uint32_t k = plan_find(p, name);

	if (k != PLAN_NONE && p->buf[k].bytes < ALIGN(bytes))
		p->buf[k].bytes = ALIGN(bytes);
	if (k == PLAN_NONE)
		plan_buf(p, &(struct plan_buf){ .class = class, .dtype = PLAN_F32, .bytes = ALIGN(bytes), .depth = 1,
			.per = 1 }, "%s", name);
}

void passes_buffers(struct plan *p, const struct passes *s)
{
	char name[PLAN_NAME];

	for (uint32_t k = 0; k < s->n; k++) {
		const struct pass *x = &s->v[k];
		bool back = x->kind == PLAN_BWD;

		if (x->a > s->a)
			buffer(p, value(s, x->a, false, name), PLAN_ACTIVATION, x->need.x);
		if (x->a > s->a && back)
			buffer(p, value(s, x->a, true, name), PLAN_ACTIVATION_GRAD, x->need.x);
		buffer(p, value(s, x->b + 1, back, name), back ? PLAN_ACTIVATION_GRAD : PLAN_ACTIVATION, x->need.y);
		if (back || x->keep == PLAN_KEEP_ALL)
			buffer(p, saved(s, x, name), PLAN_ACTIVATION, x->need.saved);
	}
}

static void forward(struct plan *p, const struct passes *s, const struct pass *x, bool dead, const char *w)
{
	char from[PLAN_NAME], to[PLAN_NAME], kept[PLAN_NAME];
	const char *out = value(s, x->b + 1, false, to);
	bool all = x->keep == PLAN_KEEP_ALL;
	struct plan_instr *i = plan_piece(plan_do(p, PLAN_FWD, 0, "%s%s %s -> %s%s%s", value(s, x->a, false, from),
		forgets(s, x) ? "!" : "", w, out, all ? " save:" : "", all ? saved(s, x, kept) : ""), x->a, x->b);

	i->keep = x->keep;
	i->replay = x->replay;
	i->work_bytes = work_of(x);
	if (dead)
		plan_do(p, PLAN_DROP, 0, "%s", out);
}

/* Each writes the gradients of its own ops' parameters. */
static void backward(struct plan *p, const struct passes *s, const struct pass *x, const char *w,
	const struct passes_parts *parts)
{
	char from[PLAN_NAME], dy[PLAN_NAME], dx[PLAN_NAME], kept[PLAN_NAME];
	const char *g = parts ? parts->of(parts->arg, x) : "g";
	struct plan_instr *i = plan_piece(plan_do(p, PLAN_BWD, 0, "save:%s%s %s! %s%s %s -> %s%s%s", saved(s, x, kept),
		PLANTED(REPLAY_KEPT) ? "" : "!", value(s, x->b + 1, true, dy), value(s, x->a, false, from),
		forgets(s, x) ? "!" : "", w,
		x->a > s->a ? value(s, x->a, true, dx) : "", x->a > s->a ? " " : "", g), x->a, x->b);

	i->work_bytes = work_of(x);
	if (parts)
		parts->made(parts->arg, p, x);
}

static void emit(struct plan *p, const struct passes *s, uint32_t from, uint32_t upto, const char *w,
	const struct passes_parts *parts)
{
	bool *dead = dead_of(s);

	for (uint32_t k = from; k < upto; k++)
		if (s->v[k].kind == PLAN_FWD)
			forward(p, s, &s->v[k], dead[k], w);
		else
			backward(p, s, &s->v[k], w, parts);
	free(dead);
}

void passes_forward(struct plan *p, const struct passes *s, const char *w)
{
	emit(p, s, 0, turn_of(s), w, NULL);
}

void passes_backward(struct plan *p, const struct passes *s, const char *w)
{
	emit(p, s, turn_of(s), s->n, w, NULL);
}

void passes_backward_parts(struct plan *p, const struct passes *s, const char *w, const struct passes_parts *parts)
{
	emit(p, s, turn_of(s), s->n, w, parts);
}

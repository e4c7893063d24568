/* Schedules of forward and backward passes, and what they hold. */
#include <stdlib.h>
#include "common/mem.h"
#include "common/planted.h"
#include "train/memory/passes_int.h"

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

uint32_t passes_turn(const struct passes *s)
{
	uint32_t k = 0;

	while (k < s->n && s->v[k].kind != PLAN_BWD)
		k++;
	return k;
}

/* The end's first value is the loss's. */
bool *passes_dead(const struct passes *s)
{
	bool *dead = xcalloc((size_t)s->n + 1, sizeof(*dead)), *read = xcalloc((size_t)(s->b - s->a) + 2, sizeof(*read));
	uint32_t turn = passes_turn(s);

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

bool passes_forgets(const struct passes *s, const struct pass *x)
{
	return x->a > s->a && (x->kind == PLAN_BWD || x->keep == PLAN_KEEP_NONE);
}

uint64_t passes_work(const struct pass *x)
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
		h->peak = more(h->peak, h->now + passes_work(x));
		if (dead)
			put(h, &h->x[b], 0);
	} else {                /* dx lies beside dy, and has the bytes of what it is the gradient of */
		uint64_t dx = a ? ALIGN(x->need.x) : 0;

		h->peak = more(h->peak, h->now + dx + passes_work(x));
		put(h, &h->saved[a], 0);
		put(h, &h->dy, dx);
	}
	if (passes_forgets(s, x))
		put(h, &h->x[a], 0);
}

uint64_t passes_peak(const struct passes *s, uint64_t beside, uint64_t *ret_kept)
{
	size_t n = (size_t)(s->b - s->a) + 2;
	struct held h = { .x = xcalloc(n, sizeof(uint64_t)), .saved = xcalloc(n, sizeof(uint64_t)) };
	bool *dead = passes_dead(s);
	uint32_t turn = passes_turn(s);

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

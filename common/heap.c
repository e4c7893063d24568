/* Timer heap: a binary min-heap of timers that live in their owners, ordered by (time, arming order). */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include "common/heap.h"
#include "common/mem.h"

static bool before(const struct timer *a, const struct timer *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

static void place(struct heap *h, size_t i, struct timer *t)
{
	h->v[i] = t;
	t->slot = i + 1;
}

static void sift_up(struct heap *h, size_t i, struct timer *t)
{
	for (; i > 0 && before(t, h->v[(i - 1) / 2]); i = (i - 1) / 2)
		place(h, i, h->v[(i - 1) / 2]);
	place(h, i, t);
}

static void sift_down(struct heap *h, size_t i, struct timer *t)
{
	for (size_t c; (c = 2 * i + 1) < h->n; i = c) {
		if (c + 1 < h->n && before(h->v[c + 1], h->v[c]))
			c++;
		if (!before(h->v[c], t))
			break;
		place(h, i, h->v[c]);
	}
	place(h, i, t);
}

static void settle(struct heap *h, size_t i, struct timer *t)
{
	if (i > 0 && before(t, h->v[(i - 1) / 2]))
		sift_up(h, i, t);
	else
		sift_down(h, i, t);
}

static void take_out(struct heap *h, struct timer *t)
{
	size_t i = t->slot - 1;
	struct timer *last = h->v[--h->n];

	t->slot = 0;
	t->at_us = 0;
	if (last != t)
		settle(h, i, last);
}

void heap_init(struct heap *h)
{
	*h = (struct heap){0};
}

void heap_done(struct heap *h)
{
	for (size_t i = 0; i < h->n; i++)
		h->v[i]->slot = h->v[i]->at_us = 0;
	free(h->v);
	*h = (struct heap){0};
}

void heap_set(struct heap *h, struct timer *t, uint64_t at_us)
{
	assert(!t->slot || (t->slot <= h->n && h->v[t->slot - 1] == t));
	if (!at_us) {
		if (t->slot)
			take_out(h, t);
		t->at_us = 0;
		return;
	}
	t->at_us = at_us;
	t->seq = ++h->seq;
	if (t->slot) {
		settle(h, t->slot - 1, t);
		return;
	}
	if (h->n == h->cap) {
		h->cap = h->cap ? 2 * h->cap : 32;
		h->v = xrealloc(h->v, h->cap * sizeof *h->v);
	}
	sift_up(h, h->n++, t);
}

struct timer *heap_peek(const struct heap *h)
{
	return h->n ? h->v[0] : NULL;
}

struct timer *heap_pop(struct heap *h)
{
	struct timer *t = heap_peek(h);

	if (t)
		take_out(h, t);
	return t;
}

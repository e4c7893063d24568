/* Timer heap: a binary min-heap of timers that live in their owners, ordered by (time, arming order). */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include "common/heap.h"
#include "common/mem.h"

static bool before(const struct heap_slot *a, const struct heap_slot *b)
{
	return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

static void place(struct heap *h, size_t i, struct heap_slot x)
{
	h->v[i] = x;
	x.t->slot = i + 1;
}

static void sift_up(struct heap *h, size_t i, struct heap_slot x)
{
	for (; i > 0 && before(&x, &h->v[(i - 1) / 2]); i = (i - 1) / 2)
		place(h, i, h->v[(i - 1) / 2]);
	place(h, i, x);
}

static void sift_down(struct heap *h, size_t i, struct heap_slot x)
{
	for (size_t c; (c = 2 * i + 1) < h->n; i = c) {
		if (c + 1 < h->n && before(&h->v[c + 1], &h->v[c]))
			c++;
		if (!before(&h->v[c], &x))
			break;
		place(h, i, h->v[c]);
	}
	place(h, i, x);
}

static void settle(struct heap *h, size_t i, struct heap_slot x)
{
	if (i > 0 && before(&x, &h->v[(i - 1) / 2]))
		sift_up(h, i, x);
	else
		sift_down(h, i, x);
}

static void take_out(struct heap *h, struct timer *t)
{
	size_t i = t->slot - 1;
	struct heap_slot last = h->v[--h->n];

	t->slot = 0;
	t->at_us = 0;
	if (last.t != t)
		settle(h, i, last);
}

void heap_init(struct heap *h)
{
	*h = (struct heap){0};
}

void heap_done(struct heap *h)
{
	for (size_t i = 0; i < h->n; i++)
		h->v[i].t->slot = h->v[i].t->at_us = 0;
	free(h->v);
	*h = (struct heap){0};
}

void heap_set(struct heap *h, struct timer *t, uint64_t at_us)
{
	assert(!t->slot || (t->slot <= h->n && h->v[t->slot - 1].t == t));
	if (!at_us) {
		if (t->slot)
			take_out(h, t);
		t->at_us = 0;
		return;
	}
	t->at_us = at_us;
	t->seq = ++h->seq;
	if (t->slot) {
		settle(h, t->slot - 1, (struct heap_slot){ at_us, t->seq, t });
		return;
	}
	if (h->n == h->cap) {
		h->cap = h->cap ? 2 * h->cap : 32;
		h->v = xrealloc(h->v, h->cap * sizeof *h->v);
	}
	sift_up(h, h->n++, (struct heap_slot){ at_us, t->seq, t });
}

struct timer *heap_peek(const struct heap *h)
{
	return h->n ? h->v[0].t : NULL;
}

struct timer *heap_pop(struct heap *h)
{
	struct timer *t = heap_peek(h);

	if (t)
		take_out(h, t);
	return t;
}

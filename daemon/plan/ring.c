/* The rings: which slot a reference means, what a slot holds, who pins it, how many bytes are taken. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "plan/tokens_int.h"

struct ring *ring_of(const struct tokens *t, uint32_t stream, uint32_t buf)
{
	return &t->ring[(size_t)(t->plan->buf[buf].shared ? 0 : stream) * t->plan->nbufs + buf];
}

struct token_slot *ring_slot(const struct tokens *t, const struct token_bind *b)
{
	return &ring_of(t, b->stream, b->buf)->slot[b->slot];
}

/* The journal is a second copy of the committed value. */
uint64_t ring_bytes(const struct plan_buf *b)
{
	return b->journal ? 2 * b->bytes : b->bytes;
}

static void count(struct tokens *t, uint32_t stream, uint32_t buf, uint32_t slot, bool taken)
{
	const struct plan_buf *b = &t->plan->buf[buf];
	struct ring *r = ring_of(t, stream, buf);
	if (taken) {
		t->used[b->tier] += ring_bytes(b);
		if (t->used[b->tier] > t->peak[b->tier])
			t->peak[b->tier] = t->used[b->tier];
		if (++r->live > t->peak_values[buf])
			t->peak_values[buf] = r->live;
	} else {
		t->used[b->tier] -= ring_bytes(b);
		r->live--;
	}
	if (t->hooks.memory)
		t->hooks.memory(t->hooks.arg, stream, buf, slot, taken);
}

void ring_take(struct tokens *t, const struct token_bind *b)
{
	struct token_slot *s = ring_slot(t, b);
	if (s->bytes)
		return;
	s->bytes = true;
	count(t, b->stream, b->buf, b->slot, true);
}

void ring_move(struct tokens *t, const struct token_bind *from, const struct token_bind *to)
{
	struct ring *r = ring_of(t, to->stream, to->buf);
	ring_slot(t, from)->bytes = false;
	ring_slot(t, to)->bytes = true;
	ring_of(t, from->stream, from->buf)->live--;
	if (++r->live > t->peak_values[to->buf])
		t->peak_values[to->buf] = r->live;
	if (t->hooks.moved) {
		t->hooks.moved(t->hooks.arg, from, to);
	} else if (t->hooks.memory) {
		t->hooks.memory(t->hooks.arg, from->stream, from->buf, from->slot, false);
		t->hooks.memory(t->hooks.arg, to->stream, to->buf, to->slot, true);
	}
}

void rings_init(struct tokens *t)
{
	const struct plan *p = t->plan;
	t->ring = xcalloc((size_t)t->nstreams * p->nbufs + 1, sizeof *t->ring);
	t->peak_values = xcalloc(p->nbufs + 1, sizeof *t->peak_values);
	for (uint32_t s = 0; s < t->nstreams; s++)
		for (uint32_t i = 0; i < p->nbufs; i++) {
			const struct plan_buf *b = &p->buf[i];
			if (b->shared && s > 0)
				continue;
			struct ring *r = ring_of(t, s, i);
			r->depth = plan_depth(b);
			r->first = b->shared ? 0 : plan_key(p, b, (int64_t)p->first);
			r->slot = xcalloc(r->depth, sizeof *r->slot);
			for (uint32_t k = 0; k < r->depth; k++)
				r->slot[k].version = -1;
			if (!b->initial)
				continue;
			r->slot[0].state = SLOT_FULL;
			r->slot[0].key = r->slot[0].claim = r->first;
			r->slot[0].claimed = true;
			ring_take(t, &(struct token_bind){ .buf = i, .slot = 0, .stream = s });
		}
}

void rings_free(struct tokens *t)
{
	for (size_t i = 0; t->ring && i < (size_t)t->nstreams * t->plan->nbufs; i++) {
		for (uint32_t k = 0; t->ring[i].slot && k < t->ring[i].depth; k++) {
			free(t->ring[i].slot[k].from);
			free(t->ring[i].slot[k].pin);
		}
		free(t->ring[i].slot);
	}
	free(t->ring);
	free(t->peak_values);
}

static int64_t newest_key(const struct ring *r)
{
	int64_t key = INT64_MIN;
	for (uint32_t k = 0; k < r->depth; k++)
		if (r->slot[k].state == SLOT_FULL && r->slot[k].key > key)
			key = r->slot[k].key;
	return key;
}

/* The values of one buffer move on; those of state are numbered anew: the newest is the one "before the program". Of
 * what was abandoned the memory moves on. */
static void carry(struct tokens *t, uint32_t stream, uint32_t buf, const struct ring *from)
{
	struct ring *r = ring_of(t, stream, buf);
	const struct plan_buf *b = &t->plan->buf[buf];
	int64_t newest = newest_key(from);
	if (newest == INT64_MIN && b->initial)
		return;
	int64_t shift = b->initial && !b->shared ? r->first - newest : 0;
	if (b->shared)
		r->first = from->first;
	for (uint32_t k = 0; k < r->depth; k++) {
		struct token_bind at = { .buf = buf, .slot = k, .stream = stream };
		struct token_slot *s = &r->slot[k];
		if (from->slot[k].state != SLOT_FULL && from->slot[k].state != SLOT_EVICTED) {
			bool kept = from->slot[k].state == SLOT_MISSING && from->slot[k].bytes;
			if (s->bytes && !kept)
				ring_release(t, &at, false);
			else if (kept)
				ring_take(t, &at);
			s->state = SLOT_EMPTY;
			s->claimed = false;
			continue;
		}
		s->state = from->slot[k].state;
		s->key = s->claim = from->slot[k].key + shift;
		s->version = from->slot[k].version;
		s->remote = from->slot[k].remote;
		s->claimed = true;
		ring_senders(s, from->slot[k].nfrom, from->slot[k].from, from->slot[k].parts);
		if (s->state == SLOT_FULL)
			ring_take(t, &at);
		else if (s->bytes)
			ring_release(t, &at, true);
	}
}

void rings_carry(struct tokens *t, const struct tokens *before)
{
	assert(before->running == 0);
	for (uint32_t i = 0; i < t->plan->nbufs; i++) {
		const struct plan_buf *b = &t->plan->buf[i];
		uint32_t old = plan_find(before->plan, b->name);
		if (old == PLAN_NONE)
			continue;
		const struct plan_buf *o = &before->plan->buf[old];
		if (!plan_lives_on(before->plan, o, t->plan, b))
			continue;
		for (uint32_t s = 0; s < t->nstreams && s < before->nstreams; s++)
			if (s == 0 || !b->shared)
				carry(t, s, i, ring_of(before, s, old));
	}
}

static uint32_t claimed(const struct ring *r, int64_t key)
{
	for (uint32_t k = 0; k < r->depth; k++)
		if (r->slot[k].claimed && r->slot[k].claim == key)
			return k;
	return PLAN_NONE;
}

void ring_bind_in(struct tokens *t, const struct plan_ref *r, int64_t index, struct token_bind *b)
{
	const struct plan_buf *x = &t->plan->buf[r->buf];
	struct ring *ring = ring_of(t, b->stream, r->buf);
	b->buf = r->buf;
	b->slot = PLAN_NONE;
	b->key = plan_key(t->plan, x, index);
	if (r->age != PLAN_EXACT || x->shared)
		return;
	b->key -= r->k;
	if (x->initial && b->key < ring->first)
		b->key = ring->first;
	b->slot = claimed(ring, b->key);
}

/* For a new key: the slot that has been free for longest, so that its writer need not wait for the last reader of the
 * value before; else over the oldest value. */
static uint32_t place(const struct ring *r)
{
	uint32_t best = 0;
	for (uint32_t k = 1; k < r->depth; k++) {
		const struct token_slot *s = &r->slot[k], *b = &r->slot[best];
		if (s->claimed != b->claimed ? !s->claimed : s->claimed ? s->claim < b->claim : s->freed < b->freed)
			best = k;
	}
	return best;
}

void ring_bind_out(struct tokens *t, const struct plan_ref *r, int64_t index, struct token_bind *b)
{
	const struct plan_buf *x = &t->plan->buf[r->buf];
	struct ring *ring = ring_of(t, b->stream, r->buf);
	b->buf = r->buf;
	b->slot = PLAN_NONE;
	b->key = plan_key(t->plan, x, index) - r->k;
	if (x->shared)
		return;
	b->slot = claimed(ring, b->key);
	if (b->slot == PLAN_NONE)
		b->slot = place(ring);
	ring->slot[b->slot].claimed = true;
	ring->slot[b->slot].claim = b->key;
}

void ring_unclaim(struct tokens *t, const struct token_bind *b)
{
	/* an output of the same instruction may have taken the place of what it drops */
	if (b->slot == PLAN_NONE || ring_slot(t, b)->claim != b->key)
		return;
	ring_slot(t, b)->claimed = false;
	ring_slot(t, b)->freed = ++t->seq;
}

bool ring_bind_newest(struct tokens *t, const struct plan_ref *r, int64_t index, struct token_bind *b)
{
	const struct plan_buf *x = &t->plan->buf[r->buf];
	const struct ring *ring = ring_of(t, b->stream, r->buf);
	int64_t key = newest_key(ring), oldest = plan_key(t->plan, x, index) - r->k;
	if (key == INT64_MIN)
		return false;
	if (r->age == PLAN_NEWEST && r->k != INT32_MAX && !x->shared) {
		if (x->initial && oldest < ring->first)
			oldest = ring->first;
		if (key < oldest && !PLANTED(TOKEN_TOO_OLD))
			return false;
	}
	b->key = key;
	b->slot = tokens_find(t, b->stream, r->buf, key);
	return true;
}

bool ring_bind_same(struct tokens *t, const struct token_bind *base, struct token_bind *b)
{
	const struct token_slot *s = ring_slot(t, base);
	for (uint32_t i = 0; i < s->npins; i++)
		if (s->pin[i].buf == b->buf) {
			b->slot = s->pin[i].slot;
			b->key = s->pin[i].key;
			return true;
		}
	b->key = s->version;
	b->slot = tokens_find(t, b->stream, b->buf, s->version);
	return b->slot != PLAN_NONE;
}

/* One writer at a time; the next key goes to an empty slot, else over the oldest value that nobody needs. */
bool ring_bind_shared_out(struct tokens *t, const struct plan_ref *r, struct token_bind *b)
{
	struct ring *ring = ring_of(t, 0, r->buf);
	int64_t newest = newest_key(ring);
	uint32_t best = PLAN_NONE;
	b->key = newest == INT64_MIN ? ring->first : r->k < 0 ? newest + 1 : newest;
	for (uint32_t k = 0; k < ring->depth; k++) {
		struct token_slot *s = &ring->slot[k];
		if (s->state == SLOT_WRITING)
			return false;
		if (s->state == SLOT_FULL && s->key == b->key) {
			b->slot = k;
			return s->readers == 0;
		}
		if (s->readers > 0 || s->pins > 0)
			continue;
		if (best == PLAN_NONE || s->state == SLOT_EMPTY ||
			(ring->slot[best].state != SLOT_EMPTY && s->key < ring->slot[best].key))
			best = k;
	}
	b->slot = best;
	return best != PLAN_NONE;
}

void ring_forget(struct tokens *t, struct token_slot *s)
{
	for (uint32_t i = 0; i < s->npins; i++)
		ring_slot(t, &s->pin[i])->pins--;
	s->npins = 0;
	free(s->pin);
	s->pin = NULL;
	free(s->from);
	s->from = NULL;
	s->nfrom = s->parts = 0;
}

void ring_pin(struct tokens *t, struct token_slot *s, const struct token_bind *weight)
{
	s->pin = xrealloc(s->pin, (s->npins + 1) * sizeof *s->pin);
	s->pin[s->npins++] = *weight;
	ring_slot(t, weight)->pins++;
}

void ring_senders(struct token_slot *s, uint32_t n, const struct token_from *from, uint32_t parts)
{
	struct token_from *copy = n > 0 ? xmemdup(from, n * sizeof *from) : NULL;
	free(s->from);
	s->from = copy;
	s->nfrom = n;
	s->parts = parts;
}

void ring_release(struct tokens *t, const struct token_bind *b, bool evict)
{
	struct token_slot *s = ring_slot(t, b);
	s->state = evict ? SLOT_EVICTED : SLOT_EMPTY;
	if (!evict)
		ring_forget(t, s);
	if (s->bytes) {
		s->bytes = false;
		count(t, b->stream, b->buf, b->slot, false);
	}
}

void ring_missing(struct tokens *t, const struct token_bind *b, bool keeps_memory)
{
	struct token_slot *s = ring_slot(t, b);
	ring_forget(t, s);
	s->state = SLOT_MISSING;
	s->version = -1;
	if (s->bytes && !keeps_memory) {
		s->bytes = false;
		count(t, b->stream, b->buf, b->slot, false);
	}
}

uint32_t tokens_find(const struct tokens *t, uint32_t stream, uint32_t buf, int64_t key)
{
	const struct ring *r = ring_of(t, stream, buf);
	for (uint32_t k = 0; k < r->depth; k++)
		if (r->slot[k].state == SLOT_FULL && r->slot[k].key == key)
			return k;
	return PLAN_NONE;
}

uint32_t tokens_newest(const struct tokens *t, uint32_t stream, uint32_t buf)
{
	int64_t key = newest_key(ring_of(t, stream, buf));
	return key == INT64_MIN ? PLAN_NONE : tokens_find(t, stream, buf, key);
}

const struct token_slot *tokens_slot(const struct tokens *t, uint32_t stream, uint32_t buf, uint32_t slot)
{
	struct ring *r = ring_of(t, stream, buf);
	return slot < r->depth ? &r->slot[slot] : NULL;
}

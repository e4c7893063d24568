/* Kademlia's routing table: buckets by shared prefix, least recently seen first. */
#include "dht/table.h"
#include <assert.h>
#include <string.h>
#include <stdlib.h>
#include "common/mem.h"

void table_init(struct table *t, const struct id *self)
{
	*t = (struct table){ .self = *self };
}

void table_done(struct table *t)
{
	for (int i = 0; i < 256; i++)
		free(t->bucket[i]);
	memset(t->bucket, 0, sizeof t->bucket);
	t->n = 0;
}

static struct bucket *bucket_of(const struct table *t, const struct id *id)
{
	int bits = id_prefix_bits(&t->self, id);
	return bits >= 256 ? NULL : t->bucket[bits];
}

static int index_in(const struct dnode *v, size_t n, const struct id *id)
{
	for (size_t i = 0; i < n; i++)
		if (id_eq(&v[i].id, id))
			return (int)i;
	return -1;
}

static void take_out(struct dnode *v, uint8_t *n, int at)
{
	memmove(v + at, v + at + 1, sizeof *v * (size_t)(*n - at - 1));
	(*n)--;
}

/* Puts a node among the spares, newest last; the oldest spare makes room. */
static void spare_put(struct bucket *b, const struct dnode *node)
{
	int at = index_in(b->spare, b->spares, &node->id);
	if (at >= 0)
		take_out(b->spare, &b->spares, at);
	else if (b->spares == TABLE_SPARE)
		take_out(b->spare, &b->spares, 0);
	b->spare[b->spares++] = *node;
}

bool table_seen(struct table *t, const struct id *id, const struct endpoint *at, uint64_t now_us)
{
	int bits = id_prefix_bits(&t->self, id);
	if (bits >= 256)
		return false;
	if (!t->bucket[bits])
		t->bucket[bits] = xcalloc(1, sizeof *t->bucket[bits]);
	struct bucket *b = t->bucket[bits];
	struct dnode node = { .id = *id, .at = *at, .seen_us = now_us };
	b->touched_us = now_us;
	int i = index_in(b->live, b->n, id);
	if (i >= 0) {
		take_out(b->live, &b->n, i);
		b->live[b->n++] = node;
		return false;
	}
	if (b->n == TABLE_BUCKET) {
		spare_put(b, &node);
		return false;
	}
	int s = index_in(b->spare, b->spares, id);
	if (s >= 0)
		take_out(b->spare, &b->spares, s);
	b->live[b->n++] = node;
	t->n++;
	return true;
}

void table_remove(struct table *t, const struct id *id)
{
	struct bucket *b = bucket_of(t, id);
	int i = b ? index_in(b->live, b->n, id) : -1;
	if (i < 0)
		return;
	take_out(b->live, &b->n, i);
	t->n--;
	if (b->spares) {        /* the spare heard from last */
		b->live[b->n++] = b->spare[--b->spares];
		t->n++;
	}
}

bool table_failed(struct table *t, const struct id *id)
{
	struct bucket *b = bucket_of(t, id);
	int i = b ? index_in(b->live, b->n, id) : -1;
	if (i < 0 || ++b->live[i].fails < TABLE_FAILS_MAX)
		return false;
	table_remove(t, id);
	return true;
}

const struct dnode *table_find(const struct table *t, const struct id *id)
{
	const struct bucket *b = bucket_of(t, id);
	int i = b ? index_in(b->live, b->n, id) : -1;
	return i < 0 ? NULL : &b->live[i];
}

static void keep_nearest(const struct id *target, struct dnode *out, size_t *n, size_t max, const struct dnode *c)
{
	size_t at = *n;
	while (at > 0 && id_closer(target, &c->id, &out[at - 1].id) < 0)
		at--;
	if (at >= max)
		return;
	size_t tail = *n < max ? *n - at : max - 1 - at;
	memmove(out + at + 1, out + at, sizeof *out * tail);
	out[at] = *c;
	if (*n < max)
		(*n)++;
}

/* Buckets hold ids in XOR shells: those at or deeper than the target's own shell first, then outward; a shell is only
 * opened while fewer than n have been found nearer. */
size_t table_nearest(const struct table *t, const struct id *target, struct dnode *out, size_t n)
{
	size_t found = 0;
	if (!n)
		return 0;
	int own = id_prefix_bits(&t->self, target);
	for (int i = own < 256 ? own : 255; i < 256; i++)
		for (int k = 0; t->bucket[i] && k < t->bucket[i]->n; k++)
			keep_nearest(target, out, &found, n, &t->bucket[i]->live[k]);
	for (int i = (own < 256 ? own : 255) - 1; i >= 0 && found < n; i--)
		for (int k = 0; t->bucket[i] && k < t->bucket[i]->n; k++)
			keep_nearest(target, out, &found, n, &t->bucket[i]->live[k]);
	return found;
}

int table_stale(const struct table *t, uint64_t before_us)
{
	int deepest = -1;
	for (int i = 0; i < 256; i++)
		if (t->bucket[i] && t->bucket[i]->n)
			deepest = i;
	for (int i = 0; i <= deepest; i++)
		if (!t->bucket[i] || t->bucket[i]->touched_us < before_us)
			return i;
	return -1;
}

size_t table_buckets(const struct table *t)
{
	size_t n = 0;
	for (int i = 0; i < 256; i++)
		n += t->bucket[i] && t->bucket[i]->n;
	return n;
}

void table_each(const struct table *t, void (*fn)(void *arg, const struct dnode *n), void *arg)
{
	for (int i = 0; i < 256; i++)
		for (int k = 0; t->bucket[i] && k < t->bucket[i]->n; k++)
			fn(arg, &t->bucket[i]->live[k]);
}

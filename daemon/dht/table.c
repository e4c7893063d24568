/* Kademlia's routing table: a tree of buckets, least recently seen first. A bucket without children is a leaf. */
#include "dht/table.h"
#include <assert.h>
#include <string.h>
#include <stdlib.h>
#include "common/mem.h"

static int bit_of(const struct id *id, unsigned at)
{
	return id->b[at / 8] >> (7 - at % 8) & 1;
}

void table_init(struct table *t, const struct id *self)
{
	*t = (struct table){ .self = *self, .split = TABLE_SPLIT, .bucket = TABLE_BUCKET,
		.buckets = 1 };
}

static void leaf_free(struct bucket *b)
{
	for (int i = 0; i < 2; i++)
		if (b->child[i]) {
			leaf_free(b->child[i]);
			free(b->child[i]);
		}
	free(b->node);
}

void table_done(struct table *t)
{
	leaf_free(&t->root);
	table_init(t, &t->self);
}

static struct bucket *leaf_of(const struct table *t, const struct id *id)
{
	const struct bucket *b = &t->root;
	while (b->child[0])
		b = b->child[bit_of(id, b->depth)];
	return (struct bucket *)(uintptr_t)b;
}

static int index_in(const struct dnode *v, size_t n, const struct id *id)
{
	for (size_t i = 0; i < n; i++)
		if (id_eq(&v[i].id, id))
			return (int)i;
	return -1;
}

static int live_index(const struct bucket *b, const struct id *id)
{
	return index_in(b->node, b->n, id);
}

static struct dnode *spare_of(const struct table *t, struct bucket *b)
{
	return b->node + t->bucket;
}

static void take_out(struct dnode *v, uint8_t *n, int at)
{
	memmove(v + at, v + at + 1, sizeof *v * (size_t)(*n - at - 1));
	(*n)--;
}

/* Puts a node among the spares, newest last; the oldest spare makes room. */
static void spare_put(const struct table *t, struct bucket *b, const struct dnode *node)
{
	struct dnode *spare = spare_of(t, b);
	int at = index_in(spare, b->spares, &node->id);
	if (at >= 0)
		take_out(spare, &b->spares, at);
	else if (b->spares == TABLE_SPARE)
		take_out(spare, &b->spares, 0);
	spare[b->spares++] = *node;
}

static bool may_split(const struct table *t, const struct bucket *b)
{
	if (b->depth >= 255)
		return false;
	return b->depth % t->split || (unsigned)id_prefix_bits(&t->self, &b->node[0].id) >= b->depth;
}

static void leaf_put(const struct table *t, struct bucket *b, const struct dnode *node)
{
	if (!b->node)
		b->node = xcalloc(t->bucket + TABLE_SPARE, sizeof *b->node);
	if (b->n < t->bucket)
		b->node[b->n++] = *node;
	else
		spare_put(t, b, node);
}

/* Every node goes to the half that its next bit names; spares are live where there is room now. */
static void split(struct table *t, struct bucket *b)
{
	struct dnode *node = b->node;
	unsigned at = b->depth;
	t->n -= b->n;
	for (int i = 0; i < 2; i++) {
		b->child[i] = xcalloc(1, sizeof *b->child[i]);
		b->child[i]->depth = (uint16_t)(at + 1);
		b->child[i]->touched_us = b->touched_us;
	}
	for (int i = 0; i < b->n; i++)
		leaf_put(t, b->child[bit_of(&node[i].id, at)], &node[i]);
	for (int i = 0; i < b->spares; i++)
		leaf_put(t, b->child[bit_of(&node[t->bucket + i].id, at)], &node[t->bucket + i]);
	t->n += (size_t)b->child[0]->n + b->child[1]->n;
	t->buckets++;
	free(node);
	b->node = NULL;
	b->n = b->spares = 0;
}

bool table_seen(struct table *t, const struct id *id, const struct endpoint *at, uint64_t now_us)
{
	struct dnode node = { .id = *id, .at = *at, .seen_us = now_us };
	struct bucket *b = leaf_of(t, id);
	if (id_eq(&t->self, id))
		return false;
	b->touched_us = now_us;
	int i = live_index(b, id);
	if (i >= 0) {
		bool moved = memcmp(&b->node[i].at, at, sizeof *at) != 0;
		t->changes += moved;
		node.saved = b->node[i].saved && !moved;
		take_out(b->node, &b->n, i);
		b->node[b->n++] = node;
		return false;
	}
	while (b->n == t->bucket && may_split(t, b)) {
		split(t, b);
		b = leaf_of(t, id);
	}
	int s = b->node ? index_in(spare_of(t, b), b->spares, id) : -1;
	if (s >= 0)
		take_out(spare_of(t, b), &b->spares, s);
	leaf_put(t, b, &node);
	if (b->spares && id_eq(&spare_of(t, b)[b->spares - 1].id, id))
		return false;
	t->n++;
	t->changes++;
	return true;
}

void table_remove(struct table *t, const struct id *id)
{
	struct bucket *b = leaf_of(t, id);
	int i = live_index(b, id);
	if (i < 0)
		return;
	take_out(b->node, &b->n, i);
	t->n--;
	t->changes++;
	t->removals++;
	if (b->spares) {        /* the spare heard from last */
		b->node[b->n++] = spare_of(t, b)[--b->spares];
		t->n++;
	}
}

bool table_failed(struct table *t, const struct id *id)
{
	struct bucket *b = leaf_of(t, id);
	int i = live_index(b, id);
	if (i < 0 || ++b->node[i].fails < TABLE_FAILS_MAX)
		return false;
	table_remove(t, id);
	return true;
}

const struct dnode *table_find(const struct table *t, const struct id *id)
{
	const struct bucket *b = leaf_of(t, id);
	int i = live_index(b, id);
	return i < 0 ? NULL : &b->node[i];
}

const struct dnode *table_oldest(const struct table *t, const struct id *id)
{
	const struct bucket *b = leaf_of(t, id);
	return b->n && b->spares ? &b->node[0] : NULL;
}

/* The nodes of one bucket, nearest first, behind those of nearer ones. */
static void sort_in(const struct bucket *b, const struct id *target, struct dnode *out, size_t *found, size_t max)
{
	const struct dnode *v[UINT8_MAX];
	size_t n = 0;
	for (int k = 0; k < b->n; k++) {
		size_t at = n++;
		for (; at > 0 && id_closer(target, &b->node[k].id, &v[at - 1]->id) < 0; at--)
			v[at] = v[at - 1];
		v[at] = &b->node[k];
	}
	for (size_t k = 0; k < n && *found < max; k++)
		out[(*found)++] = *v[k];
}

/* Everything on the target's side of a branch is nearer than everything on the other. */
static void nearest(const struct bucket *b, const struct id *target, struct dnode *out, size_t *found, size_t n)
{
	if (!b->child[0]) {
		sort_in(b, target, out, found, n);
		return;
	}
	int side = bit_of(target, b->depth);
	nearest(b->child[side], target, out, found, n);
	if (*found < n)
		nearest(b->child[!side], target, out, found, n);
}

size_t table_nearest(const struct table *t, const struct id *target, struct dnode *out, size_t n)
{
	size_t found = 0;
	if (n)
		nearest(&t->root, target, out, &found, n);
	return found;
}

static uint64_t touched(const struct bucket *b)
{
	if (!b->child[0])
		return b->touched_us;
	uint64_t x = touched(b->child[0]), y = touched(b->child[1]);
	return x > y ? x : y;
}

bool table_stale(struct table *t, uint64_t before_us, uint64_t now_us, struct id *ret_prefix, unsigned *ret_bits)
{
	struct bucket *b = &t->root, *stale = NULL;
	*ret_prefix = t->self;
	if (!t->n)
		return false;
	for (; b->child[0]; b = b->child[bit_of(&t->self, b->depth)]) {
		struct bucket *beside = b->child[!bit_of(&t->self, b->depth)];
		if (touched(beside) < before_us) {
			ret_prefix->b[b->depth / 8] ^= (uint8_t)(1u << (7 - b->depth % 8));
			stale = beside;
			break;
		}
	}
	if (!stale && b->touched_us < before_us)
		stale = b;
	if (!stale)
		return false;
	*ret_bits = stale->depth;
	while (stale->child[0])                 /* one leaf stands for all of them */
		stale = stale->child[0];
	stale->touched_us = now_us;
	return true;
}

size_t table_buckets(const struct table *t)
{
	return t->buckets;
}

static void each(struct bucket *b, void (*fn)(void *arg, struct dnode *n), void *arg)
{
	for (int k = 0; k < b->n; k++)
		fn(arg, &b->node[k]);
	for (int i = 0; i < 2 && b->child[0]; i++)
		each(b->child[i], fn, arg);
}

void table_each(struct table *t, void (*fn)(void *arg, struct dnode *n), void *arg)
{
	each(&t->root, fn, arg);
}

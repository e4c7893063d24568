/* Ordered map: entries in insertion order, and a table of indices into them probed linearly (the layout of Python's
 * dict). Iteration never depends on addresses or on the hash key, so that a simulated run replays. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/map.h"
#include "common/mem.h"

struct entry { void *key, *value; size_t klen; uint64_t hash; };   /* value == NULL: deleted */

struct map {
	uint64_t k0, k1;
	struct entry *v;
	size_t n, cap, live;                /* entries used, room, not deleted */
	uint32_t *slots;                    /* entry index + 1; 0 = free; deleted entries keep their slot until a rebuild */
	size_t nslots;                      /* a power of two, over 4/3 of cap */
};

struct map *map_new(uint64_t hash_key)
{
	struct map *m = xcalloc(1, sizeof *m);

	m->k0 = hash_key;
	m->k1 = ~hash_key;
	return m;
}

void map_free(struct map *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->n; i++)
		free(m->v[i].key);
	free(m->v);
	free(m->slots);
	free(m);
}

size_t map_len(const struct map *m)
{
	return m->live;
}

static struct entry *find(const struct map *m, const void *key, size_t klen, uint64_t hash)
{
	size_t mask = m->nslots - 1;

	if (!m->nslots)
		return NULL;
	for (size_t s = hash & mask; m->slots[s]; s = (s + 1) & mask) {
		struct entry *x = &m->v[m->slots[s] - 1];

		if (x->value && x->hash == hash && x->klen == klen && !memcmp(x->key, key, klen))
			return x;
	}
	return NULL;
}

static void insert_slot(struct map *m, size_t index)
{
	size_t mask = m->nslots - 1, s = m->v[index].hash & mask;

	while (m->slots[s])
		s = (s + 1) & mask;
	m->slots[s] = (uint32_t)index + 1;
}

/* Drops the deleted entries, makes room for twice the living ones, and builds the slots anew. */
static void rebuild(struct map *m)
{
	size_t k = 0;

	for (size_t i = 0; i < m->n; i++)
		if (m->v[i].value)
			m->v[k++] = m->v[i];
	m->n = k;
	m->cap = k < 4 ? 8 : 2 * k;
	assert(m->cap < UINT32_MAX);
	m->v = xrealloc(m->v, m->cap * sizeof *m->v);
	for (m->nslots = 16; m->nslots < m->cap + m->cap / 2; m->nslots *= 2)
		;
	free(m->slots);
	m->slots = xcalloc(m->nslots, sizeof *m->slots);
	for (size_t i = 0; i < m->n; i++)
		insert_slot(m, i);
}

void *map_get(const struct map *m, const void *key, size_t klen)
{
	struct entry *x = m->live ? find(m, key, klen, siphash13(m->k0, m->k1, key, klen)) : NULL;

	return x ? x->value : NULL;
}

void *map_put(struct map *m, const void *key, size_t klen, void *value)
{
	uint64_t hash = siphash13(m->k0, m->k1, key, klen);
	struct entry *x = find(m, key, klen, hash);

	assert(value);
	if (x) {
		void *old = x->value;

		x->value = value;
		return old;
	}
	if (m->n == m->cap)
		rebuild(m);
	m->v[m->n] = (struct entry){ xmemdup(key, klen), value, klen, hash };
	insert_slot(m, m->n++);
	m->live++;
	return NULL;
}

void *map_del(struct map *m, const void *key, size_t klen)
{
	struct entry *x = m->live ? find(m, key, klen, siphash13(m->k0, m->k1, key, klen)) : NULL;
	void *old = x ? x->value : NULL;

	if (!x)
		return NULL;
	free(x->key);
	x->key = NULL;
	x->value = NULL;
	m->live--;
	return old;
}

void *map_next(const struct map *m, size_t *it, const void **ret_key, size_t *ret_klen)
{
	while (*it < m->n) {
		const struct entry *x = &m->v[(*it)++];

		if (!x->value)
			continue;
		if (ret_key)
			*ret_key = x->key;
		if (ret_klen)
			*ret_klen = x->klen;
		return x->value;
	}
	return NULL;
}

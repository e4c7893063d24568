/* The shelf in memory: every put is one committed transaction, so it survives a kill; the n-th call can fail. */
#include <stdlib.h>
#include "sim_int.h"

#define SHELF_MAX (64 * 1024)

struct value { size_t len; uint8_t bytes[]; };

static struct snode *of(struct shelf *s) { return container_of(s, struct snode, shelf); }

static int enter(struct snode *n, const char *call, const char *table, struct err *e)
{
	if (n->dying || !n->alive)
		return err_set(e, ERR_IO, "shelf %s %s: the process is gone", call, table);
	if (n->cupboard.fail_in > 0 && --n->cupboard.fail_in == 0) {
		n->struck = true;
		return err_set(e, n->cupboard.fail_code, "shelf %s %s: simulated failure", call, table);
	}
	return 0;
}

static struct map *table_of(struct snode *n, const char *table)
{
	return map_get(n->cupboard.tables, table, strlen(table));
}

static int put(struct shelf *s, const char *table, const void *key, size_t klen, const void *val, size_t vlen,
	struct err *e)
{
	struct snode *n = of(s);
	struct map *t = table_of(n, table);
	struct value *v;

	if (enter(n, "put", table, e))
		return -1;
	if (klen > SHELF_MAX || vlen > SHELF_MAX)
		return err_set(e, ERR_LIMIT, "shelf put %s: %zu + %zu bytes, at most 64 KiB each", table, klen, vlen);
	if (!t) {
		t = map_new(5);
		map_put(n->cupboard.tables, table, strlen(table), t);
	}
	v = xmalloc(sizeof(*v) + vlen);
	v->len = vlen;
	if (vlen)
		memcpy(v->bytes, val, vlen);
	free(map_put(t, key, klen, v));
	return 0;
}

static int get(struct shelf *s, const char *table, const void *key, size_t klen, void *out, size_t cap, size_t *ret_len,
	struct err *e)
{
	struct map *t = table_of(of(s), table);
	struct value *v = t ? map_get(t, key, klen) : NULL;

	if (enter(of(s), "get", table, e))
		return -1;
	if (!v)
		return err_set(e, ERR_NOT_FOUND, "shelf get %s: no such key", table);
	if (v->len > cap)
		return err_set(e, ERR_LIMIT, "shelf get %s: %zu bytes do not fit into %zu", table, v->len, cap);
	memcpy(out, v->bytes, v->len);
	if (ret_len)
		*ret_len = v->len;
	return 0;
}

static int each(struct shelf *s, const char *table, int (*row)(void *arg, const void *key, size_t klen, const void *val,
	size_t vlen), void *arg, struct err *e)
{
	struct map *t = table_of(of(s), table);
	const void *key;
	size_t klen, it = 0;
	struct value *v;

	if (enter(of(s), "each", table, e))
		return -1;
	while (t && (v = map_next(t, &it, &key, &klen)))
		if (row(arg, key, klen, v->bytes, v->len))
			return -1;
	return 0;
}

static int del(struct shelf *s, const char *table, const void *key, size_t klen, struct err *e)
{
	struct map *t = table_of(of(s), table);
	if (enter(of(s), "del", table, e))
		return -1;
	if (t)
		free(map_del(t, key, klen));
	return 0;
}

void simshelf_init(struct snode *n)
{
	n->shelf = (struct shelf){ put, get, each, del };
	n->cupboard.tables = map_new(6);
}

void simshelf_free(struct snode *n)
{
	const void *key;
	size_t klen, it = 0;
	struct map *t;

	while ((t = map_next(n->cupboard.tables, &it, &key, &klen))) {
		size_t jt = 0;
		struct value *v;
		while ((v = map_next(t, &jt, &key, &klen)))
			free(v);
		map_free(t);
	}
	map_free(n->cupboard.tables);
}

/* Lists of records: copies, two that answer one question put together, and records as callers see them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "dht/int.h"

/* Of what several nodes answer: one whole dictionary of a liar does not crowd out the one of an honest node. */
#define FOUND_MAX (2 * DICT_MAX)
#define FOUND_WEIGHT_MAX (2 * DICT_WEIGHT_MAX)
#define FEW 8                           /* so many are compared with all of the others, without a map */

void recs_copy(struct list *to, const struct list *from)
{
	list_init(to);
	list_each(it, from)
		list_push(to, &rec_copy(list_entry(it, struct rec, link))->link);
}

void recs_free(struct list *recs)
{
	struct list *it;
	while ((it = list_pop(recs)))
		rec_free(list_entry(it, struct rec, link));
}

/* What is there already; by subkey, unless few come. */
struct set { struct list *recs; struct map *by; size_t n, weight; };

static struct rec *set_find(const struct set *s, const char *subkey)
{
	if (s->by)
		return map_get(s->by, subkey, strlen(subkey));
	list_each(it, s->recs)
		if (!strcmp(list_entry(it, struct rec, link)->subkey, subkey))
			return list_entry(it, struct rec, link);
	return NULL;
}

static void set_drop(struct set *s, struct rec *c)
{
	list_del(&c->link);
	s->n--;
	s->weight -= c->weight;
	if (s->by)
		map_del(s->by, c->subkey, strlen(c->subkey));
	rec_free(c);
}

/* The two of one subkey; a plain value and others exclude each other. False: what is there stays. */
static bool set_room(struct set *s, const struct rec *r)
{
	struct rec *same = set_find(s, r->subkey);
	if (same && rec_order(same, r) > 0) {
		if (same->rank == r->rank && r->ends_us < same->ends_us)
			same->ends_us = r->ends_us;
		return false;
	}
	if (same) {
		set_drop(s, same);
		return true;
	}
	for (int drop = 0; drop < 2; drop++)
		list_each_safe(it, s->recs) {
			struct rec *c = list_entry(it, struct rec, link);
			if (r->subkey[0] && c->subkey[0])
				return true;            /* beside all of them */
			if (!drop && rec_order(c, r) > 0)
				return false;
			if (drop)
				set_drop(s, c);
		}
	return true;
}

void recs_merge(struct dht *d, struct list *to, struct list *from)
{
	struct set s = { .recs = to, .by = list_len(from) > FEW ? map_new(d->hash_key ^ 4) : NULL,
		.n = list_len(to) };
	struct list *it;
	list_each(i, to) {
		struct rec *c = list_entry(i, struct rec, link);
		s.weight += c->weight;
		if (s.by)
			map_put(s.by, c->subkey, strlen(c->subkey), c);
	}
	while ((it = list_pop(from))) {
		struct rec *r = list_entry(it, struct rec, link);
		bool room = set_room(&s, r), full = s.n == FOUND_MAX || s.weight + r->weight > FOUND_WEIGHT_MAX;
		if (!room || full) {
			d->surplus += room;
			rec_free(r);
			continue;
		}
		list_push(to, &r->link);
		s.n++;
		s.weight += r->weight;
		if (s.by)
			map_put(s.by, r->subkey, strlen(r->subkey), r);
	}
	map_free(s.by);
}

void recs_add_own(struct dht *d, const struct id *key, struct list *recs)
{
	struct entry *en = values_get(&d->values, key, env_now(d->env));
	struct list mine;
	if (!en)
		return;
	recs_copy(&mine, &en->recs);
	recs_merge(d, &mine, recs);             /* ours have room, whatever the others gave */
	struct list *it;
	while ((it = list_pop(&mine)))
		list_push(recs, it);
}

size_t records_out(const struct list *recs, uint64_t now_us, struct record **ret_v)
{
	struct record *out = xcalloc(list_len(recs) + 1, sizeof *out);
	size_t i = 0;
	list_each(it, recs) {
		struct rec *r = list_entry(it, struct rec, link);
		json_t *v = json_any(r->value, r->vlen, JSON_RECORD, NULL);
		if (!v || r->ends_us <= now_us) {
			json_decref(v);
			continue;
		}
		struct record *o = &out[i++];
		snprintf(o->subkey, sizeof o->subkey, "%s", r->subkey);
		o->value = v;
		o->rank = r->rank;
		o->life_ms = (r->ends_us - now_us) / 1000;
		o->owner = r->owner;
		o->is_signed = r->is_signed;
	}
	*ret_v = out;
	return i;
}

bool record_own(const struct record *r)
{
	char owner[ID_HEX];
	id_hex(&r->owner, owner);
	return r->is_signed && !strcmp(r->subkey, owner);
}

void records_free(struct record *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		json_decref(v[i].value);
	free(v);
}

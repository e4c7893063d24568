/* Records: rank rules, lives, quotas, and their wire form. */
#include "dht/values.h"
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"

#define INDEX_MIN 16                            /* records under a key from which on they are found by a map */

void rec_free(struct rec *r)
{
	if (!r)
		return;
	free(r->value);
	free(r);
}

struct rec *rec_copy(const struct rec *r)
{
	struct rec *c = xmemdup(r, sizeof *r);
	c->value = xmemdup(r->value, r->vlen + 1u);
	c->end = (struct timer){ 0 };
	list_init(&c->link);
	return c;
}

void rec_weigh(struct rec *r)
{
	size_t values;
	struct err e;
	r->weight = REC_UNREADABLE;
	if (!json_count(r->value, r->vlen, JSON_RECORD, &values, &e))
		r->weight = r->vlen + REC_OVERHEAD + (uint32_t)values * JSON_VALUE_BYTES;
}

bool rec_must_sign(const struct rec *r)
{
	if (strlen(r->subkey) != 64)
		return false;
	for (int i = 0; i < 64; i++)
		if (!isxdigit((unsigned char)r->subkey[i]))
			return false;
	return true;
}

int rec_order(const struct rec *a, const struct rec *b)
{
	if (strcmp(a->subkey, b->subkey)) {
		if (a->subkey[0] && b->subkey[0])
			return 0;
		if (rec_must_sign(a) || rec_must_sign(b))
			return rec_must_sign(a) ? 1 : -1;
	}
	return a->rank >= b->rank ? 1 : -1;
}

void values_init(struct values *v, const struct values_conf *conf, uint64_t hash_key)
{
	*v = (struct values){ .conf = *conf, .keys = map_new(hash_key), .quota = map_new(hash_key + 1),
		.hash_key = hash_key };
}

static size_t cost(const struct rec *r)
{
	return r->vlen + REC_OVERHEAD;
}

static void quota_add(struct values *v, const struct rec *r)
{
	struct share *s = map_get(v->quota, r->from.b, 32);
	if (!s) {
		s = xcalloc(1, sizeof *s);
		map_put(v->quota, r->from.b, 32, s);
	}
	s->records++;
	s->bytes += cost(r);
}

static void quota_sub(struct values *v, const struct rec *r)
{
	struct share *s = map_get(v->quota, r->from.b, 32);
	s->bytes -= cost(r);
	if (--s->records)
		return;
	map_del(v->quota, r->from.b, 32);
	free(s);
}

static void drop(struct values *v, struct entry *en, struct rec *r)
{
	if (v->conf.dropped)
		v->conf.dropped(v->conf.arg, r);
	list_del(&r->link);
	if (en->by_subkey)
		map_del(en->by_subkey, r->subkey, strlen(r->subkey));
	heap_set(&v->ends, &r->end, 0);
	en->n--;
	en->weight -= r->weight;
	v->records--;
	v->bytes -= cost(r);
	if (!PLANTED(DHT_ACCOUNT_KEPT))
		quota_sub(v, r);
	rec_free(r);
}

static void entry_free(struct values *v, struct entry *en)
{
	list_each_safe(it, &en->recs)
		drop(v, en, list_entry(it, struct rec, link));
	map_free(en->by_subkey);
	free(en);
}

void values_done(struct values *v)
{
	struct entry *en;
	v->conf.dropped = NULL;                 /* they go from memory only */
	for (size_t i = 0; v->keys && (en = map_next(v->keys, &i, NULL, NULL));)
		entry_free(v, en);
	map_free(v->keys);
	map_free(v->quota);
	heap_done(&v->ends);
	*v = (struct values){ 0 };
}

/* With its entry, when it was the last one there. */
static void drop_first(struct values *v)
{
	struct rec *r = container_of(heap_peek(&v->ends), struct rec, end);
	struct entry *en = map_get(v->keys, r->key.b, 32);
	drop(v, en, r);
	if (en->n)
		return;
	map_del(v->keys, en->key.b, 32);
	entry_free(v, en);
}

void values_sweep(struct values *v, uint64_t now_us)
{
	const struct timer *first;
	while ((first = heap_peek(&v->ends)) && first->at_us <= now_us && !PLANTED(DHT_ENDED))
		drop_first(v);
}

struct entry *values_get(struct values *v, const struct id *key, uint64_t now_us)
{
	values_sweep(v, now_us);
	return map_get(v->keys, key->b, 32);
}

static bool is_full(const struct values *v, const struct rec *r, bool replaces, size_t without, size_t bytes_without)
{
	return (!replaces && v->records - without >= v->conf.records_max) ||
		v->bytes - bytes_without + cost(r) > v->conf.bytes_max;
}

/* Makes room by dropping the records that end first (S10), unless the newcomer would be one of them. What is not enough
 * is not begun: who is refused has taken nobody's place. */
static bool evict_for(struct values *v, const struct rec *r, bool replaces)
{
	struct rec *out[VALUE_MAX / REC_OVERHEAD + 2];
	size_t n = 0, bytes = 0;
	while (is_full(v, r, replaces, n, bytes) && n < sizeof out / sizeof *out) {
		struct timer *first = heap_peek(&v->ends);
		if (!first || first->at_us >= r->ends_us)
			break;
		out[n] = container_of(first, struct rec, end);
		bytes += cost(out[n++]);
		heap_set(&v->ends, first, 0);
	}
	bool enough = !is_full(v, r, replaces, n, bytes);
	for (size_t i = 0; i < n; i++)
		heap_set(&v->ends, &out[i]->end, out[i]->ends_us);
	for (size_t i = 0; i < n && enough; i++)
		drop_first(v);
	return enough;
}

int rec_sane(const struct rec *r, uint64_t now_us, uint64_t wall_ms, struct err *e)
{
	if (r->weight == REC_UNREADABLE)
		return err_set(e, ERR_INVALID, "the value is no JSON within %zu bytes, %zu values, and depth %zu",
			JSON_RECORD.bytes, JSON_RECORD.values, JSON_RECORD.depth);
	if (!r->life_ms || r->life_ms > LIFE_MAX_MS)
		return err_set(e, ERR_INVALID, "life of %llu ms is outside 1 ms .. 7 days", (unsigned long long)r->life_ms);
	if (r->ends_us <= now_us)
		return err_set(e, ERR_INVALID, "the record has ended already");
	if (r->rank + r->life_ms + CLOCK_SLACK_MS < wall_ms)
		return err_set(e, ERR_INVALID, "rank %llu is older than its life and 10 minutes of clock difference allow",
			(unsigned long long)r->rank);
	if (r->rank > wall_ms + 6 * CLOCK_SLACK_MS)
		return err_set(e, ERR_INVALID, "rank %llu lies more than an hour in the future: check the clocks",
		(unsigned long long)r->rank);
	return 0;
}

static struct rec *find(const struct entry *en, const char *subkey)
{
	if (en->by_subkey)
		return map_get(en->by_subkey, subkey, strlen(subkey));
	list_each(it, &en->recs)
		if (!strcmp(list_entry(it, struct rec, link)->subkey, subkey))
			return list_entry(it, struct rec, link);
	return NULL;
}

/* Against one that it would replace: 0 it may, 1 it is the same, -1 refused. */
static int against_one(struct rec *c, const struct rec *r, struct err *e)
{
	bool same_key = !strcmp(c->subkey, r->subkey);
	if (!same_key && rec_order(c, r) < 0)
		return 0;
	if (!same_key && rec_must_sign(c))
		return err_set(e, ERR_AUTH, "records of peers are under this key: a plain value cannot replace them");
	if (same_key && c->rank == r->rank && c->vlen == r->vlen && !memcmp(c->value, r->value, r->vlen)) {
		c->heard_us = r->heard_us;
		return 1;
	}
	if (c->rank >= r->rank && !PLANTED(DHT_OLDER_WINS))
		return err_set(e, ERR_STATE, "rank %llu is here, %llu is not newer", (unsigned long long)c->rank,
			(unsigned long long)r->rank);
	return 0;
}

/* Compares with what the key holds: 0 may enter (ret_old = the record it replaces), 1 the same is here, -1 refused. */
static int against(struct entry *en, const struct rec *r, struct rec **ret_old, struct err *e)
{
	struct rec *plain = list_entry(en->recs.next, struct rec, link);
	int rc = 0;
	*ret_old = find(en, r->subkey);
	if (*ret_old)
		return against_one(*ret_old, r, e);
	if (r->subkey[0])                       /* beside what has other subkeys, instead of a plain value */
		return plain->subkey[0] ? 0 : against_one(plain, r, e);
	list_each(it, &en->recs)
		if (!rc)
			rc = against_one(list_entry(it, struct rec, link), r, e);
	return rc;
}

bool values_lend(struct values *v, const struct rec *r)
{
	const struct share *has = map_get(v->quota, r->from.b, 32);
	if (has && has->records >= v->conf.per_peer_max)
		return false;
	if (v->conf.per_peer_bytes && (has ? has->bytes : 0) + cost(r) > v->conf.per_peer_bytes)
		return false;
	quota_add(v, r);
	return true;
}

void values_return(struct values *v, const struct rec *r) { quota_sub(v, r); }

static int room_for(struct values *v, const struct rec *r, struct rec *old, struct err *e)
{
	const struct share *has = map_get(v->quota, r->from.b, 32);
	size_t gives = old && id_eq(&old->from, &r->from) ? cost(old) : 0;
	if (has && !old && has->records >= v->conf.per_peer_max)
		return err_set(e, ERR_LIMIT, "this peer stores %zu records here already", has->records);
	if (v->conf.per_peer_bytes && (has ? has->bytes - gives : 0) + cost(r) > v->conf.per_peer_bytes)
		return err_set(e, ERR_LIMIT, "this peer stores %zu bytes here already, and may store %zu", has ? has->bytes : 0,
			v->conf.per_peer_bytes);
	return evict_for(v, r, old != NULL) ? 0 : err_set(e, ERR_FULL, "storage is full with records that live longer");
}

/* Instead of what it replaces: the same subkey; a plain value replaces all, and is replaced by any. */
static void enter(struct values *v, struct entry *en, struct rec *r)
{
	struct rec *old = find(en, r->subkey);
	quota_add(v, r);                        /* first, so that who replaces its only record is not forgotten between */
	if (old)
		drop(v, en, old);
	list_each_safe(it, &en->recs) {
		struct rec *c = list_entry(it, struct rec, link);
		if (r->subkey[0] && c->subkey[0])
			break;                  /* a dictionary */
		drop(v, en, c);
	}
	list_push(&en->recs, &r->link);
	en->n++;
	en->weight += r->weight;
	v->records++;
	v->bytes += cost(r);
	heap_set(&v->ends, &r->end, r->ends_us);
	if (en->n == INDEX_MIN && !en->by_subkey) {
		en->by_subkey = map_new(v->hash_key + 2);
		list_each(it, &en->recs) {
			struct rec *c = list_entry(it, struct rec, link);
			map_put(en->by_subkey, c->subkey, strlen(c->subkey), c);
		}
	} else if (en->by_subkey) {
		map_put(en->by_subkey, r->subkey, strlen(r->subkey), r);
	}
}

enum put_result values_put(struct values *v, struct rec *r, uint64_t now_us, uint64_t wall_ms, struct err *e)
{
	struct rec *old = NULL;
	const struct id *key = &r->key;
	r->heard_us = now_us;
	if (rec_sane(r, now_us, wall_ms, e)) {
		rec_free(r);
		return PUT_REFUSED;
	}
	struct entry *en = values_get(v, key, now_us);
	int rc = en ? against(en, r, &old, e) : 0;
	if (!rc && en && !old && en->n >= DICT_MAX)
		rc = err_set(e, ERR_LIMIT, "the dictionary has %d subkeys already", DICT_MAX);
	if (!rc && en && r->subkey[0] && en->weight - (old ? old->weight : 0) + r->weight > DICT_WEIGHT_MAX)
		rc = err_set(e, ERR_LIMIT, "the dictionary has %zu bytes already, and may have %u", en->weight,
			DICT_WEIGHT_MAX);
	if (!rc)
		rc = room_for(v, r, old, e);
	if (rc) {
		rec_free(r);
		return rc > 0 ? PUT_SAME : PUT_REFUSED;
	}
	en = map_get(v->keys, key->b, 32);      /* eviction may have taken it */
	if (!en) {
		en = xcalloc(1, sizeof *en);
		en->key = *key;
		list_init(&en->recs);
		map_put(v->keys, key->b, 32, en);
	}
	enter(v, en, r);
	return PUT_NEW;
}

size_t rec_bytes(const struct rec *r)
{
	return 2 + strlen(r->subkey) + 4 + r->vlen + 3 * 8 + 32 + 1 + (r->is_signed ? 64 : 0);
}

void rec_write(struct buf *b, const struct rec *r, uint64_t now_us)
{
	buf_str(b, r->subkey);
	buf_u32(b, r->vlen);
	buf_put(b, r->value, r->vlen);
	buf_u64(b, r->rank);
	buf_u64(b, r->life_ms);
	buf_u64(b, r->ends_us > now_us ? (r->ends_us - now_us) / 1000 : 0);
	buf_put(b, r->owner.b, 32);
	buf_u8(b, r->is_signed);
	if (r->is_signed)
		buf_put(b, r->sig, 64);
}

struct rec *rec_read(struct rd *rd, const struct id *key, uint64_t now_us)
{
	struct rec *r = xcalloc(1, sizeof *r);
	r->key = *key;
	list_init(&r->link);
	rd_str(rd, r->subkey, sizeof r->subkey);
	r->vlen = rd_u32(rd);
	const uint8_t *text = r->vlen && r->vlen <= VALUE_MAX ? rd_bytes(rd, r->vlen) : NULL;
	r->rank = rd_u64(rd);
	r->life_ms = rd_u64(rd);
	uint64_t left_ms = rd_u64(rd);
	const uint8_t *owner = rd_bytes(rd, 32);
	r->is_signed = rd_u8(rd);
	const uint8_t *sig = r->is_signed ? rd_bytes(rd, 64) : NULL;
	if (!text || !owner || rd->bad || (r->is_signed && !sig)) {
		rd->bad = true;
		rec_free(r);
		return NULL;
	}
	r->value = xmalloc(r->vlen + 1u);
	memcpy(r->value, text, r->vlen);
	r->value[r->vlen] = 0;
	rec_weigh(r);
	memcpy(r->owner.b, owner, 32);
	if (sig)
		memcpy(r->sig, sig, 64);
	if (left_ms > r->life_ms)               /* unsigned: never more than the signed life */
		left_ms = r->life_ms;
	r->ends_us = now_us + (left_ms < LIFE_MAX_MS ? left_ms : LIFE_MAX_MS) * 1000;
	return r;
}

void rec_signed_bytes(struct buf *b, const struct rec *r)
{
	buf_put(b, "hivemind-dht-1", 14);
	buf_put(b, r->key.b, 32);
	buf_str(b, r->subkey);
	buf_u32(b, r->vlen);
	buf_put(b, r->value, r->vlen);
	buf_u64(b, r->rank);
	buf_u64(b, r->life_ms);
}

/* Records: rank rules, lives, quotas, and their wire form. */
#include "dht/values.h"
#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"

#define REC_OVERHEAD 200                        /* bytes counted per record beside its value */

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
	list_init(&c->link);
	return c;
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
	*v = (struct values){ .conf = *conf, .keys = map_new(hash_key), .quota = map_new(hash_key + 1) };
}

static void quota_add(struct values *v, const struct id *peer, long by)
{
	uintptr_t have = (uintptr_t)map_get(v->quota, peer->b, 32);
	uintptr_t now = (uintptr_t)((long)have + by);
	if (now)
		map_put(v->quota, peer->b, 32, (void *)now);
	else
		map_del(v->quota, peer->b, 32);
}

static void drop(struct values *v, struct entry *en, struct rec *r)
{
	list_del(&r->link);
	en->n--;
	v->records--;
	v->bytes -= r->vlen + REC_OVERHEAD;
	quota_add(v, &r->from, -1);
	rec_free(r);
}

static void entry_free(struct values *v, struct entry *en)
{
	list_each_safe(it, &en->recs)
		drop(v, en, list_entry(it, struct rec, link));
	free(en);
}

void values_done(struct values *v)
{
	struct entry *en;
	for (size_t i = 0; v->keys && (en = map_next(v->keys, &i, NULL, NULL));)
		entry_free(v, en);
	map_free(v->keys);
	map_free(v->quota);
	*v = (struct values){ 0 };
}

static void drop_ended(struct values *v, struct entry *en, uint64_t now_us)
{
	list_each_safe(it, &en->recs) {
		struct rec *r = list_entry(it, struct rec, link);
		if (r->ends_us <= now_us && !PLANTED(DHT_ENDED))
			drop(v, en, r);
	}
}

struct entry *values_get(struct values *v, const struct id *key, uint64_t now_us)
{
	struct entry *en = map_get(v->keys, key->b, 32);
	if (!en)
		return NULL;
	drop_ended(v, en, now_us);
	if (en->n)
		return en;
	map_del(v->keys, key->b, 32);
	free(en);
	return NULL;
}

void values_sweep(struct values *v, uint64_t now_us)
{
	struct entry *en;
	const void *key;
	for (size_t i = 0; (en = map_next(v->keys, &i, &key, NULL));) {
		drop_ended(v, en, now_us);
		if (!en->n) {
			struct id k = en->key;
			map_del(v->keys, k.b, 32);
			free(en);
		}
	}
}

/* Makes room by dropping the record that ends first (S10), unless the newcomer would be that one. */
static bool evict_for(struct values *v, const struct rec *r)
{
	struct entry *en, *at = NULL;
	struct rec *first = NULL;
	for (size_t i = 0; (en = map_next(v->keys, &i, NULL, NULL));)
		list_each(it, &en->recs) {
			struct rec *c = list_entry(it, struct rec, link);
			if (!first || c->ends_us < first->ends_us) {
				first = c;
				at = en;
			}
		}
	if (!first || first->ends_us >= r->ends_us)
		return false;
	drop(v, at, first);
	if (!at->n) {
		struct id k = at->key;
		map_del(v->keys, k.b, 32);
		free(at);
	}
	return true;
}

static int sane(const struct rec *r, uint64_t now_us, uint64_t wall_ms, struct err *e)
{
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

/* Compares with what the key holds: 0 may enter (ret_old = the record it replaces), 1 the same is here, -1 refused. */
static int against(struct entry *en, const struct rec *r, struct rec **ret_old, struct err *e)
{
	*ret_old = NULL;
	list_each(it, &en->recs) {
		struct rec *c = list_entry(it, struct rec, link);
		bool same_key = !strcmp(c->subkey, r->subkey);
		int order = rec_order(c, r);
		if (!order || (order < 0 && !same_key))
			continue;               /* side by side, or it will be replaced */
		if (!same_key && rec_must_sign(c))
			return err_set(e, ERR_AUTH, "records of peers are under this key: a plain value cannot replace them");
		if (same_key && c->rank == r->rank && c->vlen == r->vlen && !memcmp(c->value, r->value, r->vlen)) {
			c->heard_us = r->heard_us;
			return 1;
		}
		if (c->rank >= r->rank && !PLANTED(DHT_OLDER_WINS))
			return err_set(e, ERR_STATE, "rank %llu is here, %llu is not newer", (unsigned long long)c->rank,
			(unsigned long long)r->rank);
		if (same_key)
			*ret_old = c;
	}
	return 0;
}

static int room_for(struct values *v, const struct rec *r, struct rec *old, struct err *e)
{
	if (!old && (uintptr_t)map_get(v->quota, r->from.b, 32) >= v->conf.per_peer_max)
		return err_set(e, ERR_LIMIT, "this peer stores %zu records here already", v->conf.per_peer_max);
	while ((!old && v->records >= v->conf.records_max) || v->bytes + r->vlen + REC_OVERHEAD > v->conf.bytes_max)
		if (!evict_for(v, r))
			return err_set(e, ERR_FULL, "storage is full with records that live longer");
	return 0;
}

enum put_result values_put(struct values *v, struct rec *r, uint64_t now_us, uint64_t wall_ms, struct err *e)
{
	struct rec *old = NULL;
	const struct id *key = &r->key;
	r->heard_us = now_us;
	if (sane(r, now_us, wall_ms, e)) {
		rec_free(r);
		return PUT_REFUSED;
	}
	struct entry *en = values_get(v, key, now_us);
	int rc = en ? against(en, r, &old, e) : 0;
	if (!rc && en && !old && en->n >= DICT_MAX)
		rc = err_set(e, ERR_LIMIT, "the dictionary has %d subkeys already", DICT_MAX);
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
	quota_add(v, &r->from, 1);
	list_each_safe(it, &en->recs) {         /* the same subkey; a plain value replaces all, and is replaced by any */
		struct rec *c = list_entry(it, struct rec, link);
		if (!r->subkey[0] || !c->subkey[0] || !strcmp(c->subkey, r->subkey))
			drop(v, en, c);
	}
	list_push(&en->recs, &r->link);
	en->n++;
	v->records++;
	v->bytes += r->vlen + REC_OVERHEAD;
	return PUT_NEW;
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

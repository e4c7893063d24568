/* What this node answers: FIND (nearest nodes), GET (records and nearest nodes), STORE. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "dht/int.h"

static void write_near(struct dht *d, const struct id *target, const struct id *asker, struct buf *b)
{
	struct dnode near[TABLE_BUCKET];
	size_t n = table_nearest(&d->table, target, near, d->conf.k + 1 < TABLE_BUCKET ? d->conf.k + 1 : TABLE_BUCKET);
	size_t at = b->len, written = 0;
	buf_u8(b, 0);
	for (size_t i = 0; i < n; i++)
		if (!id_eq(&near[i].id, asker))
			written += node_write_all(d, b, &near[i].id, &near[i].at);
	b->p[at] = (uint8_t)written;
}

/* None of this room's kinds is a post: its answers are what keeps a peer from asking for more than is done. */
static bool is_call(struct dht *d, const struct request *req)
{
	if (!req->wants_reply)
		net_strike(d->net, &req->f.from, "a question to the table that wants no answer");
	return req->wants_reply;
}

static bool target_of(struct request *req, struct id *ret)
{
	struct err e;
	if (req->f.blob_len == 32) {
		memcpy(ret->b, req->f.blob, 32);
		return true;
	}
	err_set(&e, ERR_PROTOCOL, "%s: the blob must be a key of 32 bytes, not %zu", kind_name(req->f.kind),
		req->f.blob_len);
	net_refuse(req, &e);
	return false;
}

static void note_asker(struct dht *d, struct request *req)
{
	dht_heard(d, &req->f.from, json_is_true(json_object_get(req->f.json, "client")));
}

static void reply_buf(struct request *req, json_t *json, struct buf *b)
{
	net_reply(req, json, blob_steal(b));
}

/* Records from the at-th on while there is room; *ret_more: where to go on, 0 when that was all. */
static void write_recs(const struct list *recs, uint64_t at, uint64_t now, struct buf *b, uint64_t *ret_more)
{
	size_t count_at = b->len, i = 0, written = 0;
	*ret_more = 0;
	buf_u16(b, 0);
	if (recs)
		list_each(it, recs) {
			if (i++ < at)
				continue;
			const struct rec *r = list_entry(it, struct rec, link);
			/* One byte is kept for who has to say that there is more. */
			if (b->len > GET_BYTES_MAX || b->len + rec_bytes(r) >= NET_BLOB_MAX || written == STORE_RECS_MAX) {
				*ret_more = i - 1;
				break;
			}
			rec_write(b, r, now);
			written++;
		}
	b->p[count_at] = (uint8_t)written;
	b->p[count_at + 1] = (uint8_t)(written >> 8);
}

/* Several keys in one question: a part each, in their order, for as many as fit ("keys" says how many). A part of a GET
 * that has records names no nodes, and ends with 1 when there are more records than it shows. */
static bool many(struct dht *d, struct request *req, bool values)
{
	struct buf b = { 0 };
	uint64_t now = env_now(d->env), more;
	size_t n = req->f.blob_len / 32, i = 0;
	if (req->f.blob_len % 32 || n > PACK_KEYS || !n || !json_is_true(json_object_get(req->f.json, "many")))
		return false;
	for (; i < n && b.len < GET_BYTES_MAX / 2; i++) {
		struct id key;
		memcpy(key.b, req->f.blob + 32 * i, 32);
		struct entry *en = values ? values_get(&d->values, &key, now) : NULL;
		size_t at = b.len;
		if (en)
			buf_u8(&b, 0);
		else
			write_near(d, &key, &req->f.from, &b);
		if (!values)
			continue;
		write_recs(en ? &en->recs : NULL, 0, now, &b, &more);
		buf_u8(&b, more > 0);
		if (b.len > GET_BYTES_MAX && i) {       /* it goes alone, next time */
			b.len = at;
			break;
		}
	}
	note_asker(d, req);
	reply_buf(req, json_pack("{s:I}", "keys", (json_int_t)i), &b);
	return true;
}

static void on_find(void *arg, struct request *req)
{
	struct dht *d = arg;
	struct id target;
	struct buf b = { 0 };
	if (!is_call(d, req) || many(d, req, false) || !target_of(req, &target))
		return;
	write_near(d, &target, &req->f.from, &b);
	note_asker(d, req);
	reply_buf(req, NULL, &b);
}

static void on_get(void *arg, struct request *req)
{
	struct dht *d = arg;
	struct id key;
	struct buf b = { 0 };
	uint64_t at = 0, more, now = env_now(d->env);
	if (!is_call(d, req) || many(d, req, true) || !target_of(req, &key))
		return;
	json_get_u64(req->f.json, "at", &at, NULL);
	write_near(d, &key, &req->f.from, &b);
	struct entry *en = values_get(&d->values, &key, now);
	write_recs(en ? &en->recs : found_plain(d, &key), at, now, &b, &more);  /* a copy will do, too */
	note_asker(d, req);
	reply_buf(req, more ? json_pack("{s:I}", "next", (json_int_t)more) : NULL, &b);
}

/* ---- storing ---- */

int store_local(struct dht *d, struct rec *r, struct err *e)
{
	enum put_result rc = values_put(&d->values, r, env_now(d->env), env_wall(d->env), e);
	if (rc == PUT_NEW)                      /* r is in its entry now */
		record_save(d, r);
	return rc == PUT_REFUSED ? 0 : rc == PUT_NEW ? 1 : 2;
}

/* A STORE whose signatures are being checked. */
struct storing { struct list link; struct dht *d; struct id from; struct request *req; size_t n;
	struct err why /* of the first ill-formed one */;
	bool copy; struct id key; };

/* A copy for the cache: no replica, and nothing that is known already gives way. Part of a dictionary, which older
 * peers send, too, would hide the rest. */
static void keep_copy(struct storing *s, struct list *good)
{
	struct dht *d = s->d;
	bool holds = values_get(&d->values, &s->key, env_now(d->env));
	struct list *known = found_get(d, &s->key);
	if (recs_plain(good) && !holds && !found_plain(d, &s->key) && (!known || list_empty(known)) && !d->conf.client)
		copy_put(d, list_entry(good->next, struct rec, link));
	net_reply(s->req, NULL, NO_BLOB);
	free(s);
}

static void store_all(void *arg, struct list *good, size_t bad)
{
	struct storing *s = arg;
	struct err e = { 0 };
	size_t accepted = 0, refused = bad;
	list_del(&s->link);
	if (s->copy) {
		keep_copy(s, good);
		return;
	}
	uint8_t *how = xcalloc(s->n, 1);        /* of each record in their order: 0 refused, 1 new, 2 was here */
	struct list *it;
	if (bad && s->why.code)
		e = s->why;
	else if (bad)
		err_set(&e, ERR_AUTH, "a record under a peer's id must be signed by that peer");
	while ((it = list_pop(good))) {
		struct rec *r = list_entry(it, struct rec, link);
		unsigned at = r->index;
		cache_forget(s->d, &r->key);
		how[at] = (uint8_t)store_local(s->d, r, &e);
		accepted += how[at] > 0;
		refused += !how[at];
	}
	json_t *j = json_pack("{s:I,s:I}", "accepted", (json_int_t)accepted, "refused", (json_int_t)refused);
	if (refused)
		json_object_set_new(j, "why", json_string(e.text));
	net_reply(s->req, j, (struct blob){ .data = how, .len = s->n, .release = free, .arg = how });
	free(s);
}

void storings_free(struct dht *d)
{
	struct err e;
	err_set(&e, ERR_CANCELLED, "this daemon is stopping");
	list_each_safe(it, &d->storings) {
		struct storing *s = list_entry(it, struct storing, link);
		list_del(&s->link);
		net_refuse(s->req, &e);
		free(s);
	}
}

static void on_store(void *arg, struct request *req)
{
	struct dht *d = arg;
	struct rd r = rd_of(req->f.blob, req->f.blob_len);
	unsigned n = rd_u16(&r);
	struct list recs;
	struct id first = { 0 };
	struct err busy;
	if (!is_call(d, req))
		return;
	if (verify_full(d, &req->f.from)) {
		err_set(&busy, ERR_BUSY, "dht_store: more records than this peer can check at once");
		net_refuse(req, &busy);
		return;
	}
	bool copy = json_is_true(json_object_get(req->f.json, "copy")), one = true;
	list_init(&recs);
	for (unsigned i = 0; i < n && n <= STORE_RECS_MAX && !r.bad; i++) {
		struct id key = { 0 };
		const uint8_t *k = rd_bytes(&r, 32);
		struct rec *rec = NULL;
		if (k) {
			memcpy(key.b, k, 32);
			rec = rec_read(&r, &key, env_now(d->env));
		}
		if (!rec)
			break;
		rec->from = req->f.from;
		rec->index = (uint16_t)i;
		first = i ? first : key;
		one = one && id_eq(&first, &key);
		list_push(&recs, &rec->link);
	}
	note_asker(d, req);
	if (r.bad || !n || n > STORE_RECS_MAX || rd_left(&r) || (copy && !one)) {
		struct err e;
		struct list *it;
		while ((it = list_pop(&recs)))
			rec_free(list_entry(it, struct rec, link));
		err_set(&e, ERR_PROTOCOL, "dht_store: malformed records (%u announced, at most %d; values at most %d bytes)",
			n, STORE_RECS_MAX, VALUE_MAX);
		net_strike(d->net, &req->f.from, e.text);
		net_refuse(req, &e);
		return;
	}
	struct storing *s = xcalloc(1, sizeof *s);
	*s = (struct storing){ .d = d, .from = req->f.from, .req = net_keep(req), .n = n, .copy = copy, .key = first };
	list_push(&d->storings, &s->link);
	dht_verify(d, &recs, &s->from, false, &s->why, store_all, s);
}

bool store_add(struct buf *b, const struct rec *r, uint64_t now_us)
{
	if (!b->len)
		buf_u16(b, 0);
	unsigned n = b->p[0] | (unsigned)b->p[1] << 8;
	if (n == STORE_RECS_MAX || b->len + r->vlen + 512 > NET_BLOB_MAX)
		return false;
	buf_put(b, r->key.b, 32);
	rec_write(b, r, now_us);
	n++;
	b->p[0] = (uint8_t)n;
	b->p[1] = (uint8_t)(n >> 8);
	return true;
}

struct call *store_send(struct dht *d, const struct id *to, struct buf *b, net_done_fn *done, void *arg)
{
	json_t *j = d->conf.client ? json_pack("{s:b}", "client", 1) : NULL;
	return net_call(d->net, to, KIND_DHT_STORE, j, blob_steal(b), CLASS_control, net_deadline(d->net, to,
		CALL_FLOOR_US), done, arg);
}

static void copied(void *arg, const struct frame *f, const struct err *e)
{
}

void store_copy(struct dht *d, const struct id *to, const struct rec *r)
{
	struct buf b = { 0 };
	uint64_t now = env_now(d->env);
	store_add(&b, r, now);
	json_t *j = json_pack("{s:b}", "copy", 1);
	if (d->conf.client)
		json_object_set_new(j, "client", json_true());
	net_call(d->net, to, KIND_DHT_STORE, j, blob_steal(&b), CLASS_control, net_deadline(d->net, to,
		CALL_FLOOR_US), copied, NULL);
}

bool store_took(const struct frame *f, size_t i, size_t n)
{
	return f->blob_len == n ? i < n && f->blob[i] : store_accepted(f) == n;
}

uint32_t store_accepted(const struct frame *f)
{
	uint64_t n = 0;
	json_get_u64(f->json, "accepted", &n, NULL);
	return n > STORE_RECS_MAX ? STORE_RECS_MAX : (uint32_t)n;
}

void serve_init(struct dht *d)
{
	net_on(d->net, KIND_DHT_FIND, on_find, d);
	net_on(d->net, KIND_DHT_GET, on_get, d);
	net_on(d->net, KIND_DHT_STORE, on_store, d);
}

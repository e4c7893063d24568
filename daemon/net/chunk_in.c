/* Receiving transfers: a chunk goes straight from the opened frame to its place in the taker's memory. What comes again
 * is acknowledged again; what nobody takes is answered "wait" and its name remembered, so that the taker can call. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "net/chunk_int.h"

#define WANT_US 10000000ull
#define HASH_AT_ONCE ((size_t)4 << 20)          /* 0.4 to 0.8 ms of the loop */

/* Chunks in flight that this receiver invites from one sender: the fewer, the more senders there are. */
static json_int_t credit(const struct chunks *c)
{
	uint32_t k = c->receiving ? WINDOW_MAX / c->receiving : WINDOW_MAX;

	return k < WINDOW_FIRST ? WINDOW_FIRST : k;
}

/* ... and over a path where fewer could not fill the wire. */
static json_int_t far_credit(const struct chunks *c)
{
	uint32_t k = c->receiving ? WINDOW_FAR / c->receiving : WINDOW_FAR;

	return k < WINDOW_FIRST ? WINDOW_FIRST : k;
}

static void want_done(void *arg, const struct frame *f, const struct err *e)
{
	/* Nothing hangs on it: a sender that has not heard tries again by itself. */
}

/* There is a taker now. */
static void call_for(struct xfer *x)
{
	struct chunks *c = x->c;
	struct memo *m;

	if (!x->listed)
		return;
	m = memo_get(&c->over, &x->key);
	if (m)
		memo_del(&c->over, m);          /* the name is used again */
	m = memo_get(&c->waits, &x->key);
	if (!m)
		return;
	memo_del(&c->waits, m);
	net_call(c->net, &x->key.peer, KIND_CHUNK_WANT, json_pack("{s:o,s:I,s:I}", "t", json_hex(x->key.tag.b, 32), "c",
		credit(c), "f", far_credit(c)), NO_BLOB, CLASS_control, WANT_US, want_done, NULL);
}

struct xfer *xfer_recv(struct chunks *c, const struct id *from, const struct id *tag, void *out, size_t len,
	uint64_t deadline_us, xfer_done_fn *done, void *arg)
{
	struct xfer *x = xfer_new(c, false, from, tag, len, deadline_us, done, arg);

	x->out = out;
	call_for(x);
	return x;
}

struct xfer *xfer_recv_room(struct chunks *c, const struct id *from, const struct id *tag, size_t len,
	uint64_t deadline_us, xfer_room_fn *room, xfer_done_fn *done, void *arg)
{
	struct xfer *x = xfer_new(c, false, from, tag, len, deadline_us, done, arg);

	x->room = room;
	call_for(x);
	return x;
}

static void acknowledge(struct chunks *c, struct request *r, const char *word)
{
	json_t *j = json_pack("{s:I,s:I}", "c", credit(c), "f", far_credit(c));

	if (word)
		json_object_set_new(j, word, json_true());
	net_reply(r, j, NO_BLOB);
}

/* Everything is there: does it hash to what the sender said, if it has said anything? */
static void complete(struct xfer *x, struct request *r)
{
	struct chunks *c = x->c;
	uint8_t digest[16];
	struct err e;

	if (!x->unhashed)
		xfer_digest(x, digest);
	if (!x->unhashed && memcmp(digest, x->want, 16) && !PLANTED(CHUNK_UNHASHED)) {
		err_set(&e, ERR_CORRUPT, "a transfer of %zu bytes arrived with another hash than it left with", x->len);
		net_refuse(r, &e);
		memo_put(&c->over, &x->key, x->serial, &e);
		xfer_end(x, &e);
		return;
	}
	acknowledge(c, r, "d");
	memo_put(&c->over, &x->key, x->serial, NULL);
	xfer_end(x, NULL);
}

static bool can_hash(const struct xfer *x) { return x->hashed < x->nchunks && bit(x->have, x->hashed); }

/* As much as one callback may. A first chunk that comes last, by chance or by will, brings all the others with it. */
static void hash_some(struct xfer *x)
{
	for (size_t done = 0; done < HASH_AT_ONCE && can_hash(x); done += x->step)
		xfer_hash_prefix(x, x->out);
	if (can_hash(x))
		env_after(x->c->env, &x->hasher, 1);
}

void recv_hash_fire(struct timer *t)
{
	struct xfer *x = container_of(t, struct xfer, hasher);
	struct request *r = x->whole;

	hash_some(x);
	if (!r || x->hashed < x->nchunks)
		return;
	x->whole = NULL;
	complete(x, r);
}

void recv_drop(struct xfer *x)
{
	struct request *r = x->whole;

	env_timer(x->c->env, &x->hasher, 0);
	x->whole = NULL;
	if (r)
		acknowledge(x->c, r, NULL);
}

/* Of a transfer without a hash all is there. */
static bool whole(const struct xfer *x) { return x->unhashed && x->bytes == x->len && bit(x->have, x->nchunks - 1); }

static void take(struct xfer *x, struct request *r, uint64_t at, const char *hash)
{
	uint64_t i = at / x->step;
	struct err e;

	if (at % x->step || i >= x->nchunks || r->f.blob_len != chunk_len(x, i) ||
	    (hash && json_get_hex(r->f.json, "h", x->want, 16, &e))) {
		err_set(&e, ERR_PROTOCOL, "a chunk of %zu bytes at %llu does not fit a transfer of %zu", r->f.blob_len,
			(unsigned long long)at, x->len);
		net_refuse(r, &e);
		return;
	}
	if (!x->out && x->room && !(x->out = x->room(x->arg))) {
		acknowledge(x->c, r, "w");
		return;
	}
	x->has_digest = x->has_digest || hash;
	x->unhashed = json_is_true(json_object_get(r->f.json, "u")) && net_own_moves(x->c->net) & MOVES_UNHASHED;
	x->c->receiving += !x->counted;
	x->counted = true;
	if (!bit(x->have, i)) {
		if (r->f.blob_len)
			memcpy(x->out + at, r->f.blob, r->f.blob_len);
		bit_set(x->have, i);
		x->bytes += r->f.blob_len;
	}
	if (!x->unhashed)
		hash_some(x);
	(void)FAILPOINT(x->c->env, "net.chunk.after");
	if (whole(x) || ((x->hashed == x->nchunks || (PLANTED(CHUNK_HOLE) && i + 1 == x->nchunks)) && x->has_digest))
		complete(x, r);
	else if (x->bytes == x->len && x->has_digest && !x->whole)
		x->whole = net_keep(r);
	else
		acknowledge(x->c, r, NULL);
}

/* The sender has begun anew under the same name, perhaps with other bytes. */
static void start_over(struct xfer *x, uint64_t serial, size_t step)
{
	recv_drop(x);
	x->serial = serial;
	xfer_cut(x, PLANTED(CHUNK_SMALL) ? CHUNK_BYTES : step);
	x->bytes = x->hashed = 0;
	x->has_digest = false;
	if (x->hash)
		XXH3_128bits_reset(x->hash);
}

static void nobody_takes(struct chunks *c, struct request *r, const struct xfer_key *k, uint64_t serial, uint64_t total)
{
	struct memo *m = memo_get(&c->over, k);
	bool first;

	if (m && m->serial == serial && m->e.code) {
		net_refuse(r, &m->e);
		return;
	}
	if (m && m->serial == serial) {         /* its last acknowledgement was lost */
		acknowledge(c, r, "d");
		return;
	}
	first = !memo_get(&c->waits, k);
	memo_put(&c->waits, k, serial, NULL);
	acknowledge(c, r, "w");
	if (first && c->offer)
		c->offer(c->offer_arg, &k->peer, &k->tag, total);
}

static int step_of(const json_t *j, uint64_t *ret, struct err *e)
{
	if (!json_object_get(j, "z"))
		return 0;
	if (json_get_u64(j, "z", ret, e))
		return -1;
	return *ret == CHUNK_BYTES || *ret == NET_CHUNK_MAX ? 0 : err_set(e, ERR_PROTOCOL, "z: chunks have %d or %d bytes",
		CHUNK_BYTES, NET_CHUNK_MAX);
}

void on_chunk(void *arg, struct request *r)
{
	struct chunks *c = arg;
	struct xfer_key k = { .peer = r->f.from };
	const char *hash = json_string_value(json_object_get(r->f.json, "h"));
	uint64_t at = 0, total = 0, step = CHUNK_BYTES, serial;
	struct xfer *x;
	struct err e;

	if (json_get_hex(r->f.json, "t", k.tag.b, 32, &e) || json_get_u64(r->f.json, "s", &serial, &e) ||
	    (!json_object_get(r->f.json, "x") &&
	     (json_get_u64(r->f.json, "o", &at, &e) || json_get_u64(r->f.json, "n", &total, &e) ||
	      step_of(r->f.json, &step, &e)))) {
		if (r->wants_reply)
			net_refuse(r, &e);
		return;
	}
	x = map_get(c->recvs, &k, sizeof k);
	if (!r->wants_reply) {                  /* "the rest will not come" */
		err_set(&e, ERR_CANCELLED, "the sender has given the transfer up");
		if (x && x->serial == serial && json_object_get(r->f.json, "x"))
			xfer_end(x, &e);
		return;
	}
	if (json_object_get(r->f.json, "x")) {
		acknowledge(c, r, NULL);
	} else if (!x) {
		nobody_takes(c, r, &k, serial, total);
	} else if (total != x->len) {
		err_set(&e, ERR_MISMATCH, "the sender's transfer has %llu bytes, the receiver expects %zu",
			(unsigned long long)total, x->len);
		net_refuse(r, &e);
		memo_put(&c->over, &k, serial, &e);
		xfer_end(x, &e);
	} else if (json_is_true(json_object_get(r->f.json, "q"))) {
		acknowledge(c, r, NULL);        /* there is a taker: the data may come */
	} else {
		if (x->serial != serial || x->step != step)
			start_over(x, serial, step);
		take(x, r, at, hash);
	}
}

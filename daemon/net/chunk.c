/* Sending transfers, and what both directions share. Each chunk is one call, so that re-sending, fresh sockets and the
 * death of the peer are rpc's business; here is only which chunk goes when: at most `credit` of them are unanswered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "net/chunk_int.h"

#define WAIT_FIRST_US 100000ull                 /* nobody takes it yet: ask again, unless CHUNK_WANT comes first */
#define WAIT_MAX_US 2000000ull
#define MEASURE_BYTES ((size_t)1 << 20)
#define FOREVER_US ((uint64_t)365 * 24 * 3600 * 1000000)

/* ---- both directions ---- */

static void xfer_fire(struct timer *t);

struct xfer *xfer_new(struct chunks *c, bool sending, const struct id *peer, const struct id *tag, size_t len,
	uint64_t deadline_us, xfer_done_fn *done, void *arg)
{
	struct xfer *x = xcalloc(1, sizeof *x);
	struct map *m = sending ? c->sends : c->recvs;
	struct err e;

	x->c = c;
	x->sending = sending;
	x->key = (struct xfer_key){ *peer, *tag };
	x->len = len;
	xfer_cut(x, CHUNK_BYTES);
	x->deadline_us = deadline_us ? deadline_us : env_now(c->env) + FOREVER_US;
	x->done = done;
	x->arg = arg;
	x->timer = (struct timer){ .fire = xfer_fire, .name = "net transfer" };
	x->hasher = (struct timer){ .fire = recv_hash_fire, .name = "net transfer hash" };
	list_init(&x->flights);
	list_push(sending ? &c->send_list : &c->recv_list, &x->link);
	if (map_get(m, &x->key, sizeof x->key)) {
		err_set(&e, ERR_EXISTS, "a transfer of that name is under way");
		xfer_fail_later(x, &e);
		return x;
	}
	x->listed = true;
	map_put(m, &x->key, sizeof x->key, x);
	xfer_arm(x);
	return x;
}

void xfer_arm(struct xfer *x)
{
	uint64_t at = x->deadline_us;

	if (x->failed)
		at = env_now(x->c->env) + 1;
	else if (x->waiting && x->retry_us < at)
		at = x->retry_us;
	env_timer(x->c->env, &x->timer, at);
}

void xfer_fail_later(struct xfer *x, const struct err *e)
{
	if (!x->failed)
		x->failed = xcalloc(1, sizeof *x->failed);
	*x->failed = *e;
	xfer_arm(x);
}

void xfer_free(struct xfer *x)
{
	struct chunks *c = x->c;

	env_timer(c->env, &x->timer, 0);
	send_drop_flights(x);
	recv_drop(x);
	if (x->listed)
		map_del(x->sending ? c->sends : c->recvs, &x->key, sizeof x->key);
	list_del(&x->link);
	c->receiving -= x->counted;
	XXH3_freeState(x->hash);
	free(x->have);
	free(x->failed);
	free(x);
}

/* done still sees the transfer, but nothing of ours points to it any more. */
void xfer_end(struct xfer *x, const struct err *e)
{
	struct chunks *c = x->c;
	struct err copy;

	if (e)
		copy = *e;
	env_timer(c->env, &x->timer, 0);
	send_drop_flights(x);
	recv_drop(x);
	if (x->listed)
		map_del(x->sending ? c->sends : c->recvs, &x->key, sizeof x->key);
	x->listed = false;
	list_del(&x->link);
	x->done(x->arg, x, e ? &copy : NULL);
	xfer_free(x);
}

void xfer_cancel(struct xfer *x)
{
	if (x->sending)
		send_tell_over(x);
	xfer_free(x);
}

uint64_t xfer_bytes(const struct xfer *x)
{
	return x->bytes;
}

bool xfer_waits(const struct xfer *x) { return x->waiting; }

const struct id *xfer_peer(const struct xfer *x)
{
	return &x->key.peer;
}

static void xfer_fire(struct timer *t)
{
	struct xfer *x = container_of(t, struct xfer, timer);
	uint64_t now = env_now(x->c->env);
	struct err e;

	if (x->failed) {
		e = *x->failed;
		xfer_end(x, &e);
	} else if (now >= x->deadline_us) {
		err_set(&e, ERR_TIMEOUT, "%llu of %zu bytes were %s by the deadline%s", (unsigned long long)x->bytes, x->len,
			x->sending ? "taken" : "there", x->waiting ? "; the receiver does not expect this transfer" : "");
		if (x->sending)
			send_tell_over(x);
		xfer_end(x, &e);
	} else if (x->waiting) {
		x->retry_us = now + x->wait_us;
		x->wait_us = 2 * x->wait_us < WAIT_MAX_US ? 2 * x->wait_us : WAIT_MAX_US;
		if (!x->in_flight)
			send_question(x);
		xfer_arm(x);
	}
}

/* ---- sending ---- */

static void flight_done(void *arg, const struct frame *f, const struct err *e);

static void fly(struct xfer *x, uint64_t index, json_t *j, struct blob blob, enum net_class cls)
{
	struct flight *f = xcalloc(1, sizeof *f);
	uint64_t now = env_now(x->c->env);

	*f = (struct flight){ .x = x, .index = index };
	list_push(&x->flights, &f->link);
	x->in_flight++;
	f->call = net_call(x->c->net, &x->key.peer, KIND_CHUNK, j, blob, cls,
		x->deadline_us > now ? x->deadline_us - now : 1, flight_done, f);
}

static json_t *name_of(const struct xfer *x, uint64_t at)
{
	json_t *j = json_pack("{s:o,s:I,s:I,s:I}", "t", json_hex(x->key.tag.b, 32), "s", (json_int_t)x->serial, "o",
		(json_int_t)at, "n", (json_int_t)x->len);

	if (x->unhashed)
		json_object_set_new(j, "u", json_true());
	if (x->step != CHUNK_BYTES)
		json_object_set_new(j, "z", json_integer((json_int_t)x->step));
	return j;
}

/* Is there a taker now? A chunk itself would ask as well, and fill a thin link with what nobody wants: members go on
 * with the results of rounds that this peer has missed. */
void send_question(struct xfer *x)
{
	json_t *j = name_of(x, 0);

	json_object_set_new(j, "q", json_true());
	fly(x, QUESTION, j, NO_BLOB, CLASS_control);
}

static void flight_free(struct flight *f)
{
	list_del(&f->link);
	f->x->in_flight--;
	free(f);
}

void send_drop_flights(struct xfer *x)
{
	list_each_safe(it, &x->flights) {
		struct flight *f = list_entry(it, struct flight, link);

		net_cancel(x->c->net, f->call);
		flight_free(f);
	}
}

void send_tell_over(struct xfer *x)
{
	if (x->tried && !x->failed)
		net_post(x->c->net, &x->key.peer, KIND_CHUNK, json_pack("{s:o,s:I,s:b}", "t", json_hex(x->key.tag.b, 32),
			"s", (json_int_t)x->serial, "x", 1),
			NO_BLOB, CLASS_control);
}

static void send_chunk(struct xfer *x, uint64_t i)
{
	json_t *j = name_of(x, i * x->step);

	(void)FAILPOINT(x->c->env, "net.chunk.before");
	if (i == x->hashed && !x->unhashed)     /* while it is on its way through the cache anyway */
		xfer_hash_prefix(x, x->data);
	if (i == x->nchunks - 1 && !x->unhashed) {
		while (x->hashed < x->nchunks)
			xfer_hash_prefix(x, x->data);
		if (!x->has_digest)
			xfer_digest(x, x->want);
		x->has_digest = true;
		json_object_set_new(j, "h", json_hex(x->want, 16));
	}
	x->tried++;
	fly(x, i, j, (struct blob){ .data = x->data + i * x->step, .len = chunk_len(x, i) }, x->cls);
}

static bool flying(const struct xfer *x, uint64_t i)
{
	list_each(it, &x->flights)
		if (list_entry(it, struct flight, link)->index == i)
			return true;
	return false;
}

/* Chunks that may be unanswered: six fill what is near; what is far takes twice its bandwidth-delay product. */
static uint32_t window(const struct xfer *x)
{
	uint64_t us = env_now(x->c->env) - x->began_us, n;
	struct peer_info p;

	if (x->far_credit <= x->credit || !us || !net_peer(x->c->net, &x->key.peer, &p) || p.rtt_us < FAR_US)
		return x->credit;
	n = 2 * (uint64_t)((double)x->bytes * (double)p.rtt_us / (double)us) / CHUNK_BYTES;
	n = n < x->far_credit ? n : x->far_credit;
	return n > x->credit ? (uint32_t)n : x->credit;
}

void send_pump(struct xfer *x)
{
	uint32_t most = window(x);

	if (x->step != CHUNK_BYTES)
		most = (most + 1) / 2;
	while (!x->waiting && !x->failed && x->in_flight < most) {
		while (x->next < x->nchunks && (bit(x->have, x->next) || flying(x, x->next)))
			x->next++;
		if (x->next == x->nchunks)
			break;
		send_chunk(x, x->next++);
	}
	xfer_arm(x);
}

/* There is a taker. */
static void go_on(struct xfer *x)
{
	if (x->waiting)
		x->began_us = env_now(x->c->env);
	x->waiting = false;
	x->wait_us = 0;
	x->next = 0;
	send_pump(x);
}

/* Nobody takes it (or no longer: a new taker starts with nothing). */
static void no_taker(struct xfer *x)
{
	memset(x->have, 0, (x->nchunks + 7) / 8);
	x->bytes = x->next = 0;
	x->asked_last = false;
	if (x->waiting)
		return;
	x->waiting = true;
	x->wait_us = x->wait_us ? x->wait_us : WAIT_FIRST_US;
	x->retry_us = env_now(x->c->env) + x->wait_us;
}

static void delivered(struct xfer *x)
{
	uint64_t us = env_now(x->c->env) - x->began_us;

	if (x->len >= MEASURE_BYTES && us)
		net_measured(x->c->net, &x->key.peer, x->len, us);
	xfer_end(x, NULL);
}

static void take_credit(struct xfer *x, const json_t *j)
{
	uint64_t credit, far;

	if (!json_get_u64(j, "c", &credit, NULL) && credit)
		x->credit = credit < WINDOW_MAX ? (uint32_t)credit : WINDOW_MAX;
	x->far_credit = x->credit;
	if (!json_get_u64(j, "f", &far, NULL) && far > x->credit)
		x->far_credit = far < WINDOW_FAR ? (uint32_t)far : WINDOW_FAR;
}

static void flight_done(void *arg, const struct frame *f, const struct err *e)
{
	struct flight *fl = arg;
	struct xfer *x = fl->x;
	uint64_t i = fl->index;

	flight_free(fl);
	if (i == QUESTION && e && e->code == ERR_PROTOCOL) {    /* a taker that knows no questions, and wants the data */
		go_on(x);
		return;
	}
	if (e && (e->code == ERR_BUSY || e->code == ERR_STATE)) {
		x->next = i < x->next ? i : x->next;
		x->waiting = true;              /* the same chunk again, a little later */
		x->wait_us = WAIT_FIRST_US;
		x->retry_us = env_now(x->c->env) + x->wait_us;
		xfer_arm(x);
		return;
	}
	if (e) {
		if (e->code == ERR_TIMEOUT)
			send_tell_over(x);
		xfer_end(x, e);
		return;
	}
	take_credit(x, f->json);
	if (json_is_true(json_object_get(f->json, "d"))) {
		x->bytes = x->len;
		delivered(x);
		return;
	}
	if (i == QUESTION) {                    /* CHUNK_WANT may have been faster */
		if (x->waiting && !json_is_true(json_object_get(f->json, "w")))
			go_on(x);
		return;
	}
	if (json_is_true(json_object_get(f->json, "w"))) {
		no_taker(x);
	} else if (!bit(x->have, i)) {
		bit_set(x->have, i);
		x->bytes += chunk_len(x, i);
	}
	/* All acknowledged but none said "done": the taker changed on the way. Ask with the last one, then,
	 * after a pause, send all. */
	if (!x->in_flight && x->bytes == x->len && x->len && !x->waiting) {
		if (x->asked_last) {
			no_taker(x);
		} else {
			x->asked_last = true;
			x->have[(x->nchunks - 1) / 8] &= (uint8_t)~(1u << (x->nchunks - 1) % 8);
			x->bytes -= chunk_len(x, x->nchunks - 1);
			x->next = x->nchunks - 1;
		}
	}
	send_pump(x);
}

static struct xfer *sending(struct chunks *c, const struct id *to, const struct id *tag, const void *data, size_t len,
	enum net_class cls, uint64_t deadline_us, xfer_done_fn *done, void *arg)
{
	struct xfer *x = xfer_new(c, true, to, tag, len, deadline_us, done, arg);

	x->unhashed = net_moves(c->net, to) & MOVES_UNHASHED;
	xfer_cut(x, xfer_step(x));
	x->data = data;
	x->serial = ++c->serial;
	x->cls = cls;
	x->credit = WINDOW_FIRST;
	x->began_us = env_now(c->env);
	return x;
}

struct xfer *xfer_send(struct chunks *c, const struct id *to, const struct id *tag, const void *data, size_t len,
	enum net_class cls, uint64_t deadline_us, xfer_done_fn *done, void *arg)
{
	struct xfer *x = sending(c, to, tag, data, len, cls, deadline_us, done, arg);

	send_pump(x);
	return x;
}

struct xfer *xfer_offer(struct chunks *c, const struct id *to, const struct id *tag, const void *data, size_t len,
	enum net_class cls, uint64_t deadline_us, xfer_done_fn *done, void *arg)
{
	struct xfer *x = sending(c, to, tag, data, len, cls, deadline_us, done, arg);

	no_taker(x);
	send_question(x);
	xfer_arm(x);
	return x;
}

void on_want(void *arg, struct request *r)
{
	struct chunks *c = arg;
	struct xfer_key k = { .peer = r->f.from };
	struct xfer *x;
	struct err e;

	if (json_get_hex(r->f.json, "t", k.tag.b, 32, &e)) {
		if (r->wants_reply)
			net_refuse(r, &e);
		return;
	}
	if (r->wants_reply)
		net_reply(r, NULL, NO_BLOB);
	x = map_get(c->sends, &k, sizeof k);
	if (!x || x->failed)
		return;
	take_credit(x, r->f.json);
	go_on(x);
}

/* ---- life ---- */

static void end_all(struct list *l, const struct id *peer, const struct err *e)
{
	list_each(it, l) {
		struct xfer *x = list_entry(it, struct xfer, link);

		if (!x->failed && id_eq(&x->key.peer, peer))
			xfer_fail_later(x, e);
	}
}

static void on_news(void *arg, const struct id *peer, enum net_news what)
{
	struct chunks *c = arg;
	char who[9];
	struct err e;

	if (what == NEWS_ALIVE || PLANTED(DEATH_UNHEARD))
		return;
	err_set(&e, ERR_UNREACHABLE, "peer %s %s", id_short(peer, who), what == NEWS_DEAD ? "looks dead" :
		what == NEWS_GOODBYE ? "has said goodbye" : "has restarted");
	end_all(&c->send_list, peer, &e);
	end_all(&c->recv_list, peer, &e);
	if (what == NEWS_RESTARTED) {           /* it numbers its sendings from 1 again */
		memos_forget(&c->waits, peer);
		memos_forget(&c->over, peer);
	}
}

struct chunks *chunks_new(struct env *env, struct net *net)
{
	struct chunks *c = xcalloc(1, sizeof *c);
	uint64_t key;

	env->ops->secure(env, &key, sizeof key);
	c->env = env;
	c->net = net;
	c->sends = map_new(key);
	c->recvs = map_new(key);
	list_init(&c->send_list);
	list_init(&c->recv_list);
	memos_init(&c->waits, key);
	memos_init(&c->over, key);
	net_on(net, KIND_CHUNK, on_chunk, c);
	net_on(net, KIND_CHUNK_WANT, on_want, c);
	net_watch(net, on_news, c);
	return c;
}

/* Before net_free; transfers that are under way end with CANCELLED. */
void chunks_free(struct chunks *c)
{
	struct err e;

	if (!c)
		return;
	err_set(&e, ERR_CANCELLED, "the daemon is stopping");
	net_unwatch(c->net, on_news, c);
	net_on(c->net, KIND_CHUNK, NULL, NULL);
	net_on(c->net, KIND_CHUNK_WANT, NULL, NULL);
	while (!list_empty(&c->send_list))
		xfer_end(list_entry(c->send_list.next, struct xfer, link), &e);
	while (!list_empty(&c->recv_list))
		xfer_end(list_entry(c->recv_list.next, struct xfer, link), &e);
	map_free(c->sends);
	map_free(c->recvs);
	memos_free(&c->waits);
	memos_free(&c->over);
	free(c);
}

void chunks_offer(struct chunks *c, chunk_offer_fn *fn, void *arg)
{
	c->offer = fn;
	c->offer_arg = arg;
}

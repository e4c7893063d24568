/* A whole net room that receives any bytes. First byte of the input, modulo 4: 0 the rest as it is; 1 an M1 of ours
 * whose
 * body the input overwrites, with its MAC made good; 2 a frame whose kind, flags, JSON and blob the input chooses,
 * sealed
 * by a peer with a session, so that handlers and transfers see what a hostile member can say; 3 the same, as an
 * answer. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/heap.h"
#include "common/mem.h"
#include "common/rng.h"
#include "net/chunk.h"
#include "net/inner.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- an env that goes nowhere: packets are sealed and come back ---- */

struct nowhere { struct env env; struct heap timers; uint64_t now, chance; struct net *peer; struct list queue; };
static struct nowhere *of(struct env *e) { return (struct nowhere *)e; }
static uint64_t now(struct env *e) { return of(e)->now; }
static void timer(struct env *e, struct timer *t, uint64_t at_us) { heap_set(&of(e)->timers, t, at_us); }
static void close_link(struct env *e, const struct endpoint *to, bool waiting) {}
static bool linkinfo(struct env *e, const struct endpoint *to, struct linkinfo *ret) { return false; }
static uint64_t chance(struct env *e) { return rng_mix(++of(e)->chance, 1); }
static void secure(struct env *e, void *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)out)[i] = (uint8_t)chance(e);
}

static void send_later(struct env *e, const struct endpoint *to, enum chan c, uint64_t token, struct packet *p)
{
	p->chan = c;
	p->door_token = token;
	p->to = *to;
	list_push(&of(e)->queue, &p->link);
}

/* What was sent is sealed, delivered to the peer, and given back. */
static bool pump(struct nowhere *w)
{
	struct list *x = list_pop(&w->queue);
	struct packet *p = x ? list_entry(x, struct packet, link) : NULL;
	uint8_t *out;
	int rc;

	if (!p)
		return false;
	out = malloc(p->wire_len);
	rc = p->seal(p, 1, out);
	if (!rc && w->peer)
		w->peer->env->recv(w->peer->env->recv_arg, (struct via){ .chan = p->chan }, out, p->wire_len);
	p->gone(p, rc == 0);
	free(out);
	return true;
}

static const struct env_ops ops = { .now = now, .wall = now, .timer = timer, .send = send_later,
	.close_link = close_link,
	.linkinfo = linkinfo, .rand = chance, .secure = secure };

static void echo(void *arg, struct request *r)
{
	if (r->wants_reply)
		net_reply(r, json_deep_copy(r->f.json), NO_BLOB);
}

static void init(struct nowhere *w, uint8_t who)
{
	struct net_conf c = { .seed = { who }, .boot_id = who, .suites = SUITE_CHACHA20_POLY1305 };
	struct err e;

	memset(w, 0, sizeof *w);
	c.self.ip[0] = 0xfd;                    /* an address of a site: neither is on a loopback of its own */
	c.self.ip[15] = who;
	c.self.port[0] = 1;
	w->env.ops = &ops;
	w->env.log = log_new(16, LOG_ERROR_, NULL, NULL);
	w->now = 1000000;
	w->chance = who;
	heap_init(&w->timers);
	list_init(&w->queue);
	if (!net_new(&w->env, &c, &e))
		abort();
	net_on(w->env.recv_arg, KIND_DHT_FIND, echo, NULL);
	net_on(w->env.recv_arg, KIND_AVG_COMMIT, echo, NULL);
}

static void finish(struct nowhere *w)
{
	struct net *n = w->env.recv_arg;

	w->peer = NULL;
	while (pump(w))
		;
	net_free(n);
	while (pump(w))
		;
	heap_done(&w->timers);
	log_free(w->env.log);
}

/* ---- inputs ---- */

static void m1_with(struct net *to, const uint8_t *p, size_t n)
{
	struct hello1 m = { .version_min = 1, .version_max = 1, .suites = 3, .boot = 9 };
	struct buf b = {0};

	x25519_public((const uint8_t[32]){ 7 }, m.e);
	hello1_write(&m, to->mac_key, &b);
	if (n > b.len - PRELUDE_BYTES - 32)
		n = b.len - PRELUDE_BYTES - 32;
	if (n)
		memcpy(b.p + PRELUDE_BYTES, p, n);
	mac_of(to->mac_key, b.p, b.len - 32, b.p + b.len - 32);
	to->env->recv(to->env->recv_arg, (struct via){ .chan = CHAN_CTRL }, b.p, b.len);
	buf_free(&b);
}

static void as_it_is(struct net *to, const uint8_t *p, size_t n)
{
	uint8_t *own = malloc(n ? n : 1);       /* may be written over */

	if (n)
		memcpy(own, p, n);
	to->env->recv(to->env->recv_arg, (struct via){ .chan = CHAN_CTRL }, own, n);
	free(own);
}

static void ended(void *arg, const struct frame *f, const struct err *e) { ++*(int *)arg; }
static void moved(void *arg, struct xfer *x, const struct err *e) {}

static void sealed(struct net *a, struct net *b, struct session *s, const uint8_t *p, size_t n, bool reply)
{
	static const uint8_t kinds[] = { KIND_CHUNK, KIND_CHUNK_WANT, KIND_PING, KIND_DHT_FIND, KIND_AVG_COMMIT,
		KIND_GOODBYE, KIND_DHT_GET };
	size_t json, blob;
	struct header h = {0};
	struct piece pieces[2];
	uint8_t *out;

	if (n < 8)
		return;
	h.pre = (struct prelude){ .version = 1, .kind = reply ? KIND_REPLY + (p[0] & 1) : p[0] == 255 ? KIND_VIEW :
			kinds[p[0] % sizeof kinds],
		.flags = p[1] & (FLAG_CALL | FLAG_PROMPT | FLAG_PENDING | FLAG_ACK), .oldest = 1 };
	h.request = reply ? 1 + p[2] % 3 : p[2];
	h.span = p[3];
	h.cls = p[4] % CLASS_COUNT_;
	h.chan = p[5] & 1;
	json = (size_t)p[6] * 4;
	p += 8;
	n -= 8;
	json = json > n ? n : json;
	blob = n - json;
	if (json > json_max(h.pre.kind) || blob > blob_max(h.pre.kind))
		return;
	h.json_len = (uint32_t)json;
	h.blob_len = (uint32_t)blob;
	h.boot = a->conf.boot_id;
	h.sender = a->self.id;
	h.pre.length = (uint32_t)frame_bytes(json, blob, false);
	pieces[0] = (struct piece){ p, json };
	pieces[1] = (struct piece){ p + json, blob };
	out = malloc(h.pre.length);
	session_seal(s, &h, 50, pieces, 2, out);
	b->env->recv(b->env->recv_arg, (struct via){ .chan = h.chan }, out, h.pre.length);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t memory[600000];
	struct nowhere wa, wb;
	struct chunks *c;
	struct net *a, *b;
	int calls = 0;
	struct id tag = {0};

	if (!size)
		return 0;
	init(&wa, 1);
	init(&wb, 2);
	a = wa.env.recv_arg;
	b = wb.env.recv_arg;
	wa.peer = b;
	wb.peer = a;
	c = chunks_new(&wb.env, b);
	net_learn(a, net_self(b), net_endpoint(b));
	net_post(a, net_self(b), KIND_PING, NULL, NO_BLOB, CLASS_control);
	for (int i = 0; i < 10; i++)
		if (!pump(&wa))
			pump(&wb);
	if (!peer_find(b, net_self(a)) || !peer_session(peer_find(b, net_self(a))))
		abort();                        /* the two have shaken hands */
	wb.peer = NULL;                         /* b's own words go nowhere from now on */
	xfer_recv(c, net_self(a), &tag, memory, sizeof memory, 0, moved, NULL);
	xfer_send(c, net_self(a), &tag, memory, sizeof memory, CLASS_weight, wb.now + 1000000, moved, NULL);
	net_call(b, net_self(a), KIND_DHT_FIND, NULL, NO_BLOB, CLASS_control, 1000000, ended, &calls);
	if (data[0] % 4 == 0)
		as_it_is(b, data + 1, size - 1);
	else if (data[0] % 4 == 1)
		m1_with(b, data + 1, size - 1);
	else
		sealed(a, b, peer_session(peer_find(a, net_self(b))), data + 1, size - 1, data[0] % 4 == 3);
	for (int i = 0; i < 50; i++)
		if (!pump(&wb))
			break;
	chunks_free(c);
	finish(&wb);
	finish(&wa);
	if (calls != 1)
		abort();                        /* however hostile the answers: once */
	return 0;
}

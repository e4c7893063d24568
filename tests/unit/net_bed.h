/* Two simulated nodes that have spoken; every frame between them is recorded, and any bytes can be given to either. */
#ifndef TESTS_NET_BED_H
#define TESTS_NET_BED_H
#include "t.h"
#include "common/hash.h"
#include "net/inner.h"
#include "../sim/net_app.h"

struct recorded { int from, to; enum chan chan; size_t len; uint8_t *p; };
struct bed {
	struct sim *s; struct net_world w; struct net_app *a, *b;
	struct recorded *v; size_t n;
};

static inline void record(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct bed *b = arg;

	b->v = realloc(b->v, (b->n + 1) * sizeof *b->v);
	b->v[b->n++] = (struct recorded){ from, to, chan, len, memcpy(malloc(len), wire, len) };
}

static inline bool one_ended(struct sim *s, void *arg)
{
	return ((struct ended *)arg)->times;
}

static inline struct ended ask(struct bed *b, struct net_app *from, struct net_app *to, uint64_t n)
{
	static struct ended d;

	memset(&d, 0, sizeof d);
	net_app_call(from, net_self(to->net), n, NO_BLOB, 3000000, &d);
	sim_run_until(b->s, one_ended, &d, 5000000);
	assert_int_equal(d.times, 1);
	return d;
}

static inline int setup(void **state)
{
	struct bed *b = calloc(1, sizeof *b);

	*state = b;
	b->s = sim_new(77);
	b->a = net_app_add(b->s, &b->w);
	b->b = net_app_add(b->s, &b->w);
	net_app_know(b->s, 0, 1);
	sim_tap(b->s, record, b);
	assert_true(ask(b, b->a, b->b, 1).ok);
	sim_run_for(b->s, 10000);
	return 0;
}

static inline int teardown(void **state)
{
	struct bed *b = *state;

	assert_null(sim_failed(b->s));
	sim_free(b->s);
	for (size_t i = 0; i < b->n; i++)
		free(b->v[i].p);
	free(b->v);
	free(b);
	return 0;
}

static inline void give(struct net_app *to, enum chan c, const void *p, size_t len)
{
	uint8_t *copy = memcpy(malloc(len), p, len);    /* exactly len, so that ASan sees a read beyond */

	to->env->recv(to->env->recv_arg, (struct via){ .chan = c }, copy, len);
	free(copy);
}

static inline const struct recorded *find(struct bed *b, int from, unsigned kind)
{
	struct prelude p;

	for (size_t i = b->n; i-- > 0;)
		if (b->v[i].from == from && prelude_read(&p, b->v[i].p, b->v[i].len) == PRELUDE_OK && p.kind == kind)
			return &b->v[i];
	fail_msg("no %s was recorded", kind_name(kind));
	return NULL;
}

/* A frame that has not arrived yet, so that nothing but the seal can refuse it. */
static inline size_t fresh(struct bed *b, uint8_t *out, struct header *h, const char *json, struct id *sender)
{
	struct peer *p = peer_find(b->a->net, net_self(b->b->net));
	struct session *s = peer_session(p);
	struct piece piece = { json, strlen(json) };

	*h = (struct header){ .pre = { .version = 1, .kind = KIND_DHT_FIND, .flags = FLAG_CALL, .oldest = 1,
		.length = (uint32_t)frame_bytes(strlen(json), 0, false) }, .request = p->next_request++,
		.boot = b->a->net->conf.boot_id,
		.json_len = (uint32_t)strlen(json), .chan = CHAN_CTRL, .sender = *sender };
	session_seal(s, h, 1000, &piece, 1, out);
	return h->pre.length;
}

static inline struct net_counters counters(struct net_app *x)
{
	struct net_counters c;

	net_counters(x->net, &c);
	return c;
}

/* A new M1 that names node a's address, with one byte of it changed. */
static inline size_t make_m1(struct bed *b, uint64_t n, uint8_t ip, uint8_t *out, const uint8_t key[32])
{
	struct hello1 m = { .version_min = 1, .version_max = 1, .suites = 3, .boot = n, .software = "attack" };
	uint8_t priv[32] = { 1 };
	struct buf w = {0};
	size_t len;

	memcpy(priv + 1, &n, 8);
	x25519_public(priv, m.e);
	m.at = b->a->net->conf.self;
	m.at.ip[13] = ip;
	hello1_write(&m, key, &w);
	memcpy(out, w.p, w.len);
	len = w.len;
	buf_free(&w);
	return len;
}

#endif

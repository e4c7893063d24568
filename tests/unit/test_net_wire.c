/* What an attacker on the wire can do to a whole net room: frames are recorded between two simulated nodes and given
 * back changed, twice, to the wrong side, or made by hand. Each attempt has its counter, and none reaches a handler. */
#include "net_bed.h"

static void test_replay(void **state)
{
	struct bed *b = *state;
	const struct recorded *r = find(b, 0, KIND_DHT_FIND);

	for (int i = 0; i < 5; i++)
		give(b->b, r->chan, r->p, r->len);
	assert_int_equal(counters(b->b).replayed, 5);
	assert_int_equal(b->b->handled, 1);
}

static void test_reflected(void **state)
{
	struct bed *b = *state;
	const struct recorded *r = find(b, 0, KIND_DHT_FIND);

	give(b->a, r->chan, r->p, r->len);
	assert_int_equal(counters(b->a).bad_seal + counters(b->a).replayed, 1);
	assert_int_equal(b->a->handled, 0);
}

static void test_other_channel(void **state)
{
	struct bed *b = *state;
	const struct recorded *r = find(b, 0, KIND_DHT_FIND);

	for (int c = 0; c < CHANS; c++)
		if (c != (int)r->chan)
			give(b->b, c, r->p, r->len);
	assert_int_equal(counters(b->b).bad_seal, 2);
	assert_int_equal(b->b->handled, 1);
}

static void test_flipped(void **state)
{
	struct bed *b = *state;
	struct header h;
	uint8_t w[512];
	size_t n = fresh(b, w, &h, "{\"n\":5}", &b->a->net->self.id);

	for (size_t i = 0; i < n; i++)
		for (int bit = 0; bit < 8; bit++) {
			w[i] ^= (uint8_t)(1 << bit);
			give(b->b, CHAN_CTRL, w, n);
			w[i] ^= (uint8_t)(1 << bit);
		}
	for (size_t k = 0; k < n; k++)
		give(b->b, CHAN_CTRL, w, k);
	assert_int_equal(b->b->handled, 1);
	give(b->b, CHAN_CTRL, w, n);            /* whole, it is taken */
	assert_int_equal(b->b->handled, 2);
	struct net_counters c = counters(b->b);
	assert_int_equal(c.bad_magic + c.bad_frame + c.bad_version + c.bad_seal + c.unknown_session + c.replayed,
		8 * n + n);
}

/* Frames of one connection in another order: each that comes behind its follower is refused, none runs twice. */
static void test_reordered(void **state)
{
	struct bed *b = *state;
	static const unsigned order[] = { 2, 0, 1, 4, 3, 5, 5, 2 };
	static uint8_t w[6][512];
	size_t n[6];
	struct header h;

	for (unsigned i = 0; i < 6; i++)
		n[i] = fresh(b, w[i], &h, "{\"n\":5}", &b->a->net->self.id);
	for (unsigned i = 0; i < 8; i++)
		give(b->b, CHAN_CTRL, w[order[i]], n[order[i]]);
	assert_int_equal(b->b->handled, 1 + 3);         /* 2, 4, 5 */
	assert_int_equal(counters(b->b).replayed, 5);
	assert_int_equal(counters(b->b).bad_seal, 0);
}

/* More bytes than were sealed, and lengths that are larger than any frame may be. */
static void test_oversized(void **state)
{
	struct bed *b = *state;
	uint8_t w[1024] = { 0 };
	struct header h;
	size_t n = fresh(b, w, &h, "{\"n\":5}", &b->a->net->self.id), tries = 0;

	for (size_t more = 1; n + more <= sizeof w; more *= 2, tries++) {
		struct prelude p = h.pre;

		give(b->b, CHAN_CTRL, w, n + more);             /* the prelude says less */
		p.length = (uint32_t)(n + more);
		prelude_write(&p, w);
		give(b->b, CHAN_CTRL, w, n + more);             /* the prelude lies too */
		prelude_write(&h.pre, w);
	}
	for (unsigned i = 0; i < 3; i++) {
		struct header big = h;

		big.json_len = i == 0 ? NET_JSON_MAX + 1 : i == 1 ? UINT32_MAX : h.json_len;
		big.blob_len = i == 2 ? UINT32_MAX : 0;
		header_write(&big, w);
		give(b->b, CHAN_CTRL, w, n);
	}
	header_write(&h, w);
	assert_int_equal(b->b->handled, 1);
	struct net_counters c = counters(b->b);
	assert_int_equal(c.bad_magic + c.bad_frame + c.bad_seal, 2 * tries + 3);
	give(b->b, CHAN_CTRL, w, n);
	assert_int_equal(b->b->handled, 2);
}

/* What the transport lets through above the largest frame: counted for what it is, whatever stands in front of it. */
static void test_above_the_largest(void **state)
{
	struct bed *b = *state;
	uint8_t *w = calloc(1, WIRE_LARGE + 65536);
	struct net_counters c;
	struct header h;
	size_t n = fresh(b, w, &h, "{\"n\":5}", &b->a->net->self.id);

	for (unsigned i = 0; i < 6; i++) {
		size_t len = wire_max((enum chan)(i / 2)) + (i & 1 ? 65536 : 1);

		h.pre.length = (uint32_t)(i < 4 ? len : n);
		h.blob_len = (uint32_t)(i < 2 ? len - n : 0);
		header_write(&h, w);
		give(b->b, (enum chan)(i / 2), w, len);
	}
	c = counters(b->b);
	assert_int_equal(c.oversized, 6);
	assert_int_equal(c.bad_frame + c.bad_seal + c.bad_magic, 0);
	assert_int_equal(b->b->handled, 1);
	memset(w, 0, 16);
	give(b->b, CHAN_CTRL, w, WIRE_MAX);             /* as large as may be */
	give(b->b, CHAN_BULK, w, WIRE_LARGE);
	give(b->b, CHAN_DOOR, w, WIRE_LARGE);
	assert_int_equal(counters(b->b).oversized, 6);
	assert_true(ask(b, b->a, b->b, 6).ok);
	free(w);
}

/* A member of the swarm with a session of its own says to be another member. */
static void test_forged_sender(void **state)
{
	struct bed *b = *state;
	struct header h;
	uint8_t w[512];
	struct id other = { .b = { 1, 2, 3 } };
	size_t n = fresh(b, w, &h, "{\"n\":5}", &other);

	give(b->b, CHAN_CTRL, w, n);
	assert_int_equal(counters(b->b).bad_seal, 1);
	assert_int_equal(b->b->handled, 1);
}

static void test_stale_session(void **state)
{
	struct bed *b = *state;
	struct header h;
	uint8_t w[512];
	size_t n = fresh(b, w, &h, "{\"n\":5}", &b->a->net->self.id);

	net_ban(b->b->net, net_self(b->a->net), 1000, "a test", NULL);        /* forgets its sessions */
	net_ban(b->b->net, net_self(b->a->net), 0, NULL, NULL);
	give(b->b, CHAN_CTRL, w, n);
	assert_int_equal(counters(b->b).unknown_session, 1);
	assert_int_equal(b->b->handled, 1);
	/* RESET to one address at most once a second */
	size_t before = b->n;
	for (int i = 0; i < 1000; i++)
		give(b->b, CHAN_CTRL, w, n);
	sim_run_for(b->s, 50000);
	unsigned resets = 0;
	for (size_t i = before; i < b->n; i++) {
		struct prelude p;

		resets += b->v[i].from == 1 && prelude_read(&p, b->v[i].p, b->v[i].len) == PRELUDE_OK && p.kind == KIND_RESET;
	}
	assert_int_equal(resets, 1);
}

static void test_bad_json(void **state)
{
	struct bed *b = *state;
	static char big[8100];
	struct header h;
	static uint8_t w[16384];
	size_t n;

	for (int i = 0; i < 8000; i += 3)
		memcpy(big + i, "{},", 3);
	n = fresh(b, w, &h, big, &b->a->net->self.id);
	give(b->b, CHAN_CTRL, w, n);
	n = fresh(b, w, &h, "{\"a\":1,\"a\":2}", &b->a->net->self.id);
	give(b->b, CHAN_CTRL, w, n);
	n = fresh(b, w, &h, "{\"a\":", &b->a->net->self.id);
	give(b->b, CHAN_CTRL, w, n);
	assert_int_equal(counters(b->b).bad_json, 3);
	assert_int_equal(b->b->handled, 1);
	assert_true(ask(b, b->a, b->b, 5).ok);  /* the session has not suffered */
}

static void test_garbage(void **state)
{
	struct bed *b = *state;
	uint8_t junk[600];
	struct rng r;

	rng_seed(&r, 3);
	for (int i = 0; i < 20000; i++) {
		size_t n = rng_below(&r, sizeof junk);

		for (size_t k = 0; k < n; k++)
			junk[k] = (uint8_t)rng_u64(&r);
		if (i & 1 && n >= 16) {
			struct prelude p = { .version = 1, .kind = (uint16_t)(rng_u64(&r) % 80), .flags = (uint16_t)rng_u64(&r),
				.length = (uint32_t)n };

			prelude_write(&p, junk);
		}
		give(b->b, (enum chan)(i % 3), junk, n);
	}
	assert_int_equal(b->b->handled, 1);
	assert_true(counters(b->b).bad_magic >= 9000);
	assert_true(ask(b, b->a, b->b, 5).ok);
}

/* ---- HELLO ---- */

/* Ten thousand HELLOs that nobody finishes: bounded, limited per address, forgotten, and the neighbours live on. */
static void test_half_open(void **state)
{
	struct bed *b = *state;
	uint8_t w[HELLO1_MAX];

	for (int i = 0; i < 10000; i++) {
		size_t n = make_m1(b, (uint64_t)i + 1, (uint8_t)(i % 7), w, b->b->net->mac_key);

		give(b->b, CHAN_CTRL, w, n);
		assert_true(map_len(b->b->net->halves) <= HALVES_MAX);
		assert_true(map_len(b->b->net->sessions) <= HALVES_MAX + 1);
		assert_true(map_len(b->b->net->peers) <= 2);
	}
	assert_true(counters(b->b).hello_limited > 5000);
	assert_true(ask(b, b->a, b->b, 5).ok);
	sim_run_for(b->s, 15000000);
	assert_int_equal(map_len(b->b->net->halves), 0);
	assert_int_equal(map_len(b->b->net->sessions), 1);
}

/* M1 again and again: one answer, the same bytes, no new half session. A replay later costs one half session, no
 * peer. */
static void test_m1_again(void **state)
{
	struct bed *b = *state;
	uint8_t w[HELLO1_MAX];
	size_t n = make_m1(b, 5, 0, w, b->b->net->mac_key), before = b->n;
	const struct recorded *first = NULL;
	unsigned answers = 0;

	for (int i = 0; i < 10; i++)
		give(b->b, CHAN_CTRL, w, n);
	sim_run_for(b->s, 100000);
	for (size_t i = before; i < b->n; i++) {
		struct prelude p;

		if (b->v[i].from != 1 || prelude_read(&p, b->v[i].p, b->v[i].len) != PRELUDE_OK || p.kind != KIND_HELLO2)
			continue;
		if (first)
			assert_memory_equal(first->p, b->v[i].p, first->len);
		else
			first = &b->v[i];
		answers++;
	}
	assert_int_equal(answers, 10);
	assert_int_equal(map_len(b->b->net->halves), 1);
}

/* Five thousand times: few answers, and whoever lives at the address that it names still comes in. */
static void test_m1_replayed(void **state)
{
	struct bed *b = *state;
	uint8_t w[HELLO1_MAX];
	size_t n = make_m1(b, 5, 0, w, b->b->net->mac_key), before = b->n;
	unsigned answers = 0;

	for (int i = 0; i < 5000; i++)
		give(b->b, CHAN_CTRL, w, n);
	sim_run_for(b->s, 100000);
	for (size_t i = before; i < b->n; i++) {
		struct prelude p;

		answers += b->v[i].from == 1 && prelude_read(&p, b->v[i].p, b->v[i].len) == PRELUDE_OK && p.kind == KIND_HELLO2;
	}
	assert_in_range(answers, 1, 40);
	n = make_m1(b, 6, 0, w, b->b->net->mac_key);
	give(b->b, CHAN_CTRL, w, n);
	assert_int_equal(map_len(b->b->net->halves), 2);
}

/* Another swarm's M1 is answered by nothing at all on the mailboxes: nobody is dialled on its account. */
static void test_m1_wrong_key(void **state)
{
	struct bed *b = *state;
	uint8_t w[HELLO1_MAX], key[32] = { 9 };
	size_t n = make_m1(b, 5, 1, w, key), before = b->n;

	give(b->b, CHAN_CTRL, w, n);
	sim_run_for(b->s, 1000000);
	assert_int_equal(counters(b->b).wrong_swarm_key, 1);
	assert_int_equal(map_len(b->b->net->halves), 0);
	for (size_t i = before; i < b->n; i++) {
		struct prelude p;

		assert_int_equal(prelude_read(&p, b->v[i].p, b->v[i].len), PRELUDE_OK);
		assert_false(kind_plain(p.kind));
	}
	assert_true(net_app_told(&b->w, "wrong_swarm_key"));
}

/* A replayed M2 finds no HELLO that waits for it; a replayed M1 leaves the living session alone. */
static void test_hello_replay(void **state)
{
	struct bed *b = *state;
	const struct recorded *m1 = find(b, 0, KIND_HELLO1), *m2 = find(b, 1, KIND_HELLO2);
	uint64_t id = peer_session(peer_find(b->a->net, net_self(b->b->net)))->id;

	give(b->a, CHAN_CTRL, m2->p, m2->len);
	give(b->b, CHAN_CTRL, m1->p, m1->len);
	sim_run_for(b->s, 100000);
	assert_int_equal(peer_session(peer_find(b->a->net, net_self(b->b->net)))->id, id);
	assert_int_equal(peer_session(peer_find(b->b->net, net_self(b->a->net)))->id, id);
	assert_int_equal(counters(b->b).sessions, 1);
	assert_true(ask(b, b->a, b->b, 5).ok);
}

/* The initiator of a session signs M3 with a key that is not the id it claims: no session. */
static void test_m3_forged(void **state)
{
	struct bed *b = *state;
	struct net *n = b->b->net;
	uint8_t w[1024], priv[32] = { 1 }, dh[32], hash[32], transcript[32], seed[32] = { 42 };
	size_t len = make_m1(b, 5, 0, w, n->mac_key);
	uint64_t five = 5;
	struct signer thief;
	struct session *s;
	struct half *h;
	struct hello2 m2;
	struct sha256 sum;

	memcpy(priv + 1, &five, 8);
	give(b->b, CHAN_CTRL, w, len);
	sha256_of(w, len, hash);
	h = map_get(n->halves, hash, HELLO_REF);
	assert_non_null(h);
	assert_int_equal(hello2_look(&m2, h->m2.p, h->m2.len, NULL), 0);
	assert_int_equal(x25519_dh(priv, m2.e, dh), 0);
	sha256_init(&sum);
	sha256_add(&sum, w, len);
	sha256_add(&sum, h->m2.p, h->m2.len);
	sha256_end(&sum, transcript);
	s = session_new(true, m2.suite, dh, n->mac_key, transcript);
	assert_int_equal(s->id, h->s->id);
	signer_init(&thief, seed);
	m3_make(s->m3, &thief, transcript);
	memcpy(s->m3, b->a->net->self.id.b, 32);        /* "I am A" */
	struct header hd = { .pre = { .version = 1, .kind = KIND_DHT_FIND, .flags = FLAG_CALL | FLAG_M3, .oldest = 1,
		.length = (uint32_t)frame_bytes(2, 0, true) }, .request = 1, .boot = 5, .json_len = 2,
		.sender = b->a->net->self.id };
	struct piece p[2] = { { s->m3, M3_BYTES }, { "{}", 2 } };
	session_seal(s, &hd, 1, p, 2, w);
	give(b->b, CHAN_CTRL, w, hd.pre.length);
	assert_int_equal(counters(b->b).bad_seal, 1);
	assert_int_equal(b->b->handled, 1);
	assert_int_equal(counters(b->b).sessions, 1);
	/* without M3 at all it is no session either */
	session_seal(s, &hd, 1, p, 2, w);
	give(b->b, CHAN_CTRL, w, hd.pre.length);
	assert_int_equal(b->b->handled, 1);
	session_unref(s);
	signer_done(&thief);
}

/* The peer table is bounded: hints about thousands of peers push out older hints, never a peer in use. */
static void test_peers_bounded(void **state)
{
	struct bed *b = *state;
	struct endpoint at = b->b->net->conf.self;

	net_care(b->a->net, net_self(b->b->net), 1);
	for (uint32_t i = 0; i < 6000; i++) {
		struct id id = {0};

		memcpy(id.b, &i, 4);
		id.b[31] = 1;
		net_learn(b->a->net, &id, &at);
	}
	assert_int_equal(map_len(b->a->net->peers), 4096);
	assert_non_null(peer_find(b->a->net, net_self(b->b->net)));
	net_care(b->a->net, net_self(b->b->net), -1);
}

/* A book full of peers that have spoken lately: thousands of hints, as one key's records may be, make few of them
 * go. */
static void test_peers_stay(void **state)
{
	struct bed *b = *state;
	struct net *n = b->a->net;
	struct endpoint at = b->b->net->conf.self;
	unsigned left = 0;

	for (uint32_t i = 0; i < 10000; i++) {
		struct id id = { .b = { [31] = i < 4095 ? 2 : 3 } };

		memcpy(id.b, &i, 4);
		net_learn(n, &id, &at);
		if (i < 4095)
			peer_find(n, &id)->heard_us = env_now(n->env) + 1;
	}
	list_each(it, &n->peer_list)
		left += list_entry(it, struct peer, link)->id.b[31] == 2;
	assert_int_equal(map_len(n->peers), 4096);
	assert_in_range(left, 4095 - 64, 4095);
	sim_run_for(b->s, 10000000);            /* a search goes on to others, some a second */
	for (uint32_t i = 0; i < 200; i++) {
		struct id id = { .b = { [30] = 1, [31] = 3 } };

		memcpy(id.b, &i, 4);
		net_learn(n, &id, &at);
		if (peer_find(n, &id))          /* and they speak, too */
			peer_find(n, &id)->heard_us = env_now(n->env);
	}
	left = 0;
	list_each(it, &n->peer_list)
		left += list_entry(it, struct peer, link)->id.b[30] == 1;
	assert_in_range(left, 32, 130);
}

/* A hint from others does not move a peer whose address a session has proven; while it answers. */
static void test_hints(void **state)
{
	struct bed *b = *state;
	struct endpoint elsewhere = b->b->net->conf.self, now;

	elsewhere.ip[15] = 99;
	net_learn(b->a->net, net_self(b->b->net), &elsewhere);
	assert_true(net_address(b->a->net, net_self(b->b->net), &now));
	assert_true(endpoint_eq(&now, &b->b->net->conf.self));
}

static void test_status(void **state)
{
	struct bed *b = *state;
	struct peer_info i;
	json_t *j = net_status(b->b->net);

	assert_non_null(j);
	assert_int_equal(json_integer_value(json_object_get(j, "sessions")), 1);
	json_decref(j);
	assert_true(net_peer(b->b->net, net_self(b->a->net), &i));
	assert_true(i.session && i.bytes.in[CLASS_control] > 0 && i.bytes.out[CLASS_control] > 0);
	assert_string_equal(i.version, "hivemindd");
	assert_true(net_deadline(b->a->net, net_self(b->b->net), 0) < 100000);
	assert_int_equal(net_deadline(b->a->net, net_self(b->b->net), 5000000), 5000000);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { T(test_replay), T(test_reflected), T(test_other_channel), T(test_flipped),
		T(test_reordered), T(test_oversized), T(test_above_the_largest),
		T(test_forged_sender), T(test_stale_session), T(test_bad_json), T(test_garbage), T(test_half_open),
		T(test_peers_stay),
		T(test_m1_again), T(test_m1_replayed),
		T(test_m1_wrong_key), T(test_hello_replay), T(test_m3_forged), T(test_peers_bounded), T(test_hints),
		T(test_status) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

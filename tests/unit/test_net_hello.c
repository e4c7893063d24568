/* What HELLO shows, and what it does not: who is acquainted, whom it costs what, and whom it makes a daemon dial. */
#include "net_bed.h"

static struct env_ops mine;
static unsigned by_address, by_token;
static uint8_t last_ip[16];
static uint64_t last_token;

static void on_heard(struct env *e, const uint8_t ip[16], uint64_t token)
{
	*(token ? &by_token : &by_address) += 1;
	memcpy(last_ip, ip, 16);
	last_token = token;
}

static void listen_in(struct net_app *x)
{
	mine = *x->env->ops;
	mine.heard = on_heard;
	x->env->ops = &mine;
	by_address = by_token = 0;
}

/* An M1 alone makes nobody known: it may be a replay, and says what it likes. M3 does: where M2 has been, or of the
 * connection that it came by. */
static void test_heard(void **state)
{
	struct bed *b = *state;
	const struct recorded *m1 = find(b, 0, KIND_HELLO1);
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	struct peer *q = peer_find(b->a->net, net_self(b->b->net));

	listen_in(b->b);
	for (int i = 0; i < 5; i++)
		give(b->b, CHAN_CTRL, m1->p, m1->len);
	assert_int_equal(map_len(b->b->net->halves), 1);
	assert_int_equal(by_address + by_token, 0);
	peer_drop_sessions(p);
	peer_drop_sessions(q);
	p->mailbox = q->mailbox = false;
	q->frames_out = p->frames_out = 0;
	assert_true(ask(b, b->a, b->b, 2).ok);
	assert_true(by_token > 0 && last_token && by_address == 0);     /* through the door at first */
	hello_prove(q);
	sim_run_for(b->s, 1000000);
	assert_true(p->mailbox && by_address > 0);
}

static void knock(struct bed *b, struct via via, uint64_t n, uint8_t ip)
{
	uint8_t w[HELLO1_MAX];
	size_t len = make_m1(b, n, ip, w, b->b->net->mac_key);

	b->b->env->recv(b->b->env->recv_arg, via, w, len);
}

static bool let_in(struct bed *b, struct via via, uint64_t n, uint8_t ip)
{
	uint64_t before = counters(b->b).hello_limited;

	knock(b, via, n, ip);
	return counters(b->b).hello_limited == before;
}

/* Thousands of HELLOs by one connection, in the name of another's address: that connection pays, not that address. */
static void test_named(void **state)
{
	struct bed *b = *state;
	struct via door = { CHAN_DOOR, peer_find(b->b->net, net_self(b->a->net))->door_token };
	unsigned in = 0;

	assert_true(door.door_token);
	for (uint64_t i = 0; i < 2000; i++)
		in += let_in(b, door, i + 1, 0);
	assert_in_range(in, 1, 100);
	assert_true(let_in(b, (struct via){ CHAN_CTRL }, 5000, 0));
	assert_true(let_in(b, (struct via){ CHAN_DOOR, 77 }, 5001, 0));
}

static struct hello1 m1_of(struct bed *b, uint64_t n)
{
	struct hello1 m = { .version_min = 1, .version_max = 1, .suites = 3, .boot = n, .software = "attack" };
	uint8_t priv[32] = { 2 };

	memcpy(priv + 1, &n, 8);
	x25519_public(priv, m.e);
	m.at = b->a->net->conf.self;
	return m;
}

static bool named(struct bed *b, struct hello1 *m)
{
	uint64_t before = counters(b->b).hello_limited;
	struct buf w = {0};

	hello1_write(m, b->b->net->mac_key, &w);
	give(b->b, CHAN_CTRL, w.p, w.len);
	buf_free(&w);
	return counters(b->b).hello_limited == before;
}

/* Four thousand addresses that nobody has heard of: the table is full, and the next one comes in all the same. */
static void test_full(void **state)
{
	struct bed *b = *state;
	unsigned in = 0;

	for (uint64_t i = 0; i < 4200; i++) {
		struct hello1 m = m1_of(b, i + 1);

		m.at.ip[13] = (uint8_t)(100 + i / 256);
		m.at.ip[14] = (uint8_t)i;
		in += named(b, &m);
	}
	assert_int_equal(in, 4200);
	assert_int_equal(map_len(b->b->net->sources), 4096);
	assert_int_equal(list_len(&b->b->net->source_list), 4096);
	assert_true(ask(b, b->a, b->b, 5).ok);
}

/* Whoever has one address of IPv6 has the /64 around it. */
static void test_line(void **state)
{
	struct bed *b = *state;
	unsigned in = 0;

	for (uint64_t i = 0; i < 1500; i++) {
		struct hello1 m = m1_of(b, i + 1);

		memset(m.at.ip, 0, 16);
		m.at.ip[0] = 0xfd;
		memcpy(m.at.ip + 8, &i, 8);
		in += named(b, &m);
	}
	assert_int_equal(in, 512);
}

static unsigned sent_since(struct bed *b, size_t i, unsigned kind)
{
	struct prelude p;
	unsigned count = 0;

	for (; i < b->n; i++)
		count += b->v[i].from == 1 && prelude_read(&p, b->v[i].p, b->v[i].len) == PRELUDE_OK && p.kind == kind;
	return count;
}

/* HELLOs under another key, as fast as a connection carries them: it hears why once a second, not each time; nor do
 * frames of sessions that nobody knows take what there is of RESETs. */
static void test_refusals(void **state)
{
	struct bed *b = *state;
	struct via door = { CHAN_DOOR, peer_find(b->b->net, net_self(b->a->net))->door_token };
	uint8_t key[32] = { 9 }, w[HELLO1_MAX];
	size_t before = b->n;
	struct header h;

	for (uint64_t i = 0; i < 1000; i++) {
		size_t len = make_m1(b, i + 1, 0, w, key);

		b->b->env->recv(b->b->env->recv_arg, door, w, len);
	}
	sim_run_for(b->s, 1500000);
	assert_in_range(sent_since(b, before, KIND_TOO_OLD), 1, 2);
	assert_int_equal(counters(b->b).wrong_swarm_key, 1000);
	assert_int_equal(counters(b->b).hello_limited, 998);
	before = b->n;
	for (uint64_t i = 0; i < 100; i++) {
		size_t len = fresh(b, w, &h, "{}", &(struct id){ .b = { 9, (uint8_t)i } });

		w[72] ^= 1;                       /* the session */
		b->b->env->recv(b->b->env->recv_arg, door, w, len);
	}
	sim_run_for(b->s, 1000000);
	assert_true(counters(b->b).unknown_session >= 100);
	assert_in_range(sent_since(b, before, KIND_RESET), 1, 2);
}

static void refuse(struct bed *b, struct via via, const struct hello *h, const uint8_t key[32])
{
	struct too_old t = { .why = REFUSAL_VERSION, .version_min = 7, .version_max = 9 };
	uint8_t w[TOO_OLD_BYTES];

	memcpy(t.ref, h->m1_hash, HELLO_REF);
	too_old_write(&t, key, w);
	b->a->env->recv(b->a->env->recv_arg, via, w, sizeof w);
}

/* A refusal without the key's MAC settles a HELLO only on a connection that this side has made; who has seen an M1 can
 * send one to its mailbox, and to its own door. */
static void test_refused(void **state)
{
	struct bed *b = *state;
	struct peer *q = peer_find(b->a->net, net_self(b->b->net));
	static const uint8_t other[32] = { 9 };

	peer_drop_sessions(q);
	q->hello_next_us = 0;
	hello_start(q);
	assert_non_null(q->hello);
	refuse(b, (struct via){ CHAN_CTRL }, q->hello, other);
	assert_non_null(q->hello);
	refuse(b, (struct via){ CHAN_DOOR, 77 }, q->hello, other);
	assert_non_null(q->hello);
	refuse(b, (struct via){ CHAN_DOOR, DOOR_DIALLED | 77 }, q->hello, other);
	assert_null(q->hello);
	sim_run_for(b->s, 2000000);
	hello_start(q);
	refuse(b, (struct via){ CHAN_CTRL }, q->hello, b->a->net->mac_key);
	assert_null(q->hello);
}

static unsigned address_bans;
static void on_ban(struct env *e, const uint8_t ip[16], uint64_t until_us)
{
	address_bans += until_us > 0;
	if (!until_us)
		memcpy(last_ip, ip, 16);
}

/* Who misbehaves under an address that it only claims is banned, and its victim is not. */
static void test_ban(void **state)
{
	struct bed *b = *state;
	const struct id *id = net_self(b->a->net);
	struct peer *p = peer_find(b->b->net, id);
	static const enum at_level levels[] = { AT_HINT, AT_CLAIMED, AT_PROVEN };
	const struct env_ops *before = b->b->env->ops;
	uint8_t ip[16];

	mine = *before;
	mine.ban = on_ban;
	b->b->env->ops = &mine;
	for (int i = 0; i < 3; i++) {
		p->at_level = levels[i];
		address_bans = 0;
		assert_int_equal(net_ban(b->b->net, id, 1000000, "a test", NULL), 0);
		assert_int_equal(address_bans, levels[i] == AT_PROVEN);
		memcpy(ip, p->at.ip, 16);
		p->at.ip[15]++;                 /* it is elsewhere by now */
		memset(last_ip, 0, 16);
		assert_int_equal(net_ban(b->b->net, id, 0, NULL, NULL), 0);
		p->at.ip[15]--;
		assert_memory_equal(last_ip, address_bans ? ip : (const uint8_t[16]){ 0 }, 16);
	}
	b->b->env->ops = before;
}

static unsigned dialled, on_word;

static void count_send(struct env *e, const struct endpoint *to, enum chan c, uint64_t token, struct packet *p)
{
	if (c == CHAN_CTRL) {
		dialled++;
		on_word += p->asked;
	}
	p->gone(p, false);
}

/* An answer to the mailbox that M1 names goes there on its word alone; and so does a HELLO to an address that was
 * claimed through the door. */
static void test_asked(void **state)
{
	struct bed *b = *state;
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	const struct env_ops *before = b->b->env->ops;

	mine = *before;
	mine.send = count_send;
	b->b->env->ops = &mine;
	dialled = on_word = 0;
	knock(b, (struct via){ CHAN_CTRL }, 9, 1);
	assert_true(dialled == 1 && on_word == 1);
	assert_int_equal(p->at_level, AT_CLAIMED);
	p->prove_next_us = 0;
	assert_true(hello_prove(p));
	assert_true(dialled == 2 && on_word == 2);
	hello_free(p->hello);
	p->at_level = AT_PROVEN;
	p->prove_next_us = 0;
	assert_true(hello_prove(p));
	assert_true(dialled == 3 && on_word == 2);
	hello_free(p->hello);
	b->b->env->ops = before;
}

/* ---- addresses on somebody's word ---- */

static bool there;                              /* what dials them finds somebody who says nothing */
static struct endpoint sent_to[64];
static unsigned nsent, nasked;

static void into_void(struct env *e, const struct endpoint *to, enum chan c, uint64_t token, struct packet *p)
{
	if (to && !token && nsent < 64) {
		sent_to[nsent++] = *to;
		nasked += p->asked;
	}
	p->gone(p, true);
}

static bool in_void(struct env *e, const struct endpoint *to, struct linkinfo *ret)
{
	*ret = (struct linkinfo){ .connected = there };
	return there;
}

static void to_void(struct bed *b)
{
	mine = *b->b->env->ops;
	mine.send = into_void;
	mine.linkinfo = in_void;
	b->b->env->ops = &mine;
	nsent = nasked = 0;
}

/* What is sealed goes to an address that is only claimed as a HELLO does: on its word. */
static void test_sealed(void **state)
{
	struct bed *b = *state;
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	const struct env_ops *kept = b->b->env->ops;

	p->door_token = 0;
	p->at_level = AT_CLAIMED;
	to_void(b);
	(void)net_post(b->b->net, &p->id, KIND_PING, NULL, NO_BLOB, CLASS_control);     /* the packet is back at once */
	assert_true(nsent == 1 && nasked == 1);
	p->at_level = AT_PROVEN;
	(void)net_post(b->b->net, &p->id, KIND_PING, NULL, NO_BLOB, CLASS_control);     /* the packet is back at once */
	assert_true(nsent == 2 && nasked == 1);
	b->b->env->ops = kept;
}

/* After how many HELLOs the second address of the peer is tried. */
static unsigned second_after(struct bed *b, struct peer *p, const struct endpoint *second)
{
	uint64_t t = sim_now(b->s);
	unsigned i;

	if (p->hello)
		hello_free(p->hello);
	peer_drop_sessions(p);
	p->also = (struct others){ .n = 1, .v = { *second } };
	p->at.ip[13] = 50;
	p->at_level = AT_CLAIMED;
	p->hello_next_us = 0;
	nsent = nasked = 0;
	hello_start(p);
	for (;;) {
		for (i = 0; i < nsent && !endpoint_eq(&sent_to[i], second); i++)
			;
		if (i < nsent || sim_now(b->s) > t + 10000000)
			break;
		sim_run_for(b->s, 10000);
	}
	assert_int_equal(nasked, nsent);
	return i;
}

/* A member says that it is at an address that it cannot reach itself, or else at its own: whether somebody listens at
 * the first is not to be seen in what comes to the second. */
static void test_probe(void **state)
{
	struct bed *b = *state;
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	struct endpoint second = p->at;
	const struct env_ops *kept = b->b->env->ops;
	unsigned closed, open;

	second.ip[13] = 51;
	to_void(b);
	there = false;
	closed = second_after(b, p, &second);
	there = true;
	open = second_after(b, p, &second);
	assert_in_range(closed, 1, 10);
	assert_int_equal(open, closed);
	hello_free(p->hello);
	b->b->env->ops = kept;
}

/* The other addresses of a peer that has proved one are claimed only. */
static void test_also(void **state)
{
	struct bed *b = *state;
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	struct endpoint second = p->at;
	const struct env_ops *kept = b->b->env->ops;

	second.ip[13] = 51;
	to_void(b);
	there = false;
	peer_drop_sessions(p);
	p->also = (struct others){ .n = 1, .v = { second } };
	p->at_level = AT_PROVEN;
	p->hello_next_us = 0;
	hello_start(p);
	sim_run_for(b->s, 900000);
	assert_true(endpoint_eq(&p->at, &second) || nasked);
	assert_true(nsent >= 2 && nasked >= 1 && nasked < nsent);
	hello_free(p->hello);
	b->b->env->ops = kept;
}

/* What listens on this machine only, on its link, or nowhere is not dialled because somebody says so. */
static void test_near(void **state)
{
	static const uint8_t ips[][16] = { { 127, 0, 0, 1 }, { 0, 0, 0, 0 }, { 169, 254, 169, 254 }, { 224, 0, 0, 1 },
		{ 255, 255, 255, 255 } };
	static const uint8_t ips6[][16] = { { [15] = 1 }, { 0 }, { 0xfe, 0x80, [15] = 1 }, { 0xff, 2, [15] = 1 } };
	struct bed *b = *state;
	const struct env_ops *kept = b->b->env->ops;
	struct hello1 m = m1_of(b, 1);
	struct id who = { .b = { 77 } };
	struct endpoint at, own = m.at;
	struct net *n = b->b->net;

	to_void(b);
	for (uint64_t i = 0; i < 9; i++) {
		m = m1_of(b, i + 1);
		if (i < 5)
			memcpy(m.at.ip + 12, ips[i], 4);
		else
			memcpy(m.at.ip, ips6[i - 5], 16);
		at = m.at;
		assert_true(named(b, &m));
		m = m1_of(b, i + 100);
		m.also = (struct others){ .n = 2, .v = { at, own } };
		assert_true(named(b, &m));
		net_learn(n, &who, &at);
		assert_false(net_address(n, &who, &at));
	}
	for (unsigned i = 0; i < nsent; i++)
		assert_true(endpoint_eq(&sent_to[i], &own));
	assert_int_equal(nsent, 9);
	list_each(it, &n->half_list) {
		const struct half *h = list_entry(it, struct half, link);

		assert_true(h->m1.also.n == 0 || (h->m1.also.n == 1 && endpoint_eq(&h->m1.also.v[0], &own)));
	}
	n->conf.self.ip[12] = 127;              /* where this daemon is at home others are, too */
	m = m1_of(b, 1000);
	memcpy(m.at.ip + 12, ips[0], 4);
	assert_true(named(b, &m));
	assert_int_equal(nsent, 10);
	m = m1_of(b, 1001);
	memcpy(m.at.ip + 12, ips[2], 4);
	assert_true(named(b, &m));
	assert_int_equal(nsent, 10);
	b->b->env->ops = kept;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { T(test_heard), T(test_named), T(test_full), T(test_line),
		T(test_refusals), T(test_asked), T(test_ban),
		T(test_refused), T(test_sealed), T(test_probe), T(test_also), T(test_near) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* HELLO while somebody who is inside passes it on, or keeps it back: whose address it is, and which process is the
 * newer one. */
#include "common/jrpc.h"
#include "net_bed.h"

static struct env_ops mine;
static const struct env_ops *before;
static struct bed *bed;
static struct endpoint liar;                    /* where somebody else lives, who passes on what is said there */
static bool passes_on_all, deaf;                /* frames, too; a's own address for b leads nowhere */
static unsigned passed, to_itself;

static void pass_on(enum chan c, const uint8_t *p, size_t len)
{
	passed++;
	give(bed->b, c, p, len);
}

static void relay(struct env *e, const struct endpoint *to, enum chan c, uint64_t token, struct packet *p)
{
	uint8_t *copy = malloc(p->wire_len);
	struct prelude h;

	if (to && deaf && endpoint_eq(to, net_endpoint(bed->b->net))) {
		to_itself++;
		free(copy);
		p->gone(p, true);
		return;
	}
	if (!to || !endpoint_eq(to, &liar)) {
		free(copy);
		before->send(e, to, c, token, p);
		return;
	}
	if (!p->seal(p, 1, copy) && prelude_read(&h, copy, p->wire_len) == PRELUDE_OK &&
	    (h.kind == KIND_HELLO1 || passes_on_all))
		pass_on(c, copy, p->wire_len);
	free(copy);
	p->gone(p, true);
}

static struct peer *told_where(struct bed *b)
{
	struct peer *q = peer_find(b->a->net, net_self(b->b->net));
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));

	bed = b;
	liar = *net_endpoint(b->b->net);
	liar.ip[13] = 77;
	peer_drop_sessions(q);
	peer_drop_sessions(p);
	q->at = liar;
	q->at_level = AT_HINT;
	q->hello_next_us = 0;
	q->mailbox = true;
	passed = to_itself = 0;
	before = b->a->env->ops;
	mine = *before;
	mine.send = relay;
	b->a->env->ops = &mine;
	return q;
}

/* B answers a HELLO that was sent to somebody else's address: that is not taken for B's for it. */
static void test_relayed(void **state)
{
	struct bed *b = *state;
	struct peer *q = told_where(b);

	passes_on_all = deaf = false;
	hello_start(q);
	sim_run_for(b->s, 1000000);
	assert_true(passed > 0);
	assert_true(endpoint_eq(&q->at, net_endpoint(b->b->net)));
	assert_int_equal(q->at_level, AT_PROVEN);
	assert_true(ask(b, b->a, b->b, 7).ok);
	b->a->env->ops = before;
}

/* Behind a NAT nobody knows its outer address, and the inner one that it says leads nowhere: what answers is used, and
 * the other one tried once. */
static void test_nat(void **state)
{
	struct bed *b = *state;
	struct peer *q = told_where(b);
	unsigned tried;

	passes_on_all = deaf = true;
	hello_start(q);
	assert_true(ask(b, b->a, b->b, 8).ok);
	assert_true(endpoint_eq(&q->at, &liar));
	assert_int_equal(q->at_level, AT_ANSWERED);
	sim_run_for(b->s, 10000000);
	tried = to_itself;
	assert_in_range(tried, 1, 8);
	for (uint64_t i = 0; i < 5; i++) {
		q->hello_next_us = 0;
		hello_start(q);
		sim_run_for(b->s, 10000000);
		assert_true(ask(b, b->a, b->b, 9 + i).ok);
	}
	assert_int_equal(to_itself, tried);
	assert_true(endpoint_eq(&q->at, &liar));
	b->a->env->ops = before;
}

/* ---- kept back ---- */

struct begun { uint8_t priv[32]; struct buf m1; uint64_t boot; struct session *s; };

/* Node a's key says HELLO to b in a process of that number; M3 is left for later. */
static struct begun begin(struct bed *b, uint64_t boot)
{
	struct begun x = { .priv = { 3, (uint8_t)boot }, .boot = boot };
	struct hello1 m1 = { .version_min = 1, .version_max = 1, .suites = SUITE_CHACHA20_POLY1305, .boot = boot,
		.at = b->a->net->conf.self, .software = "test" };
	uint8_t dh[32], transcript[32];
	const struct recorded *r;
	struct sha256 sum;
	struct hello2 m2;
	struct err e;

	x25519_public(x.priv, m1.e);
	hello1_write(&m1, b->b->net->mac_key, &x.m1);
	give(b->b, CHAN_CTRL, x.m1.p, x.m1.len);
	sim_run_for(b->s, 100000);
	r = find(b, 1, KIND_HELLO2);
	assert_int_equal(hello2_look(&m2, r->p, r->len, &e), 0);
	assert_int_equal(x25519_dh(x.priv, m2.e, dh), 0);
	sha256_init(&sum);
	sha256_add(&sum, x.m1.p, x.m1.len);
	sha256_add(&sum, r->p, r->len);
	sha256_end(&sum, transcript);
	x.s = session_new(true, m2.suite, dh, b->b->net->mac_key, transcript);
	m3_make(x.s->m3, &b->a->net->self, transcript);
	return x;
}

static void finish(struct bed *b, struct begun *x)
{
	struct header h = { .pre = { .version = 1, .kind = KIND_PING, .flags = FLAG_M3, .oldest = 1,
		.length = (uint32_t)frame_bytes(0, 0, true) }, .request = 1, .boot = x->boot, .chan = CHAN_CTRL,
		.sender = b->a->net->self.id };
	struct piece piece = { x->s->m3, M3_BYTES };
	uint8_t wire[HEADER_BYTES + M3_BYTES + AEAD_TAG];

	session_seal(x->s, &h, 1, &piece, 1, wire);
	give(b->b, CHAN_CTRL, wire, sizeof wire);
	session_unref(x->s);
	buf_free(&x->m1);
}

/* M3 of a process that has been followed by another since: it comes too late. */
static void test_kept_back(void **state)
{
	struct bed *b = *state;
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	struct begun old = begin(b, 1001), young = begin(b, 1002), next;

	finish(b, &young);
	assert_int_equal(p->boot, 1002);
	assert_int_equal(list_len(&p->sessions), 1);
	finish(b, &old);
	assert_int_equal(p->boot, 1002);
	assert_int_equal(list_len(&p->sessions), 1);
	next = begin(b, 1003);                  /* and one that comes in time displaces it */
	finish(b, &next);
	assert_int_equal(p->boot, 1003);
	sim_run_for(b->s, 15000000);
	assert_true(ask(b, b->a, b->b, 5).ok);
	assert_int_equal(p->boot, b->a->net->conf.boot_id);
}

/* The other way round, M3 of the older before the younger one's: both count, in their order. */
static void test_in_order(void **state)
{
	struct bed *b = *state;
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	struct begun old = begin(b, 2001), young = begin(b, 2002);

	finish(b, &old);
	assert_int_equal(p->boot, 2001);
	finish(b, &young);
	assert_int_equal(p->boot, 2002);
}

static uint8_t kept[HELLO2_MAX];
static size_t kept_len;

static void keep_m2(struct env *e, const struct endpoint *to, enum chan c, uint64_t token, struct packet *p)
{
	uint8_t *copy = malloc(p->wire_len);
	struct prelude h;

	if (kept_len || p->seal(p, 1, copy) || prelude_read(&h, copy, p->wire_len) != PRELUDE_OK ||
	    h.kind != KIND_HELLO2) {
		free(copy);
		p->gone(p, false);              /* the rest is lost */
		return;
	}
	kept_len = p->wire_len;
	memcpy(kept, copy, kept_len);
	free(copy);
	p->gone(p, true);
}

/* M2 of an older process, kept back until a younger one has said HELLO: it is asked again, and who is there answers. */
static void test_m2_kept_back(void **state)
{
	struct bed *b = *state;
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	struct begun young;

	before = b->a->env->ops;
	mine = *before;
	mine.send = keep_m2;
	b->a->env->ops = &mine;
	kept_len = 0;
	peer_drop_sessions(p);
	p->mailbox = true;
	p->hello_next_us = 0;
	hello_start(p);
	sim_run_for(b->s, 100000);
	assert_true(kept_len > 0);
	young = begin(b, 3001);
	finish(b, &young);
	assert_int_equal(p->boot, 3001);
	assert_non_null(p->hello);
	for (int i = 0; i < 2; i++) {           /* it goes on with another M1, which that one does not answer */
		give(b->b, CHAN_CTRL, kept, kept_len);
		assert_int_equal(p->boot, 3001);
		assert_non_null(p->hello);
	}
	b->a->env->ops = before;
	sim_run_for(b->s, 10000000);
	assert_int_equal(p->boot, b->a->net->conf.boot_id);
	assert_true(ask(b, b->b, b->a, 5).ok);
}

/* ---- another process with one's own key: only its own word over one's own number proves it ---- */

static json_t *view;
static void viewed(void *arg, const struct frame *f, const struct err *e)
{
	assert_non_null(f);
	json_decref(view);
	view = json_deep_copy(json_object_get(f->json, "twin"));
	*(bool *)arg = true;
}

static bool is_true(struct sim *s, void *arg) { return *(bool *)arg; }

/* a tells b of a process of that number; the answer's "twin", or NULL. */
static const json_t *tell(struct bed *b, uint64_t boot, const uint8_t *sign, const uint8_t *sig)
{
	json_t *j = json_pack("{s:o}", "boot", json_hex(&boot, sizeof boot));
	static bool there;

	if (sign)
		json_object_set_new(j, "sign", json_hex(sign, 32));
	if (sig)
		json_object_set_new(j, "sig", json_hex(sig, SIG_BYTES));
	there = false;
	net_call(b->a->net, net_self(b->b->net), KIND_VIEW, json_pack("{s:o}", "twin", j), NO_BLOB, CLASS_control, 2000000,
		viewed, &there);
	assert_true(sim_run_until(b->s, is_true, &there, 3000000));
	sim_run_for(b->s, 2000000);             /* it answers once a second */
	return view;
}

static void over(struct signer *by, const char *context, const uint8_t ask[32], uint64_t boot, uint8_t sig[SIG_BYTES])
{
	uint8_t bytes[56];

	memset(bytes, 0, sizeof bytes);
	memcpy(bytes, context, strlen(context));
	memcpy(bytes + 16, ask, 32);
	for (int i = 0; i < 8; i++)
		bytes[48 + i] = (uint8_t)(boot >> 8 * i);
	signer_sign(by, bytes, sizeof bytes, sig);
}

static void test_twin(void **state)
{
	struct bed *b = *state;
	struct net *n = b->b->net;
	uint8_t ask[32], other[32] = { 7 }, sig[SIG_BYTES];
	const json_t *j = tell(b, 99, NULL, NULL);

	assert_false(json_get_hex(j, "ask", ask, 32, NULL));
	assert_null(json_object_get(j, "sig"));
	assert_null(tell(b, n->conf.boot_id, other, NULL));     /* that is itself */
	over(&b->a->net->self, "hivemind twin 1", ask, 99, sig);
	tell(b, 99, NULL, sig);
	over(&n->self, "hivemind twin 1", other, 99, sig);
	tell(b, 99, NULL, sig);
	over(&n->self, "hivemind twin 1", ask, 98, sig);
	tell(b, 99, NULL, sig);
	over(&n->self, "hivemind twin 2", ask, 99, sig);
	tell(b, 99, NULL, sig);
	j = tell(b, 99, ask, NULL);             /* its own signature over its own number has its own boot number */
	assert_false(json_get_hex(j, "sig", sig, sizeof sig, NULL));
	tell(b, 99, NULL, sig);
	tell(b, n->conf.boot_id, NULL, sig);
	assert_false(net_twin(n));
	over(&n->self, "hivemind twin 1", ask, 99, sig);
	tell(b, 99, NULL, sig);
	assert_true(net_twin(n));
	assert_true(net_app_told(&b->w, "duplicate_identity"));
	json_decref(view);
	view = NULL;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { T(test_relayed), T(test_nat), T(test_kept_back), T(test_in_order),
		T(test_m2_kept_back), T(test_twin) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

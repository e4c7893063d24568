/* Keys that are worn: after so many bytes, and after an hour, two peers go over to new ones. What is on its way under
 * the old ones is still taken, once; and neither before nor after is anything taken twice. */
#include "net_bed.h"

#define LIMIT (64u << 10)
#define BLOB 4000

/* Two that use each other's mailboxes, and are done with making sessions. */
static int settled(void **state)
{
	struct bed *b;

	setup(state);
	b = *state;
	for (uint64_t n = 500; n < 530; n++)
		assert_true(ask(b, n & 1 ? b->a : b->b, n & 1 ? b->b : b->a, n).ok);
	sim_run_for(b->s, 40000000);
	assert_int_equal(counters(b->a).sessions, 1);
	assert_int_equal(counters(b->b).sessions, 1);
	b->a->handled = b->b->handled = 0;
	return 0;
}

static struct peer *peer_at(struct bed *b) { return peer_find(b->a->net, net_self(b->b->net)); }
static uint64_t session_of(struct net_app *x, struct net_app *of)
{
	return peer_session(peer_find(x->net, net_self(of->net)))->id;
}

static bool both_have(struct sim *s, void *arg)
{
	struct bed *b = arg;
	const struct net *n = b->b->net;

	return map_get(n->sessions, &peer_session(peer_at(b))->id, sizeof(uint64_t)) && n->count.sessions > 1;
}

static struct ended with_blob(struct bed *b, uint64_t n)
{
	static const uint8_t bytes[BLOB];
	static struct ended d;

	memset(&d, 0, sizeof d);
	net_app_call(b->a, net_self(b->b->net), n, (struct blob){ bytes, sizeof bytes, NULL, NULL }, 3000000, &d);
	sim_run_until(b->s, one_ended, &d, 5000000);
	return d;
}

/* Ten times over: a session carries its bytes and hardly more, every call is run once, and old keys are forgotten. */
static void test_bytes(void **state)
{
	struct bed *b = *state;
	uint64_t n = 1;

	b->a->net->conf.rekey_bytes = LIMIT;
	for (int turn = 0; turn < 10; turn++) {
		struct session *s = session_ref(peer_session(peer_at(b)));
		unsigned calls = 0;

		while (session_of(b->a, b->b) == s->id) {
			assert_true(with_blob(b, ++n).ok);
			assert_true(++calls < 4 * LIMIT / BLOB);
		}
		assert_in_range(s->tx_bytes, LIMIT, LIMIT + 2 * (BLOB + 1000));
		session_unref(s);
		sim_run_for(b->s, 40000000);
		assert_int_equal(counters(b->a).sessions, 1);
		assert_int_equal(counters(b->b).sessions, 1);
		assert_int_equal(session_of(b->a, b->b), session_of(b->b, b->a));
	}
	assert_int_equal(b->b->handled, n - 1);
	assert_int_equal(b->b->twice, 0);
	assert_int_equal(counters(b->b).bad_seal + counters(b->b).replayed + counters(b->b).unknown_session, 0);
	assert_int_equal(counters(b->a).bad_seal + counters(b->a).replayed + counters(b->a).unknown_session, 0);
}

/* What is sent in the first hour goes under the first key, what is sent after it soon does not. */
static void test_time(void **state)
{
	struct bed *b = *state;
	uint64_t first = session_of(b->a, b->b), made = peer_session(peer_at(b))->made_us, n = 1;

	while (env_now(b->a->env) < made + 3599000000ull) {
		assert_true(ask(b, n & 1 ? b->a : b->b, n & 1 ? b->b : b->a, n + 1).ok);
		n++;
		assert_int_equal(session_of(b->a, b->b), first);
		sim_run_for(b->s, n < 60 ? 60000000 : 500000);
	}
	sim_run_for(b->s, 1500000);
	assert_true(ask(b, b->a, b->b, n + 1).ok);      /* under the old one, nobody waits for the new one */
	sim_run_for(b->s, 1000000);
	assert_int_not_equal(session_of(b->a, b->b), first);
	assert_int_equal(session_of(b->a, b->b), session_of(b->b, b->a));
	assert_true(ask(b, b->b, b->a, n + 2).ok);
	sim_run_for(b->s, 40000000);
	assert_int_equal(counters(b->a).sessions, 1);
	assert_null(map_get(b->b->net->sessions, &first, sizeof first));
	assert_int_equal(b->a->handled + b->b->handled, n + 1);
	assert_int_equal(counters(b->b).bad_seal + counters(b->b).replayed + counters(b->b).unknown_session, 0);
}

/* Makes a and b go over to a new session. */
static void renew(struct bed *b)
{
	uint64_t old = session_of(b->a, b->b);

	b->a->net->conf.rekey_bytes = 1;
	assert_true(ask(b, b->a, b->b, 2).ok);
	b->a->net->conf.rekey_bytes = UINT64_MAX;
	assert_true(sim_run_until(b->s, both_have, b, 5000000));
	assert_true(ask(b, b->a, b->b, 3).ok);
	assert_int_not_equal(session_of(b->a, b->b), old);
}

/* Frames that were sealed before, and come after: once they are taken, for half a minute; never again, and never under
 * the new session's number. */
static void test_in_flight(void **state)
{
	struct bed *b = *state;
	uint8_t w[4][512], stolen[512];
	struct header h[4];
	uint64_t now;
	size_t n[4];
	uint32_t handled;

	peer_at(b)->next_request += 1000;               /* calls that nobody takes for answered ones */
	for (unsigned i = 0; i < 4; i++)
		n[i] = fresh(b, w[i], &h[i], "{\"n\":9}", &b->a->net->self.id);
	peer_at(b)->next_request -= 1004;
	renew(b);
	now = session_of(b->a, b->b);
	handled = b->b->handled;
	for (unsigned i = 0; i < 3; i++) {
		give(b->b, CHAN_CTRL, w[i], n[i]);
		assert_int_equal(b->b->handled, handled + i + 1);
	}
	for (unsigned i = 0; i < 3; i++)
		give(b->b, CHAN_CTRL, w[i], n[i]);
	assert_int_equal(counters(b->b).replayed, 3);
	for (unsigned i = 0; i < 4; i++) {
		memcpy(stolen, w[i], n[i]);
		h[i].session = now;
		h[i].counter += 1000;                   /* the new counters have not come so far */
		header_write(&h[i], stolen);
		give(b->b, CHAN_CTRL, stolen, n[i]);
	}
	assert_int_equal(counters(b->b).bad_seal, 4);
	assert_int_equal(b->b->handled, handled + 3);
	peer_at(b)->next_request += 1004;
	assert_true(ask(b, b->a, b->b, 4).ok);          /* and the session has not suffered */
	sim_run_for(b->s, 40000000);
	handled = b->b->handled;
	for (unsigned i = 0; i < 4; i++)
		give(b->b, CHAN_CTRL, w[i], n[i]);      /* the last of them was never seen */
	assert_int_equal(counters(b->b).unknown_session, 4);
	assert_int_equal(b->b->handled, handled);
}

/* Everything that went over the wire before and during the change, given back after it: nothing runs again. */
static void test_replayed(void **state)
{
	struct bed *b = *state;
	uint32_t handled;
	size_t sealed = 0, from = b->n, upto;

	for (uint64_t i = 10; i < 30; i++)
		assert_true(ask(b, b->a, b->b, i).ok);
	renew(b);
	upto = b->n;
	handled = b->b->handled;
	for (size_t i = from; i < upto; i++) {
		struct prelude p;

		if (b->v[i].from != 0 || prelude_read(&p, b->v[i].p, b->v[i].len) != PRELUDE_OK || kind_plain(p.kind))
			continue;
		give(b->b, b->v[i].chan, b->v[i].p, b->v[i].len);
		sealed++;
	}
	assert_true(sealed >= 22);
	assert_int_equal(counters(b->b).replayed, sealed);
	assert_int_equal(b->b->handled, handled);
	assert_int_equal(b->b->twice, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, settled, teardown)
	const struct CMUnitTest tests[] = { T(test_bytes), T(test_time), T(test_in_flight), T(test_replayed) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

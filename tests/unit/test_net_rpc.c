/* Calls and posts at their edges: what is refused before anything is sent, what the other side refuses, who gives back
 * which blob and when, answers that are sent again, limits. */
#include "t.h"
#include "net/inner.h"
#include "../sim/net_app.h"

struct bed { struct sim *s; struct net_world w; struct net_app *a, *b; unsigned released; struct ended d[8]; };

static int setup(void **state)
{
	struct bed *b = calloc(1, sizeof *b);

	*state = b;
	b->s = sim_new(5);
	b->a = net_app_add(b->s, &b->w);
	b->b = net_app_add(b->s, &b->w);
	net_app_know(b->s, 0, 1);
	return 0;
}

static int teardown(void **state)
{
	struct bed *b = *state;

	assert_null(sim_failed(b->s));
	sim_free(b->s);
	free(b);
	return 0;
}

static void release(void *arg) { ++*(unsigned *)arg; }
static struct blob lent(struct bed *b, size_t n)
{
	static uint8_t bytes[NET_BLOB_MAX + 1];

	return (struct blob){ .data = bytes, .len = n, .release = release, .arg = &b->released };
}

static bool first_ended(struct sim *s, void *arg) { return ((struct bed *)arg)->d[0].times; }

static struct ended run(struct bed *b, struct call *c, bool wait)
{
	assert_non_null(c);
	assert_int_equal(b->d[0].times, 0);     /* never before net_call has returned */
	if (wait)
		assert_true(sim_run_until(b->s, first_ended, b, 60000000));
	struct ended d = b->d[0];
	assert_int_equal(d.times, 1);
	memset(b->d, 0, sizeof b->d);
	return d;
}

static struct ended call(struct bed *b, const struct id *to, enum kind k, json_t *j, struct blob blob)
{
	return run(b, net_call(b->a->net, to, k, j, blob, CLASS_control, 3000000, net_app_ended, &b->d[0]), true);
}

static void test_refused_here(void **state)
{
	struct bed *b = *state;
	struct id stranger = { .b = { 1, 2, 3 } };
	char *big = malloc(9001);
	struct ended d;

	d = call(b, net_self(b->a->net), KIND_DHT_FIND, NULL, lent(b, 10));
	assert_err(d, ERR_INVALID, "itself");
	assert_int_equal(b->released, 1);
	d = call(b, &stranger, KIND_DHT_FIND, NULL, lent(b, 10));
	assert_err(d, ERR_UNREACHABLE, "no address");
	assert_int_equal(b->released, 2);
	d = call(b, net_self(b->b->net), KIND_DHT_FIND, NULL, lent(b, NET_BLOB_MAX + 1));
	assert_err(d, ERR_LIMIT, "262144");
	assert_int_equal(b->released, 3);
	memset(big, 'x', 9000);
	big[9000] = 0;
	d = call(b, net_self(b->b->net), KIND_DHT_FIND, json_pack("{s:s}", "x", big), NO_BLOB);
	assert_err(d, ERR_LIMIT, "8192");
	assert_int_equal(net_post(b->a->net, &stranger, KIND_DHT_FIND, NULL, lent(b, 10), CLASS_control), -1);
	assert_int_equal(b->released, 4);
	assert_int_equal(b->b->handled, 0);
	free(big);
}

static void test_refused_there(void **state)
{
	struct bed *b = *state;
	struct ended d = call(b, net_self(b->b->net), KIND_AVG_JOIN, NULL, NO_BLOB);

	assert_err(d, ERR_NO_METHOD, "avg_join");
}

static void refuse_it(void *arg, struct request *r)
{
	struct err e;

	err_set(&e, ERR_FORK, "another history: \x01 %s", "abc");
	net_refuse(r, &e);
}

static void test_refusal(void **state)
{
	struct bed *b = *state;
	struct ended d;

	net_on(b->b->net, KIND_AVG_JOIN, refuse_it, NULL);
	d = call(b, net_self(b->b->net), KIND_AVG_JOIN, NULL, NO_BLOB);
	assert_err(d, ERR_FORK, "another history: ? abc");
}

static void forget(void *arg, struct request *r) {}
static void too_big(void *arg, struct request *r) { net_reply(r, NULL, lent(arg, NET_BLOB_MAX + 1)); }

/* A handler that forgets to answer, or answers too much, does not leave the caller waiting. */
static void test_bad_handlers(void **state)
{
	struct bed *b = *state;
	struct ended d;

	net_on(b->b->net, KIND_AVG_JOIN, forget, NULL);
	d = call(b, net_self(b->b->net), KIND_AVG_JOIN, NULL, NO_BLOB);
	assert_err(d, ERR_INTERNAL, "has not answered");
	net_on(b->b->net, KIND_AVG_JOIN, too_big, b);
	d = call(b, net_self(b->b->net), KIND_AVG_JOIN, NULL, NO_BLOB);
	assert_err(d, ERR_LIMIT, "larger than a frame");
	assert_int_equal(b->released, 1);
}

/* The caller's blob comes back once: when the answer is there, or at once when the call is cancelled. */
static void test_blobs(void **state)
{
	struct bed *b = *state;
	struct call *c;

	assert_true(call(b, net_self(b->b->net), KIND_DHT_FIND, json_pack("{s:i}", "n", 1), lent(b, 100000)).ok);
	sim_run_for(b->s, 1000000);
	assert_int_equal(b->released, 1);
	c = net_call(b->a->net, net_self(b->b->net), KIND_DHT_FIND, NULL, lent(b, 100000), CLASS_weight, 3000000,
		net_app_ended,
		&b->d[0]);
	net_cancel(b->a->net, c);
	assert_int_equal(b->released, 2);
	sim_run_for(b->s, 4000000);
	assert_int_equal(b->d[0].times, 0);
	assert_int_equal(b->b->handled, 1);
	/* posts: when the packet has gone */
	assert_int_equal(net_post(b->a->net, net_self(b->b->net), KIND_DHT_FIND, NULL, lent(b, 100), CLASS_control), 0);
	sim_run_for(b->s, 1000000);
	assert_int_equal(b->released, 3);
	assert_int_equal(b->b->posted, 1);
}

static void lend_back(void *arg, struct request *r) { net_reply(r, NULL, lent(arg, 5000)); }

/* The answerer's blob is kept for re-sending until the caller shows that it needs it no more. */
static void test_cached_answer(void **state)
{
	struct bed *b = *state;

	net_on(b->b->net, KIND_AVG_JOIN, lend_back, b);
	assert_true(call(b, net_self(b->b->net), KIND_AVG_JOIN, NULL, NO_BLOB).ok);
	sim_run_for(b->s, 100000);
	assert_int_equal(b->released, 0);
	assert_true(call(b, net_self(b->b->net), KIND_DHT_FIND, json_pack("{s:i}", "n", 1), NO_BLOB).ok);
	assert_int_equal(b->released, 1);       /* the next call's frame said so */
	assert_true(call(b, net_self(b->b->net), KIND_AVG_JOIN, NULL, NO_BLOB).ok);
	sim_run_for(b->s, 40000000);
	assert_int_equal(b->released, 2);       /* or 30 s */
	assert_true(b->b->net->cached_bytes == 0);
}

/* The connection dies with the answer in it: the call is sent again, the handler does not run again. */
static void test_lost_answer(void **state)
{
	struct bed *b = *state;

	for (int i = 0; i < 12; i++)            /* a partner by now: mailboxes */
		assert_true(call(b, net_self(b->b->net), KIND_DHT_FIND, json_pack("{s:i}", "n", i), NO_BLOB).ok);
	sim_run_for(b->s, 500000);
	b->b->handled = 0;
	b->b->hold = true;
	net_call(b->a->net, net_self(b->b->net), KIND_DHT_FIND, json_pack("{s:i}", "n", 500), NO_BLOB, CLASS_control,
		20000000,
		net_app_ended, &b->d[0]);
	sim_run_for(b->s, 20000);
	assert_int_equal(b->b->nheld, 1);
	sim_cut(b->s, 1, 0);
	net_reply(b->b->held[0], json_pack("{s:i}", "n", 501), NO_BLOB);
	sim_run_for(b->s, 50000);
	sim_break(b->s, 0, 1);                  /* what was in it is gone */
	sim_heal(b->s);
	assert_true(sim_run_until(b->s, first_ended, b, 20000000));
	if (!b->d[0].ok)
		fail_msg("%s", b->d[0].text);
	assert_int_equal(b->d[0].n, 501);
	assert_int_equal(b->b->handled, 1);
}

static void test_limits(void **state)
{
	struct bed *b = *state;
	static struct ended d[40];

	memset(d, 0, sizeof d);
	b->a->net->conf.calls_max = 20;
	b->b->hold = true;
	for (int i = 0; i < 40; i++)
		net_app_call(b->a, net_self(b->b->net), (uint64_t)i, NO_BLOB, 5000000, &d[i]);
	sim_run_for(b->s, 1000000);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(d[i].times, i >= 20);
		if (i >= 20)
			assert_int_equal(d[i].code, ERR_FULL);
	}
	for (unsigned i = 0; i < b->b->nheld; i++)
		net_reply(b->b->held[i], NULL, NO_BLOB);
	sim_run_for(b->s, 1000000);
	for (int i = 0; i < 20; i++)
		assert_true(d[i].times == 1 && d[i].ok);
}

/* Stopping with everything open: each call ends with CANCELLED, nothing leaks (ASan). */
static void test_stop(void **state)
{
	struct bed *b = *state;

	b->b->hold = true;
	for (int i = 0; i < 5; i++)
		net_app_call(b->a, net_self(b->b->net), (uint64_t)i, lent(b, 20000), 5000000, &b->d[i]);
	sim_run_for(b->s, 20000);
	net_app_call(b->a, net_self(b->b->net), 9, lent(b, 20000), 5000000, &b->d[5]);
	sim_kill(b->s, 0);
	sim_kill(b->s, 1);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(b->d[i].times, 1);
		assert_int_equal(b->d[i].code, ERR_CANCELLED);
	}
	assert_int_equal(b->released, 6);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { T(test_refused_here), T(test_refused_there), T(test_refusal),
		T(test_bad_handlers),
		T(test_blobs), T(test_cached_answer), T(test_lost_answer), T(test_limits), T(test_stop) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

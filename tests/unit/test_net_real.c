/* The net room over the real transport on loopback: three daemons in one process, run in turns: two that listen and a
 * client that only dials out. Calls and transfers in every direction, a death, another swarm. */
#include "t.h"
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "loop/loop.h"
#include "net/chunk.h"
#include "net/nano.h"
#include "stolen.h"

#define SIDES 3
#define BIG ((size_t)3 << 20)

struct side { struct loop *loop; struct env *env; struct nano *nano; struct net *net; struct chunks *chunks;
	struct log *log;
	unsigned handled, news[4]; char code[32]; struct request *held; bool hold; };
static struct side v[SIDES];
static struct { unsigned times; bool ok; enum err_code code; char text[320]; } d[64], m[2];

static void echo(void *arg, struct request *r)
{
	struct side *x = arg;

	x->handled++;
	if (x->hold)
		x->held = net_keep(r);
	else
		net_reply(r, json_pack("{s:O}", "you", r->f.json), NO_BLOB);
}

static void news(void *arg, const struct id *peer, enum net_news what) { ((struct side *)arg)->news[what]++; }
static void event(void *arg, enum log_level l, const char *code, const struct id *peer, const char *text)
{
	snprintf(((struct side *)arg)->code, 32, "%s", code);
}

static void up(int i, bool client, uint8_t key)
{
	struct side *x = &v[i];
	struct loop_conf lc = {0};
	struct nano_conf nc = { .sweep_us = 50000, .stranger_us = 1500000 };
	struct net_conf c = { .boot_id = 100 + (uint64_t)i, .client = client, .has_swarm_key = true };
	struct err e;

	memset(x, 0, sizeof *x);
	c.seed[0] = (uint8_t)(i + 1);
	memset(c.swarm_key, key, 32);
	lc.log = x->log = log_new(16, LOG_ERROR_, NULL, NULL);
	x->loop = loop_new(&lc, &e);
	assert_non_null(x->loop);
	x->env = loop_env(x->loop);
	assert_int_equal(nano_listen_parse("127.0.0.1:auto", &nc, &e), 0);
	nc.client = client;
	nc.auto_first = (uint16_t)(30000 + getpid() % 20000);
	x->nano = nano_new(x->loop, &nc, &e);
	if (!x->nano)
		fail_msg("%s", e.text);
	c.self = *nano_endpoint(x->nano);
	x->net = net_new(x->env, &c, &e);
	assert_non_null(x->net);
	x->chunks = chunks_new(x->env, x->net);
	net_on(x->net, KIND_RUN_STATE, echo, x);
	net_watch(x->net, news, x);
	net_events(x->net, event, x);
}

static void down(int i)
{
	struct side *x = &v[i];

	if (!x->loop)
		return;
	x->env->ops->detach(x->env);
	chunks_free(x->chunks);
	net_free(x->net);
	nano_free(x->nano);
	loop_free(x->loop);
	log_free(x->log);
	x->loop = NULL;
}

static bool never(void *arg) { return false; }

static bool spin(bool (*cond)(void), double limit_s)
{
	struct timespec a, t;
	double before = stolen(), took;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (;;) {
		if (cond())
			return true;
		clock_gettime(CLOCK_MONOTONIC, &t);
		took = (double)(t.tv_sec - a.tv_sec) + (double)(t.tv_nsec - a.tv_nsec) * 1e-9;
		if (took > limit_s && took > limit_s + stolen() - before)
			return false;
		for (int i = 0; i < SIDES; i++)
			if (v[i].loop)
				loop_run_until(v[i].loop, never, NULL, 300);
	}
}

static int setup(void **state)
{
	memset(v, 0, sizeof v);
	memset(d, 0, sizeof d);
	memset(m, 0, sizeof m);
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < SIDES; i++)
		down(i);
	return 0;
}

static void ended(void *arg, const struct frame *f, const struct err *e)
{
	int i = (int)(intptr_t)arg;

	d[i].times++;
	d[i].ok = f;
	d[i].code = e ? e->code : ERR_NONE;
	snprintf(d[i].text, sizeof d[i].text, "%s", e ? e->text : "");
}

static void call(int i, int from, int to, uint64_t timeout_us)
{
	net_call(v[from].net, net_self(v[to].net), KIND_RUN_STATE, json_pack("{s:i}", "n", i), NO_BLOB, CLASS_control,
		timeout_us,
		ended, (void *)(intptr_t)i);
}

static int expected;
static bool all_ended(void)
{
	for (int i = 0; i < expected; i++)
		if (!d[i].times)
			return false;
	return true;
}

static void expect_ok(int n)
{
	expected = n;
	assert_true(spin(all_ended, 10));
	for (int i = 0; i < n; i++)
		if (!d[i].ok || d[i].times != 1)
			fail_msg("call %d ended %u times: %s", i, d[i].times, d[i].text);
}

static void moved(void *arg, struct xfer *x, const struct err *e)
{
	int i = (int)(intptr_t)arg;

	m[i].times++;
	m[i].ok = !e;
	snprintf(m[i].text, sizeof m[i].text, "%s", e ? e->text : "");
}

static bool both_moved(void) { return m[0].times && m[1].times; }

static void transfer(int from, int to)
{
	uint8_t *data = xmalloc(BIG), *out = xcalloc(1, BIG);
	struct id tag = { .b = { (uint8_t)(from + 1), (uint8_t)(to + 1) } };
	uint64_t deadline = env_now(v[from].env) + 15000000;

	memset(m, 0, sizeof m);
	for (size_t i = 0; i < BIG; i++)
		data[i] = (uint8_t)(i * 7 + i / 1000);
	xfer_send(v[from].chunks, net_self(v[to].net), &tag, data, BIG, CLASS_weight, deadline, moved, (void *)0);
	xfer_recv(v[to].chunks, net_self(v[from].net), &tag, out, BIG, deadline, moved, (void *)1);
	assert_true(spin(both_moved, 20));
	if (!m[0].ok || !m[1].ok)
		fail_msg("%d to %d: %s / %s", from, to, m[0].text, m[1].text);
	assert_memory_equal(data, out, BIG);
	free(data);
	free(out);
}

static void know(int a, int b) { net_learn(v[a].net, net_self(v[b].net), net_endpoint(v[b].net)); }

static void test_two(void **state)
{
	up(0, false, 1);
	up(1, false, 1);
	know(0, 1);
	know(1, 0);
	for (int i = 0; i < 40; i++)
		call(i, i & 1, !(i & 1), 8000000);
	expect_ok(40);
	assert_int_equal(v[0].handled + v[1].handled, 40);
	transfer(0, 1);
	transfer(1, 0);
}

static void test_client(void **state)
{
	up(0, false, 1);
	up(1, true, 1);
	know(1, 0);
	call(0, 1, 0, 8000000);
	expect_ok(1);
	for (int i = 1; i < 30; i++)
		call(i, i & 1, !(i & 1), 8000000);
	expect_ok(30);
	transfer(0, 1);
	transfer(1, 0);
}

static bool never_ends(void) { return false; }

/* Nobody is a stranger who speaks as a peer: neither the connection for calls nor those for bulk, busy or silent. */
static void test_client_stays(void **state)
{
	struct nano_stats seen;

	up(0, false, 1);
	up(1, true, 1);
	know(1, 0);
	call(0, 1, 0, 8000000);
	expect_ok(1);
	transfer(0, 1);
	transfer(1, 0);
	spin(never_ends, 2.5);
	nano_stats(v[0].nano, &seen);
	assert_int_equal(seen.shut_stranger, 0);
	assert_true(seen.inbound >= 2);
	call(1, 0, 1, 8000000);
	expect_ok(2);
}

static bool told_dead(void) { return v[0].news[NEWS_DEAD]; }

static void test_death(void **state)
{
	up(0, false, 1);
	up(1, false, 1);
	know(0, 1);
	call(0, 0, 1, 8000000);
	expect_ok(1);
	net_care(v[0].net, net_self(v[1].net), 1);
	v[1].hold = true;
	memset(d, 0, sizeof d);
	net_call(v[0].net, net_self(v[1].net), KIND_RUN_STATE, NULL, blob_copy("four", 4), CLASS_control, 60000000, ended,
		NULL);
	spin(told_dead, 0.2);
	assert_int_equal(d[0].times, 0);
	assert_non_null(v[1].held);             /* without what only the handler may look at */
	assert_true(!v[1].held->f.json && !v[1].held->f.blob && !v[1].held->f.blob_len);
	down(1);
	assert_true(spin(told_dead, 2));
	expected = 1;
	assert_true(spin(all_ended, 1));
	assert_int_equal(d[0].code, ERR_UNREACHABLE);
}

static void test_other_swarm(void **state)
{
	up(0, false, 1);
	up(1, false, 2);
	know(0, 1);
	call(0, 0, 1, 8000000);
	expected = 1;
	assert_true(spin(all_ended, 10));
	assert_err(d[0], ERR_AUTH, "--swarm-key-file");
	assert_string_equal(v[1].code, "wrong_swarm_key");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { T(test_two), T(test_client), T(test_client_stays),
		T(test_death), T(test_other_swarm) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

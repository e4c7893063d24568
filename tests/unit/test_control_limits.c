/* What many clients, or greedy ones, can take of the daemon through its sockets: costly commands one at a time, loop
 * time of those who may only look, memory of a query, the places of connections that say nothing. */
#include <jansson.h>
#include "common/buf.h"
#include "common/conf.h"
#include "common/mem.h"
#include "control/control.h"
#include "tests/unit/store_kit.h"

#define CLIENTS 24
#define REQ(method, params) "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":" params "}\n"
#define QUERY REQ("query", "{\"sql\":\"select 1\"}")

struct room {
	struct t *t;
	struct conf *conf;
	struct api api;
	struct control *c;
	struct client *cl[CLIENTS];
	uint64_t each_us;               /* that `peers` holds the loop for */
	int wakes;
};

static const struct conf_row rows[] = { { NULL, NULL, 0, NULL, 0, 0, false, NULL } };

static void slow_peers(void *arg, const json_t *params, struct reply *r)
{
	struct room *m = arg;

	(void)params;
	m->t->w->now += m->each_us;
	reply_ok(r, json_pack("{s:[]}", "peers"));
}

static void woken(void *arg) { ((struct room *)arg)->wakes++; }

static int enter(void **state)
{
	struct room *m = calloc(1, sizeof *m);
	struct cmd_ctx x = { .version = "9.9", .socket = "/s", .state_dir = "/d", .main = m };

	if (setup((void **)&m->t) < 0)
		return -1;
	m->conf = conf_new(rows);
	m->api = (struct api){ .arg = m, .peers = slow_peers };
	x.env = &m->t->w->env;
	x.log = m->t->w->env.log;
	x.api = &m->api;
	x.conf = m->conf;
	x.store = m->t->s;
	m->c = control_new(&x);
	*state = m;
	return 0;
}

static int leave(void **state)
{
	struct room *m = *state;

	for (int i = 0; i < CLIENTS; i++)
		client_free(m->cl[i]);
	control_free(m->c);
	teardown((void **)&m->t);
	conf_free(m->conf);
	free(m);
	return 0;
}

static struct client *come(struct room *m, int i, bool view)
{
	return m->cl[i] = client_new(m->c, view, woken, m);
}

static void say(struct client *cl, const char *text) { client_bytes(cl, text, strlen(text)); }

/* Everything that waits for it; how many lines have this in them. */
static int heard(struct client *cl, const char *what)
{
	size_t n;
	const void *p = client_out(cl, &n);
	char *text = xmemdup(n ? p : "", n + 1), *line, *rest = text;
	int hits = 0;

	text[n] = '\0';
	while ((line = strsep(&rest, "\n")))
		hits += strstr(line, what) != NULL;
	free(text);
	client_sent(cl, n);
	return hits;
}

static void one_query_of_a_client_at_a_time(void **state)
{
	struct room *m = *state;
	struct client *cl = come(m, 0, false);

	say(cl, QUERY QUERY);
	assert_int_equal(heard(cl, "one at a time on a connection"), 1);
	world_turn(m->t->w, 0);
	assert_int_equal(heard(cl, "\"rows\":[[1]]"), 1);
	say(cl, QUERY);
	world_turn(m->t->w, 0);
	assert_int_equal(heard(cl, "\"rows\":[[1]]"), 1);
}

/* Sixteen in all, eight of them of those who only look; those whose client has gone count until they end. */
static void some_queries_of_all(void **state)
{
	struct room *m = *state;

	for (int i = 0; i < 10; i++) {
		say(come(m, i, true), QUERY);
		assert_int_equal(heard(m->cl[i], "are under way"), i >= 8);
	}
	for (int i = 10; i < 20; i++) {
		say(come(m, i, false), QUERY);
		assert_int_equal(heard(m->cl[i], "are under way"), i >= 18);
	}
	client_free(m->cl[0]);
	say(come(m, 0, true), QUERY);
	assert_int_equal(heard(m->cl[0], "are under way"), 1);
	world_turn(m->t->w, 0);
	for (int i = 1; i < 18; i++)
		assert_int_equal(heard(m->cl[i], "\"rows\":[[1]]"), i != 8 && i != 9);
	say(m->cl[0], QUERY);
	assert_int_equal(heard(m->cl[0], "are under way"), 0);
}

/* An answer that comes when the room has gone goes nowhere. */
static void a_query_outlives_the_room(void **state)
{
	struct room *m = *state;

	say(come(m, 0, false), QUERY);
	client_free(m->cl[0]);
	m->cl[0] = NULL;
	control_free(m->c);
	m->c = NULL;
	world_turn(m->t->w, 0);
}

static void who_only_looks_gets_a_tenth(void **state)
{
	struct room *m = *state;
	struct world *w = m->t->w;
	struct client *a = come(m, 0, true), *b = come(m, 1, true), *full = come(m, 2, false);
	uint64_t begun = w->now, spent = 0;
	int answers = 0;

	m->each_us = 30000;
	for (int i = 0; i < 40; i++)
		say(i % 2 ? a : b, REQ("peers", "{}"));
	for (int i = 0; i < 400; i++) {
		answers += heard(a, "\"result\"") + heard(b, "\"result\"");
		world_turn(w, 10000);
	}
	spent = (uint64_t)answers * m->each_us;
	if (spent > (w->now - begun) / 10 + CONTROL_VIEW_BURST_US || answers < 10)
		fail_msg("%d answers in %llu ms", answers, (unsigned long long)(w->now - begun) / 1000);
	assert_false(client_hungry(a) && client_hungry(b));
	say(full, REQ("peers", "{}") REQ("peers", "{}") REQ("peers", "{}"));    /* who may do anything does not wait */
	assert_int_equal(heard(full, "\"result\""), 3);
	world_turn(w, 20000000);
	answers += heard(a, "\"result\"") + heard(b, "\"result\"");
	assert_int_equal(answers, 40);          /* nothing is lost */
	say(a, REQ("log", "{\"lines\":1001}") REQ("events", "{\"lines\":1001}"));
	assert_int_equal(heard(a, "to 1000 here"), 2);
}

static void who_says_nothing_gives_way(void **state)
{
	struct room *m = *state;
	struct client *half = come(m, 0, false), *idle = come(m, 1, false), *asks = come(m, 2, false),
		*follows = come(m, 3, false);

	say(half, "{\"jsonrpc\":\"2.0\",");
	say(idle, REQ("peers", "{}"));
	say(asks, QUERY);
	say(follows, REQ("log", "{\"follow\":true}"));
	for (int i = 1; i < 4; i++)
		heard(m->cl[i], "");
	assert_false(client_gives_way(half));
	m->t->w->now += 3000000;
	assert_true(client_gives_way(half));
	assert_false(client_gives_way(idle));
	m->t->w->now += 60000000;
	assert_true(client_gives_way(idle));
	assert_false(client_gives_way(asks));
	assert_false(client_gives_way(follows));
}

/* ---- the query's memory ---- */

struct answer { struct err e; json_t *result; int times; };

static void answered(void *arg, json_t *result, const struct err *e)
{
	struct answer *a = arg;

	a->e = e ? *e : (struct err){ 0 };
	a->result = json_incref(result);
	a->times++;
}

static struct answer query(struct room *m, const char *sql)
{
	struct answer a = { 0 };

	store_query(m->t->s, sql, 1000, answered, &a);
	world_turn(m->t->w, 0);
	assert_int_equal(a.times, 1);
	return a;
}

static size_t peak_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[200];
	size_t kb = 0;

	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, "VmHWM:", 6))
			kb = strtoul(line + 6, NULL, 10);
	if (f)
		fclose(f);
	return kb;
}

/* Each of these takes as much memory as two seconds bring where nothing stops it. */
static void a_query_has_bounded_memory(void **state)
{
	static const char *const greedy[] = {
		"with recursive r(i) as (select 1 union all select i+1 from r) select i, zeroblob(1000000) z from r order by z",
		"with recursive r(i) as (select 1 union all select i+1 from r) select i, zeroblob(200000) z from r order by z",
		"with recursive r(i) as (select 1 union all select i+1 from r) select max(hex(randomblob(100000))), i from r "
			"group by i order by 1",
		"with recursive r(i, z) as (select 1, zeroblob(200000) union select i+1, randomblob(200000) from r) "
			"select count(*) from r",
		"select group_concat(hex(zeroblob(1000))) from (with recursive r(i) as (select 1 union all select i+1 from r) "
			"select i from r limit 100000)",
	};
	struct room *m = *state;
	size_t before = peak_kb();

	for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
		struct answer a = query(m, greedy[i]);

		if (a.result || (a.e.code != ERR_LIMIT && a.e.code != ERR_TIMEOUT))
			fail_msg("%s: %s", greedy[i], a.result ? "answered" : a.e.text);
	}
#ifndef __SANITIZE_ADDRESS__
	assert_true(peak_kb() - before < 160 * 1024);
#else
	(void)before;
#endif
	struct answer a = query(m, "select 1");
	assert_non_null(a.result);
	json_decref(a.result);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, enter, leave)
	const struct CMUnitTest tests[] = {
		T(one_query_of_a_client_at_a_time), T(some_queries_of_all), T(a_query_outlives_the_room),
		T(who_only_looks_gets_a_tenth), T(who_says_nothing_gives_way), T(a_query_has_bounded_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

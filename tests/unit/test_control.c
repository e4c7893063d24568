/* The control room without a socket: garbage, half lines, lines that are too long, a thousand requests in one read, a
 * reader that never reads, answers that come after the client has gone, followers, the read-only socket,
	every command's
 * parameter table. */
#include <jansson.h>
#include "common/buf.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "control/control.h"
#include "store/store.h"
#include "tests/unit/state_env.h"
#include "tests/unit/t.h"

struct room {
	struct world *w;
	struct conf *conf;
	struct api api;
	struct control *c;
	struct client *cl;
	struct reply *held[200];        /* calls of run.show, to be answered by the test */
	size_t nheld;
	int wakes, stops;
};

static const struct conf_row rows[] = {
	{ "log", "level", CONF_STR, "info", 0, 0, true, "how much" },
	{ NULL, NULL, 0, NULL, 0, 0, false, NULL }
};

static void fake_peers(void *arg, const json_t *params, struct reply *r)
{
	(void)arg; (void)params;
	reply_ok(r, json_pack("{s:[]}", "peers"));
}

static void fake_refuse(void *arg, const json_t *params, struct reply *r)
{
	struct err e;

	(void)arg; (void)params;
	err_set(&e, ERR_NOT_FOUND, "there is no run digits");
	reply_fail(r, &e);
}

static void fake_hold(void *arg, const json_t *params, struct reply *r)
{
	struct room *m = arg;

	(void)params;
	m->held[m->nheld++] = r;
}

static void fake_watch(void *arg, const json_t *params, struct reply *r)
{
	(void)arg; (void)params;
	reply_ok(r, json_pack("{s:s, s:s}", "run", "abcd", "state", "train"));
}

static void woken(void *arg) { ((struct room *)arg)->wakes++; }
static void stopping(void *arg) { ((struct room *)arg)->stops++; }

static int setup(void **state)
{
	struct room *m = xcalloc(1, sizeof *m);
	struct cmd_ctx x = { .version = "9.9", .socket = "/s", .state_dir = "/d", .stop = stopping, .main = m };

	m->w = world_new();
	m->conf = conf_new(rows);
	m->api = (struct api){ .arg = m, .peers = fake_peers, .run_stop = fake_refuse, .run_show = fake_hold,
		.run_watch = fake_watch };
	x.env = &m->w->env;
	x.log = m->w->env.log;
	x.api = &m->api;
	x.conf = m->conf;
	m->c = control_new(&x);
	m->cl = client_new(m->c, false, woken, m);
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct room *m = *state;

	client_free(m->cl);
	control_free(m->c);
	conf_free(m->conf);
	world_free_all(m->w);
	free(m);
	return 0;
}

static void say(struct room *m, const char *text)
{
	client_bytes(m->cl, text, strlen(text));
}

/* The next line that the client would read; fails the test when there is none. */
static json_t *hear(struct room *m)
{
	size_t n;
	const char *p = client_out(m->cl, &n), *end = n ? memchr(p, '\n', n) : NULL;
	json_t *j;

	if (!end)
		fail_msg("there is no answer");
	j = json_loadb(p, (size_t)(end - p), 0, NULL);
	assert_non_null(j);
	client_sent(m->cl, (size_t)(end - p) + 1);
	return j;
}

static bool silent(struct room *m)
{
	size_t n;

	client_out(m->cl, &n);
	return n == 0;
}

static void expect_error(struct room *m, const char *request, int code, const char *says)
{
	json_t *j, *e;

	if (request)
		say(m, request);
	j = hear(m);
	e = json_object_get(j, "error");
	if (!e || json_integer_value(json_object_get(e, "code")) != code ||
		!strstr(json_string_value(json_object_get(e, "message")), says)) {
		char *text = json_dumps(j, 0);

		fail_msg("%s: expected %d \"%s\", got %s", request, code, says, text);
	}
	json_decref(j);
}

static void expect_ok(struct room *m, const char *request)
{
	json_t *j;

	if (request)
		say(m, request);
	j = hear(m);
	if (!json_is_object(json_object_get(j, "result")))
		fail_msg("%s: %s", request, json_dumps(j, 0));
	json_decref(j);
}

#define REQ(id, method, params) "{\"jsonrpc\":\"2.0\",\"id\":" #id ",\"method\":\"" method "\",\"params\":" params "}\n"

static void garbage_is_answered_and_survived(void **state)
{
	struct room *m = *state;
	uint8_t bytes[256];

	expect_error(m, "hello\n", -32700, "line 1");
	expect_error(m, "{}\n", -32602, "");
	expect_error(m, "[]\n", -32602, "");
	expect_error(m, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\",\"method\":\"stop\"}\n", -32700, "");
	expect_error(m, "{\"jsonrpc\":\"2.0\",\"method\":\"status\"}\n", -32602, "expected a request");
	expect_error(m, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n", -32602, "expected a request");
	expect_error(m, REQ(1, "statsu", "{}"), -32601, "no command statsu");
	expect_error(m, REQ(1, "peers", "{\"al\":true}"), -32602, "did you mean all?");
	expect_error(m, REQ(1, "peers", "{\"all\":1}"), -32602, "all must be boolean");
	expect_error(m, REQ(1, "run.show", "{}"), -32602, "run is missing");
	say(m, "\n\r\n");
	assert_true(silent(m));
	for (int i = 0; i < 256; i++)
		bytes[i] = (uint8_t)(255 - i == '\n' ? 0 : 255 - i);
	client_bytes(m->cl, bytes, sizeof bytes);
	expect_error(m, "\n", -32700, "");
	expect_ok(m, REQ(7, "status", "{}"));
	assert_int_equal(m->nheld, 0);
}

static void deep_nesting_is_refused(void **state)
{
	struct room *m = *state;
	char deep[3000];

	memset(deep, '[', sizeof deep - 2);
	deep[sizeof deep - 2] = '\n';
	deep[sizeof deep - 1] = '\0';
	expect_error(m, deep, -32012, "");
	expect_ok(m, REQ(7, "status", "{}"));
}

static void lines_come_in_any_pieces(void **state)
{
	struct room *m = *state;
	const char *text = REQ(1, "status", "{}") REQ(2, "peers", "{}");

	for (size_t i = 0; i < strlen(text); i++)
		client_bytes(m->cl, text + i, 1);
	for (int id = 1; id <= 2; id++) {
		json_t *j = hear(m);

		assert_int_equal(json_integer_value(json_object_get(j, "id")), id);
		json_decref(j);
	}
	assert_true(silent(m));
}

static void a_line_that_is_too_long_is_skipped(void **state)
{
	struct room *m = *state;
	char *big = xcalloc(1, 400001);

	memset(big, 'x', 400000);
	for (int round = 0; round < 3; round++) {       /* in pieces as the socket would read it */
		for (int i = 0; i < 400000; i += 65536)
			client_bytes(m->cl, big + i, i + 65536 < 400000 ? 65536 : 400000u - (size_t)i);
		expect_error(m, NULL, -32012, "65536 bytes");
		assert_true(silent(m));
		say(m, "still the same line\n");
		assert_true(silent(m));
		expect_ok(m, REQ(7, "status", "{}"));
	}
	say(m, big);                                    /* and with its end in the same read */
	expect_error(m, "\n" REQ(8, "status", "{}"), -32012, "65536 bytes");
	expect_ok(m, NULL);
	free(big);
}

static void a_thousand_requests_in_one_read(void **state)
{
	struct room *m = *state;
	struct buf b = { 0 };
	int answers = 0;

	for (int i = 0; i < 1000; i++)
		buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"peers\"}\n", i);
	client_bytes(m->cl, b.p, b.len);
	while (!silent(m)) {
		json_t *j = hear(m);

		assert_int_equal(json_integer_value(json_object_get(j, "id")), answers);
		json_decref(j);
		answers++;
	}
	assert_int_equal(answers, 1000);
	buf_free(&b);
}

static void a_slow_reader_is_bounded(void **state)
{
	struct room *m = *state;
	json_t *news = json_pack("{s:s, s:s}", "run", "abcd", "name",
		"a run whose name is not short at all, so that it fills");
	size_t n, before;
	json_t *j;

	for (int i = 0; i < 5000 && client_hungry(m->cl); i++)
		say(m, REQ(1, "help", "{}"));
	assert_false(client_hungry(m->cl));
	client_out(m->cl, &n);
	assert_true(n < CONTROL_OUT_MAX + 65536);
	client_sent(m->cl, n);
	while (client_out(m->cl, &n), n > 0)
		client_sent(m->cl, n);
	expect_ok(m, REQ(2, "run.watch", "{\"run\":\"digits\"}"));
	for (int i = 0; i < 30000; i++)
		control_news(m->c, "run", "abcd", news);
	client_out(m->cl, &before);
	assert_true(before < CONTROL_OUT_MAX + 4096);
	client_sent(m->cl, before);
	control_news(m->c, "run", "abcd", news);
	j = hear(m);
	assert_true(json_integer_value(json_object_get(json_object_get(j, "params"), "lost")) > 1000);
	json_decref(j);
	control_news(m->c, "run", "abcd", news);
	j = hear(m);
	assert_null(json_object_get(json_object_get(j, "params"), "lost"));
	json_decref(j);
	json_decref(news);
}

static void unanswered_calls_are_bounded(void **state)
{
	struct room *m = *state;
	struct err e;
	size_t done = 0;

	for (int i = 0; i < 150; i++)
		say(m, REQ(3, "run.show", "{\"run\":\"x\"}"));
	assert_int_equal(m->nheld, CONTROL_CALLS_MAX);
	assert_false(client_hungry(m->cl));
	err_set(&e, ERR_BUSY, "later");
	while (done < m->nheld) {
		int wakes = m->wakes;

		reply_fail(m->held[done++], &e);
		assert_true(m->wakes > wakes);  /* the socket is told, and tells us what it sent */
		expect_error(m, NULL, -32015, "later");
	}
	assert_int_equal(done, 150);
	assert_true(silent(m));
}

static void answers_may_come_too_late(void **state)
{
	struct room *m = *state;

	say(m, REQ(3, "run.show", "{\"run\":\"x\"}"));
	client_free(m->cl);
	m->cl = client_new(m->c, false, woken, m);
	reply_ok(m->held[0], json_object());
	assert_true(silent(m));
	expect_ok(m, REQ(7, "status", "{}"));
}

static void followers_hear_what_they_asked_for(void **state)
{
	struct room *m = *state;
	json_t *news = json_pack("{s:s, s:b}", "run", "abcd", "final", 1), *j;

	control_news(m->c, "run", "abcd", news);
	assert_true(silent(m));
	expect_ok(m, REQ(2, "run.watch", "{\"run\":\"digits\"}"));
	control_news(m->c, "run", "other", news);
	control_news(m->c, "event", "abcd", news);
	assert_true(silent(m));
	control_news(m->c, "run", "abcd", news);
	j = hear(m);
	assert_string_equal(json_string_value(json_object_get(j, "method")), "run");
	assert_true(json_is_true(json_object_get(json_object_get(j, "params"), "final")));
	assert_null(json_object_get(j, "id"));
	json_decref(j);
	json_decref(news);
}

static void the_log_can_be_followed(void **state)
{
	struct room *m = *state;
	struct log *log = m->w->env.log;
	json_t *j;

	for (int i = 0; i < 30; i++)
		log_write(log, i % 2 ? LOG_WARN_ : LOG_DEBUG_, "t", "line %d", i);
	say(m, REQ(1, "log", "{\"lines\":3,\"level\":\"warn\",\"follow\":true}"));
	j = hear(m);
	assert_int_equal(json_array_size(json_object_get(json_object_get(j, "result"), "lines")), 3);
	json_decref(j);
	log_write(log, LOG_INFO_, "t", "not this");
	assert_true(silent(m));
	log_write(log, LOG_ERROR_, "t", "bad \x01\xff byte");
	j = hear(m);
	assert_string_equal(json_string_value(json_object_get(json_object_get(j, "params"), "level")), "error");
	json_decref(j);
	client_free(m->cl);
	log_write(log, LOG_ERROR_, "t", "nobody listens");
	m->cl = client_new(m->c, false, woken, m);
	expect_error(m, REQ(1, "log", "{\"level\":\"loud\"}"), -32602, "debug, info, warn or error");
	expect_error(m, REQ(1, "log", "{\"lines\":-1}"), -32602, "0 to 10000");
}

static void the_read_only_socket_only_reads(void **state)
{
	struct room *m = *state;
	int allowed = 0;

	client_free(m->cl);
	m->cl = client_new(m->c, true, woken, m);
	for (const struct cmd *const *p = cmd_table(); *p; p++) {
		char *line = xasprintf("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"}\n", (*p)->name);

		if ((*p)->flags & CMD_VIEW)
			allowed++;
		else
			expect_error(m, line, -32010, "read-only socket");
		free(line);
	}
	assert_true(allowed > 5);
	assert_int_equal(m->stops, 0);
	expect_ok(m, REQ(7, "status", "{}"));
}

static void refusals_and_absent_rooms(void **state)
{
	struct room *m = *state;

	expect_error(m, REQ(1, "run.stop", "{\"run\":\"digits\"}"), -32001, "no run digits");
	expect_error(m, REQ(1, "run.pause", "{\"run\":\"digits\"}"), -32601, "cannot do that");
	control_set_api(m->c, NULL);
	expect_error(m, REQ(1, "peers", "{}"), -32601, "cannot do that");
	expect_ok(m, REQ(1, "status", "{}"));
	expect_error(m, REQ(1, "query", "{\"sql\":\"SELECT 1\"}"), -32011, "no database");
	expect_ok(m, REQ(1, "stop", "{}"));
	assert_int_equal(m->stops, 1);
}

/* Every row is whole, and its table refuses what is not in it. */
static void the_table_is_sound(void **state)
{
	struct err e;

	(void)state;
	for (const struct cmd *const *p = cmd_table(); *p; p++) {
		const struct cmd *c = *p;
		json_t *j = cmd_json(c), *bad = json_pack("{s:i}", "no_such_parameter", 1);
		bool optional = false, checks = false;

		assert_true(c->name && c->help && c->run && strlen(c->help) > 5);
		assert_ptr_equal(cmd_find(c->name), c);
		assert_ptr_equal(cmd_find(json_string_value(json_object_get(j, "method"))), c);
		for (const struct cmd_param *x = c->params; x->name; x++) {
			assert_non_null(x->help);
			checks |= !strcmp(x->name, "check") && x->type == CMD_BOOL && !(x->flags & CMD_REQUIRED);
			if (!(x->flags & CMD_OPTION) && x->type != CMD_BOOL) {
				if ((x->flags & CMD_REQUIRED) && optional)
					fail_msg("%s: required %s stands behind an optional position", c->name, x->name);
				optional = !(x->flags & CMD_REQUIRED);
			}
		}
		if ((c->flags & CMD_ASK) && !checks)
			fail_msg("%s: hivectl would ask to confirm what perhaps cannot be done", c->name);
		assert_int_equal(cmd_check(c, bad, &e), -1);
		assert_int_equal(e.code, ERR_INVALID);
		json_decref(bad);
		json_decref(j);
	}
	assert_null(cmd_find("run"));
	assert_null(cmd_find(""));
	assert_null(cmd_find("run.start.now"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(garbage_is_answered_and_survived), T(deep_nesting_is_refused), T(lines_come_in_any_pieces),
		T(a_line_that_is_too_long_is_skipped), T(a_thousand_requests_in_one_read), T(a_slow_reader_is_bounded),
		T(unanswered_calls_are_bounded), T(answers_may_come_too_late), T(followers_hear_what_they_asked_for),
		T(the_log_can_be_followed), T(the_read_only_socket_only_reads), T(refusals_and_absent_rooms),
		cmocka_unit_test(the_table_is_sound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

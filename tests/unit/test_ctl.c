/* hivectl without a daemon: words become requests or usage errors, replies become tables that a terminal can be trusted
 * with, the live view keeps its height, and a daemon that lies, stalls or goes away is told apart. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <jansson.h>
#include "conn.h"
#include "print.h"
#include "tests/unit/t.h"
#include "watch.h"
#include "words.h"

static json_t *param(const char *name, const char *type, bool required, bool rest, bool option)
{
	return json_pack("{s:s, s:s, s:b, s:b, s:b, s:s}", "name", name, "type", type, "required", required, "rest", rest,
		"option", option, "help", "what it is");
}

static json_t *table;

static int make_table(void **state)
{
	(void)state;
	table = json_pack("[{s:s, s:[]}, {s:s, s:[o,o,o,o]}, {s:s, s:[o]}, {s:s, s:[o,o,o]}, {s:s, s:[o,o]}, {s:s, "
		"s:[o,o,o]}, {s:s, s:[o]}]",
		"name", "status", "params",
		"name", "run start", "params", param("spec", "file", true, false, false), param("name", "string", false,
			false, true),
			param("dry_run", "boolean", false, false, true), param("life_s", "duration", false, false, true),
		"name", "run stop", "params", param("run", "string", true, false, false),
		"name", "set", "params", param("run", "string", true, false, false), param("values", "pairs", true, true,
			false),
			param("at", "integer", false, false, true),
		"name", "query", "params", param("sql", "string", true, true, false), param("rows", "integer", false,
			false, true),
		"name", "log", "params", param("follow", "boolean", false, false, true), param("lines", "integer", false,
			false, true),
			param("level", "string", false, false, true),
		"name", "show", "params", param("files", "paths", true, true, false));
	return table ? 0 : -1;
}

static int free_table(void **state)
{
	(void)state;
	json_decref(table);
	return 0;
}

#define W(...) ((const char *[]){ __VA_ARGS__ }), sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)

static void expect_command(const char *const *w, size_t n, const char *name, size_t used)
{
	struct err e;
	size_t k;
	const json_t *c = words_command(table, w, n, &k, &e);

	if (!c)
		fail_msg("%s", e.text);
	assert_string_equal(json_string_value(json_object_get(c, "name")), name);
	assert_int_equal(k, used);
}

static void expect_no_command(const char *const *w, size_t n, const char *says)
{
	struct err e;
	size_t k;

	assert_null(words_command(table, w, n, &k, &e));
	assert_err(e, ERR_INVALID, says);
}

static void words_name_a_command(void **state)
{
	(void)state;
	expect_command(NULL, 0, "status", 1);
	expect_command(W("run", "start", "x"), "run start", 2);
	expect_command(W("log", "-f"), "log", 1);
	expect_no_command(W("run", "strat"), "did you mean \"run start\"?");
	expect_no_command(W("stauts"), "did you mean \"status\"?");
	expect_no_command(W("run"), "run needs one of: start, stop");
	expect_no_command(W("run", "xxxxxxxx"), "run needs one of: start, stop");
	expect_no_command(W("entirely-unknown"), "see hivectl help");
}

/* Words of one command give this JSON. */
static void expect_params(const char *const *w, size_t n, const char *json)
{
	struct err e;
	size_t used;
	const json_t *c = words_command(table, w, n, &used, &e);
	json_t *p = words_params(c, w + used, n - used, &e);
	char *text;

	if (!p)
		fail_msg("%s", e.text);
	text = json_dumps(p, JSON_COMPACT);
	assert_string_equal(text, json);
	free(text);
	json_decref(p);
}

static void expect_usage(const char *const *w, size_t n, const char *says)
{
	struct err e;
	size_t used;
	const json_t *c = words_command(table, w, n, &used, &e);

	assert_null(words_params(c, w + used, n - used, &e));
	if (!strstr(e.text, says))
		fail_msg("\"%s\" does not say \"%s\"", e.text, says);
}

static void words_become_parameters(void **state)
{
	char path[] = "/tmp/hm-ctl-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_int_equal(write(fd, "{\"model\":\"mlp\"}", 15), 15);
	close(fd);
	expect_params(W("log"), "{}");
	expect_params(W("log", "-f", "--lines=5", "--level", "warn"), "{\"follow\":true,\"lines\":5,\"level\":\"warn\"}");
	expect_params(W("log", "-f"), "{\"follow\":true}");
	expect_params(W("log", "--follow=no"), "{\"follow\":false}");
	expect_params(W("query", "select", "-1", "as x"), "{\"sql\":\"select -1 as x\"}");
	expect_params(W("query", "--rows", "3", "--", "select", "--x"), "{\"rows\":3,\"sql\":\"select --x\"}");
	expect_params(W("query", "select 1,\n\t2"), "{\"sql\":\"select 1,\\n\\t2\"}");     /* what was typed arrives */
	expect_params(W("set", "digits", "lr=0.01", "name=a b", "on=true", "--at=9"),
		"{\"run\":\"digits\",\"values\":{\"lr\":0.01,\"name\":\"a b\",\"on\":true},\"at\":9}");
	expect_params(W("run", "start", path, "--dry-run", "--life-s=2m"),
		"{\"spec\":{\"model\":\"mlp\"},\"dry_run\":true,\"life_s\":120.0}");
	unlink(path);
	expect_usage(W("log", "-l", "5"), "no option -l");              /* lines or level? */
	expect_usage(W("log", "--folow"), "did you mean --follow?");
	expect_usage(W("log", "--lines"), "needs a value");
	expect_usage(W("log", "--lines=many"), "expected an integer");
	expect_usage(W("log", "word"), "one word too many");
	expect_usage(W("run", "stop"), "usage: hivectl run stop RUN");
	expect_usage(W("set", "digits"), "values is missing");
	expect_usage(W("set", "digits", "lr"), "key=value");
	expect_usage(W("query", "select '\xff'"), "sql: not UTF-8");
	expect_usage(W("query", "select", "'\xff'"), "sql: not UTF-8");
	expect_usage(W("set", "digits", "na\xffme=1"), "values: not UTF-8");
	expect_usage(W("set", "digits", "name=\xc3"), "values: not UTF-8");
	expect_usage(W("show", "cat\xff.png"), "files: not UTF-8");
	expect_usage(W("run", "start", "/no/such/file"), "/no/such/file");
	expect_usage(W("run", "start", "/dev/null"), "/dev/null");
}

/* --- printing */

static char *printed(void (*fn)(FILE *f, const json_t *v), const json_t *v)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	fn(f, v);
	fclose(f);
	return text;
}

static void as_table(FILE *f, const json_t *v) { print_table(f, v, 0); }
static void as_object(FILE *f, const json_t *v) { print_object(f, v, 0); }

static void tables_line_up(void **state)
{
	json_t *rows = json_loads("[{\"id\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\","
		"\"rtt_us\":1500,"
		"\"sent_bytes\":1536,\"live\":true},{\"id\":\"b\",\"live\":false,\"samples_per_s\":12.25,"
			"\"why\":\"sp\\u00e4t\"}]", 0, NULL);
	char *t = printed(as_table, rows);

	(void)state;
	assert_string_equal(t,
		"ID          RTT     SENT  LIVE  SAMPLES PER S  WHY\n"
		"01234567  1.5ms  1.5 KiB  yes               -  -\n"
		"b             -        -  no           12.2/s  sp\xc3\xa4t\n");
	free(t);
	json_decref(rows);
	rows = json_loads("[{\"without\":[\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\",\"b\"],"
		"\"peers\":[{},{}],\"spec\":{\"a\":\"a text that goes on and on until it is cut\"}}]", 0, NULL);
	t = printed(as_table, rows);
	assert_string_equal(t, "WITHOUT      PEERS  SPEC\n"
		"01234567, b  2      {\"a\":\"a text that goes on and on unti...\n");
	free(t);
	json_decref(rows);
	rows = json_array();
	t = printed(as_table, rows);
	assert_string_equal(t, "none\n");
	free(t);
	json_decref(rows);
}

static void terminals_are_safe(void **state)
{
	json_t *o = json_pack("{s:s, s:[{s:s}]}", "na\x1bme", "evil \x1b[2J\x07 text\nsecond", "rows", "k",
		"\x1b]0;title\x07");
	char *t = printed(as_object, o);

	(void)state;
	for (const char *p = t; *p; p++)
		if ((unsigned char)*p < 32 && *p != '\n')
			fail_msg("byte %d reaches the terminal", *p);
	assert_null(strstr(t, "second\n\n"));
	free(t);
	json_decref(o);
}

static void objects_nest(void **state)
{
	json_t *o = json_loads("{\"version\":\"1\",\"uptime_s\":90,\"store\":{\"bytes\":2048,\"ok\":null},"
		"\"join\":[\"a\",\"b\"],"
		"\"none\":[],\"val_accuracy\":0.97125}", 0, NULL);
	char *t = printed(as_object, o);

	(void)state;
	assert_string_equal(t, "version:      1\nuptime:       1m30s\nstore:\n  bytes: 2.0 KiB\n  ok:    -\njoin:       "
		"  a, b\n"
		"none:         none\nval accuracy: 97.12 %\n");
	free(t);
	json_decref(o);
}

static void the_live_view_keeps_its_height(void **state)
{
	json_t *run = json_loads("{\"run\":\"0123456789\",\"name\":\"dig\\u001bits\",\"state\":\"train\","
		"\"epoch\":12,\"epochs\":60,"
		"\"progress\":0.2,\"eta_s\":61,\"samples\":3072,\"samples_per_s\":1234.5,\"loss\":0.125,"
		"\"peers\":[{\"id\":\"a\",\"state\":\"train\"},{\"id\":\"b\",\"state\":\"a very long state indeed\"}]}", 0,
			NULL);

	(void)state;
	for (int cols = 20; cols < 120; cols += 7) {
		struct buf b = { 0 };
		int lines = watch_draw(run, cols, &b), seen = 0, at = 0;

		for (size_t i = 0; i < b.len; i++) {
			at = b.p[i] == '\n' ? 0 : at + 1;
			seen += b.p[i] == '\n';
			assert_true(at <= cols);
			assert_true(b.p[i] == '\n' || b.p[i] >= 32);
		}
		assert_int_equal(lines, seen);
		assert_int_equal(lines, 3 + 3);
		buf_free(&b);
	}
	struct buf b = { 0 };

	watch_line(run, &b);
	buf_u8(&b, 0);
	assert_string_equal((char *)b.p, "dig?its (01234567)  train  epoch 12/60  progress 20.00 %  samples 3072  rate "
		"1234/s"
		"  loss 0.125  ETA 1m01s\n");
	buf_free(&b);
	json_decref(run);
}

/* --- a daemon that is none: a child answers one request with these bytes and ends */

static char sock_path[64];

static pid_t fake_daemon(const char *reply, bool stall)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char junk[65536];
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), c;
	pid_t pid;

	snprintf(sock_path, sizeof sock_path, "/tmp/hm-ctl-%d.sock", (int)getpid());
	snprintf(at.sun_path, sizeof at.sun_path, "%s", sock_path);
	unlink(sock_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(listen(fd, 1), 0);
	pid = fork();
	if (pid == 0) {
		c = accept(fd, NULL, NULL);
		if (read(c, junk, sizeof junk) > 0)
			for (const char *p = reply; *p; p++)            /* byte by byte */
				if (write(c, p, 1) != 1)
					break;
		if (stall && read(c, junk, sizeof junk) < 0)            /* until the other side closes */
			_exit(1);
		_exit(0);
	}
	close(fd);
	return pid;
}

static void expect_answer(const char *reply, bool stall, enum err_code code, const char *says)
{
	pid_t pid = fake_daemon(reply, stall);
	struct conn c;
	struct err e = { 0 };
	json_t *error, *r;

	assert_int_equal(conn_open(&c, sock_path, &e), 0);
	assert_int_equal(conn_send(&c, "status", NULL, &e), 0);
	r = conn_answer(&c, stall ? 100 : 5000, &error, &e);
	if (code == ERR_NONE)
		assert_non_null(r);
	else if (code == ERR_REFUSED)
		assert_string_equal(json_string_value(json_object_get(error, "message")), says);
	else
		assert_err(e, code, says);
	json_decref(r);
	json_decref(error);
	conn_close(&c);
	waitpid(pid, NULL, 0);
	unlink(sock_path);
}

static void daemons_that_misbehave_are_told_apart(void **state)
{
	struct conn c;
	struct err e;

	(void)state;
	expect_answer("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n", false, ERR_NONE, "");
	expect_answer("{\"jsonrpc\":\"2.0\",\"method\":\"log\",\"params\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":1,"
		"\"result\":{}}\n", false,
		ERR_NONE, "");
	expect_answer("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,\"message\":\"no\"}}\n", false,
		ERR_REFUSED, "no");
	expect_answer("HTTP/1.1 400 Bad Request\r\n\r\n", false, ERR_PROTOCOL, "not a hivemindd");
	expect_answer("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":7}\n", false, ERR_PROTOCOL, "not a hivemindd");
	expect_answer("{\"jsonrpc\":\"2.0\",\"id\":1,\"resu", false, ERR_UNREACHABLE, "closed the connection");
	expect_answer("", false, ERR_UNREACHABLE, "closed the connection");
	expect_answer("{\"half", true, ERR_TIMEOUT, "did not answer in time");
	assert_int_equal(conn_open(&c, "/tmp/hm-no-such.sock", &e), -1);
	assert_err(e, ERR_UNREACHABLE, "is hivemindd running?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_name_a_command), cmocka_unit_test(words_become_parameters),
			cmocka_unit_test(tables_line_up),
		cmocka_unit_test(terminals_are_safe), cmocka_unit_test(objects_nest),
		cmocka_unit_test(the_live_view_keeps_its_height), cmocka_unit_test(daemons_that_misbehave_are_told_apart),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, make_table, free_table);
}

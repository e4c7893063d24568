/* Configuration: types, ranges, origins, precise refusals, reload, free-form sections, long lines. */
#include <unistd.h>
#include "common/conf.h"
#include "tests/unit/t.h"

static const struct conf_row rows[] = {
	{ "node", "name", CONF_STR, "me", 0, 0, true, "shown to others" },
	{ "node", "threads", CONF_INT, "2", 1, 64, false, "of the train lane" },
	{ "net", "listen", CONF_STR, "127.0.0.1:auto", 0, 0, false, "address" },
	{ "net", "join", CONF_LIST, "", 0, 0, true, "peers to ask first" },
	{ "net", "timeout", CONF_DURATION, "2s", 1000, 60e6, true, "of a call" },
	{ "net", "buffer", CONF_SIZE, "2MiB", 4096, 64 << 20, true, "of a socket" },
	{ "net", "encrypt", CONF_BOOL, "yes", 0, 0, true, "seal frames" },
	{ "run", "loss", CONF_DOUBLE, "0.5", 0, 1, true, "anything" },
	{ "run", "offset", CONF_INT, "-3", 0, 0, true, "negative is fine" },
	{ "data", "*", CONF_STR, NULL, 0, 0, true, "name = path" },
	{ NULL },
};

static int load(struct conf *c, const char *text, struct err *e)
{
	return conf_load_text(c, "f.conf", text, strlen(text), e);
}

static void defaults(void **s)
{
	struct conf *c = conf_new(rows);
	const char *const *l;

	assert_string_equal(conf_str(c, "node", "name"), "me");
	assert_int_equal(conf_int(c, "node", "threads"), 2);
	assert_int_equal(conf_int(c, "net", "timeout"), 2000000);
	assert_int_equal(conf_int(c, "net", "buffer"), 2 << 20);
	assert_true(conf_bool(c, "net", "encrypt"));
	assert_true(conf_double(c, "run", "loss") == 0.5);
	assert_int_equal(conf_int(c, "run", "offset"), -3);
	assert_int_equal(conf_list(c, "net", "join", &l), 0);
	assert_null(l[0]);
	assert_string_equal(conf_origin(c, "net", "join"), "default");
	assert_null(conf_each(c, "data", 0, NULL));
	conf_free(c);
	conf_free(NULL);
}

static void a_file(void **s)
{
	struct conf *c = conf_new(rows);
	const char *const *l, *v;
	struct err e;

	if (load(c, "# comment\n; too\n\n[net]\n  timeout = 250ms  ; why\njoin = a:1, b:2 c:3\n\tjoin = [::1]:4\n"
	    "[data]\nmnist=/srv/mnist\ncifar = /srv/c i f a r\n[run]\nloss=1e-3\n[node]\nname = \xc3\xa9t\xc3\xa9\r\n", &e))
		fail_msg("%s", e.text);
	assert_int_equal(conf_int(c, "net", "timeout"), 250000);
	assert_string_equal(conf_origin(c, "net", "timeout"), "f.conf:5");
	assert_int_equal(conf_list(c, "net", "join", &l), 4);
	assert_string_equal(l[0], "a:1");
	assert_string_equal(l[2], "c:3");
	assert_string_equal(l[3], "[::1]:4");
	assert_string_equal(conf_each(c, "data", 0, &v), "mnist");
	assert_string_equal(v, "/srv/mnist");
	assert_string_equal(conf_each(c, "data", 1, &v), "cifar");
	assert_string_equal(v, "/srv/c i f a r");
	assert_null(conf_each(c, "data", 2, NULL));
	assert_string_equal(conf_str(c, "data", "mnist"), "/srv/mnist");
	assert_string_equal(conf_str(c, "node", "name"), "\xc3\xa9t\xc3\xa9");
	assert_true(conf_double(c, "run", "loss") == 1e-3);
	conf_free(c);
}

static void refusals(void **s)
{
	static const struct { const char *text, *says; } bad[] = {
		{ "[net]\ntimeuot = 1s\n", "f.conf:2: [net] timeuot: unknown key: did you mean \"timeout\"?" },
		{ "[nte]\nlisten = x\n", "f.conf:2: [nte] listen: unknown section: did you mean \"net\"?" },
		{ "listen = x\n", "f.conf:1: [] listen: stands before the first [section]" },
		{ "[net]\n\ngarbage\n", "f.conf:3: neither [section]" },
		{ "[net\n", "f.conf:1: neither [section]" },
		{ "[net]\ntimeout = soon\n", "f.conf:2: [net] timeout: \"soon\" is not a duration" },
		{ "[net]\ntimeout = 2m\n", "[net] timeout: 2m is out of range: 1.0ms to 1m00s" },
		{ "[net]\nbuffer = 1G\n", "out of range: 4.0 KiB to 64.0 MiB" },
		{ "[net]\nencrypt = perhaps\n", "neither yes nor no" },
		{ "[node]\nthreads = 0\n", "0 is out of range: 1 to 64" },
		{ "[node]\nthreads = 1.5\n", "not a whole number" },
		{ "[run]\nloss = nan\n", "not a number" },
		{ "[node]\nname = a\nname = b\n", "f.conf:3: [node] name: given twice, first on line 2" },
		{ "[data]\nx = 1\nx = 2\n", "f.conf:3: [data] x: given twice, first on line 2" },
		{ "[node]\nname = \xff\n", "f.conf:2: [node] name: not UTF-8" },
	};
	struct conf *c = conf_new(rows);
	struct err e;

	assert_int_equal(load(c, "[node]\nname = kept\n", &e), 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		char text[200];

		snprintf(text, sizeof text, "%s[run]\noffset = 9\n", bad[i].text);
		assert_int_equal(load(c, text, &e), -1);
		assert_err(e, ERR_INVALID, bad[i].says);
		assert_string_equal(conf_str(c, "node", "name"), "kept");       /* nothing changed */
		assert_int_equal(conf_int(c, "run", "offset"), -3);
	}
	assert_int_equal(conf_load_text(c, "f.conf", "[node]\nname = a\0b\n", 18, &e), -1);
	assert_err(e, ERR_INVALID, "f.conf:2: a NUL byte");
	assert_int_equal(conf_load(c, "/nonexistent/f.conf", &e), -1);
	assert_err(e, ERR_NOT_FOUND, "/nonexistent/f.conf: No such file");
	assert_int_equal(conf_load(c, "/", &e), -1);
	assert_err(e, ERR_IO, "/: Is a directory");
	assert_int_equal(conf_load(c, "/dev/zero", &e), -1);
	assert_err(e, ERR_LIMIT, "/dev/zero: larger than 1 MiB");
	conf_free(c);
}

static void long_lines(void **s)
{
	struct conf *c = conf_new(rows);
	char text[5000], path[3000];
	struct err e;

	memset(path, 'p', sizeof path - 1);
	path[sizeof path - 1] = 0;
	snprintf(text, sizeof text, "[data]\nx = %s\n", path);
	if (load(c, text, &e))
		fail_msg("%s", e.text);
	assert_string_equal(conf_str(c, "data", "x"), path);
	memset(text, 'q', sizeof text - 1);
	memcpy(text, "[data]\ny = ", 11);
	text[sizeof text - 1] = 0;
	assert_int_equal(load(c, text, &e), -1);
	assert_err(e, ERR_INVALID, "f.conf:2: line too long");
	conf_free(c);
}

static void command_line_wins(void **s)
{
	struct conf *c = conf_new(rows);
	struct err e;

	assert_int_equal(conf_set(c, "net", "listen", "10.0.0.1:5", "--listen", &e), 0);
	assert_int_equal(load(c, "[net]\nlisten = 10.0.0.2:6\ntimeout = 1s\n", &e), 0);
	assert_string_equal(conf_str(c, "net", "listen"), "10.0.0.1:5");
	assert_string_equal(conf_origin(c, "net", "listen"), "--listen");
	assert_int_equal(conf_set(c, "net", "timeout", "x", "--timeout", &e), -1);
	assert_err(e, ERR_INVALID, "--timeout: [net] timeout: \"x\" is not a duration");
	assert_int_equal(conf_int(c, "net", "timeout"), 1000000);
	conf_free(c);
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fputs(text, f) >= 0, 1);
	assert_int_equal(fclose(f), 0);
}

static void reload(void **s)
{
	char path[] = "/tmp/hm-conf-XXXXXX";
	int fd = mkstemp(path);
	struct conf *c = conf_new(rows);
	json_t *changed = NULL;
	struct err e;

	assert_true(fd >= 0);
	close(fd);
	write_file(path, "[net]\ntimeout = 1s\n[data]\na = /a\n[node]\nthreads = 4\n");
	assert_int_equal(conf_load(c, path, &e), 0);
	assert_int_equal(conf_set(c, "net", "listen", "h:1", "--listen", &e), 0);
	write_file(path, "[net]\ntimeout = 3s\nlisten = other:2\n[data]\nb = /b\n[node]\nthreads = 4\n");
	assert_int_equal(conf_reload(c, path, &changed, &e), 0);
	assert_int_equal(conf_int(c, "net", "timeout"), 3000000);
	assert_string_equal(conf_str(c, "net", "listen"), "h:1");
	assert_string_equal(conf_each(c, "data", 0, NULL), "b");
	assert_null(conf_each(c, "data", 1, NULL));
	assert_int_equal(json_array_size(changed), 3);
	assert_string_equal(json_string_value(json_array_get(changed, 0)), "net.timeout");
	json_decref(changed);
	write_file(path, "[net]\ntimeout = 5s\n[node]\nthreads = 8\n");
	assert_int_equal(conf_reload(c, path, NULL, &e), -1);
	assert_err(e, ERR_STATE, "[node] threads: cannot change");
	assert_int_equal(conf_int(c, "net", "timeout"), 3000000);
	write_file(path, "[net]\ntimeout = never\n");
	assert_int_equal(conf_reload(c, path, NULL, &e), -1);
	assert_err(e, ERR_INVALID, ":2: [net] timeout");
	assert_int_equal(conf_int(c, "net", "timeout"), 3000000);
	assert_int_equal(unlink(path), 0);
	conf_free(c);
}

static void as_json(void **s)
{
	struct conf *c = conf_new(rows);
	struct err e;
	json_t *j, *x;

	assert_int_equal(load(c, "[net]\njoin = a:1, b:2\n", &e), 0);
	j = conf_json(c);
	x = json_object_get(json_object_get(j, "net"), "join");
	assert_int_equal(json_array_size(json_object_get(x, "value")), 2);
	assert_string_equal(json_string_value(json_object_get(x, "origin")), "f.conf:2");
	x = json_object_get(json_object_get(j, "net"), "timeout");
	assert_int_equal(json_integer_value(json_object_get(x, "value")), 2000000);
	assert_string_equal(json_string_value(json_object_get(x, "text")), "2s");
	assert_string_equal(json_string_value(json_object_get(x, "help")), "of a call");
	assert_true(json_is_true(json_object_get(x, "reload")));
	json_decref(j);
	conf_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults), cmocka_unit_test(a_file), cmocka_unit_test(refusals), cmocka_unit_test(long_lines),
		cmocka_unit_test(command_line_wins), cmocka_unit_test(reload), cmocka_unit_test(as_json),
	};

	return cmocka_run_group_tests_name("conf", tests, NULL, NULL);
}

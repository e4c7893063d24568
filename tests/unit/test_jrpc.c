/* JSON with limits, JSON-RPC 2.0 messages, and field access whose errors name the place. */
#include "common/jrpc.h"
#include "common/rng.h"
#include "tests/unit/t.h"

static json_t *wire(const char *text, struct err *e)
{
	return json_read(text, strlen(text), JSON_WIRE, e);
}

static void limits(void **s)
{
	static const struct json_limits tiny = { 40, 3, 5 };
	struct err e;
	json_t *j;
	char *big;

	j = json_read("[[[1]],2]", 9, tiny, &e);        /* 5 values, depth 3 */
	assert_non_null(j);
	json_decref(j);
	assert_null(json_read("[[[1]],2,3]", 11, tiny, &e));
	assert_err(e, ERR_LIMIT, "line 1, column 10: too many values: the limit is 5");
	assert_null(json_read("[\n [[[]]]]", 10, tiny, &e));
	assert_err(e, ERR_LIMIT, "line 2, column 4: nested too deep: the limit is 3");
	j = json_read("{\"a\":1,\"b\":\"[[[[[,,,,\",\"c\":3}", 29, tiny, &e);
	assert_non_null(j);                             /* brackets in strings and keys do not count */
	json_decref(j);
	assert_null(json_read("[\"0123456789012345678901234567890123456\"]", 41, tiny, &e));
	assert_err(e, ERR_LIMIT, "41 bytes of JSON: the limit is 40");
	big = malloc(60000);
	memset(big, '[', 60000);
	assert_null(json_read(big, 60000, JSON_SOCK, &e));
	assert_err(e, ERR_LIMIT, "nested too deep");
	for (int i = 0; i < 60000; i++)
		big[i] = i % 2 ? ',' : '1';
	big[0] = '[';
	assert_null(json_read(big, 60000, JSON_SOCK, &e));
	assert_err(e, ERR_LIMIT, "too many values");
	free(big);
}

static void strictness(void **s)
{
	static const struct { const char *text, *says; } bad[] = {
		{ "", "line 1, column 0" }, { "{\"a\":1,\"a\":2}", "duplicate" }, { "{\"a\":1} x", "end of file expected" },
		{ "{\"a\":\n 01}", "line 2" }, { "[\"\xff\"]", "byte 0xff" }, { "[1,]", "line 1, column 4" },
		{ "[\"a]", "line 1" },
		{ "[1e999]", "overflow" }, { "[99999999999999999999]", "too big" }, { "[\"\\u0000\"]", "u0000" },
		{ "5", "'['" },
		{ "[NaN]", "line 1" }, { "{'a':1}", "line 1" }, { "[\"\\", "line 1" },
	};
	struct err e;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_null(wire(bad[i].text, &e));
		assert_err(e, ERR_PARSE, bad[i].says);
	}
	assert_null(json_read("[1,\0]", 5, JSON_WIRE, &e));
	assert_int_equal(e.code, ERR_PARSE);
}

static void lines(void **s)
{
	struct err e;
	json_t *j = wire("{ \"z\": 0.1, \"a\": [true, null],\n \"m\": \"x\\ny\" }", &e), *k;
	size_t n;
	char *line = json_line(j, &n);

	assert_string_equal(line, "{\"z\":0.10000000000000001,\"a\":[true,null],\"m\":\"x\\ny\"}");
	assert_int_equal(n, strlen(line));
	k = json_read(line, n, JSON_WIRE, &e);
	assert_true(json_equal(j, k));
	json_decref(j);
	json_decref(k);
	free(line);
}

static void fields(void **s)
{
	struct err e;
	json_t *o = wire("{\"n\":3,\"m\":-3,\"f\":2.5,\"s\":\"t\",\"b\":true,\"h\":\"00fF10\",\"o\":{}}", &e);
	uint64_t u = 9;
	int64_t i;
	double f;
	bool b;
	const char *t;
	uint8_t h[3];

	assert_int_equal(json_get_u64(o, "n", &u, &e), 0);
	assert_int_equal(u, 3);
	assert_int_equal(json_get_u64(o, "m", &u, &e), -1);
	assert_err(e, ERR_INVALID, "m: -3: expected 0 or more");
	assert_int_equal(json_get_i64(o, "m", &i, &e), 0);
	assert_int_equal(i, -3);
	assert_int_equal(json_get_i64(o, "f", &i, &e), -1);
	assert_err(e, ERR_INVALID, "f: expected a whole number, found a number");
	assert_int_equal(json_get_f64(o, "n", &f, &e), 0);
	assert_true(f == 3);
	assert_int_equal(json_get_f64(o, "s", &f, &e), -1);
	assert_err(e, ERR_INVALID, "s: expected a number, found a string");
	assert_int_equal(json_get_f64(o, "lr", &f, &e), -1);
	assert_err(e, ERR_INVALID, "lr: missing: expected a number");
	assert_int_equal(json_get_str(o, "s", &t, &e), 0);
	assert_string_equal(t, "t");
	assert_int_equal(json_get_str(o, "o", &t, &e), -1);
	assert_err(e, ERR_INVALID, "o: expected a string, found an object");
	assert_int_equal(json_get_bool(o, "b", &b, &e), 0);
	assert_true(b);
	assert_int_equal(json_get_bool(NULL, "b", &b, &e), -1);
	assert_err(e, ERR_INVALID, "found nothing");
	assert_int_equal(json_get_hex(o, "h", h, 3, &e), 0);
	assert_memory_equal(h, "\x00\xff\x10", 3);
	assert_int_equal(json_get_hex(o, "h", h, 2, &e), -1);
	assert_err(e, ERR_INVALID, "expected 4 hexadecimal digits");
	assert_int_equal(json_get_hex(o, "s", h, 0, &e), -1);
	json_object_set_new(o, "l", json_array());
	json_object_set_new(o, "z", json_null());
	assert_int_equal(json_get_bool(o, "l", &b, &e), -1);
	assert_err(e, ERR_INVALID, "l: expected true or false, found an array");
	assert_int_equal(json_get_str(o, "n", &t, &e), -1);
	assert_err(e, ERR_INVALID, "n: expected a string, found a whole number");
	assert_int_equal(json_get_str(o, "b", &t, &e), -1);
	assert_err(e, ERR_INVALID, "found a boolean");
	assert_int_equal(json_get_u64(o, "z", &u, &e), -1);
	assert_err(e, ERR_INVALID, "found null");
	json_decref(o);
}

static void hex_and_known_keys(void **s)
{
	static const char *const known[] = { "lr", "momentum", NULL };
	struct err e;
	json_t *h = json_hex("\x00\x9f\xff", 3), *o = wire("{\"lr\":1,\"momentun\":2}", &e), *t = json_text("a\xff\n");

	assert_string_equal(json_string_value(h), "009fff");
	assert_string_equal(json_string_value(t), "a??");
	assert_int_equal(json_only(o, known, "optimizer", &e), -1);
	assert_err(e, ERR_INVALID, "optimizer: unknown key \"momentun\": did you mean \"momentum\"?");
	json_object_del(o, "momentun");
	assert_int_equal(json_only(o, known, "optimizer", &e), 0);
	assert_int_equal(json_only(h, known, "optimizer", &e), -1);
	assert_err(e, ERR_INVALID, "optimizer: expected an object, found a string");
	json_decref(h);
	json_decref(o);
	json_decref(t);
}

static void messages(void **s)
{
	static const struct { const char *text, *says; } bad[] = {
		{ "[]", "one object" }, { "{\"method\":\"x\"}", "\"jsonrpc\": \"2.0\"" },
		{ "{\"jsonrpc\":\"2.0\",\"method\":5}", "\"method\" is a string" },
		{ "{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":[1]}", "parameters have names" },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"x\"}", "\"id\" is" },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1}", "expected \"method\"" },
		{ "{\"jsonrpc\":\"2.0\",\"result\":1}", "has an \"id\"" },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}", "exclude each other" },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":\"x\"}}", "whole number \"code\"" },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"result\":1}", "excludes" },
	};
	struct jrpc m;
	struct err e;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(jrpc_parse(&m, bad[i].text, strlen(bad[i].text), &e), -1);
		assert_err(e, ERR_INVALID, bad[i].says);
		assert_null(m.root);
	}
	assert_int_equal(jrpc_parse(&m, "{", 1, &e), -1);
	assert_int_equal(e.code, ERR_PARSE);
	jrpc_done(&m);
}

/* Serialises j (stolen), parses it and expects kind. */
static void round_trip(json_t *j, enum jrpc_kind kind, struct jrpc *ret)
{
	struct err e;
	size_t n;
	char *line = json_line(j, &n);

	if (jrpc_parse(ret, line, n, &e))
		fail_msg("%s: %s", line, e.text);
	assert_int_equal(ret->kind, kind);
	free(line);
	json_decref(j);
}

static void built_messages_parse(void **s)
{
	struct jrpc m;
	struct err why;
	json_t *id = json_string("seven");

	round_trip(jrpc_request(7, "status", json_pack("{s:i}", "a", 1)), JRPC_REQUEST, &m);
	assert_string_equal(m.method, "status");
	assert_int_equal(json_integer_value(m.id), 7);
	assert_int_equal(json_integer_value(json_object_get(m.params, "a")), 1);
	jrpc_done(&m);
	round_trip(jrpc_note("t\xffk", NULL), JRPC_NOTE, &m);       /* an operator may type anything */
	assert_string_equal(m.method, "t?k");
	assert_null(m.params);
	jrpc_done(&m);
	round_trip(jrpc_result(id, json_true()), JRPC_RESULT, &m);
	assert_string_equal(json_string_value(m.id), "seven");
	assert_true(json_is_true(m.result));
	jrpc_done(&m);
	err_set(&why, ERR_NOT_FOUND, "no run \"\xff\"");
	round_trip(jrpc_error(NULL, &why, json_pack("{s:s}", "run", "x")), JRPC_ERROR, &m);
	assert_int_equal(json_integer_value(json_object_get(m.error, "code")), -32001);
	assert_string_equal(json_string_value(json_object_get(m.error, "message")), "no run \"?\"");
	assert_string_equal(json_string_value(json_object_get(json_object_get(m.error, "data"), "run")), "x");
	assert_true(json_is_null(m.id));
	jrpc_done(&m);
	round_trip(jrpc_result(id, NULL), JRPC_RESULT, &m);     /* a result of nothing is null, not missing */
	assert_true(json_is_null(m.result));
	jrpc_done(&m);
	json_decref(id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits), cmocka_unit_test(strictness), cmocka_unit_test(lines), cmocka_unit_test(fields),
		cmocka_unit_test(hex_and_known_keys), cmocka_unit_test(messages), cmocka_unit_test(built_messages_parse),
	};

	return cmocka_run_group_tests_name("jrpc", tests, NULL, NULL);
}

/* Text of numbers, durations, sizes, addresses: what is accepted, what is refused, and that print and parse agree. */
#include "common/rng.h"
#include "common/text.h"
#include "tests/unit/t.h"

static void durations(void **s)
{
	static const struct { const char *in; uint64_t us; } good[] = {
		{ "250ms", 250000 }, { "1.5s", 1500000 }, { "2m", 120000000 }, { "1h", 3600000000u }, { "3d", 259200000000u },
		{ "10us", 10 }, { "7", 7000000 }, { "0", 0 }, { "0.25", 250000 }, { "2m05s", 125000000 },
		{ "1h30m", 5400000000u },
		{ "1 min", 60000000 }, { "1w", 604800000000u }, { "0.0000005s", 1 },
	};
	static const char *const bad[] = { "", "s", "-1s", "1x", "1s ", " 1s", "1.", ".5s", "1e3", "1m30", "5 5", "1.5.5s",
		"1sms", "99999999999999999999s", "20000000000000000w", "1S" };
	uint64_t us = 77;
	struct err e;

	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		if (text_duration(good[i].in, &us, &e))
			fail_msg("%s: %s", good[i].in, e.text);
		assert_int_equal(us, good[i].us);
	}
	us = 77;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		if (!text_duration(bad[i], &us, &e))
			fail_msg("\"%s\" was accepted", bad[i]);
		assert_int_equal(us, 77);
	}
}

static void sizes(void **s)
{
	static const struct { const char *in; uint64_t bytes; } good[] = {
		{ "64KiB", 65536 }, { "1MB", 1000000 }, { "2G", (uint64_t)2 << 30 }, { "123", 123 }, { "1.5k", 1536 },
		{ "4mib", 4 << 20 }, { "3 B", 3 }, { "1T", (uint64_t)1 << 40 },
	};
	static const char *const bad[] = { "", "1Q", "-1", "1KiB2", "9999999999999TB", "KiB", "1 5" };
	uint64_t v;
	struct err e;

	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		if (text_size(good[i].in, &v, &e))
			fail_msg("%s: %s", good[i].in, e.text);
		assert_int_equal(v, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (!text_size(bad[i], &v, &e))
			fail_msg("\"%s\" was accepted", bad[i]);
}

static void printing(void **s)
{
	static const struct { uint64_t us; const char *text; } t[] = {
		{ 0, "0us" }, { 999, "999us" }, { 1500, "1.5ms" }, { 250000, "250ms" }, { 1500000, "1.5s" },
		{ 125000000, "2m05s" },
		{ 11220000000u, "3h07m" }, { 187200000000u, "2d04h" },
	};
	static const struct { uint64_t bytes; const char *text; } b[] = {
		{ 0, "0 B" }, { 1023, "1023 B" }, { 1024, "1.0 KiB" }, { 1572864, "1.5 MiB" }, { 104857600, "100 MiB" },
		{ UINT64_MAX, "15.9 EiB" },
	};
	char out[40];
	uint64_t back;

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		assert_string_equal(text_print_duration(t[i].us, out, sizeof out), t[i].text);
		assert_int_equal(text_duration(out, &back, NULL), 0);
		assert_int_equal(back, t[i].us);
	}
	for (size_t i = 0; i < sizeof b / sizeof *b; i++)
		assert_string_equal(text_print_size(b[i].bytes, out, sizeof out), b[i].text);
	text_print_duration(UINT64_MAX, out, sizeof out);
	assert_string_equal(text_print_time(0, out, sizeof out), "1970-01-01T00:00:00.000Z");
	assert_string_equal(text_print_time(1709210096789u, out, sizeof out), "2024-02-29T12:34:56.789Z");
	assert_string_equal(text_print_time(1, out, 5), "1970");
	text_print_time(UINT64_MAX, out, sizeof out);
}

static void numbers(void **s)
{
	static const char *const bad_u[] = { "", "-1", "+1", " 1", "1 ", "0x1", "18446744073709551616", "1.0" };
	static const char *const bad_d[] = { "", "nan", "inf", "0x1p3", "1,5", "1e999", " 1", "1 ", "e5", "--1" };
	uint64_t u;
	double d;
	bool b;
	struct err e;

	assert_int_equal(text_u64("18446744073709551615", &u, &e), 0);
	assert_true(u == UINT64_MAX);
	assert_int_equal(text_u64("007", &u, &e), 0);
	assert_int_equal(u, 7);
	for (size_t i = 0; i < sizeof bad_u / sizeof *bad_u; i++)
		if (!text_u64(bad_u[i], &u, &e))
			fail_msg("\"%s\" was accepted", bad_u[i]);
	assert_int_equal(text_double("-1.5e-3", &d, &e), 0);
	assert_true(d == -1.5e-3);
	assert_int_equal(text_double("0.1", &d, &e), 0);
	assert_true(d == 0.1);
	for (size_t i = 0; i < sizeof bad_d / sizeof *bad_d; i++)
		if (!text_double(bad_d[i], &d, &e))
			fail_msg("\"%s\" was accepted", bad_d[i]);
	assert_int_equal(text_bool("Yes", &b, &e), 0);
	assert_true(b);
	assert_int_equal(text_bool("off", &b, &e), 0);
	assert_false(b);
	assert_int_equal(text_bool("maybe", &b, &e), -1);
	assert_err(e, ERR_INVALID, "neither yes nor no");
}

static void addresses(void **s)
{
	static const char *const bad[] = { "", "host", "host:", ":80", "host:0", "host:65536", "host:80x", "::1:80",
		"[::1]",
		"[]:80", "[::1:80", "a b:80", "[host]:80", "host:-1", "ho/st:80", "[::1]x:80" };
	char host[64];
	uint16_t port;
	struct err e;

	assert_int_equal(text_hostport("example.org:31337", host, sizeof host, &port, &e), 0);
	assert_string_equal(host, "example.org");
	assert_int_equal(port, 31337);
	assert_int_equal(text_hostport("[::1]:auto", host, sizeof host, &port, &e), 0);
	assert_string_equal(host, "::1");
	assert_int_equal(port, 0);
	assert_int_equal(text_hostport("[fe80::1%eth0]:1", host, sizeof host, &port, &e), 0);
	assert_string_equal(host, "fe80::1%eth0");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (!text_hostport(bad[i], host, sizeof host, &port, &e))
			fail_msg("\"%s\" was accepted", bad[i]);
	assert_int_equal(text_hostport("abcd:1", host, 4, &port, &e), -1);
	assert_int_equal(text_hostport("abc:1", host, 4, &port, &e), 0);
}

static void nearest(void **s)
{
	static const char *const list[] = { "momentum", "lr", "weight_decay", "batch", "checkpoint", "network", "network",
		"weight_file", NULL };

	assert_string_equal(text_nearest("net", list), "network");
	assert_string_equal(text_nearest("mom", list), "momentum");
	assert_string_equal(text_nearest("check", list), "checkpoint");
	assert_null(text_nearest("weight", list));              /* which of the two? */
	assert_null(text_nearest("ne", list));
	assert_string_equal(text_nearest("momentun", list), "momentum");
	assert_string_equal(text_nearest("rl", list), "lr");
	assert_string_equal(text_nearest("weigth_decay", list), "weight_decay");
	assert_string_equal(text_nearest("bach", list), "batch");
	assert_null(text_nearest("zzz", list));
	assert_null(text_nearest("", list));
	assert_null(text_nearest("a_word_of_more_than_forty_eight_characters_is_not_compared", list));
}

static void utf8(void **s)
{
	static const char *const good[] = { "", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x9d", "\xed\x9f\xbf" };
	static const char *const bad[] = { "\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80",
		"\xf0\x80\x80\x80",
		"\xf4\x90\x80\x80", "\xf5", "\xc3", "\xe2\x82", "\xff", "a\xc3z" };
	char t[] = "ok\t\x7f\xc2\x85\xc3\xa9\xe2\x82";

	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_true(text_utf8_ok(good[i], strlen(good[i])));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(text_utf8_ok(bad[i], strlen(bad[i])));
	text_clean(t);
	assert_string_equal(t, "ok????\xc3\xa9??");
}

/* Whatever the bytes: clean text is UTF-8 of the same length, and clean already. */
static void cleaning_is_idempotent(void **s)
{
	struct rng r;
	char a[33], b[33];

	rng_seed(&r, 9);
	for (int i = 0; i < 20000; i++) {
		size_t n = rng_below(&r, 32);

		for (size_t k = 0; k < n; k++)
			a[k] = (char)(1 + rng_below(&r, 255));
		a[n] = 0;
		text_clean(a);
		assert_int_equal(strlen(a), n);
		assert_true(text_utf8_ok(a, n));
		memcpy(b, a, sizeof b);
		text_clean(b);
		assert_string_equal(a, b);
	}
}

static void hexadecimal(void **s)
{
	static const uint8_t b[] = { 0x00, 0x0f, 0xa0, 0xff, 0x5c };
	char out[12];

	memset(out, 'x', sizeof out);
	assert_ptr_equal(text_hex(b, 5, out), out);
	assert_string_equal(out, "000fa0ff5c");
	assert_int_equal(out[11], 'x');
	assert_string_equal(text_hex(b, 0, out), "");
}

static void names(void **s)
{
	static const char *const good[] = { "a", "Z.9", "_", "-x", "a..b", "0" };
	static const char *const bad[] = { "", ".", ".a", "a b", "a/b", "\xc3\xa4", "a\n", "a%" };

	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_true(text_name_ok(good[i]));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(text_name_ok(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations), cmocka_unit_test(sizes), cmocka_unit_test(printing), cmocka_unit_test(numbers),
		cmocka_unit_test(addresses), cmocka_unit_test(nearest), cmocka_unit_test(utf8),
		cmocka_unit_test(hexadecimal), cmocka_unit_test(names),
		cmocka_unit_test(cleaning_is_idempotent),
	};

	return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}

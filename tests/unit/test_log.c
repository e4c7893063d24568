/* The log: levels, ring, sink, followers, cleaning of what remote peers wrote, and a follower that logs. */
#include "common/log.h"
#include "tests/unit/t.h"

static uint64_t clock_of(void *arg)
{
	return ++*(uint64_t *)arg;
}

static void count(void *arg, const struct log_line *l)
{
	++*(int *)arg;
}

static void ring_and_levels(void **s)
{
	uint64_t now = 1000;
	struct log *l = log_new(4, LOG_INFO_, clock_of, &now);
	struct log_line out[10];

	log_write(l, LOG_DEBUG_, "x", "not kept");
	assert_int_equal(log_recent(l, 0, out, 10), 0);
	for (int i = 1; i <= 6; i++)
		log_write(l, LOG_INFO_, "net", "line %d", i);
	assert_int_equal(log_recent(l, 0, out, 10), 4);
	assert_string_equal(out[0].text, "net: line 3");
	assert_string_equal(out[3].text, "net: line 6");
	assert_int_equal(out[3].seq, 6);
	assert_int_equal(out[3].wall_ms, 1006);
	assert_int_equal(log_recent(l, 0, out, 2), 2);
	assert_string_equal(out[0].text, "net: line 5");
	assert_int_equal(log_recent(l, 5, out, 10), 1);
	assert_int_equal(log_recent(l, 99, out, 10), 0);
	log_set_min(l, LOG_ERROR_);
	log_write(l, LOG_WARN_, NULL, "no");
	log_write(l, LOG_ERROR_, NULL, "yes");
	assert_int_equal(log_recent(l, 6, out, 10), 1);
	assert_string_equal(out[0].text, "yes");
	log_free(l);
	log_free(NULL);
}

static void sinks(void **s)
{
	struct log *l = log_new(4, LOG_DEBUG_, NULL, NULL);
	int a = 0, b = 0, h[64];

	log_sink(l, count, &a);
	for (int i = 0; i < 64; i++) {
		h[i] = log_watch(l, count, &b);
		assert_true(h[i] >= 0);
	}
	assert_int_equal(log_watch(l, count, &b), -1);
	log_write(l, LOG_INFO_, "p", "1");
	assert_int_equal(a, 1);
	assert_int_equal(b, 64);
	for (int i = 0; i < 64; i++)
		log_unwatch(l, h[i]);
	log_unwatch(l, -1);
	log_unwatch(l, 1000);
	log_sink(l, NULL, NULL);
	log_write(l, LOG_INFO_, "p", "2");
	assert_int_equal(a, 1);
	assert_int_equal(b, 64);
	log_free(l);
}

static void echo(void *arg, const struct log_line *line)
{
	log_write(arg, LOG_WARN_, "echo", "heard %s", line->text);
}

static void a_follower_that_logs_does_not_circle(void **s)
{
	struct log *l = log_new(8, LOG_DEBUG_, NULL, NULL);
	struct log_line out[8];

	log_watch(l, echo, l);
	log_write(l, LOG_INFO_, NULL, "one");
	assert_int_equal(log_recent(l, 0, out, 8), 2);
	assert_string_equal(out[1].text, "echo: heard one");
	log_free(l);
}

static void remote_text_is_cleaned(void **s)
{
	struct log *l = log_new(2, LOG_DEBUG_, NULL, NULL);
	struct log_line out[1];
	char big[900];

	memset(big, 'e', sizeof big);
	memcpy(big + 398 - 3, "\xc3\xa9\xc3\xa9\xc3\xa9", 6);   /* the cut at 399 bytes falls inside a character */
	big[899] = 0;
	log_write(l, LOG_INFO_, "", "\033]0;x\a\nfake line");
	log_recent(l, 0, out, 1);
	assert_string_equal(out[0].text, "?]0;x??fake line");
	log_write(l, LOG_INFO_, "", "%s", big + 1);
	log_recent(l, 0, out, 1);
	assert_int_equal(strlen(out[0].text), 399);
	assert_int_equal((unsigned char)out[0].text[398], '?');
	log_free(l);
}

static void names(void **s)
{
	for (int i = 0; i < LOG_LEVELS_; i++)
		assert_int_equal(log_level_parse(log_level_name((enum log_level)i)), i);
	assert_int_equal(log_level_parse("warn"), LOG_WARN_);
	assert_int_equal(log_level_parse("loud"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ring_and_levels), cmocka_unit_test(sinks),
		cmocka_unit_test(a_follower_that_logs_does_not_circle), cmocka_unit_test(remote_text_is_cleaned),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}

/* One direction of an emulated link, in a time of its own: rate, queue, delay, jitter, loss, burst, order. */
#include "t.h"
#include "link/emu.h"

#define MS 1000000ull
#define SECOND 1000000000ull

struct got { uint64_t n, bytes, last_ns, gap_min, gap_max, disorder, sum_ns; uint32_t numbers[20000]; };

static void conf(struct emu *m, const char *words)
{
	struct emu_conf c = {0};
	char copy[200], *rest = copy, *w;
	struct err e;

	snprintf(copy, sizeof copy, "%s", words);
	while ((w = strsep(&rest, " ")))
		if (*w && emu_parse(&c, w, &e))
			fail_msg("%s: %s", words, e.text);
	emu_set(m, &c, 0);
}

static void drain(struct emu *m, uint64_t now, struct got *g)
{
	struct emu_packet *p;
	uint32_t number;

	while ((p = emu_take(m, now))) {
		memcpy(&number, p->bytes, 4);
		assert_true(p->due_ns <= now);
		if (g->n) {
			g->disorder += number < g->numbers[g->n - 1];
			g->gap_max = p->due_ns - g->last_ns > g->gap_max ? p->due_ns - g->last_ns : g->gap_max;
		}
		if (g->n < 20000)
			g->numbers[g->n] = number;
		g->n++;
		g->bytes += p->len;
		g->sum_ns += p->due_ns;
		g->last_ns = p->due_ns;
		free(p);
	}
}

static bool put(struct emu *m, uint64_t now, uint32_t number, size_t len)
{
	uint8_t bytes[1500] = {0};

	memcpy(bytes, &number, 4);
	return emu_put(m, now, bytes, len, 7);
}

/* Twice as much as fits: what comes out is the rate, and the queue holds what it was told to. */
static void test_rate_and_queue(void **state)
{
	struct got *g = calloc(1, sizeof *g);
	struct emu m;
	uint32_t taken = 0;

	emu_init(&m, 1);
	conf(&m, "rate=10mbit queue=50000");
	for (uint32_t i = 0; i < 10000; i++) {
		uint64_t now = i * SECOND / 1667;               /* 1500 bytes: 20 Mbit/s */
		taken += put(&m, now, i, 1500);
		assert_true(emu_backlog(&m, now) <= 50000);
		drain(&m, now, g);
	}
	assert_in_range(g->bytes * 8, 99 * 600000, 101 * 600000);       /* 6 s of 10 Mbit/s */
	assert_in_range(m.stats.overflowed, 4900, 5100);
	assert_int_equal(taken + m.stats.overflowed, 10000);
	assert_in_range(m.stats.queue_us_max, 38000, 41200);            /* 50 kB at 10 Mbit/s, and the packet itself */
	assert_int_equal(g->disorder, 0);
	emu_free(&m);
	free(g);
}

static void test_delay_and_jitter(void **state)
{
	struct got *g = calloc(1, sizeof *g);
	struct emu m;
	double mean;

	emu_init(&m, 2);
	conf(&m, "delay=50ms jitter=5ms reorder=yes");
	for (uint32_t i = 0; i < 1000; i++)
		assert_true(put(&m, i * 100 * MS, i, 100));
	assert_true(emu_next(&m) >= 45 * MS && emu_next(&m) <= 55 * MS);
	assert_null(emu_take(&m, 45 * MS - 1));
	for (uint64_t t = 0; t < 101000; t += 50)
		drain(&m, t * MS, g);
	assert_int_equal(g->n, 1000);
	mean = (double)g->sum_ns / 1000 - 999 * 100 * (double)MS / 2;
	assert_true(mean > 49.5 * (double)MS && mean < 50.5 * (double)MS);
	assert_true(g->gap_max > 105 * MS && g->gap_max <= 110 * MS);   /* it does vary */
	emu_free(&m);
	free(g);
}

/* Close together, jitter reorders only when told to; without, nobody comes before who was sent first. */
static void test_order(void **state)
{
	for (int reorder = 0; reorder < 2; reorder++) {
		struct got *g = calloc(1, sizeof *g);
		struct emu m;

		emu_init(&m, 3);
		conf(&m, reorder ? "delay=20ms jitter=5ms reorder=yes" : "delay=20ms jitter=5ms");
		for (uint32_t i = 0; i < 1000; i++)
			put(&m, i * MS / 10, i, 100);
		drain(&m, SECOND, g);
		assert_int_equal(g->n, 1000);
		assert_true(reorder ? g->disorder > 100 : g->disorder == 0);
		emu_free(&m);
		free(g);
	}
}

/* The share that was asked for, by packet number: the same whatever the times are; another seed, another pattern. */
static void test_loss(void **state)
{
	struct got *g[3];
	struct emu m;

	for (int k = 0; k < 3; k++) {
		g[k] = calloc(1, sizeof **g);
		emu_init(&m, k == 2 ? 5 : 4);
		conf(&m, k == 1 ? "loss=1% delay=3ms" : "loss=1%");
		for (uint32_t i = 0; i < 20000; i++)
			put(&m, i * (k == 1 ? 2 : 1) * MS, i, 100);
		drain(&m, 100 * SECOND, g[k]);
		assert_in_range(g[k]->n, 20000 - 250, 20000 - 150);
		assert_int_equal(m.stats.lost, 20000 - g[k]->n);
		emu_free(&m);
	}
	assert_int_equal(g[0]->n, g[1]->n);
	assert_memory_equal(g[0]->numbers, g[1]->numbers, g[0]->n * 4);
	assert_memory_not_equal(g[0]->numbers, g[2]->numbers, 15000 * 4);
	for (int k = 0; k < 3; k++)
		free(g[k]);
}

static void test_burst(void **state)
{
	struct emu m;

	emu_init(&m, 6);
	conf(&m, "rate=1mbit burst=3000 queue=100000");
	for (uint32_t i = 0; i < 4; i++)
		put(&m, SECOND, i, 1500);
	for (int i = 0; i < 2; i++)             /* two at once, the others at the rate: 12 ms each */
		free(emu_take(&m, SECOND));
	assert_true(emu_next(&m) == SECOND + 12 * MS);
	free(emu_take(&m, SECOND + 12 * MS));
	assert_true(emu_next(&m) == SECOND + 24 * MS);
	emu_free(&m);
}

/* What is queued goes on at the new rate; a default queue grows with the rate. */
static void test_change(void **state)
{
	struct emu_conf c = {0};
	struct emu m;
	struct err e;

	emu_init(&m, 7);
	conf(&m, "rate=1mbit queue=100000");
	for (uint32_t i = 0; i < 10; i++)
		put(&m, 0, i, 1500);
	assert_in_range(emu_backlog(&m, 0), 14999, 15000);
	c = m.conf;
	assert_int_equal(emu_parse(&c, "rate=2mbit", &e), 0);
	emu_set(&m, &c, 0);
	assert_in_range(emu_backlog(&m, 0), 14998, 15000);
	assert_in_range(emu_backlog(&m, 30 * MS), 7498, 7500);
	c = (struct emu_conf){ .rate_bps = 10000000 };
	assert_int_equal(emu_queue_bytes(&c), 250000);
	c.rate_bps = 64000;
	assert_int_equal(emu_queue_bytes(&c), 32768);
	emu_free(&m);
}

static void test_words(void **state)
{
	struct emu_conf c = {0};
	struct err e;

	assert_int_equal(emu_parse(&c, "rate=512kbit", &e), 0);
	assert_int_equal(c.rate_bps, 512000);
	assert_int_equal(emu_parse(&c, "rate=1.5gbit", &e), 0);
	assert_int_equal(c.rate_bps, 1500000000);
	assert_int_equal(emu_parse(&c, "queue=64KiB", &e), 0);
	assert_int_equal(c.queue_bytes, 65536);
	assert_int_equal(emu_parse(&c, "rate=10", &e), -1);
	assert_err(e, ERR_INVALID, "such as 10mbit");
	assert_int_equal(emu_parse(&c, "rate=-1mbit", &e), -1);
	assert_int_equal(emu_parse(&c, "loss=1", &e), -1);
	assert_err(e, ERR_INVALID, "such as 0.5%");
	assert_int_equal(emu_parse(&c, "loss=101%", &e), -1);
	assert_int_equal(emu_parse(&c, "loss=%", &e), -1);
	assert_int_equal(emu_parse(&c, "speed=3", &e), -1);
	assert_err(e, ERR_INVALID, "expected rate=");
	assert_int_equal(emu_parse(&c, "delay", &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rate_and_queue), cmocka_unit_test(test_delay_and_jitter), cmocka_unit_test(test_order),
		cmocka_unit_test(test_loss), cmocka_unit_test(test_burst), cmocka_unit_test(test_change),
		cmocka_unit_test(test_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

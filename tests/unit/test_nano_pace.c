/* The window of bulk (nano_pace.c) against a bottleneck with a queue, in a time of its own: how long the queue is, that
 * the link is full all the same, that two share it, and that nothing is held back where there is no queue.
 * Over loopback: what a connection takes at first, and what becomes of it when it is closed. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include "nano_bed.h"
#include "net/nano_int.h"
#include "skip.h"

#define SEGMENT 1448
#define FLOWS 2

/* A fluid model: what is on its way fills the wire (rate * base), the rest waits. The kernel sees the round trip of one
 * round trip ago, and has what the window allows on its way as soon as it may. */
struct flow { double window; bool begins; bool idle; };
struct wire { double rate, base_s, seen_s; struct flow f[FLOWS]; int n; double queue_max, sent, time; };

static double on_way(const struct flow *f) { return f->idle ? 1000 : 0.9 * f->window; }

static void round_trip(struct wire *w, uint32_t window_max)
{
	double all = 0, waits, rtt;

	for (int i = 0; i < w->n; i++)
		all += on_way(&w->f[i]);
	waits = all / w->rate - w->base_s;
	waits = waits > 0 ? waits : 0;
	rtt = w->base_s + waits;
	w->queue_max = waits > w->queue_max ? waits : w->queue_max;
	w->sent += all < w->rate * rtt ? all : w->rate * rtt;
	w->time += rtt;
	for (int i = 0; i < w->n; i++) {
		struct pace_view v = { .window = (uint32_t)w->f[i].window, .window_max = window_max, .segment = SEGMENT,
			.on_way = (uint64_t)on_way(&w->f[i]), .rtt_us = (uint64_t)(w->seen_s * 1e6),
			.base_us = (uint64_t)(w->base_s * 1e6) };

		w->f[i].window = pace_law(&v, &w->f[i].begins);
	}
	w->seen_s = rtt;
}

static struct wire begin(double mbit, double base_ms, int n)
{
	struct wire w = { .rate = mbit * 125e3, .base_s = base_ms * 1e-3, .seen_s = base_ms * 1e-3, .n = n };

	for (int i = 0; i < n; i++)
		w.f[i] = (struct flow){ 65536, true, false };
	return w;
}

/* Forty round trips to find its place, then a hundred that count. */
static void settle(struct wire *w, uint32_t window_max)
{
	for (int i = 0; i < 40; i++)
		round_trip(w, window_max);
	w->queue_max = w->sent = w->time = 0;
	for (int i = 0; i < 100; i++)
		round_trip(w, window_max);
}

static void test_one(void **state)
{
	static const struct { double mbit, base_ms; } links[] = { { 10, 100 }, { 100, 40 }, { 2, 200 },
		{ 33, 10 }, { 300, 50 } };

	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		struct wire w = begin(links[i].mbit, links[i].base_ms, 1);

		settle(&w, 2 << 20);
		print_message("%g Mbit/s, %g ms: queue %.1f ms, %.1f %% of the rate\n", links[i].mbit, links[i].base_ms,
			w.queue_max * 1e3, 100 * w.sent / w.time / w.rate);
		assert_true(w.queue_max < 0.045);
		assert_true(w.sent > 0.97 * w.time * w.rate);
	}
}

/* One that began with everything, one that came later: they end within a factor of two. */
static void test_two(void **state)
{
	struct wire w = begin(10, 100, 2);

	w.f[0].window = 200000;
	w.f[1].window = 5000;
	w.f[1].begins = false;
	for (int i = 0; i < 600; i++)
		round_trip(&w, 2 << 20);
	assert_true(w.f[0].window < 2 * w.f[1].window && w.f[1].window < 2 * w.f[0].window);
	settle(&w, 2 << 20);
	assert_true(w.queue_max < 0.045);
}

/* Many times too much at first: a few round trips later the queue is short. */
static void test_flooded(void **state)
{
	struct wire w = begin(10, 50, 1);

	w.f[0].window = 2 << 20;
	w.f[0].begins = false;
	for (int i = 0; i < 12; i++)
		round_trip(&w, 2 << 20);
	assert_true(w.seen_s < 0.05 + 0.045);
}

static void test_limits(void **state)
{
	struct wire w = begin(10000, 0.2, 1);
	bool begins = true;
	struct pace_view v = { .window = 16384, .window_max = 2 << 20, .segment = SEGMENT, .on_way = 8192,
		.rtt_us = 5000000, .base_us = 1000 };

	settle(&w, 2 << 20);                    /* a local network: the whole buffer */
	assert_true(w.f[0].window == 2 << 20);
	w = begin(10, 100, 1);
	w.f[0].idle = true;                     /* nothing to send is no reason to grow */
	settle(&w, 2 << 20);
	assert_true(w.f[0].window == 65536);
	for (int i = 0; i < 20; i++)
		v.window = pace_law(&v, &begins);
	assert_int_equal(v.window, 9216);       /* but never nothing */
	assert_false(begins);
	v.rtt_us = v.base_us = 0;               /* before anything is measured */
	begins = true;
	assert_in_range(pace_law(&v, &begins), 9216, 2 << 20);
}

static bool came_back(struct bed *b) { return b->p[0].back == b->p[0].sent; }
static bool some_there(struct bed *b) { return b->p[1].got[CHAN_BULK] >= 1; }
static bool piled_up(struct bed *b) { return b->p[0].back - b->p[1].got[CHAN_BULK] >= 12; }
static bool last_there(struct bed *b) { return b->p[1].last_len == 150000; }

/* What a connection holds when it is closed for a fresh one is dropped: it would fill the path in front of what matters
 * now. The other side has not read what was sent; when it does, it finds what its own buffers had taken. */
static void test_dropped(void **state)
{
	struct bed *b = *state;
	struct nano_conf swept = { .sweep_us = 20000 }, slow = { .rate_down = 100000, .bulk_buf = 16384 };
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, &swept), *y = open_peer(b, "127.0.0.1:auto", false, &slow);

	for (uint32_t i = 1; i <= 60; i++)
		say(x, at(y), CHAN_BULK, 0, i, 100000);
	assert_true(spin(b, piled_up, 5 * SECOND));
	spin(b, last_there, SECOND / 5);                        /* the sweep comes by; some more are taken */
	int taken = x->back, before = y->got[CHAN_BULK];
	x->env->ops->close_link(x->env, at(y), false);
	say(x, at(y), CHAN_BULK, 0, 1000, 150000);
	nano_set_rates(y->nano, 0, 0);
	assert_true(spin(b, last_there, 5 * SECOND));
	spin(b, came_back, SECOND);
	if (y->got[CHAN_BULK] - before > 6)
		fail_msg("%d of %d came after the connection was closed", y->got[CHAN_BULK] - before, taken - before);
}

/* Where the path is long, a new connection for bulk takes little at first, from its first byte on: once the sweep has
 * seen it, what it has taken goes out all the same. And where the sweep finds that it is short, it takes what it may.
 */
static void test_first_bytes(void **state)
{
	struct bed *b = *state;
	struct nano_conf slow = { .rate_down = 100000, .bulk_buf = 131072 };
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, NULL), *y = open_peer(b, "127.0.0.1:auto", false, &slow);

	pace_path(x->nano, at(y)->ip, 100000);
	for (uint32_t i = 1; i <= 60; i++)
		say(x, at(y), CHAN_BULK, 0, i, 100000);
	assert_true(spin(b, some_there, SECOND));
	int at_first = x->back - y->got[CHAN_BULK];
	if (at_first > 6)
		fail_msg("%d frames at once", at_first);
	assert_true(spin(b, piled_up, 2 * SECOND));
	nano_set_rates(y->nano, 0, 0);
	assert_true(spin(b, came_back, 5 * SECOND));
	assert_int_equal(x->unsent, 0);
}

/* Both ends of connections by TCP that stand, and how many of them use that law. */
static int using_law(const char *law, int *ret_all)
{
	int n = 0;

	*ret_all = 0;
	for (int fd = 3; fd < 256; fd++) {
		struct sockaddr_storage a;
		socklen_t alen = sizeof a, len = 16;
		char name[16] = { 0 };

		if (getpeername(fd, (struct sockaddr *)&a, &alen) || getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len))
			continue;
		++*ret_all;
		n += !strcmp(name, law);
	}
	return n;
}

static bool all_reno(struct bed *b)
{
	int all, n = using_law("reno", &all);

	return all >= 2 && n == all;
}

/* Where the path is short, whatever the machine's default is. */
static void test_near(void **state)
{
	struct bed *b = *state;
	struct nano_conf swept = { .sweep_us = 20000 };
	struct peer *x = open_peer(b, "127.0.0.1:auto", false, &swept), *y = open_peer(b, "127.0.0.1:auto", false, &swept);
	int all, s = socket(AF_INET, SOCK_STREAM, 0);
	char name[16] = { 0 };
	socklen_t len = sizeof name;

	assert_false(getsockopt(s, IPPROTO_TCP, TCP_CONGESTION, name, &len));
	close(s);
	if (!strcmp(name, "reno"))
		skip_because("Reno is this machine's default");
	assert_int_equal(using_law("reno", &all), 0);
	say(x, at(y), CHAN_BULK, 0, 1, 100000);
	say(y, at(x), CHAN_CTRL, 0, 1, 100);
	assert_true(spin(b, all_reno, 5 * SECOND));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one), cmocka_unit_test(test_two), cmocka_unit_test(test_flooded),
		cmocka_unit_test(test_limits),
		cmocka_unit_test_setup_teardown(test_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_first_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_near, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

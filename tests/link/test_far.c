/* The net room over long, thin and lossy links, behind the emulator: calls pass while bulk fills the link, whatever
 * TCP's congestion control is; limits of upload and download are kept; IPv6, clients. Skipped where namespaces are not
 * to be had. Times are of a machine that has other things to do: medians, and limits with room; but when the host of a
 * virtual machine has taken a twentieth of its processors meanwhile, they are not judged. */
#include "t.h"
#include "link/far_kit.h"
#include "skip.h"
#include "stolen.h"

static struct far_result run(struct far_conf c)
{
	double begun = far_seconds(), before = stolen(), share;
	struct far_result r;
	struct err e;

	if (hub_possible(&e))
		skip_because("no networks of its own here: %s", e.text);
	if (far_run(&c, &r))
		fail_msg("%s: %s", c.a, r.error);
	print_message("%s: %.2f Mbit/s, %.2f bytes sent a byte; a call %.1f ms before, median %.1f, p95 %.1f beside %d\n",
		c.a, (double)c.bytes * 8e-6 / r.seconds, (double)r.wire_bytes / (double)c.bytes, r.idle * 1e3, r.median * 1e3,
		r.p95 * 1e3, r.calls);
	share = (stolen() - before) / (far_seconds() - begun);
	if (share > 0.05)
		skip_because("not judged: the host took %.0f %% of the processors", share * 100);
	return r;
}

/* Without the window TCP would fill the queue, and a call take 600 ms. */
static void test_queue_stays_short(void **state)
{
	struct far_result r = run((struct far_conf){ .bytes = 2500000,
		.a = "rate=10mbit delay=50ms queue=625000 cc=reno" });

	assert_true(r.median <= 0.220);
	assert_true(2.5e6 * 8 / r.seconds > 1.5e6);
}

static void test_loss(void **state)
{
	struct far_result r = run((struct far_conf){ .bytes = 2500000,
		.a = "rate=10mbit delay=50ms loss=1% queue=625000" });

	assert_true(r.median <= 0.220);
	assert_true(2.5e6 * 8 / r.seconds > 1.5e6);
}

static void test_rate_up(void **state)
{
	struct far_result r = run((struct far_conf){ .a = "rate=100mbit delay=2ms", .bytes = 3000000, .rate_up = 1 << 20 });
	double rate = 3e6 / r.seconds / (1 << 20);

	assert_true(rate > 0.85 && rate < 1.15);
	assert_true(r.median < 0.050);          /* control does not wait for the limit */
}

static void test_rate_down(void **state)
{
	struct far_result r = run((struct far_conf){ .a = "rate=100mbit delay=2ms", .bytes = 6000000,
		.rate_down = 1 << 20 });
	double rate = 6e6 / r.seconds / (1 << 20);

	assert_true(rate > 0.65 && rate < 1.3); /* what is in the sockets comes on top */
	assert_true((double)r.wire_bytes / 6e6 < 1.6);  /* and nothing is sent twice because it waits */
	assert_true(r.median < 0.050);
}

static void test_ip6(void **state)
{
	struct far_result r = run((struct far_conf){ .a = "rate=50mbit delay=5ms", .bytes = 3000000, .ip6 = true });

	assert_true(3e6 * 8 / r.seconds > 1e6);
}

/* Through the other's door, which calls and bulk share, one frame after the other: nothing is sent in vain. */
static void test_client(void **state)
{
	struct far_result r = run((struct far_conf){ .bytes = 2000000, .client = true,
		.a = "rate=10mbit delay=10ms queue=625000" });

	assert_true(r.seconds < 20);
	assert_true((double)r.wire_bytes / 2e6 < 1.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queue_stays_short), cmocka_unit_test(test_loss), cmocka_unit_test(test_rate_up),
		cmocka_unit_test(test_rate_down), cmocka_unit_test(test_ip6),
		cmocka_unit_test(test_client),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

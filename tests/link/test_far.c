/* The net room over long, thin and lossy links, behind the emulator: calls pass while bulk fills the link, whatever
 * TCP's congestion control is; limits of upload and download are kept; IPv6, clients. Skipped where namespaces are not
 * to be had. Times are of a machine that has other things to do: figures, of which tests/nightly judges the median of
 * ten; but when the host of a virtual machine has taken a twentieth of its processors meanwhile, they are not said. */
#include <math.h>
#include "t.h"
#include "figure.h"
#include "link/far_kit.h"
#include "skip.h"
#include "stolen.h"

static struct far_result run(struct far_conf c)
{
	double begun = far_seconds(), before = stolen(), share;
	struct far_result r;

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

	figure_at_most("far/queue_call", r.median * 1e3, "ms", 220);
	figure_at_least("far/queue_bulk", 2.5 * 8 / r.seconds, "Mbit/s", 1.5);
}

static void test_loss(void **state)
{
	struct far_result r = run((struct far_conf){ .bytes = 2500000,
		.a = "rate=10mbit delay=50ms loss=1% queue=625000" });

	figure_at_most("far/loss_call", r.median * 1e3, "ms", 220);
	figure_at_least("far/loss_bulk", 2.5 * 8 / r.seconds, "Mbit/s", 1.5);
}

static void test_rate_up(void **state)
{
	struct far_result r = run((struct far_conf){ .a = "rate=100mbit delay=2ms", .bytes = 3000000, .rate_up = 1 << 20 });
	double rate = 3e6 / r.seconds / (1 << 20);

	figure_at_most("far/rate_up_off", fabs(rate - 1) * 100, "percent", 15);
	figure_at_most("far/rate_up_call", r.median * 1e3, "ms", 50);   /* control does not wait for the limit */
}

static void test_rate_down(void **state)
{
	struct far_result r = run((struct far_conf){ .a = "rate=100mbit delay=2ms", .bytes = 6000000,
		.rate_down = 1 << 20 });
	double rate = 6e6 / r.seconds / (1 << 20);

	figure_at_least("far/rate_down_used", rate * 100, "percent", 65);
	figure_at_most("far/rate_down_over", rate * 100, "percent", 130);       /* what is in the sockets comes on top */
	figure_at_most("far/rate_down_sent", (double)r.wire_bytes / 6e6, "bytes/byte", 1.6);    /* none twice: it waits */
	figure_at_most("far/rate_down_call", r.median * 1e3, "ms", 50);
}

static void test_ip6(void **state)
{
	struct far_result r = run((struct far_conf){ .a = "rate=50mbit delay=5ms", .bytes = 3000000, .ip6 = true });

	figure_at_least("far/ip6_bulk", 3 * 8 / r.seconds, "Mbit/s", 1);
}

/* Through the other's door, which calls and bulk share, one frame after the other: nothing is sent in vain. */
static void test_client(void **state)
{
	struct far_result r = run((struct far_conf){ .bytes = 2000000, .client = true,
		.a = "rate=10mbit delay=10ms queue=625000" });

	figure_at_most("far/client_bulk", r.seconds, "s", 20);
	figure_at_most("far/client_sent", (double)r.wire_bytes / 2e6, "bytes/byte", 1.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queue_stays_short), cmocka_unit_test(test_loss), cmocka_unit_test(test_rate_up),
		cmocka_unit_test(test_rate_down), cmocka_unit_test(test_ip6),
		cmocka_unit_test(test_client),
	};
	struct err e;

	if (hub_possible(&e)) {
		printf("skipped: no networks of its own here: %s\n", e.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The real transport's door: which descriptor is whose is known by counting alone, and peers whose messages are alike
 * count alike for a while. However they are mixed up by then, no peer's connection is shut down for it. */
#include <poll.h>
#include "nano_bed.h"
#include "net/nano_int.h"

#define FRAME (12 + 300)                /* one of these messages with what nanomsg puts around it */
#define STRANGER_US 300000

static const uint8_t elsewhere[16] = { 0xfd };
static struct nano_stats seen;

/* What the loop of y has not read when it returns has come all the same. */
static void sends(struct peer *x, struct peer *y, uint32_t number)
{
	say(x, at(y), CHAN_DOOR, 0, number, 300);
	loop_run_until(x->loop, never, NULL, 10000);
}

static int due;
static bool came(struct bed *b) { return b->p[0].got[CHAN_DOOR] == due; }

static void read_all(struct bed *b, int so_many)
{
	due = so_many;
	assert_true(spin(b, came, 2 * SECOND));
}

/* A peer has said HELLO by the connection of the last message. */
static void hello(struct peer *y) { y->env->ops->heard(y->env, elsewhere, y->token); }

/* Sweeps, when TCP has so many messages of one and of the other. */
static void sweep(struct peer *y, uint64_t one, uint64_t other)
{
	struct nano *n = y->nano;
	bool has = false;

	one = 8 + one * FRAME;
	other = 8 + other * FRAME;
	for (int i = 0; i < 5000 && !has; i++) {
		const struct inbound *c;

		poll(NULL, 0, 1);
		loop_enter(y->loop, "test");
		n->sweep.fire(&n->sweep);
		loop_leave(y->loop);
		nano_stats(n, &seen);
		assert_int_equal(seen.shut_stranger, 0);
		c = n->inbound;
		has = n->ninbound == 2 && ((c[0].received == one && c[1].received == other) ||
			(c[0].received == other && c[1].received == one));
	}
	assert_true(has);
}

/* y at b->p[0] sweeps only when told to; the first client is there before the second, and so is its descriptor. */
static struct peer *three(struct bed *b, struct peer *ret_x[2])
{
	static const struct nano_conf still = { .sweep_us = 3600 * (uint64_t)SECOND, .stranger_us = STRANGER_US };
	struct peer *y = open_peer(b, "127.0.0.1:auto", false, &still);

	for (int i = 0; i < 2; i++) {
		ret_x[i] = open_peer(b, "127.0.0.1:auto", true, NULL);
		sends(ret_x[i], y, 1);
		read_all(b, i + 1);
	}
	return y;
}

static void both_known(struct peer *y)
{
	const struct inbound *c = y->nano->inbound;

	assert_true(c[0].token && c[1].token && c[0].token != c[1].token);
}

/* The second has said HELLO, and got the first's descriptor, whose count was its own; then the first speaks on. */
static void test_count_of_another(void **state)
{
	struct bed *b = *state;
	struct peer *x[2], *y = three(b, x);

	hello(y);
	sweep(y, 1, 1);
	for (uint32_t i = 2; i < 5; i++)
		sends(x[0], y, i);
	read_all(b, 5);
	hello(y);
	poll(NULL, 0, 2 * STRANGER_US / 1000);
	sweep(y, 4, 1);
	both_known(y);
}

/* So it has, and more is read of it than that one has received: it is the other one's for sure, and who loses his
 * descriptor has time to find out whose it is. */
static void test_more_than_there_is(void **state)
{
	struct bed *b = *state;
	struct peer *x[2], *y = three(b, x);

	hello(y);
	sweep(y, 1, 1);
	sends(x[1], y, 2);
	read_all(b, 3);
	poll(NULL, 0, 2 * STRANGER_US / 1000);
	sweep(y, 1, 2);
	sends(x[0], y, 2);
	read_all(b, 4);
	hello(y);
	sweep(y, 2, 2);
	both_known(y);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_count_of_another), T(test_more_than_there_is) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

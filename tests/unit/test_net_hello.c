/* What HELLO shows, and what it does not: who is acquainted, whom it costs what, and whom it makes a daemon dial. */
#include "net_bed.h"

static struct env_ops mine;
static unsigned by_address, by_token;
static uint8_t last_ip[16];
static uint64_t last_token;

static void on_heard(struct env *e, const uint8_t ip[16], uint64_t token)
{
	*(token ? &by_token : &by_address) += 1;
	memcpy(last_ip, ip, 16);
	last_token = token;
}

static void listen_in(struct net_app *x)
{
	mine = *x->env->ops;
	mine.heard = on_heard;
	x->env->ops = &mine;
	by_address = by_token = 0;
}

/* An M1 alone makes nobody known: it may be a replay, and says what it likes. M3 does: where M2 has been, or of the
 * connection that it came by. */
static void test_heard(void **state)
{
	struct bed *b = *state;
	const struct recorded *m1 = find(b, 0, KIND_HELLO1);
	struct peer *p = peer_find(b->b->net, net_self(b->a->net));
	struct peer *q = peer_find(b->a->net, net_self(b->b->net));

	listen_in(b->b);
	for (int i = 0; i < 5; i++)
		give(b->b, CHAN_CTRL, m1->p, m1->len);
	assert_int_equal(map_len(b->b->net->halves), 1);
	assert_int_equal(by_address + by_token, 0);
	peer_drop_sessions(p);
	peer_drop_sessions(q);
	p->mailbox = q->mailbox = false;
	q->frames_out = p->frames_out = 0;
	assert_true(ask(b, b->a, b->b, 2).ok);
	assert_true(by_token > 0 && last_token && by_address == 0);     /* through the door at first */
	hello_prove(q);
	sim_run_for(b->s, 1000000);
	assert_true(p->mailbox && by_address > 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { T(test_heard) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

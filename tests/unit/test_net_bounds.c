/* What others can make a daemon's net room do in a second, when they go on for longer than the burst: what it answers,
 * and whom it forgets. Time is virtual, so each rate is held from above and from below. */
#include "net_bed.h"

#define SECONDS(n) ((n) * (uint64_t)1000000)

/* ---- HELLO ---- */

/* So many of these HELLOs, each a new one, are not too many. */
static unsigned let_in(struct bed *b, struct via via, uint64_t *boot, unsigned count)
{
	uint64_t before = counters(b->b).hello_limited;
	uint8_t w[HELLO1_MAX];

	for (unsigned i = 0; i < count; i++) {
		size_t len = make_m1(b, ++*boot, 9, w, b->b->net->mac_key);

		b->b->env->recv(b->b->env->recv_arg, via, w, len);
	}
	return count - (unsigned)(counters(b->b).hello_limited - before);
}

static void greet(struct bed *b, struct via via, unsigned burst, unsigned per_s)
{
	uint64_t boot = 0;
	unsigned in = 0;

	assert_int_equal(let_in(b, via, &boot, burst + 50), burst);
	for (int i = 0; i < 20; i++) {
		sim_run_for(b->s, SECONDS(1) / 4);
		in += let_in(b, via, &boot, per_s);
	}
	assert_in_range(in, 5 * per_s - 1, 5 * per_s);
	sim_run_for(b->s, SECONDS(60));
	assert_int_equal(let_in(b, via, &boot, burst + 50), burst);
}

static void test_hellos(void **state)
{
	greet(*state, (struct via){ CHAN_CTRL }, 512, 100);
}

static void test_door_hellos(void **state)
{
	greet(*state, (struct via){ CHAN_DOOR, 77 }, 64, 10);
}

/* ---- frames of sessions that nobody knows ---- */

static struct env_ops mine;
static unsigned resets;

static void count_resets(struct env *e, const struct endpoint *to, enum chan c, uint64_t token, struct packet *p)
{
	resets += c == CHAN_DOOR && p->wire_len == RESET_BYTES;
	p->gone(p, false);
}

/* So many of them are answered; each is somebody else's, by connections from `token` on, `step` apart. */
static unsigned unknown(struct bed *b, uint64_t token, uint64_t step, unsigned count)
{
	const struct env_ops *before = b->b->env->ops;
	uint64_t heard = counters(b->b).unknown_session;
	uint8_t w[512];
	struct header h;

	mine = *before;
	mine.send = count_resets;
	b->b->env->ops = &mine;
	resets = 0;
	for (unsigned i = 0; i < count; i++) {
		size_t len = fresh(b, w, &h, "{}", &(struct id){ .b = { 9, (uint8_t)i } });

		w[72] ^= 1;                     /* the session */
		b->b->env->recv(b->b->env->recv_arg, (struct via){ CHAN_DOOR, token + i * step }, w, len);
	}
	b->b->env->ops = before;
	assert_int_equal(counters(b->b).unknown_session - heard, count);
	return resets;
}

/* By a hundred connections, each for the first time: what all of them hear is bounded. */
static void test_resets(void **state)
{
	struct bed *b = *state;
	unsigned all = 0;

	assert_int_equal(unknown(b, 1000, 1, 100), 20);
	for (unsigned i = 1; i <= 20; i++) {
		sim_run_for(b->s, SECONDS(1) / 4);
		all += unknown(b, 1000 + 100 * i, 1, 100);
	}
	assert_in_range(all, 99, 100);
}

/* And by one. */
static void test_resets_of_one(void **state)
{
	struct bed *b = *state;
	unsigned all = 0;

	assert_int_equal(unknown(b, 1000, 0, 100), 2);
	for (int i = 0; i < 20; i++) {
		sim_run_for(b->s, SECONDS(1) / 4);
		all += unknown(b, 1000, 0, 100);
	}
	assert_in_range(all, 4, 5);
}

/* ---- the address book ---- */

/* So many of those that are named find a place in the book; they speak at once, so they are not who makes room. */
static unsigned named(struct bed *b, void (*how)(struct net *, const struct id *, const struct endpoint *),
	uint32_t *next, unsigned count)
{
	struct net *n = b->a->net;
	unsigned in = 0;

	for (unsigned i = 0; i < count; i++) {
		struct id id = { .b = { [31] = 3 } };
		struct peer *p;

		memcpy(id.b, next, sizeof *next);
		++*next;
		how(n, &id, &b->b->net->conf.self);
		p = peer_find(n, &id);
		if (p)
			p->heard_us = env_now(n->env);
		in += p != NULL;
		assert_true(map_len(n->peers) <= 4096);
	}
	return in;
}

/* A book full of peers that have spoken: who is named takes the place of few of them, whoever says so of none; until
 * they have been of no use for ten minutes. */
static void test_book(void **state)
{
	struct bed *b = *state;
	uint32_t next = 0;
	uint64_t began = sim_now(b->s);
	unsigned in = 0;

	net_care(b->a->net, net_self(b->b->net), 1);
	assert_int_equal(named(b, net_learn, &next, 4095), 4095);
	assert_int_equal(named(b, net_heard_of, &next, 100), 0);
	assert_int_equal(named(b, net_learn, &next, 300), 64);
	for (int i = 0; i < 20; i++) {
		sim_run_for(b->s, SECONDS(1) / 4);
		in += named(b, net_learn, &next, 50);
	}
	assert_in_range(in, 79, 80);
	sim_run_for(b->s, began + SECONDS(600) - sim_now(b->s));
	assert_int_equal(named(b, net_heard_of, &next, 100), 0);
	assert_int_equal(named(b, net_learn, &next, 300), 64);
	sim_run_for(b->s, 1);
	assert_int_equal(named(b, net_learn, &next, 300), 300);
	assert_int_equal(named(b, net_heard_of, &next, 300), 300);
	net_care(b->a->net, net_self(b->b->net), -1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { T(test_hellos), T(test_door_hellos), T(test_resets), T(test_resets_of_one),
		T(test_book) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

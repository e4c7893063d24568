/* Names of transfers that a receiver remembers: a share for each sender, and none that has lost its meaning. */
#include "net_bed.h"
#include "net/chunk_int.h"

static struct xfer_key key_of(const struct id *peer, unsigned n)
{
	struct xfer_key k = { .peer = *peer };

	k.tag.b[0] = (uint8_t)n;
	k.tag.b[1] = (uint8_t)(n >> 8);
	return k;
}

/* One sender names thousands: another's name is remembered. So it is in the memory of all when hundreds do a little. */
static void test_shares(void **state)
{
	struct id a = { .b = { 1 } }, many = { .b = { 2 } };
	struct xfer_key first = key_of(&a, 7);
	struct memos m;

	memos_init(&m, 5);
	memo_put(&m, &first, 3, NULL);
	for (unsigned i = 0; i < 3 * MEMOS_MAX; i++) {
		struct xfer_key k = key_of(&many, i);

		memo_put(&m, &k, i, NULL);
	}
	assert_non_null(memo_get(&m, &first));
	assert_int_equal(map_len(m.map), 1 + MEMOS_PEER_MAX);
	for (unsigned i = 0; i < 3 * MEMOS_MAX; i++) {
		struct xfer_key k = key_of(&many, i);

		assert_int_equal(memo_get(&m, &k) != NULL, i >= 3 * MEMOS_MAX - MEMOS_PEER_MAX);
	}
	memo_put(&m, &first, 4, NULL);          /* again: one memo, the new one */
	assert_int_equal(memo_get(&m, &first)->serial, 4);
	assert_int_equal(map_len(m.map), 1 + MEMOS_PEER_MAX);
	for (unsigned i = 0; i < 2 * MEMOS_MAX; i++) {
		struct id x = { .b = { 3, (uint8_t)i, (uint8_t)(i >> 8) } };
		struct xfer_key k = key_of(&x, i);

		memo_put(&m, &k, i, NULL);
		assert_true(map_len(m.map) <= MEMOS_MAX && map_len(m.peers) <= MEMOS_MAX);
	}
	memos_free(&m);
}

/* A sender that has restarted counts from 1 again: what was over before says nothing of what it sends now. */
static void test_restart(void **state)
{
	struct bed *b = *state;
	struct id other = { .b = { 9 } };
	struct xfer_key k = key_of(net_self(b->a->net), 1), o = key_of(&other, 1);
	struct chunks *c = b->b->chunks;

	memo_put(&c->over, &k, 1, NULL);
	memo_put(&c->waits, &k, 1, NULL);
	memo_put(&c->over, &o, 1, NULL);
	sim_restart(b->s, 0);
	b->a = sim_app(b->s, 0);
	net_app_know(b->s, 0, 1);
	assert_true(ask(b, b->a, b->b, 2).ok);
	assert_int_equal(b->b->news[NEWS_RESTARTED], 1);
	assert_null(memo_get(&c->over, &k));
	assert_null(memo_get(&c->waits, &k));
	assert_non_null(memo_get(&c->over, &o));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_shares), T(test_restart) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The routing table against brute force, and its upkeep: oldest first, spares, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "common/rng.h"
#include "dht/table.h"

static struct id random_id(struct rng *r)
{
	struct id id;
	for (int i = 0; i < 32; i += 8) {
		uint64_t v = rng_u64(r);
		memcpy(id.b + i, &v, 8);
	}
	return id;
}

static const struct endpoint somewhere = { .port = { 1, 2, 3 } };
static const struct id *target_g(const struct id *set) { static const struct id *t; if (set) t = set; return t; }

static int by_distance(const void *a, const void *b)
{
	return id_closer(target_g(NULL), &((const struct dnode *)a)->id, &((const struct dnode *)b)->id);
}

static void collect(void *arg, const struct dnode *n)
{
	struct dnode **at = arg;
	*(*at)++ = *n;
}

/* S19: k nearest from the table equals brute force over what the table holds, for k 1..100 and random and member
 * queries. */
static void test_nearest_is_exact(void **state)
{
	struct rng r;
	struct table t;
	struct dnode *all = calloc(4096, sizeof *all), got[100];
	rng_seed(&r, 1);
	struct id self = random_id(&r);
	table_init(&t, &self);
	for (int i = 0; i < 10000; i++) {
		struct id id = random_id(&r);
		table_seen(&t, &id, &somewhere, 1);
	}
	/* 10 000 random ids, buckets of 20: the far half and each nearer half give 20 */
	assert_in_range(t.n, 150, 400);
	struct dnode *end = all;
	table_each(&t, collect, &end);
	assert_int_equal(end - all, t.n);
	for (int q = 0; q < 300; q++) {
		struct id target = q % 3 ? random_id(&r) : all[rng_below(&r, t.n)].id;
		size_t k = 1 + rng_below(&r, 100);
		if (q == 0)
			target = self;
		target_g(&target);
		qsort(all, t.n, sizeof *all, by_distance);
		assert_int_equal(table_nearest(&t, &target, got, k), k < t.n ? k : t.n);
		for (size_t i = 0; i < k && i < t.n; i++)
			assert_true(id_eq(&got[i].id, &all[i].id));
	}
	free(all);
	table_done(&t);
}

static void test_full_bucket_keeps_the_old(void **state)
{
	struct table t;
	struct id self = { { 0 } };
	table_init(&t, &self);
	struct id id[TABLE_BUCKET + TABLE_SPARE + 4];
	for (int i = 0; i < TABLE_BUCKET + TABLE_SPARE + 4; i++) {
		id[i] = (struct id){ { 0x80, (uint8_t)i } };
		assert_int_equal(table_seen(&t, &id[i], &somewhere, (uint64_t)i + 1), i < TABLE_BUCKET);
	}
	assert_int_equal(t.n, TABLE_BUCKET);
	assert_non_null(table_find(&t, &id[0]));
	assert_null(table_find(&t, &id[TABLE_BUCKET]));
	/* one failure is forgiven, the second brings in the spare heard from last */
	assert_false(table_failed(&t, &id[0]));
	table_seen(&t, &id[0], &somewhere, 99);
	assert_false(table_failed(&t, &id[0]));
	assert_true(table_failed(&t, &id[0]));
	assert_null(table_find(&t, &id[0]));
	assert_non_null(table_find(&t, &id[TABLE_BUCKET + TABLE_SPARE + 3]));
	assert_int_equal(t.n, TABLE_BUCKET);
	table_done(&t);
}

static void test_self_and_stale(void **state)
{
	struct table t;
	struct id self = { { 1 } }, other = { { 0x81 } };
	struct dnode out[4];
	table_init(&t, &self);
	assert_false(table_seen(&t, &self, &somewhere, 5));
	assert_int_equal(table_nearest(&t, &self, out, 4), 0);
	assert_int_equal(table_stale(&t, 100), -1);
	assert_true(table_seen(&t, &other, &somewhere, 50));
	assert_int_equal(table_stale(&t, 100), 0);
	assert_int_equal(table_stale(&t, 50), -1);
	assert_int_equal(table_buckets(&t), 1);
	table_remove(&t, &other);
	assert_int_equal(t.n, 0);
	table_done(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nearest_is_exact),
		cmocka_unit_test(test_full_bucket_keeps_the_old),
		cmocka_unit_test(test_self_and_stale),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

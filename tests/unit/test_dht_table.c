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

static void collect(void *arg, struct dnode *n)
{
	struct dnode **at = arg;
	*(*at)++ = *n;
}

static void count_one(void *arg, struct dnode *n)
{
	(*(size_t *)arg)++;
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
	assert_in_range(t.n, 800, 1100);
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

/* S18, S19: Hivemind's figures. The spares are bounded here, so fewer than all are remembered. */
static void test_buckets_split(void **state)
{
	static const struct { unsigned bucket, split; size_t ids, least, most; } row[] = {
		{ 20, 5, 10000, 45, 65 }, { 50, 5, 10000, 35, 45 }, { 20, 10, 10000, 650, 800 }, { 20, 1, 10000, 7, 15 },
		{ 20, 5, 100, 3, 10 } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct rng r;
		struct table t;
		rng_seed(&r, 100 + i);
		struct id self = random_id(&r);
		table_init(&t, &self);
		t.split = row[i].split;
		t.bucket = row[i].bucket;       /* before the first node comes */
		size_t fresh = 0;
		for (size_t k = 0; k < row[i].ids; k++) {
			struct id id = random_id(&r);
			fresh += table_seen(&t, &id, &somewhere, k + 1);
			assert_true(table_find(&t, &id) || table_oldest(&t, &id));
		}
		assert_in_range(table_buckets(&t), row[i].least, row[i].most);
		if (row[i].ids == 100)
			assert_int_equal(t.n, 100);
		assert_true(fresh <= t.n);
		size_t counted = 0;
		table_each(&t, count_one, &counted);
		assert_int_equal(counted, t.n);
		table_done(&t);
		assert_int_equal(t.n, 0);
	}
}

/* X16: an id in the middle of a range goes to the upper half, and is found there. */
static void test_middle_of_a_range(void **state)
{
	struct table t;
	struct id self = { { 0 } }, middle = { { 0x80 } };
	struct dnode out[1];
	table_init(&t, &self);
	table_seen(&t, &middle, &somewhere, 1);
	for (int i = 1; i <= 60; i++) {
		struct id id = { { (uint8_t)(i & 1 ? 0 : 0x80), (uint8_t)i } };
		table_seen(&t, &id, &somewhere, 1);
	}
	assert_true(table_buckets(&t) > 1);
	assert_non_null(table_find(&t, &middle));
	assert_int_equal(table_nearest(&t, &middle, out, 1), 1);
	assert_true(id_eq(&out[0].id, &middle));
	table_remove(&t, &middle);
	assert_null(table_find(&t, &middle));
	table_done(&t);
}

/* Ids that share ever more bits with ours split the table down to the last bit, not further. */
static void test_deepest(void **state)
{
	struct table t;
	struct id self = { { 0x55 } };
	table_init(&t, &self);
	for (int bit = 255; bit >= 0; bit--) {
		struct id id = self;
		id.b[bit / 8] ^= (uint8_t)(1u << (7 - bit % 8));
		assert_true(table_seen(&t, &id, &somewhere, 1));
	}
	assert_int_equal(t.n, 256);
	struct dnode out[256];
	assert_int_equal(table_nearest(&t, &self, out, 256), 256);
	for (int i = 0; i < 256; i++)
		assert_int_equal(id_prefix_bits(&self, &out[i].id), 255 - i);
	table_done(&t);
}

static void test_self_and_stale(void **state)
{
	struct table t;
	struct id self = { { 1 } }, other = { { 0x81 } }, prefix;
	struct dnode out[4];
	unsigned bits;
	table_init(&t, &self);
	assert_false(table_seen(&t, &self, &somewhere, 5));
	assert_int_equal(table_nearest(&t, &self, out, 4), 0);
	assert_false(table_stale(&t, 100, 100, &prefix, &bits));        /* nobody to ask */
	assert_true(table_seen(&t, &other, &somewhere, 50));
	assert_false(table_stale(&t, 50, 100, &prefix, &bits));
	assert_true(table_stale(&t, 100, 100, &prefix, &bits));
	assert_int_equal(bits, 0);
	assert_false(table_stale(&t, 100, 100, &prefix, &bits));        /* being refreshed */
	assert_int_equal(table_buckets(&t), 1);
	table_remove(&t, &other);
	assert_int_equal(t.n, 0);
	for (int i = 0; i < 40; i++) {
		struct id id = { { (uint8_t)(i & 1 ? 0 : 0x80), (uint8_t)(i + 1) } };
		table_seen(&t, &id, &somewhere, i & 1 ? 1000 : 200);
	}
	assert_true(table_stale(&t, 500, 600, &prefix, &bits));         /* the far half */
	assert_int_equal(bits, 1);
	assert_int_equal(prefix.b[0] & 0x80, 0x80);
	assert_false(table_stale(&t, 500, 600, &prefix, &bits));
	table_done(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nearest_is_exact),
		cmocka_unit_test(test_full_bucket_keeps_the_old),
		cmocka_unit_test(test_buckets_split),
		cmocka_unit_test(test_middle_of_a_range),
		cmocka_unit_test(test_deepest),
		cmocka_unit_test(test_self_and_stale),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The ordered map against a plain array: order of insertion, replacement, deletion while iterating; and struct list. */
#include "common/list.h"
#include "common/map.h"
#include "common/rng.h"
#include "tests/unit/t.h"

static void basics(void **s)
{
	struct map *m = map_new(1);
	char v[4], key[3] = { 'a', 0, 'b' };

	assert_null(map_get(m, "x", 1));
	assert_null(map_del(m, "x", 1));
	assert_null(map_put(m, key, 3, &v[0]));
	assert_null(map_put(m, key, 2, &v[1]));         /* NUL bytes and length count */
	assert_null(map_put(m, "", 0, &v[2]));
	key[0] = 'z';                                   /* keys are copied */
	assert_ptr_equal(map_get(m, "a\0b", 3), &v[0]);
	assert_ptr_equal(map_get(m, "a\0", 2), &v[1]);
	assert_ptr_equal(map_get(m, "", 0), &v[2]);
	assert_ptr_equal(map_put(m, "a\0b", 3, &v[3]), &v[0]);
	assert_int_equal(map_len(m), 3);
	assert_ptr_equal(map_del(m, "a\0b", 3), &v[3]);
	assert_null(map_get(m, "a\0b", 3));
	assert_int_equal(map_len(m), 2);
	map_free(m);
	map_free(NULL);
}

static void order_does_not_depend_on_the_key(void **s)
{
	for (uint64_t hash_key = 0; hash_key < 3; hash_key++) {
		struct map *m = map_new(hash_key);
		size_t it = 0, klen, n = 0;
		const void *key;
		uint32_t *v, values[1000];

		for (uint32_t i = 0; i < 1000; i++) {
			values[i] = i;
			map_put(m, &i, sizeof i, &values[i]);
		}
		for (uint32_t i = 0; i < 1000; i += 3)
			map_del(m, &i, sizeof i);
		for (uint32_t want = 1; (v = map_next(m, &it, &key, &klen)); want += want % 3 == 1 ? 1 : 2, n++) {
			assert_int_equal(*v, want);
			assert_int_equal(klen, 4);
			assert_memory_equal(key, &want, 4);
		}
		assert_int_equal(n, map_len(m));
		assert_int_equal(n, 666);
		map_free(m);
	}
}

static void delete_while_iterating(void **s)
{
	struct map *m = map_new(7);
	static char v[100];
	size_t it = 0, klen, n = 0;
	const void *key;
	void *x;

	for (int i = 0; i < 100; i++)
		map_put(m, &i, sizeof i, &v[i]);
	while ((x = map_next(m, &it, &key, &klen))) {
		assert_ptr_equal(x, &v[n++]);
		assert_ptr_equal(map_del(m, key, klen), x);
	}
	assert_int_equal(n, 100);
	assert_int_equal(map_len(m), 0);
	map_put(m, "q", 1, v);
	it = 0;
	assert_ptr_equal(map_next(m, &it, NULL, NULL), v);
	assert_null(map_next(m, &it, NULL, NULL));
	map_free(m);
}

static void against_an_array(void **s)
{
	struct map *m = map_new(99);
	static char there[256], marks[256][4];
	static void *value[256];
	struct rng r;
	size_t n = 0;

	rng_seed(&r, 3);
	for (int step = 0; step < 100000; step++) {
		uint8_t k = (uint8_t)rng_u64(&r);
		void *v = &marks[k][rng_below(&r, 4)];

		assert_ptr_equal(map_get(m, &k, 1), value[k]);
		if (rng_below(&r, 2)) {
			assert_ptr_equal(map_put(m, &k, 1, v), value[k]);
			n += !there[k];
			there[k] = 1;
			value[k] = v;
		} else {
			assert_ptr_equal(map_del(m, &k, 1), value[k]);
			n -= there[k];
			there[k] = 0;
			value[k] = NULL;
		}
		assert_int_equal(map_len(m), n);
	}
	map_free(m);
}

struct item { int x; struct list l; };

static void intrusive_list(void **s)
{
	struct list head = LIST_INIT(head);
	struct item v[5];
	int sum = 0;

	assert_true(list_empty(&head));
	assert_null(list_pop(&head));
	for (int i = 0; i < 5; i++) {
		v[i].x = i;
		list_push(&head, &v[i].l);
	}
	list_each_safe(it, &head)
		if (list_entry(it, struct item, l)->x % 2)
			list_del(it);
	list_each(it, &head)
		sum = sum * 10 + list_entry(it, struct item, l)->x;
	assert_int_equal(sum, 24);
	assert_int_equal(list_len(&head), 3);
	list_push_front(&head, &v[1].l);
	assert_ptr_equal(list_pop(&head), &v[1].l);
	assert_ptr_equal(list_pop(&head), &v[0].l);
	list_del(&v[0].l);
	assert_int_equal(list_len(&head), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(basics), cmocka_unit_test(order_does_not_depend_on_the_key),
		cmocka_unit_test(delete_while_iterating), cmocka_unit_test(against_an_array), cmocka_unit_test(intrusive_list),
	};

	return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}

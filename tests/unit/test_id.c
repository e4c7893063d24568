/* 256-bit ids: text, order, XOR distance. */
#include "common/id.h"
#include "common/rng.h"
#include "tests/unit/t.h"

static struct id some(struct rng *r)
{
	struct id a;

	for (int i = 0; i < 32; i++)
		a.b[i] = (uint8_t)rng_u64(r);
	return a;
}

static void text(void **s)
{
	struct id a, b;
	struct err e;
	char hex[ID_HEX], s9[9];

	id_of(&a, "abc", 3);
	id_hex(&a, hex);
	assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	assert_string_equal(id_short(&a, s9), "ba7816bf");
	assert_int_equal(id_parse(&b, hex, &e), 0);
	assert_true(id_eq(&a, &b));
	assert_int_equal(id_parse(&b, "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD", &e), 0);
	assert_true(id_eq(&a, &b));
	assert_int_equal(id_parse(&b, "ba78", &e), -1);
	assert_err(e, ERR_INVALID, "4 characters");
	hex[10] = 'g';
	assert_int_equal(id_parse(&b, hex, &e), -1);
	assert_err(e, ERR_INVALID, "character 11");
	assert_true(id_eq(&a, &b));                     /* a failure changes nothing */
}

static void distance(void **s)
{
	struct rng r;

	rng_seed(&r, 11);
	for (int i = 0; i < 1000; i++) {
		struct id t = some(&r), a = some(&r), b = some(&r), da, db;

		if (i % 2)
			b = a;
		b.b[31] ^= 1;
		id_xor(&t, &a, &da);
		id_xor(&t, &b, &db);
		assert_int_equal(id_closer(&t, &a, &b) < 0, id_cmp(&da, &db) < 0);
		assert_int_equal(id_closer(&t, &b, &a) > 0, id_closer(&t, &a, &b) < 0);
		assert_int_equal(id_closer(&t, &a, &a), 0);
		if (i % 2)
			assert_int_equal(id_prefix_bits(&a, &b), 255);
	}
}

static void prefix(void **s)
{
	struct id a = {{0}}, b = {{0}};

	assert_true(id_zero(&a));
	assert_int_equal(id_prefix_bits(&a, &b), 256);
	for (int bit = 0; bit < 256; bit++) {
		b = a;
		b.b[bit / 8] = (uint8_t)(0x80 >> (bit % 8));
		assert_int_equal(id_prefix_bits(&a, &b), bit);
		assert_false(id_zero(&b));
		assert_true(id_cmp(&a, &b) < 0);
		assert_false(id_eq(&a, &b));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(text), cmocka_unit_test(distance), cmocka_unit_test(prefix) };

	return cmocka_run_group_tests_name("id", tests, NULL, NULL);
}

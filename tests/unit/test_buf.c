/* Bytes: what is written is read back; the layout is little-endian; reads past the end are zeros and bad. */
#include "common/buf.h"
#include "common/rng.h"
#include "tests/unit/t.h"

static void layout(void **s)
{
	static const uint8_t want[] = { 1, 3, 2, 7, 6, 5, 4, 15, 14, 13, 12, 11, 10, 9, 8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f,
		2, 0, 'h', 'i' };
	struct buf b = {0};

	buf_u8(&b, 1);
	buf_u16(&b, 0x0203);
	buf_u32(&b, 0x04050607);
	buf_u64(&b, 0x08090a0b0c0d0e0fu);
	buf_f64(&b, 1.0);
	buf_str(&b, "hi");
	assert_int_equal(b.len, sizeof want);
	assert_memory_equal(b.p, want, sizeof want);
	buf_free(&b);
	assert_null(b.p);
}

static void there_and_back(void **s)
{
	struct buf b = {0};
	struct rd r;
	char out[10];

	for (uint32_t i = 0; i < 5000; i++) {
		buf_u32(&b, i * 2654435761u);
		buf_str(&b, i % 2 ? "odd" : "");
		buf_f64(&b, -0.5 * i);
		buf_put(&b, NULL, 0);
		buf_u64(&b, (uint64_t)i << 40 | 5);
	}
	r = rd_of(b.p, b.len);
	for (uint32_t i = 0; i < 5000; i++) {
		assert_int_equal(rd_u32(&r), i * 2654435761u);
		assert_true(rd_str(&r, out, sizeof out));
		assert_string_equal(out, i % 2 ? "odd" : "");
		assert_true(rd_f64(&r) == -0.5 * i);
		assert_int_equal(rd_u64(&r), (uint64_t)i << 40 | 5);
	}
	assert_int_equal(rd_left(&r), 0);
	assert_false(r.bad);
	assert_int_equal(rd_u8(&r), 0);
	assert_true(r.bad);
	buf_free(&b);
}

static void short_reads(void **s)
{
	static const uint8_t bytes[] = { 5, 0, 'a', 'b', 0, 'c', 'd', 9 };
	struct rd r = rd_of(bytes, 3);
	char out[8];

	assert_int_equal(rd_u32(&r), 0);
	assert_true(r.bad);
	assert_int_equal(rd_u8(&r), 0);                 /* bad stays bad, although a byte is left */
	assert_int_equal(rd_left(&r), 0);
	assert_null(rd_bytes(&r, 0));
	r = rd_of(bytes, sizeof bytes);
	assert_false(rd_str(&r, out, sizeof out));      /* a NUL inside */
	assert_true(r.bad);
	assert_string_equal(out, "");
	r = rd_of("\5\0abcde", 7);
	assert_false(rd_str(&r, out, 5));               /* one too long for out */
	assert_true(r.bad);
	r = rd_of("\5\0abcde", 7);
	assert_true(rd_str(&r, out, 6));
	r = rd_of("\5\0abcd", 6);
	assert_false(rd_str(&r, out, sizeof out));
	r = rd_of(bytes, sizeof bytes);
	assert_null(rd_bytes(&r, SIZE_MAX));
	r = rd_of(NULL, 0);
	assert_non_null(rd_bytes(&r, 0));
	assert_false(r.bad);
}

static void text_and_drop(void **s)
{
	struct buf b = {0};

	buf_printf(&b, "%s", "");
	assert_int_equal(b.len, 0);
	for (int i = 0; i < 100; i++)
		buf_printf(&b, "%d,", i);
	assert_int_equal(b.len, 290);
	assert_int_equal(b.p[b.len], 0);
	assert_int_equal(strlen((char *)b.p), 290);
	buf_drop(&b, 20);
	assert_memory_equal(b.p, "10,11,", 6);
	buf_drop(&b, 0);
	buf_drop(&b, b.len);
	assert_int_equal(b.len, 0);
	memset(buf_grow(&b, 1000), 7, 1000);
	assert_int_equal(b.len, 1000);
	buf_clear(&b);
	assert_int_equal(b.len, 0);
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout), cmocka_unit_test(there_and_back), cmocka_unit_test(short_reads),
		cmocka_unit_test(text_and_drop),
	};

	return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}

/* Manifests of data sets: stretches cover the list, and the first difference of two lists is found in a few answers,
 * wherever it lies. */
#include "t.h"
#include "train/data/manifest.h"

#define FILES 100000

/* other: the file that is another; more: one inserted */
struct listed { struct data_source d; uint64_t other, more; };

static void file_at(const struct data_source *d, uint64_t i, struct data_file *ret)
{
	const struct listed *l = (const struct listed *)d;

	*ret = (struct data_file){ .bytes = 100 };
	if (i == l->more)
		(void)snprintf(ret->name, sizeof(ret->name), "one more");
	else
		(void)snprintf(ret->name, sizeof(ret->name), "%06llu.png", (unsigned long long)(i - (i > l->more)));
	ret->sum[0] = i == l->other;
}

static struct listed listed(uint64_t n, uint64_t other, uint64_t more)
{
	return (struct listed){ .d = { .file_at = file_at, .count = { n - n / 10, n / 10 } }, .other = other,
		.more = more };
}

/* As run/differ.c does it; UINT64_MAX: no difference. */
static uint64_t search(const struct data_source *a, const struct data_source *b, unsigned *ret_answers)
{
	static uint8_t ha[MANIFEST_PARTS][MANIFEST_HASH], hb[MANIFEST_PARTS][MANIFEST_HASH];
	uint64_t lo = 0, hi = manifest_files(a), end = manifest_files(b);
	uint32_t k = 0, n;

	hi = hi < end ? hi : end;
	for (*ret_answers = 0; ; (*ret_answers)++) {
		n = manifest_parts(lo, hi);
		manifest_hashes(a, lo, hi, ha);
		manifest_hashes(b, lo, hi, hb);
		for (k = 0; k < n && !memcmp(ha[k], hb[k], MANIFEST_HASH); k++)
			;
		if (k == n)
			return manifest_files(a) == end ? UINT64_MAX : hi;
		uint64_t from = manifest_part(lo, hi, k), to = manifest_part(lo, hi, k + 1);

		if (to - from == 1)
			return from;
		lo = from;
		hi = to;
	}
}

static void test_parts(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 2, 255, 256, 257, 1000, 65537, 1000003 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		uint64_t lo = 17, hi = lo + sizes[i], least = UINT64_MAX, most = 0;
		uint32_t n = manifest_parts(lo, hi);

		assert_true(n <= MANIFEST_PARTS && (n || !sizes[i]));
		assert_true(manifest_part(lo, hi, 0) == lo && manifest_part(lo, hi, n) == hi);
		for (uint32_t k = 0; k < n; k++) {
			uint64_t size = manifest_part(lo, hi, k + 1) - manifest_part(lo, hi, k);

			least = size < least ? size : least;
			most = size > most ? size : most;
		}
		assert_true(!n || (least >= 1 && most - least <= 1));
	}
}

static void test_found(void **state)
{
	static const uint64_t at[] = { 0, 1, 390, 391, 49999, 50000, 99998, 99999 };
	struct listed a = listed(FILES, UINT64_MAX, UINT64_MAX), b;
	unsigned answers;

	for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
		b = listed(FILES, at[i], UINT64_MAX);
		assert_int_equal(search(&a.d, &b.d, &answers), at[i]);
		assert_true(answers <= 3);
		b = listed(FILES + 1, UINT64_MAX, at[i]);
		assert_int_equal(search(&a.d, &b.d, &answers), at[i]);
		assert_int_equal(search(&b.d, &a.d, &answers), at[i]);
	}
	b = listed(FILES + 1, UINT64_MAX, FILES);       /* at the end: nothing that both have differs */
	assert_int_equal(search(&a.d, &b.d, &answers), FILES);
	assert_int_equal(search(&a.d, &a.d, &answers), UINT64_MAX);
}

/* A kind of few files: the list follows the digest. */
static void test_few(void **state)
{
	struct manifest m;
	static struct data_source d, e;
	struct data_file f;
	char text[112];

	for (int i = 0; i < 2; i++) {
		manifest_begin(&m);
		manifest_add(&m, "train.csv", 3, "abc", "abc");
		manifest_add(&m, "a very long name that is cut where it is shown to people, and only there, so there.csv", 4,
			i ? "abcd" : "abcx", i ? "abcd" : "abcx");
		manifest_end(&m, i ? &e : &d);
	}
	assert_memory_not_equal(d.digest, e.digest, 32);
	assert_int_equal(manifest_files(&d), 2);
	manifest_file(&d, 1, &f);
	assert_int_equal(f.bytes, 4);
	assert_int_equal(strlen(manifest_text(&f, text)), 64 + strlen(" (4 bytes, 00000000)"));
	assert_int_equal(search(&d, &e, &(unsigned){ 0 }), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts), cmocka_unit_test(test_found), cmocka_unit_test(test_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

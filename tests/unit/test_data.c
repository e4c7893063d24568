/* Data: IDX files that are whole, truncated or lying, plain and .gz; the order of positions; the split; augmentation by
 * position; data that are made. */
#include "data_kit.h"
#include <math.h>
#include <zlib.h>
#include "train/data/idx.h"

static uint8_t small[4 + 12 + 3 * 2 * 2] = { 0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8,
	9, 10, 11, 12 };

static size_t gzip(const void *p, size_t n, uint8_t *out, size_t cap)
{
	z_stream z = { 0 };

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (Bytef *)p;
	z.avail_in = (uInt)n;
	z.next_out = out;
	z.avail_out = (uInt)cap;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	cap = z.total_out;
	(void)deflateEnd(&z);
	return cap;
}

static int parse(const void *p, size_t n, struct err *e)
{
	struct idx_head h;
	uint8_t *data, *exact = malloc(n + 1);          /* ASan sees a read past the end */
	int rc;

	memcpy(exact, p, n);
	exact = realloc(exact, n ? n : 1);
	rc = idx_parse(&h, &data, exact, n, e);
	free(exact);
	if (!rc) {
		assert_int_equal(h.count, 12);
		assert_memory_equal(data, small, sizeof(small));
		big_free(data, h.data_at + h.bytes);
	}
	return rc;
}

static void test_truncated(void **state)
{
	uint8_t zipped[256], more[sizeof(small) + 1];
	size_t n = gzip(small, sizeof(small), zipped, sizeof(zipped));
	struct err e;

	assert_int_equal(parse(small, sizeof(small), &e), 0);
	for (size_t k = 0; k < sizeof(small); k++) {
		assert_int_equal(parse(small, k, &e), -1);
		assert_err(e, ERR_CORRUPT, "truncated");
	}
	memcpy(more, small, sizeof(small));
	more[sizeof(small)] = 0;
	assert_int_equal(parse(more, sizeof(more), &e), -1);
	assert_err(e, ERR_CORRUPT, "trailing bytes: the header promises 28 bytes, and there are at least 29");
	assert_int_equal(parse(zipped, n, &e), 0);
	for (size_t k = 0; k < n; k++)
		assert_int_equal(parse(zipped, k, &e), -1);
	zipped[n] = 7;
	assert_int_equal(parse(zipped, n + 1, &e), -1);
	assert_err(e, ERR_CORRUPT, "1 bytes follow the end of the gzip data");
}

/* One wrong bit in a compressed file is found, unless it is padding between the blocks: parse() compares the
 * content. */
static void test_flipped(void **state)
{
	uint8_t zipped[256];
	size_t n = gzip(small, sizeof(small), zipped, sizeof(zipped)), accepted = 0;
	struct err e;

	for (size_t k = 10; k < n; k++)
		for (int bit = 0; bit < 8; bit++) {
			zipped[k] ^= (uint8_t)(1 << bit);
			accepted += parse(zipped, n, &e) == 0;
			zipped[k] ^= (uint8_t)(1 << bit);
		}
	assert_true(accepted < 8);
}

static void test_lying(void **state)
{
	uint8_t b[sizeof(small)], zipped[256];
	struct err e;
	size_t n;

	memcpy(b, small, sizeof(b));
	b[0] = 1;
	assert_int_equal(parse(b, sizeof(b), &e), -1);
	assert_err(e, ERR_CORRUPT, "not an IDX file");
	memcpy(b, small, sizeof(b));
	b[2] = 0x0a;
	assert_int_equal(parse(b, sizeof(b), &e), -1);
	assert_err(e, ERR_CORRUPT, "unknown element type 0x0a");
	memcpy(b, small, sizeof(b));
	b[3] = 9;
	assert_int_equal(parse(b, sizeof(b), &e), -1);
	assert_err(e, ERR_CORRUPT, "9 dimensions");
	memcpy(b, small, sizeof(b));
	b[7] = 0;
	assert_int_equal(parse(b, sizeof(b), &e), -1);
	assert_err(e, ERR_CORRUPT, "dimension 0 is 0");
	memset(b + 4, 0xff, 12);                        /* 2^96 elements */
	assert_int_equal(parse(b, sizeof(b), &e), -1);
	assert_err(e, ERR_CORRUPT, "more elements than any file has");
	memcpy(b, small, sizeof(b));
	b[4] = 0x7f;                                    /* 8 GB promised by a few bytes of gzip: nothing is allocated */
	n = gzip(b, sizeof(b), zipped, sizeof(zipped));
	assert_int_equal(parse(zipped, n, &e), -1);
	assert_err(e, ERR_CORRUPT, "truncated: the header promises");
}

static void refused(struct world *w, enum err_code code, const char *text)
{
	struct spec *s = spec("", "");
	struct err e = { 0 };

	assert_null(data_open(w->env->files, "d", s, &e));
	assert_err(e, code, text);
	spec_free(s);
}

static void test_folder(void **state)
{
	struct world w;
	uint8_t odd[8 + 5] = { 0, 0, 8, 1, 0, 0, 0, 5 }, zipped[200];

	world_open(&w);
	refused(&w, ERR_NOT_FOUND, "d: no file train-images*");
	put(&w, "train-images-idx3-ubyte", small, sizeof(small));
	refused(&w, ERR_NOT_FOUND, "d: no file train-labels*");
	put(&w, "train-labels-idx1-ubyte", odd, sizeof(odd));
	refused(&w, ERR_MISMATCH, "train-images-idx3-ubyte has 3 samples and train-labels-idx1-ubyte has 5");
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 3);
	refused(&w, ERR_MISMATCH, "label 3 occurs, and the model has 3 outputs (labels 0 to 2)");
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	put(&w, "t10k-images-idx3-ubyte", small, sizeof(small));
	refused(&w, ERR_NOT_FOUND, "t10k-images-idx3-ubyte is there, and t10k-labels* is not");
	odd[7] = 3;
	put(&w, "t10k-labels-idx1-ubyte", odd, 8 + 3);
	refused(&w, ERR_MISMATCH, "have different shapes");
	put_set(&w, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 6, 1);
	put(&w, "train-labels.gz", zipped, gzip(odd, sizeof(odd), zipped, sizeof(zipped)));
	refused(&w, ERR_INVALID, "remove one");
	put(&w, "train-labels-idx1-ubyte", odd, 9);
	sim_free(w.sim);
}

/* Compressed or not, it is the same data set; another one is refused by its digest. */
static void test_digest(void **state)
{
	struct world w;
	struct spec *s = spec("", "");
	struct data *a, *b;
	uint8_t raw[8 + 30], zipped[300], digest[32];
	struct err e;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	a = opened(&w, s);
	memcpy(digest, data_digest(a), 32);
	data_free(a);
	memset(raw, 0, sizeof(raw));
	memcpy(raw, (uint8_t[]){ 0, 0, 8, 1, 0, 0, 0, 30 }, 8);
	for (int i = 0; i < 30; i++)
		raw[8 + i] = (uint8_t)(i % 3);
	assert_int_equal(w.env->files->unlink(w.env->files, "d/train-labels-idx1-ubyte", &e), 0);
	put(&w, "train-labels-idx1-ubyte.gz", zipped, gzip(raw, sizeof(raw), zipped, sizeof(zipped)));
	b = opened(&w, s);
	assert_memory_equal(digest, data_digest(b), 32);
	data_free(b);
	spec_set_data_digest(s, digest, 0);
	raw[10] = 0;
	put(&w, "train-labels-idx1-ubyte.gz", zipped, gzip(raw, sizeof(raw), zipped, sizeof(zipped)));
	assert_null(data_open(w.env->files, "d", s, &e));
	assert_err(e, ERR_MISMATCH, "data.digest");
	spec_free(s);
	sim_free(w.sim);
}

/* Who takes part without the data knows how many samples there are from the spec, and reads none. */
static void test_absent(void **state)
{
	struct world w;
	struct spec *s = spec("\"validation\":{\"split\":0.3},", "");
	struct data *d;
	uint8_t digest[32];
	real x[64];
	int32_t y;
	struct err e;

	world_open(&w);
	assert_null(data_absent(s, &e));
	assert_err(e, ERR_INVALID, "data.digest");
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	d = opened(&w, s);
	assert_false(data_is_absent(d));
	memcpy(digest, data_digest(d), 32);
	assert_int_equal(data_count(d, DATA_TRAIN), 21);
	data_free(d);
	spec_set_data_digest(s, digest, 0);
	assert_null(data_absent(s, &e));
	assert_err(e, ERR_INVALID, "data.samples");
	spec_set_data_digest(s, digest, 20);
	assert_null(data_open(w.env->files, "d", s, &e));
	assert_err(e, ERR_MISMATCH, "says 20 to train on, and there are 21");
	spec_set_data_digest(s, digest, 21);
	d = opened(&w, s);
	data_free(d);
	d = data_absent(s, &e);
	assert_non_null(d);
	assert_true(data_is_absent(d));
	assert_int_equal(data_count(d, DATA_TRAIN), 21);
	assert_int_equal(data_count(d, DATA_VALIDATION), 0);
	assert_memory_equal(data_digest(d), digest, 32);
	assert_int_equal(data_read(d, DATA_TRAIN, &(uint64_t){ 0 }, 1, x, &y, &e), -1);
	assert_err(e, ERR_STATE, "without data");
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

/* Each data epoch is a permutation of what is trained on; what is held out never occurs. */
static void test_order(void **state)
{
	struct world w;
	struct spec *s = spec("\"validation\":{\"split\":0.3},", "");
	struct data *d;
	unsigned first[30] = { 0 }, same = 0;
	bool seen[30];

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	d = opened(&w, s);
	assert_int_equal(data_count(d, DATA_TRAIN), 21);
	assert_int_equal(data_count(d, DATA_VALIDATION), 9);
	for (uint64_t epoch = 0; epoch < 5; epoch++) {
		memset(seen, 0, sizeof(seen));
		for (uint64_t i = 0; i < 21; i++) {
			uint64_t k = data_index(d, epoch * 21 + i);

			assert_true(k < 30 && !seen[k]);
			seen[k] = true;
			same += epoch && first[i] == k;
			if (!epoch)
				first[i] = (unsigned)k;
		}
	}
	assert_true(same < 30);                         /* epochs differ */
	for (uint64_t i = 0; i < 9; i++) {
		real x[16];
		int32_t y;
		struct err e;

		assert_int_equal(data_read(d, DATA_VALIDATION, &i, 1, x, &y, &e), 0);
		for (unsigned k = 0; k < 30; k++)
			if ((unsigned)x[0] == (k * 7u & 255))
				assert_false(seen[k]);
	}
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

/* Orders of their own: each a permutation of the same samples, each peer's another, and the same one again. */
static void test_own_orders(void **state)
{
	struct world w;
	struct spec *s = spec("\"validation\":{\"split\":0.3},", ",\"order\":\"independent\"");
	struct data *d[3];
	unsigned same = 0;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	for (int k = 0; k < 3; k++) {
		s->order_key = k == 1 ? 7 : 5;
		d[k] = opened(&w, s);
	}
	for (uint64_t epoch = 0; epoch < 5; epoch++) {
		uint64_t sum[2] = { 0 }, mask[2] = { 0 };

		for (uint64_t i = epoch * 21; i < epoch * 21 + 21; i++) {
			for (int k = 0; k < 2; k++) {
				sum[k] += data_index(d[k], i);
				mask[k] |= 1ull << data_index(d[k], i);
			}
			same += data_index(d[0], i) == data_index(d[1], i);
			assert_int_equal(data_index(d[0], i), data_index(d[2], i));
		}
		assert_true(mask[0] == mask[1] && sum[0] == sum[1] && __builtin_popcountll(mask[0]) == 21);
	}
	assert_true(same < 30);
	for (int k = 0; k < 3; k++)
		data_free(d[k]);
	spec_free(s);
	sim_free(w.sim);
}

/* A shifted image is the image moved, and how far depends on the position alone. */
static void test_augment(void **state)
{
	struct world w;
	struct spec *plain = spec("", ""), *moved = spec("", ",\"steps\":[{\"type\":\"shift\",\"pixels\":1},"
		"{\"type\":\"normalize\",\"mean\":10,\"std\":2}]");
	struct data *a, *b;
	unsigned ways[3][3] = { { 0 } };
	struct err e;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	a = opened(&w, plain);
	b = opened(&w, moved);
	for (uint64_t p = 0; p < 300; p++) {
		real x[16], z[16], again[16];
		int32_t y, yy;
		unsigned found = 0;

		assert_int_equal(data_read(a, DATA_TRAIN, &p, 1, x, &y, &e), 0);
		assert_int_equal(data_read(b, DATA_TRAIN, &p, 1, z, &yy, &e), 0);
		assert_int_equal(data_read(b, DATA_TRAIN, &p, 1, again, &yy, &e), 0);
		assert_memory_equal(z, again, sizeof(z));
		assert_int_equal(y, yy);
		for (int dy = -1; dy <= 1; dy++)
			for (int dx = -1; dx <= 1; dx++) {
				bool fits = true;

				for (int r = 0; r < 4; r++)
					for (int c = 0; c < 4; c++) {
						bool in = r - dy >= 0 && r - dy < 4 && c - dx >= 0 && c - dx < 4;
						real want = in ? x[(r - dy) * 4 + c - dx] : 0;

						fits = fits && z[r * 4 + c] == (want - 10) * (real)0.5;
					}
				if (fits) {
					ways[dy + 1][dx + 1]++;
					found++;
				}
			}
		assert_true(found >= 1);
	}
	for (int i = 0; i < 9; i++)
		assert_true(ways[i / 3][i % 3] > 5);
	data_free(a);
	data_free(b);
	spec_free(plain);
	spec_free(moved);
	sim_free(w.sim);
}

/* Losses that want numbers get one of n. */
static void test_one_hot(void **state)
{
	struct world w;
	struct spec *s;
	struct data *d;
	uint64_t position[5] = { 0, 1, 2, 3, 4 };
	real x[5 * 16], y[5 * 3];
	char json[1000];
	struct err e;

	world_open(&w);
	put_set(&w, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 30, 2);
	(void)snprintf(json, sizeof(json), SPEC, "", "");
	memcpy(strstr(json, "\"cross_entropy\""), "\"mse\"          ", 15);
	s = spec_parse(json, strlen(json), &e);
	assert_non_null(s);
	d = opened(&w, s);
	assert_int_equal(data_y_bytes(d), 3 * sizeof(real));
	assert_int_equal(data_read(d, DATA_TRAIN, position, 5, x, y, &e), 0);
	for (int i = 0; i < 5; i++) {
		uint64_t label = data_index(d, position[i]) % 3;

		for (uint64_t k = 0; k < 3; k++)
			assert_true(y[i * 3 + (int)k] == (k == label ? 1 : 0));
	}
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

/* What an embedding reads of the input through a select layer are tokens, the rest are numbers, always the same. */
static void test_made_tokens(void **state)
{
	static const char text[] = "{\"name\":\"v\",\"model\":{\"zoo\":\"s2vt\",\"steps\":3,\"features\":4,\"embed\":5,"
		"\"width\":6,\"vocab\":7},\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},"
		"\"target_batch\":8,\"data\":{\"name\":\"s\",\"kind\":\"synthetic\",\"count\":64}}";
	enum { N = 20, WIDE = 15 };
	const struct data_ops *made = data_find("synthetic");
	struct err e;
	struct spec *s = spec_parse(text, strlen(text), &e);
	real x[2][N * WIDE];
	int32_t label[N * 3];
	uint64_t index[N];

	if (!s)
		fail_msg("%s", e.text);
	for (uint64_t i = 0; i < N; i++)
		index[i] = i;
	for (int k = 0; k < 2; k++) {
		struct data_source *d = made->open(NULL, "", s, &e);

		assert_non_null(d);
		assert_int_equal(d->labels, 3);
		assert_int_equal(made->read(d, DATA_TRAIN, index, N, x[k], label, &e), 0);
		made->close(d);
	}
	assert_memory_equal(x[0], x[1], sizeof(x[0]));
	for (size_t i = 0; i < N * WIDE; i++) {
		double v = (double)x[0][i];

		assert_true(i % 5 == 4 ? v >= 0 && v < 7 && floor(v) == v : floor(v) != v);
	}
	for (size_t i = 0; i < N * 3; i++) {    /* they count upwards by where they are, and labels are the next ones */
		int next = ((int)x[0][i * 5 + 4] + 5) % 7;

		assert_int_equal(label[i], next);
		assert_true(i % 3 == 2 || next == (int)x[0][i * 5 + 9]);
	}
	spec_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_truncated), cmocka_unit_test(test_flipped), cmocka_unit_test(test_lying),
		cmocka_unit_test(test_folder), cmocka_unit_test(test_digest), cmocka_unit_test(test_absent),
		cmocka_unit_test(test_order), cmocka_unit_test(test_own_orders), cmocka_unit_test(test_augment),
		cmocka_unit_test(test_one_hot),
		cmocka_unit_test(test_made_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

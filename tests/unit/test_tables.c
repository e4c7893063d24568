/* CSV tables, text, CIFAR-10's binary files; crops. */
#include "data_kit.h"
#include "train/data/csv_parse.h"

static void csv_says(const char *text, const char *want)
{
	struct csv c;
	struct err e = { 0 };

	assert_int_equal(csv_parse(&c, text, strlen(text), &e), -1);
	assert_err(e, ERR_CORRUPT, want);
}

static void test_csv(void **state)
{
	static const char text[] = "\n\"x, 1\",y,label\r\n1,2.5,0\r\n \n\"3\", -4e1 ,1\n0,0,2";
	struct csv c;
	struct err e;

	assert_int_equal(csv_parse(&c, text, sizeof(text) - 1, &e), 0);
	assert_true(c.rows == 3 && c.columns == 3);
	assert_memory_equal(c.v, ((float[]){ 1, 2.5f, 0, 3, -40, 1, 0, 0, 2 }), 9 * sizeof(float));
	csv_free(&c);
	csv_says("", "no lines");
	csv_says("a,b\n", "no lines of numbers");
	csv_says("1,2\n3,x\n", "line 2, field 2: \"x\" is no number");
	csv_says("1,2\n\n3\n", "line 3: 1 fields, and the first line has 2");
	csv_says("1,2\n3,4,5\n", "line 2: more fields than the 2 of the first line");
	csv_says("1,2\n\"3,4\n", "line 2, field 1: a quote that does not end");
	csv_says("1,2\n\"3\"4,4\n", "text behind the closing quote");
	csv_says("1,2\n1e99,4\n", "line 2, field 1: \"1e99\" is no number");
	csv_says("1,2\n,4\n", "is no number");
}

static struct spec *table_spec(const char *kind, const char *input, const char *out, const char *loss)
{
	char json[1000];
	struct spec *s;
	struct err e;

	(void)snprintf(json, sizeof(json),
		"{\"name\":\"a\",\"input\":%s,\"model\":[{\"type\":\"linear\",\"out\":%s}],\"loss\":\"%s\","
		"\"target_batch\":8,\"optimizer\":{\"name\":\"sgd\"},\"data\":{\"name\":\"d\",\"kind\":\"%s\"}}", input, out,
			loss, kind);
	s = spec_parse(json, strlen(json), &e);
	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static void refused(struct world *w, const char *path, struct spec *s, enum err_code code, const char *text)
{
	struct err e = { 0 };

	assert_null(data_open(w->env->files, path, s, &e));
	assert_err(e, code, text);
}

static void test_table(void **state)
{
	struct world w;
	struct spec *s = table_spec("csv", "[2]", "3", "cross_entropy"), *real_ = table_spec("csv", "[1]", "2", "mse");
	struct data *d;
	real x[2], t[2];
	int32_t y;
	struct err e;

	world_open(&w);
	refused(&w, "d", s, ERR_NOT_FOUND, "d: no such file, and no train.csv below it");
	put(&w, "train.csv", "a,b,c\n1,2,0\n3,4,2\n", 18);
	put(&w, "test.csv", "5,6,1\n", 6);
	d = opened(&w, s);
	assert_true(data_count(d, DATA_TRAIN) == 2 && data_count(d, DATA_VALIDATION) == 1);
	assert_int_equal(data_read(d, DATA_VALIDATION, (uint64_t[]){ 0 }, 1, x, &y, &e), 0);
	assert_true(x[0] == 5 && x[1] == 6 && y == 1);
	data_free(d);
	d = data_open(w.env->files, "d/test.csv", real_, &e);
	assert_non_null(d);
	assert_int_equal(data_read(d, DATA_TRAIN, (uint64_t[]){ 0 }, 1, x, t, &e), 0);
	assert_true(x[0] == 5 && t[0] == 6 && t[1] == 1);
	data_free(d);
	put(&w, "test.csv", "5,6,3\n", 6);
	refused(&w, "d", s, ERR_MISMATCH, "label 3 occurs, and the model has 3 outputs");
	put(&w, "test.csv", "5,6,1.5\n", 8);
	refused(&w, "d", s, ERR_CORRUPT, "d (validation): sample 0: label 1.5");
	put(&w, "test.csv", "5,6\n", 4);
	refused(&w, "d", s, ERR_MISMATCH, "d (validation): 2 fields a line; 2 inputs and 1 target are asked for");
	spec_free(s);
	spec_free(real_);
	sim_free(w.sim);
}

static void test_text(void **state)
{
	struct world w;
	struct spec *s = table_spec("text", "[4]", "256", "cross_entropy");
	char text[200];
	struct data *d;
	bool seen[180] = { false };
	real x[4];
	int32_t y;
	struct err e;

	world_open(&w);
	for (int i = 0; i < 200; i++)
		text[i] = (char)(i + 40);
	put(&w, "a.txt", text, sizeof(text));
	d = data_open(w.env->files, "d/a.txt", s, &e);
	assert_non_null(d);
	assert_int_equal(data_count(d, DATA_TRAIN), 176);
	assert_int_equal(data_count(d, DATA_VALIDATION), 4);
	for (uint64_t i = 0; i < 176; i++) {
		assert_int_equal(data_read(d, DATA_TRAIN, &i, 1, x, &y, &e), 0);
		for (int k = 0; k < 4; k++)
			assert_true((int)x[k] == y - 4 + k);
		assert_true(y >= 44 && y < 40 + 180 && !seen[y - 40]);
		seen[y - 40] = true;
	}
	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(data_read(d, DATA_VALIDATION, &i, 1, x, &y, &e), 0);
		assert_true(x[0] == (real)(220 + 4 * (int)i) && y == 224 + 4 * (int)i);
	}
	data_free(d);
	put(&w, "a.txt", text, 4);
	refused(&w, "d/a.txt", s, ERR_INVALID, "d/a.txt: 4 bytes to train on; a sample is 4 and the byte after");
	spec_free(s);
	sim_free(w.sim);
}

static void test_cifar(void **state)
{
	struct world w;
	struct spec *s;
	struct data *d;
	uint8_t *p = calloc(4, 3073);
	static real x[3072];
	int32_t y;
	char json[1000];
	struct err e;

	(void)snprintf(json, sizeof(json),
		"{\"name\":\"a\",\"input\":[3,32,32],\"model\":[{\"type\":\"flatten\"},{\"type\":\"linear\","
		"\"out\":10}],\"loss\":\"cross_entropy\",\"target_batch\":8,\"optimizer\":{\"name\":\"sgd\"},"
		"\"data\":{\"name\":\"d\",\"kind\":\"cifar10\"}}");
	s = spec_parse(json, strlen(json), &e);
	assert_non_null(s);
	world_open(&w);
	assert_null(data_open(w.env->files, "d", s, &e));
	assert_err(e, ERR_NOT_FOUND, "d: no data_batch_1.bin");
	for (int i = 0; i < 4; i++) {
		p[i * 3073] = (uint8_t)i;
		memset(p + i * 3073 + 1, 10 * i, 3072);
	}
	put(&w, "data_batch_1.bin", p, 2 * 3073);
	put(&w, "data_batch_2.bin", p + 2 * 3073, 3073);
	put(&w, "test_batch.bin", p + 3 * 3073, 3073);
	d = opened(&w, s);
	assert_int_equal(data_count(d, DATA_TRAIN), 3);
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(data_read(d, DATA_TRAIN, &i, 1, x, &y, &e), 0);
		assert_int_equal(y, data_index(d, i));
		assert_true(x[0] == (real)(10 * y) && x[3071] == (real)(10 * y));
	}
	data_free(d);
	put(&w, "data_batch_2.bin", p, 3072);
	assert_null(data_open(w.env->files, "d", s, &e));
	assert_err(e, ERR_CORRUPT, "d/data_batch_2.bin: 3072 bytes; CIFAR-10 has records of 3073");
	p[0] = 10;
	put(&w, "data_batch_2.bin", p, 3073);
	assert_null(data_open(w.env->files, "d", s, &e));
	assert_err(e, ERR_CORRUPT, "label 10 of record 0");
	free(p);
	spec_free(s);
	sim_free(w.sim);
}

/* A crop is a piece of the padded image, each place occurs, and bytes and reals are cropped alike. */
static void test_crop(void **state)
{
	struct spec_step st = step_of("{\"type\":\"crop\",\"size\":[4,6],\"padding\":2}");
	bool seen[3 + 4][3 + 4] = { { false } };
	struct err e;

	for (uint64_t key = 0; key < 2000; key++) {
		struct sample s = { .c = 2, .h = 6, .w = 8, .full_h = 6, .full_w = 8, .bytes = true }, r;
		long y = -1, x = 0;

		s.p = sample_room(&s, 96);
		for (int i = 0; i < 96; i++)
			((uint8_t *)s.p)[i] = (uint8_t)(100 + i);
		r = s;
		memset(r.room, 0, sizeof(r.room));
		memset(r.cap, 0, sizeof(r.cap));
		sample_reals(&r);
		r.zero[0] = r.zero[1] = -7;
		assert_int_equal(st.ops->run(&st, &s, key, true, &e), 0);
		assert_int_equal(st.ops->run(&st, &r, key, true, &e), 0);
		assert_true(s.h == 4 && s.w == 6 && s.c == 2);
		for (int i = 0; i < 48; i++) {
			uint8_t v = ((uint8_t *)s.p)[i];
			int c = i / 24, at = v ? v - 100 - c * 48 : 0;

			assert_true(((real *)r.p)[i] == (v ? (real)v : -7));
			if (v && y < 0) {
				y = at / 8 - i % 24 / 6 + 2;
				x = at % 8 - i % 6 + 2;
			}
			if (v)
				assert_true(at / 8 - i % 24 / 6 + 2 == y && at % 8 - i % 6 + 2 == x);
		}
		assert_true(y >= 0 && y <= 6 && x >= 0 && x <= 6);
		seen[y][x] = true;
		sample_free(&s);
		sample_free(&r);
	}
	for (int i = 0; i < 49; i++)
		assert_true(seen[i / 7][i % 7]);
}

static void test_middle(void **state)
{
	struct spec_step st = step_of("{\"type\":\"crop\",\"size\":2,\"padding\":9}"),
		big = step_of("{\"type\":\"crop\",\"size\":9}");
	struct sample s = { .c = 1, .h = 5, .w = 6, .full_h = 5, .full_w = 6, .bytes = true };
	struct err e;

	s.p = sample_room(&s, 30);
	for (int i = 0; i < 30; i++)
		((uint8_t *)s.p)[i] = (uint8_t)i;
	assert_int_equal(big.ops->run(&big, &s, 0, false, &e), -1);
	assert_err(e, ERR_MISMATCH, "crop: an image of 5x6 has no piece of 9x9; resize it first");
	assert_int_equal(st.ops->run(&st, &s, 1, false, &e), 0);
	/* round((5 - 2) / 2) = 2 (halves to even), (6 - 2) / 2 = 2 */
	assert_memory_equal(s.p, ((uint8_t[]){ 14, 15, 20, 21 }), 4);
	sample_free(&s);
}

static void placed(const char *word, int rc, const char *kind, const char *path)
{
	char got[32] = "";
	const char *rest;
	struct err e = { 0 };

	assert_int_equal(data_place(word, got, sizeof(got), &rest, &e), rc);
	if (rc < 0) {
		assert_err(e, ERR_INVALID, path);
		return;
	}
	assert_string_equal(got, kind);
	assert_string_equal(rest, path);
}

/* What operators say behind --data. */
static void test_place(void **state)
{
	placed("/srv/a:b", 1, "", "/srv/a:b");
	placed("digits", 1, "", "digits");
	placed("text:/srv/a:b.txt", 0, "text", "/srv/a:b.txt");
	placed("tar:name", 0, "tar", "name");
	placed("cifar10-jpeg:/srv/c", 0, "folder", "/srv/c");
	placed("cifar10-jpeg:/srv/c.tar.gz", 0, "tar", "/srv/c.tar.gz");
	placed("folder:", -1, "", "a path must stand behind \"folder:\"");
	placed("foldr:/srv/c", -1, "", "did you mean \"folder:/srv/c\"?");
	placed("zip:/srv/c", -1, "", "idx cifar10 csv folder tar text pairs synthetic cifar10-jpeg");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_csv), cmocka_unit_test(test_table),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_cifar), cmocka_unit_test(test_crop), cmocka_unit_test(test_middle),
		cmocka_unit_test(test_place) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

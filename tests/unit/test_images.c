/* Images: decoding and resizing to Pillow's bytes, folders of classes, broken files that are skipped,
 * counted and named. */
#include "images_kit.h"

static void decode(struct sample *s, const uint8_t *p, size_t n, size_t channels)
{
	uint8_t *exact = malloc(n ? n : 1);             /* ASan sees a read past the end */
	struct err e;

	memset(s, 0, sizeof(*s));
	memcpy(exact, p, n);
	if (image_decode(exact, n, channels, s, &e) < 0)
		fail_msg("%s", e.text);
	free(exact);
	assert_true(s->bytes && s->c == channels && s->h == H && s->w == W);
}

static void test_decode(void **state)
{
	struct sample s, grey;
	unsigned far = 0;

	decode(&s, file_jpeg, sizeof(file_jpeg), 3);
	for (size_t i = 0; i < sizeof(planes_jpeg); i++)        /* Pillow brings another libjpeg-turbo along */
		far += ((const uint8_t *)s.p)[i] != planes_jpeg[i];
	assert_int_equal(far, 0);
	sample_free(&s);
	decode(&s, file_png_palette, sizeof(file_png_palette), 3);
	assert_memory_equal(s.p, planes_png_palette, sizeof(planes_png_palette));
	sample_free(&s);
	decode(&s, file_png, sizeof(file_png), 3);
	decode(&grey, file_png_alpha, sizeof(file_png_alpha), 3);
	assert_memory_equal(s.p, grey.p, sample_count(&s));     /* it is opaque */
	sample_free(&grey);
	decode(&grey, file_jpeg_grey, sizeof(file_jpeg_grey), 3);
	assert_memory_equal(grey.p, (uint8_t *)grey.p + H * W, H * W);
	sample_free(&grey);
	decode(&grey, file_png, sizeof(file_png), 1);
	for (size_t i = 0; i < H * W; i++) {
		const uint8_t *p = s.p;
		double want = 0.299 * p[i] + 0.587 * p[H * W + i] + 0.114 * p[2 * H * W + i];

		assert_true(((uint8_t *)grey.p)[i] >= want - 2 && ((uint8_t *)grey.p)[i] <= want + 2);
	}
	sample_free(&grey);
	decode(&grey, file_jpeg_progressive, sizeof(file_jpeg_progressive), 1);
	sample_free(&grey);
	sample_free(&s);
}

/* Cut anywhere it is an error, and so it is with most flipped bits; never a crash or a read outside. */
static void damage(const uint8_t *p, size_t n)
{
	struct err e;

	for (size_t k = 0; k < n; k += k < 64 ? 1 : 7) {
		struct sample s = { .room = { NULL } };
		uint8_t *cut = malloc(k ? k : 1);

		memcpy(cut, p, k);
		if (!image_decode(cut, k, 3, &s, &e))
			assert_true(k + 20 > n);                /* but for the end marker and PNG's last chunk */
		else
			assert_int_equal(e.code, ERR_CORRUPT);
		free(cut);
		sample_free(&s);
	}
	for (size_t k = 0; k < n; k++) {
		struct sample s = { .room = { NULL } };
		uint8_t *bent = malloc(n);

		memcpy(bent, p, n);
		bent[k] ^= (uint8_t)(1 << k % 8);
		if (image_decode(bent, n, 3, &s, &e) < 0)
			assert_true(e.code == ERR_CORRUPT && e.text[0]);
		free(bent);
		sample_free(&s);
	}
}

static void test_damage(void **state)
{
	damage(file_jpeg, sizeof(file_jpeg));
	damage(file_jpeg_progressive, sizeof(file_jpeg_progressive));
	damage(file_png, sizeof(file_png));
}

/* A header that promises 65 500 x 65 500 pixels is refused before anything is allocated. */
static void test_bomb(void **state)
{
	uint8_t *p = malloc(sizeof(file_jpeg));
	struct sample s = { .room = { NULL } };
	struct err e;

	memcpy(p, file_jpeg, sizeof(file_jpeg));
	for (size_t i = 0; i + 9 < sizeof(file_jpeg); i++)
		if (p[i] == 0xff && p[i + 1] == 0xc0) {
			memset(p + i + 5, 0xff, 4);
			p[i + 5] = p[i + 7] = 0xfe;
			break;
		}
	assert_int_equal(image_decode(p, sizeof(file_jpeg), 3, &s, &e), -1);
	assert_err(e, ERR_CORRUPT, "an image of 65279x65279");
	assert_null(s.room[0]);
	sample_free(&s);
	free(p);
}

static void resize(const char *size, size_t h, size_t w, const uint8_t *want, size_t n)
{
	char json[100];
	struct spec_step st;
	struct sample s;
	struct err e;

	(void)snprintf(json, sizeof(json), "{\"type\":\"resize\",\"size\":%s}", size);
	st = step_of(json);
	decode(&s, file_png, sizeof(file_png), 3);
	assert_int_equal(st.ops->run(&st, &s, 0, true, &e), 0);
	assert_int_equal(s.h, h);
	assert_int_equal(s.w, w);
	if (want) {
		assert_int_equal(n, sample_count(&s));
		assert_memory_equal(s.p, want, n);
	}
	sample_free(&s);
}

static void test_resize(void **state)
{
	resize("[8,8]", 8, 8, resized_8_8, sizeof(resized_8_8));
	resize("[31,50]", 31, 50, resized_31_50, sizeof(resized_31_50));
	resize("[5,37]", 5, 37, resized_5_37, sizeof(resized_5_37));
	resize("[60,20]", 60, 20, resized_60_20, sizeof(resized_60_20));
	resize("[1,1]", 1, 1, resized_1_1, sizeof(resized_1_1));
	resize("12", 12, 19, NULL, 0);                  /* the shorter side; 12 * 37 / 23 = 19.3 */
}

static void test_folder(void **state)
{
	struct world w;
	struct spec *s = images_spec("folder", RESIZE, "");
	struct data *d;
	struct err e;
	real x[3 * 64];
	int32_t y;

	world_open(&w);
	assert_null(data_open(w.env->files, "d", s, &e));
	assert_err(e, ERR_NOT_FOUND, "d: no images; CLASS/*.jpg or train/CLASS/*.jpg (or .png) is looked for");
	put(&w, "x.tar.gz", "x", 1);
	assert_null(data_open(w.env->files, "d", s, &e));
	assert_err(e, ERR_NOT_FOUND, "d: no images, but an archive; did you mean tar:d/x.tar.gz?");
	folder(&w, "train");
	folder(&w, "train/cat");
	folder(&w, "train/ant");
	folder(&w, "test");
	folder(&w, "test/cat");
	put(&w, "train/cat/1.png", file_png, sizeof(file_png));
	put(&w, "train/cat/notes.txt", "x", 1);
	put(&w, "train/cat/.hidden.png", "x", 1);
	put(&w, "train/ant/2.jpg", file_jpeg, sizeof(file_jpeg));
	put(&w, "train/README", "x", 1);
	put(&w, "test/cat/3.png", file_png, sizeof(file_png));
	d = opened(&w, s);
	assert_int_equal(data_count(d, DATA_TRAIN), 2);
	assert_int_equal(data_count(d, DATA_VALIDATION), 1);
	assert_int_equal(data_source(d)->classes, 2);
	assert_int_equal(data_read(d, DATA_VALIDATION, (uint64_t[]){ 0 }, 1, x, &y, &e), 0);
	assert_int_equal(y, 1);                         /* ant, cat */
	for (int i = 0; i < 192; i++)
		assert_true(x[i] == (real)resized_8_8[i]);
	data_free(d);
	folder(&w, "test/dog");
	put(&w, "test/dog/3.png", file_png, sizeof(file_png));
	assert_null(data_open(w.env->files, "d", s, &e));
	assert_err(e, ERR_INVALID, "test/dog/3.png: its class is not among those of training");
	spec_free(s);
	sim_free(w.sim);
}

/* Broken files: the next one takes their place on every peer; more than data.broken_max is an error that names one. */
static void test_broken(void **state)
{
	struct world w;
	struct spec *s = images_spec("folder", RESIZE, ",\"broken_max\":2");
	uint64_t position[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	real x[8 * 192], again[8 * 192];
	int32_t y[8];
	struct data *d;
	struct err e = { 0 };
	json_t *told;

	world_open(&w);
	folder(&w, "cat");
	for (int i = 0; i < 8; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "cat/%d.jpg", i);
		put(&w, name, file_jpeg, i == 3 || i == 4 ? 300 : sizeof(file_jpeg));
	}
	d = opened(&w, s);
	assert_int_equal(data_broken(d, &e), 0);
	assert_int_equal(data_read(d, DATA_TRAIN, position, 8, x, y, &e), 0);
	assert_int_equal(data_read(d, DATA_TRAIN, position, 8, again, y, &e), 0);
	assert_memory_equal(x, again, sizeof(x));
	assert_int_equal(data_broken(d, &e), 2);
	assert_err(e, ERR_CORRUPT, ".jpg: damaged JPEG: ");
	put(&w, "cat/6.jpg", "nonsense", sizeof(file_jpeg) < 8 ? 0 : 8);
	assert_int_equal(data_read(d, DATA_TRAIN, position, 8, x, y, &e), -1);
	assert_err(e, ERR_LIMIT, "3 broken samples, and data.broken_max is 2: cat/6.jpg");
	assert_int_equal(data_read(d, DATA_TRAIN, position, 1, x, y, &e), -1);  /* whoever reads, whatever it reads */
	assert_err(e, ERR_LIMIT, "3 broken samples, and data.broken_max is 2: ");
	data_forgive(d);                                /* two more are allowed */
	assert_int_equal(data_read(d, DATA_TRAIN, position, 8, x, y, &e), 0);
	put(&w, "cat/0.jpg", "nonsense", 8);
	assert_int_equal(data_read(d, DATA_TRAIN, position, 8, x, y, &e), 0);
	told = data_json(d);
	assert_int_equal(json_integer_value(json_object_get(told, "broken")), 4);
	assert_int_equal(json_array_size(json_object_get(told, "broken_files")), 4);
	assert_non_null(strstr(json_string_value(json_array_get(json_object_get(told, "broken_files"), 3)), "cat/0.jpg"));
	json_decref(told);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

static json_int_t figure(const json_t *j, size_t stage, const char *name, const char *key)
{
	const json_t *o = json_array_get(json_object_get(j, "stages"), stage);

	assert_string_equal(json_string_value(json_object_get(o, "stage")), name);
	return json_integer_value(json_object_get(o, key));
}

/* What each stage made, to the byte; time is only measured where there is a clock. */
static void test_stages(void **state)
{
	struct world w;
	struct spec *s = images_spec("folder", STEPS, "");
	real x[5 * 192];
	int32_t y[5];
	struct data *d;
	struct err e;
	json_t *j;

	world_open(&w);
	folder(&w, "cat");
	put(&w, "cat/1.png", file_png, sizeof(file_png));
	d = opened(&w, s);
	assert_int_equal(data_read(d, DATA_TRAIN, (uint64_t[]){ 0, 1, 2, 3, 4 }, 5, x, y, &e), 0);
	j = data_json(d);
	assert_int_equal(figure(j, 0, "read", "bytes"), 5 * sizeof(file_png));
	assert_int_equal(figure(j, 1, "decode", "bytes"), 5 * 3 * W * H);
	assert_int_equal(figure(j, 2, "resize", "bytes"), 5 * 3 * 10 * 16);
	assert_int_equal(figure(j, 3, "crop", "bytes"), 5 * 192);
	assert_int_equal(figure(j, 4, "flip", "samples"), 5);
	assert_int_equal(figure(j, 5, "normalize", "bytes"), 5 * 192 * sizeof(real));
	assert_int_equal(figure(j, 6, "batch", "samples"), 5);
	assert_int_equal(figure(j, 6, "batch", "took_us"), 0);
	json_decref(j);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode), cmocka_unit_test(test_damage), cmocka_unit_test(test_bomb),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_folder), cmocka_unit_test(test_broken), cmocka_unit_test(test_stages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Images: decoding and resizing to Pillow's bytes, folders and tar archives of classes, broken files that are skipped,
 * counted and named. */
#include "data_kit.h"
#include <zlib.h>
#include "images_golden.h"
#include "train/data/decode.h"
#include "train/data/tar_parse.h"

#define W 37
#define H 23

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

#define MODEL3 "\"model\":[{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\"," \
	"\"target_batch\":8,\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"seed\":5"

static struct spec *images_spec(const char *kind, const char *steps, const char *more)
{
	char json[2000];
	struct spec *s;
	struct err e;

	(void)snprintf(json, sizeof(json),
		"{\"name\":\"a\",\"input\":[3,8,8]," MODEL3 ",\"data\":{\"name\":\"d\",\"kind\":\"%s\","
		"\"steps\":[%s]%s}}", kind, steps, more);
	s = spec_parse(json, strlen(json), &e);
	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static void folder(struct world *w, const char *path)
{
	struct err e;
	char full[200];

	(void)snprintf(full, sizeof(full), "d/%s", path);
	assert_int_equal(w->env->files->mkdir(w->env->files, full, 0755, &e), 0);
}

#define RESIZE "{\"type\":\"resize\",\"size\":[8,8]}"
#define STEPS "{\"type\":\"resize\",\"size\":10},{\"type\":\"crop\",\"size\":8},{\"type\":\"flip\"}," \
	"{\"type\":\"normalize\",\"mean\":[120,121,122],\"std\":[50,60,70]}"

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
	assert_int_equal(figure(j, 6, "batch", "us"), 0);
	json_decref(j);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

/* --- tar */

struct archive { uint8_t p[200000]; size_t n; };

static void tar_block(struct archive *a, const char *name, char type, const void *p, size_t n)
{
	uint8_t *h = a->p + a->n;
	unsigned sum = 0;

	memset(h, 0, 512);
	(void)snprintf((char *)h, 100, "%s", name);
	(void)snprintf((char *)h + 124, 12, "%011o", (unsigned)(n & 0xffffff));
	memset(h + 148, ' ', 8);
	h[156] = (uint8_t)type;
	memcpy(h + 257, "ustar\00000", 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	(void)snprintf((char *)h + 148, 8, "%06o", sum & 0777777);
	memcpy(h + 512, p, n);
	memset(h + 512 + n, 0, (512 - n % 512) % 512);
	a->n += 512 + (n + 511) / 512 * 512;
}

static void archive(struct archive *a)
{
	static const char pax[] = "26 path=train/cat/pax.png\n";
	char name[200] = "train/ant/";

	memset(a, 0, sizeof(*a));
	tar_block(a, "./train/", '5', "", 0);
	tar_block(a, "./train/cat/1.png", '0', file_png, sizeof(file_png));
	tar_block(a, "README", '0', "hello", 5);
	memset(name + 10, 'x', 150);
	memcpy(name + 160, ".jpg", 5);
	tar_block(a, "././@LongLink", 'L', name, strlen(name) + 1);
	tar_block(a, "cut off", '0', file_jpeg, sizeof(file_jpeg));
	tar_block(a, "PaxHeaders/x", 'x', pax, strlen(pax));
	tar_block(a, "y", '0', file_png, sizeof(file_png));
	tar_block(a, "test/cat/3.png", '0', file_png, sizeof(file_png));
	a->n += 1024;
}

static void check_tar(struct world *w, const char *path, struct spec *s, uint8_t digest[32])
{
	real x[192];
	int32_t y;
	struct err e;
	struct data *d = data_open(w->env->files, path, s, &e);

	if (!d)
		fail_msg("%s", e.text);
	assert_int_equal(data_count(d, DATA_TRAIN), 3);
	assert_int_equal(data_count(d, DATA_VALIDATION), 1);
	assert_int_equal(data_source(d)->classes, 2);
	assert_int_equal(data_read(d, DATA_VALIDATION, (uint64_t[]){ 0 }, 1, x, &y, &e), 0);
	assert_int_equal(y, 1);
	for (int i = 0; i < 192; i++)
		assert_true(x[i] == (real)resized_8_8[i]);
	memcpy(digest, data_digest(d), 32);
	data_free(d);
}

static void test_tar(void **state)
{
	struct world w;
	struct archive *a = malloc(sizeof(*a));
	struct spec *s = images_spec("tar", RESIZE, "");
	uint8_t *zipped = malloc(sizeof(a->p)), one[32], two[32];
	z_stream z = { 0 };
	struct err e;

	world_open(&w);
	archive(a);
	put(&w, "a.tar", a->p, a->n);
	check_tar(&w, "d/a.tar", s, one);
	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = a->p;
	z.avail_in = (uInt)a->n;
	z.next_out = zipped;
	z.avail_out = sizeof(a->p);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	put(&w, "a.tar.gz", zipped, z.total_out);
	check_tar(&w, "d/a.tar.gz", s, two);
	assert_memory_equal(one, two, 32);              /* compressed or not, it is the same data set */
	put(&w, "b.tar.gz", zipped, z.total_out - 9);
	assert_null(data_open(w.env->files, "d/b.tar.gz", s, &e));
	assert_true(strstr(e.text, "d/b.tar.gz") != NULL);
	(void)deflateEnd(&z);
	free(zipped);
	free(a);
	spec_free(s);
	sim_free(w.sim);
}

static int from_memory(void *arg, void *to, size_t n, uint64_t at, struct err *e)
{
	memcpy(to, ((struct archive *)arg)->p + at, n);
	return 0;
}

static int count(void *arg, const char *path, uint64_t at, uint64_t bytes, const uint8_t *body, struct err *e)
{
	(*(int *)arg)++;
	return 0;
}

static void tar_says(struct archive *a, const char *text)
{
	struct tar_input in = { .bytes = a->n, .pread = from_memory, .arg = a };
	int n = 0;
	struct err e = { 0 };

	assert_int_equal(tar_walk(&in, count, &n, &e), -1);
	assert_err(e, ERR_CORRUPT, text);
}

static void test_tar_damage(void **state)
{
	int n = 0;
	struct err e;
	struct archive *a = malloc(sizeof(*a)), *b = malloc(sizeof(*b));

	archive(a);
	*b = *a;
	b->n = 512 + 512 + 100;
	tar_says(b, "tar header at byte 512: truncated");
	b->n = 100;
	tar_says(b, "no tar archive");
	*b = *a;
	b->p[600] ^= 1;
	tar_says(b, "tar header at byte 512: its checksum is wrong");
	b->n = 0;
	tar_block(b, "a", '1', "", 0);
	tar_says(b, "--hard-dereference");
	b->n = 0;
	tar_block(b, "a", 'S', "", 0);
	tar_says(b, "sparse");
	b->n = 0;
	tar_block(b, "a", 'x', "99 path=q\n", 10);
	tar_says(b, "damaged pax record");
	b->n = 0;
	tar_block(b, "a", 'x', "19 GNU.sparse.x=12\n", 19);
	tar_says(b, "a sparse file");
	b->n = 0;
	tar_block(b, "a", 'g', "11 path=q/\n", 11);
	tar_says(b, "a path or a size for all members");
	b->n = 0;
	tar_block(b, "a", 'g', "16 comment=some\n", 16);
	tar_block(b, "a/b.png", '0', file_png, sizeof(file_png));
	assert_int_equal(tar_walk(&(struct tar_input){ .bytes = b->n, .pread = from_memory, .arg = b }, count, &n, &e), 0);
	assert_int_equal(n, 1);
	free(a);
	free(b);
}

/* A folder and an archive of the same files are the same data set, whether a file's bytes came along with its header or
 * were read by themselves; other compressions are named. */
static void test_same_set(void **state)
{
	static const size_t sizes[] = { 1, 4095, 4096, 4097, 8191, 8192, 8193, 20000 };
	struct world w;
	struct archive *a = calloc(1, sizeof(*a));
	struct spec *s = images_spec("folder", RESIZE, ""), *t = images_spec("tar", RESIZE, "");
	uint8_t *p = malloc(20000), digest[2][32];
	struct data *d;
	struct err e;

	world_open(&w);
	folder(&w, "set");
	folder(&w, "set/cat");
	for (size_t i = 0; i < 8; i++) {
		char name[40];

		for (size_t k = 0; k < sizes[i]; k++)
			p[k] = (uint8_t)(k * k / 7 + i);
		(void)snprintf(name, sizeof(name), "set/cat/%zu.jpg", 9 - i);
		put(&w, name, p, sizes[i]);
		tar_block(a, name + 4, '0', p, sizes[i]);
	}
	a->n += 1024;
	put(&w, "set.tar", a->p, a->n);
	d = data_open(w.env->files, "d/set", s, &e);
	assert_non_null(d);
	memcpy(digest[0], data_digest(d), 32);
	data_free(d);
	d = data_open(w.env->files, "d/set.tar", t, &e);
	assert_non_null(d);
	memcpy(digest[1], data_digest(d), 32);
	data_free(d);
	assert_memory_equal(digest[0], digest[1], 32);
	a->p[512 + 512 + 512 + 100] ^= 1;               /* the second file */
	put(&w, "set.tar", a->p, a->n);
	d = data_open(w.env->files, "d/set.tar", t, &e);
	assert_non_null(d);
	assert_memory_not_equal(data_digest(d), digest[0], 32);
	data_free(d);
	put(&w, "set.tar.zst", "\x28\xb5\x2f\xfd....", 8);
	assert_null(data_open(w.env->files, "d/set.tar.zst", t, &e));
	assert_err(e, ERR_INVALID, "d/set.tar.zst: compressed with zstd: decompress it");
	free(a);
	free(p);
	spec_free(s);
	spec_free(t);
	sim_free(w.sim);
}

/* A09: batches are bitwise equal however they are cut and whoever reads them. */
static void test_any_cut(void **state)
{
	struct world w;
	struct archive *a = malloc(sizeof(*a));
	struct spec *s = images_spec("tar", STEPS, "");
	uint64_t position[12];
	real x[12 * 192], z[12 * 192];
	int32_t y[12], v[12];
	struct data *d;
	struct err e;
	unsigned differ = 0;

	world_open(&w);
	archive(a);
	put(&w, "a.tar", a->p, a->n);
	d = data_open(w.env->files, "d/a.tar", s, &e);
	assert_non_null(d);
	for (uint64_t i = 0; i < 12; i++)
		position[i] = i;
	assert_int_equal(data_read(d, DATA_TRAIN, position, 12, x, y, &e), 0);
	for (int i = 11; i >= 0; i--)
		assert_int_equal(data_read(d, DATA_TRAIN, position + i, 1, z + i * 192, v + i, &e), 0);
	assert_memory_equal(x, z, sizeof(x));
	assert_memory_equal(y, v, sizeof(y));
	for (int i = 0; i < 12; i++)
		for (int k = 0; k < i; k++)
			differ += data_index(d, position[i]) == data_index(d, position[k]) && memcmp(x + i * 192, x + k * 192,
				192 * 4);
	assert_true(differ > 0);                        /* it is augmentation after all */
	data_free(d);
	free(a);
	spec_free(s);
	sim_free(w.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode), cmocka_unit_test(test_damage), cmocka_unit_test(test_bomb),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_folder), cmocka_unit_test(test_broken), cmocka_unit_test(test_stages),
		cmocka_unit_test(test_tar),
		cmocka_unit_test(test_tar_damage), cmocka_unit_test(test_same_set), cmocka_unit_test(test_any_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

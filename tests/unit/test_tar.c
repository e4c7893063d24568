/* Archives of images: members of all kinds, damage, a folder and an archive of the same files, and batches that are
 * equal however they are cut. */
#include "images_kit.h"
#include <zlib.h>
#include "train/data/tar_parse.h"

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
		cmocka_unit_test(test_tar), cmocka_unit_test(test_tar_damage), cmocka_unit_test(test_same_set),
		cmocka_unit_test(test_any_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Pieces of images: what is decoded of a piece is what the whole has there, for every way of writing a JPEG; images
 * that are not plain red, green, blue; resampling with and without vectors; the pieces of resized_crop. */
#include "data_kit.h"
#include <jpeglib.h>
#include <math.h>
#include "images_golden.h"
#include "images_odd.h"
#include "train/data/decode.h"
#include "train/data/resample.h"

struct form { int h, v; bool grey, progressive; int restart; const char *name; };

/* A JPEG of w x h made here: waves and noise from the seed. */
static unsigned long write_jpeg(const struct form *f, int w, int h, struct rng *r, unsigned char **ret)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr mgr;
	unsigned long n = 0;
	uint8_t *row = malloc((size_t)w * 3);

	*ret = NULL;
	c.err = jpeg_std_error(&mgr);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, ret, &n);
	c.image_width = (JDIMENSION)w;
	c.image_height = (JDIMENSION)h;
	c.input_components = f->grey ? 1 : 3;
	c.in_color_space = f->grey ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(&c);
	jpeg_set_quality(&c, 80, TRUE);
	c.comp_info[0].h_samp_factor = f->h;
	c.comp_info[0].v_samp_factor = f->v;
	c.restart_interval = (unsigned)f->restart;
	if (f->progressive)
		jpeg_simple_progression(&c);
	jpeg_start_compress(&c, TRUE);
	for (int y = 0; y < h; y++) {
		JSAMPROW p = row;

		for (int x = 0; x < w * c.input_components; x++)
			row[x] = (uint8_t)(128 + 80 * sin(0.07 * x + 0.11 * y) + (double)rng_below(r, 40));
		(void)jpeg_write_scanlines(&c, &p, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	free(row);
	return n;
}

static void same_piece(const uint8_t *file, size_t n, size_t channels, const struct sample *all, const struct window *v,
	const char *name)
{
	char json[100];
	struct spec_step st;
	struct sample s = { .train = true }, want = { .bytes = true };
	struct err e;

	(void)snprintf(json, sizeof(json), "{\"type\":\"crop\",\"size\":[%zu,%zu]}", v->h, v->w);
	st = step_of(json);
	s.first = &st;
	s.key = v->y * 1000003 + v->x;
	if (image_decode(file, n, channels, &s, &e) < 0)
		fail_msg("%s: %s", name, e.text);
	assert_true(s.full_h == all->h && s.full_w == all->w && s.h == v->h && s.w == v->w);
	want.c = all->c;
	want.h = all->h;
	want.w = all->w;
	want.p = all->p;
	sample_whole(&want);
	sample_cut(&want, &(struct window){ s.top, s.left, s.h, s.w });
	for (size_t i = 0; i < sample_count(&s); i++)
		if (((uint8_t *)s.p)[i] != ((uint8_t *)want.p)[i])
			fail_msg("%s: %zux%zu at (%zu,%zu) of %zux%zu: byte %zu is %u, and %u in the whole", name, s.h, s.w, s.top,
				s.left, all->h, all->w, i, ((uint8_t *)s.p)[i], ((uint8_t *)want.p)[i]);
	sample_free(&s);
	sample_free(&want);
}

static void pieces_of(const uint8_t *file, size_t n, struct rng *r, int tries, const char *name)
{
	for (size_t channels = 1; channels <= 3; channels += 2) {
		struct sample all = { .room = { NULL } };
		struct err e;

		if (image_decode(file, n, channels, &all, &e) < 0)
			fail_msg("%s: %s", name, e.text);
		for (int i = 0; i < tries; i++) {
			struct window v = { rng_below(r, 1 << 20), rng_below(r, 1 << 20), 1 + rng_below(r, all.h),
				1 + rng_below(r, all.w) };

			same_piece(file, n, channels, &all, &v, name);
		}
		sample_free(&all);
	}
}

static void test_pieces(void **state)
{
	static const struct form forms[] = { { 1, 1, false, false, 0, "4:4:4" }, { 2, 1, false, false, 0, "4:2:2" },
		{ 2, 2, false, false, 0, "4:2:0" }, { 1, 2, false, false, 0, "4:4:0" }, { 4, 1, false, false, 0, "4:1:1" },
		{ 1, 1, true, false, 0, "grey" }, { 2, 2, false, true, 0, "progressive" },
		{ 2, 2, false, false, 2, "restarts" }, { 2, 1, false, true, 0, "progressive 4:2:2" } };
	static const int sizes[][2] = { { 130, 101 }, { 64, 48 }, { 33, 17 }, { 7, 90 }, { 200, 5 } };
	struct rng r;

	rng_seed(&r, 11);
	for (size_t k = 0; k < sizeof(forms) / sizeof(*forms); k++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			unsigned char *file;
			unsigned long n = write_jpeg(&forms[k], sizes[i][0], sizes[i][1], &r, &file);

			pieces_of(file, n, &r, 40, forms[k].name);
			free(file);
		}
	pieces_of(file_png, sizeof(file_png), &r, 60, "png");
	pieces_of(file_png_palette, sizeof(file_png_palette), &r, 20, "png with a palette");
	pieces_of(odd_cmyk, sizeof(odd_cmyk), &r, 20, "cmyk");
}

/* One decompressor after the other's image: nothing of it is left, not even after a damaged one. */
static void test_again(void **state)
{
	static const uint8_t *const file[] = { file_jpeg, file_jpeg_progressive, file_jpeg_grey, odd_cmyk };
	static const size_t size[] = { sizeof(file_jpeg), sizeof(file_jpeg_progressive), sizeof(file_jpeg_grey),
		sizeof(odd_cmyk) };
	struct sample s = { .room = { NULL } };
	uint8_t bare[sizeof(file_jpeg)];
	struct rng r;
	struct err e, fresh;
	size_t n = 0;

	rng_seed(&r, 5);
	for (int i = 0; i < 60; i++) {
		size_t k = rng_below(&r, 4);
		struct sample one = { .room = { NULL } };

		if (rng_below(&r, 3) == 0)
			assert_int_equal(image_decode(file[k], size[k] / 2, 3, &s, &e), -1);
		assert_int_equal(image_decode(file[k], size[k], 3, &s, &e), 0);
		assert_int_equal(image_decode(file[k], size[k], 3, &one, &e), 0);
		assert_memory_equal(s.p, one.p, sample_count(&s));
		sample_free(&one);
	}
	/* without its tables it is as broken as in a fresh decompressor */
	for (size_t i = 0; i < sizeof(file_jpeg); ) {
		size_t len = file_jpeg[i] == 0xff && file_jpeg[i + 1] == 0xdb ?
			2 + (size_t)file_jpeg[i + 2] * 256 + file_jpeg[i + 3] : 0;

		if (len) {
			i += len;
			continue;
		}
		bare[n++] = file_jpeg[i++];
	}
	assert_true(n < sizeof(file_jpeg));
	assert_int_equal(image_decode(bare, n, 3, &s, &e), -1);
	sample_free(&s);
	s = (struct sample){ .room = { NULL } };
	assert_int_equal(image_decode(bare, n, 3, &s, &fresh), -1);
	assert_string_equal(e.text, fresh.text);
	sample_free(&s);
}

static void odd(const uint8_t *file, size_t n, const uint8_t *rgb, size_t size, const uint8_t *grey, unsigned far)
{
	struct sample s = { .room = { NULL } };
	struct err e;

	if (image_decode(file, n, 3, &s, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(sample_count(&s), size);
	for (size_t i = 0; i < size; i++)
		assert_true(((uint8_t *)s.p)[i] + far >= rgb[i] && ((uint8_t *)s.p)[i] <= rgb[i] + far);
	assert_int_equal(image_decode(file, n, 1, &s, &e), 0);
	assert_int_equal(sample_count(&s), size / 3);
	for (size_t i = 0; grey && i < size / 3; i++)
		assert_true(((uint8_t *)s.p)[i] == grey[i]);
	sample_free(&s);
}

#define ODD(x) odd(odd_##x, sizeof(odd_##x), odd_##x##_rgb, sizeof(odd_##x##_rgb), NULL, 0)

static void test_odd(void **state)
{
	odd(odd_cmyk, sizeof(odd_cmyk), odd_cmyk_rgb, sizeof(odd_cmyk_rgb), odd_cmyk_grey, 0);
	ODD(turned);
	ODD(grey_alpha);
	ODD(one_bit);
	ODD(four_bits);
	ODD(grey_16);
	ODD(rgb_16);
}

/* Vectors and single sums give the same bytes: images so narrow or low that no vector fits, beside wide ones. */
static void test_resample(void **state)
{
	struct rng r;

	rng_seed(&r, 3);
	for (int t = 0; t < 120; t++) {
		size_t in = 1 + rng_below(&r, 90), out = 1 + rng_below(&r, 70), h = 1 + rng_below(&r, 50);
		uint8_t *from = malloc(h * in), *to = malloc(h * out), *turned = malloc(h * in), *back = malloc(h * out);
		uint8_t *scratch = malloc(resample_scratch(in, out));
		struct weights k;

		for (size_t i = 0; i < h * in; i++) {
			from[i] = (uint8_t)(rng_below(&r, 4) ? rng_below(&r, 256) : 255 * rng_below(&r, 2));
			turned[i % in * h + i / in] = from[i];
		}
		weights_make(&k, in, out);
		resample_rows(&k, from, h, to, scratch);
		resample_columns(&k, turned, h, back);
		for (size_t i = 0; i < h * out; i++)
			assert_int_equal(to[i], back[i % out * h + i / out]);
		for (size_t row = 0; row < h; row++) {          /* each row by itself: no vector is used */
			uint8_t one[70];

			resample_rows(&k, from + row * in, 1, one, scratch);
			assert_memory_equal(one, to + row * out, out);
		}
		weights_free(&k);
		free(from);
		free(to);
		free(turned);
		free(back);
		free(scratch);
	}
}

/* resized_crop: pieces lie inside, their areas and ratios are those asked for, on average as torchvision's. */
static void test_resized_crop(void **state)
{
	struct spec_step st = step_of("{\"type\":\"resized_crop\",\"size\":224}");
	struct spec_step narrow = step_of("{\"type\":\"resized_crop\",\"size\":8,\"scale\":[1,1],\"ratio\":[1,1]}");
	double area = 0, ratio = 0;
	struct window v;
	enum { N = 20000 };

	for (uint64_t key = 0; key < N; key++) {
		assert_true(st.ops->window(&st, 375, 500, rng_mix(key, 1), true, &v));
		assert_true(v.h && v.w && v.y + v.h <= 375 && v.x + v.w <= 500);
		assert_true((double)v.h * (double)v.w > 0.075 * 375 * 500);
		assert_true((double)v.w / (double)v.h > 0.73 && (double)v.w / (double)v.h < 1.37);
		area += (double)v.h * (double)v.w / 375 / 500 / N;
		ratio += log((double)v.w / (double)v.h) / N;
	}
	/* RandomResizedCrop.get_params over 200 000 pieces of 375x500: 0.4325 and 0.0307 */
	assert_true(area > 0.426 && area < 0.439);
	assert_true(ratio > 0.026 && ratio < 0.036);
	/* no piece of this area and ratio exists: the middle */
	assert_true(narrow.ops->window(&narrow, 10, 30, 5, true, &v));
	assert_true(v.h == 10 && v.w == 10 && v.y == 0 && v.x == 10);
	assert_false(st.ops->window(&st, 375, 500, 1, false, &v));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces), cmocka_unit_test(test_again), cmocka_unit_test(test_odd),
		cmocka_unit_test(test_resample), cmocka_unit_test(test_resized_crop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

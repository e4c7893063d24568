/* PNG: row by row, but for interlaced ones, which need the whole image. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <png.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/data/decode.h"

struct trouble { jmp_buf back; char text[160]; };
struct reader { const uint8_t *p; size_t n, at; };

static void fatal(png_structp p, png_const_charp text)
{
	struct trouble *t = png_get_error_ptr(p);

	(void)snprintf(t->text, sizeof(t->text), "%s", text);
	longjmp(t->back, 1);
}

static void remark(png_structp p, png_const_charp text)
{
}

static void bytes(png_structp p, png_bytep to, size_t n)
{
	struct reader *r = png_get_io_ptr(p);

	if (n > r->n - r->at)
		png_error(p, "truncated");
	memcpy(to, r->p + r->at, n);
	r->at += n;
}

/* Whatever it is, it becomes 8 bits of grey or of red, green, blue; transparency is left out. */
static void convert(png_structp p, png_infop info, size_t channels)
{
	int color = png_get_color_type(p, info);

	png_set_expand(p);
	png_set_strip_16(p);
	png_set_strip_alpha(p);
	if (channels == 3 && !(color & PNG_COLOR_MASK_COLOR))
		png_set_gray_to_rgb(p);
	if (channels == 1 && (color & PNG_COLOR_MASK_COLOR))
		png_set_rgb_to_gray(p, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
	(void)png_set_interlace_handling(p);
	png_read_update_info(p, info);
}

static void by_rows(png_structp p, struct sample *s, const struct window *v, size_t stride, size_t channels)
{
	uint8_t *row = sample_room(s, stride);

	for (size_t y = 0; y < v->y + v->h; y++) {
		png_read_row(p, row, NULL);
		if (y >= v->y)
			decode_row(s, y - v->y, row + v->x * channels);
	}
	if (v->h == s->full_h)
		png_read_end(p, NULL);
}

static void at_once(png_structp p, struct sample *s, const struct window *v, size_t stride, size_t channels)
{
	size_t h = s->full_h;
	uint8_t **rows = sample_room(s, h * sizeof(*rows) + h * stride);

	for (size_t y = 0; y < h; y++)
		rows[y] = (uint8_t *)(rows + h) + y * stride;
	png_read_image(p, rows);
	png_read_end(p, NULL);
	for (size_t y = 0; y < v->h; y++)
		decode_row(s, y, rows[v->y + y] + v->x * channels);
}

static int rows(png_structp p, png_infop info, size_t channels, struct sample *s, struct err *e)
{
	struct window v;
	size_t stride;

	if (decode_start(s, png_get_image_height(p, info), png_get_image_width(p, info), channels, &v, e) < 0)
		return -1;
	convert(p, info, channels);
	stride = png_get_rowbytes(p, info);
	if (stride != s->full_w * channels)
		png_error(p, "unusual pixels");
	if (png_get_interlace_type(p, info) == PNG_INTERLACE_NONE)
		by_rows(p, s, &v, stride, channels);
	else
		at_once(p, s, &v, stride, channels);
	return 0;
}

int decode_png(const uint8_t *file, size_t n, size_t channels, struct sample *s, struct err *e)
{
	struct trouble t = { .text = "" };
	struct reader r = { file, n, 0 };
	png_structp p = png_create_read_struct(PNG_LIBPNG_VER_STRING, &t, fatal, remark);
	png_infop info = p ? png_create_info_struct(p) : NULL;
	volatile int rc;

	if (!info) {
		png_destroy_read_struct(&p, NULL, NULL);
		return err_set(e, ERR_NOMEM, "no memory to decode a PNG");
	}
	if (!setjmp(t.back)) {
		png_set_read_fn(p, &r, bytes);
		png_set_user_limits(p, DECODE_SIDE_MAX, DECODE_SIDE_MAX);
		png_set_chunk_malloc_max(p, 1 << 20);
		png_read_info(p, info);
		rc = rows(p, info, channels, s, e);
	} else {
		text_clean(t.text);
		rc = err_set(e, ERR_CORRUPT, "damaged PNG: %.150s", t.text);
	}
	png_destroy_read_struct(&p, &info, NULL);
	return rc;
}

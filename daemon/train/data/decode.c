/* Images: by their first bytes, not by their names. Rows go from the library into the planes one by one. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <jpeglib.h>
#include <jerror.h>
#include <png.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/data/decode.h"

struct jpeg_trouble { struct jpeg_error_mgr mgr; jmp_buf back; char text[JMSG_LENGTH_MAX]; };
struct png_trouble { jmp_buf back; char text[160]; };
struct reader { const uint8_t *p; size_t n, at; };

bool image_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
}

static int start(struct sample *s, uint64_t w, uint64_t h, size_t channels, struct err *e)
{
	if (!w || !h || w > DECODE_SIDE_MAX || h > DECODE_SIDE_MAX || w * h > DECODE_PIXELS_MAX)
		return err_set(e, ERR_CORRUPT, "an image of %llux%llu; at most %d a side and %llu pixels are decoded",
			(unsigned long long)w, (unsigned long long)h, DECODE_SIDE_MAX, (unsigned long long)DECODE_PIXELS_MAX);
	s->p = NULL;
	s->p = sample_room(s, w * h * channels);
	s->c = channels;
	s->h = h;
	s->w = w;
	s->bytes = true;
	sample_whole(s);
	return 0;
}

static void put_row(struct sample *s, size_t y, const uint8_t *row)
{
	uint8_t *to = (uint8_t *)s->p + y * s->w;
	size_t plane = s->h * s->w;

	if (s->c == 1) {
		memcpy(to, row, s->w);
		return;
	}
	for (size_t x = 0; x < s->w; x++, row += 3) {
		to[x] = row[0];
		to[plane + x] = row[1];
		to[2 * plane + x] = row[2];
	}
}

static void jpeg_fatal(j_common_ptr c)
{
	struct jpeg_trouble *t = (struct jpeg_trouble *)c->err;

	c->err->format_message(c, t->text);
	longjmp(t->back, 1);
}

/* What libjpeg only warns of is damage too, but for bytes between its segments. */
static void jpeg_remark(j_common_ptr c, int level)
{
	if (level < 0 && c->err->msg_code != JWRN_EXTRANEOUS_DATA)
		jpeg_fatal(c);
}

static void jpeg_progress(j_common_ptr c)
{
	if (((j_decompress_ptr)c)->input_scan_number > DECODE_SCANS_MAX)
		ERREXIT(c, JERR_BAD_PROGRESSION);
}

static void jpeg_start(struct jpeg_decompress_struct *d, const uint8_t *file, size_t n, size_t channels)
{
	jpeg_create_decompress(d);
	jpeg_mem_src(d, file, n);
	(void)jpeg_read_header(d, TRUE);
	d->out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
	d->dct_method = JDCT_ISLOW;             /* the same bytes with and without SIMD */
}

static int decode_jpeg(const uint8_t *file, size_t n, size_t channels, struct sample *s, struct err *e)
{
	struct jpeg_decompress_struct d = { 0 };
	struct jpeg_trouble t = { .text = "" };
	struct jpeg_progress_mgr progress = { .progress_monitor = jpeg_progress };
	volatile int rc = -1;

	d.err = jpeg_std_error(&t.mgr);
	t.mgr.error_exit = jpeg_fatal;
	t.mgr.emit_message = jpeg_remark;
	if (!setjmp(t.back)) {
		jpeg_start(&d, file, n, channels);
		if (start(s, d.image_width, d.image_height, channels, e) == 0) {
			uint8_t *row;

			d.progress = &progress;
			(void)jpeg_start_decompress(&d);
			row = sample_room(s, (size_t)d.output_width * 3);
			while (d.output_scanline < d.output_height) {
				JSAMPROW to = row;

				(void)jpeg_read_scanlines(&d, &to, 1);
				put_row(s, d.output_scanline - 1, row);
			}
			(void)jpeg_finish_decompress(&d);
			rc = 0;
		}
	} else {
		text_clean(t.text);
		(void)err_set(e, ERR_CORRUPT, "damaged JPEG: %.150s", t.text);
		rc = -1;
	}
	jpeg_destroy_decompress(&d);
	return rc;
}

static void png_fatal(png_structp p, png_const_charp text)
{
	struct png_trouble *t = png_get_error_ptr(p);

	(void)snprintf(t->text, sizeof(t->text), "%s", text);
	longjmp(t->back, 1);
}

static void png_remark(png_structp p, png_const_charp text)
{
}

static void png_bytes(png_structp p, png_bytep to, size_t n)
{
	struct reader *r = png_get_io_ptr(p);

	if (n > r->n - r->at)
		png_error(p, "truncated");
	memcpy(to, r->p + r->at, n);
	r->at += n;
}

/* Whatever it is, it becomes 8 bits of grey or of red, green, blue; transparency is left out. */
static void png_convert(png_structp p, png_infop info, size_t channels)
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

static int png_rows(png_structp p, png_infop info, size_t channels, struct sample *s, struct err *e)
{
	size_t stride, h = png_get_image_height(p, info);
	uint8_t **rows;

	if (start(s, png_get_image_width(p, info), h, channels, e) < 0)
		return -1;
	png_convert(p, info, channels);
	stride = png_get_rowbytes(p, info);
	if (stride != s->w * channels)
		png_error(p, "unusual pixels");
	rows = sample_room(s, h * sizeof(*rows) + h * stride);
	for (size_t y = 0; y < h; y++)
		rows[y] = (uint8_t *)(rows + h) + y * stride;
	png_read_image(p, rows);
	png_read_end(p, NULL);
	for (size_t y = 0; y < h; y++)
		put_row(s, y, rows[y]);
	return 0;
}

static int decode_png(const uint8_t *file, size_t n, size_t channels, struct sample *s, struct err *e)
{
	struct png_trouble t = { .text = "" };
	struct reader r = { file, n, 0 };
	png_structp p = png_create_read_struct(PNG_LIBPNG_VER_STRING, &t, png_fatal, png_remark);
	png_infop info = p ? png_create_info_struct(p) : NULL;
	volatile int rc;

	if (!info) {
		png_destroy_read_struct(&p, NULL, NULL);
		return err_set(e, ERR_NOMEM, "no memory to decode a PNG");
	}
	if (!setjmp(t.back)) {
		png_set_read_fn(p, &r, png_bytes);
		png_set_user_limits(p, DECODE_SIDE_MAX, DECODE_SIDE_MAX);
		png_set_chunk_malloc_max(p, 1 << 20);
		png_read_info(p, info);
		rc = png_rows(p, info, channels, s, e);
	} else {
		text_clean(t.text);
		rc = err_set(e, ERR_CORRUPT, "damaged PNG: %.150s", t.text);
	}
	png_destroy_read_struct(&p, &info, NULL);
	return rc;
}

int image_decode(const uint8_t *file, size_t n, size_t channels, struct sample *s, struct err *e)
{
	static const uint8_t png[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };

	if (n >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff)
		return decode_jpeg(file, n, channels, s, e);
	if (n >= 8 && !memcmp(file, png, 8))
		return decode_png(file, n, channels, s, e);
	return err_set(e, ERR_CORRUPT, "neither JPEG nor PNG: it begins with %02x %02x", n ? file[0] : 0,
		n > 1 ? file[1] : 0);
}

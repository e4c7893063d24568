/* JPEG: one decompressor for all images that a worker decodes, and of each no more than the piece that is wanted. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <jerror.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/data/decode.h"

#define MARGIN 8                                /* columns beside the piece that smooth upsampling looks at */

struct jpeg {
	struct jpeg_decompress_struct d;
	struct jpeg_error_mgr mgr;
	struct jpeg_progress_mgr progress;
	jmp_buf back;
	char text[JMSG_LENGTH_MAX];
};

static void fatal(j_common_ptr c)
{
	struct jpeg *j = (struct jpeg *)c->client_data;

	c->err->format_message(c, j->text);
	longjmp(j->back, 1);
}

/* What libjpeg only warns of is damage too, but for bytes between its segments. */
static void remark(j_common_ptr c, int level)
{
	if (level < 0 && c->err->msg_code != JWRN_EXTRANEOUS_DATA)
		fatal(c);
}

static void progress(j_common_ptr c)
{
	if (((j_decompress_ptr)c)->input_scan_number > DECODE_SCANS_MAX)
		ERREXIT(c, JERR_BAD_PROGRESSION);
}

void decode_jpeg_end(void *decoder)
{
	struct jpeg *j = decoder;

	jpeg_destroy_decompress(&j->d);
	free(j);
}

static struct jpeg *jpeg_of(struct sample *s)
{
	struct jpeg *j = s->decoder;

	if (j)
		return j;
	j = xcalloc(1, sizeof(*j));
	j->d.err = jpeg_std_error(&j->mgr);
	j->mgr.error_exit = fatal;
	j->mgr.emit_message = remark;
	j->progress.progress_monitor = progress;
	j->d.client_data = j;
	s->decoder = j;
	return j;
}

/* Nothing of the image before may help this one: tables that a file does not bring along are missing. Their memory
 * goes with the decompressor, some kilobytes for the images of a batch. */
static void start(struct jpeg *j, const uint8_t *file, size_t n, size_t channels)
{
	struct jpeg_decompress_struct *d = &j->d;

	if (!d->mem)
		jpeg_create_decompress(d);
	d->client_data = j;
	d->progress = NULL;
	for (int i = 0; i < NUM_QUANT_TBLS; i++)
		d->quant_tbl_ptrs[i] = NULL;
	for (int i = 0; i < NUM_HUFF_TBLS; i++)
		d->dc_huff_tbl_ptrs[i] = d->ac_huff_tbl_ptrs[i] = NULL;
	jpeg_mem_src(d, file, n);
	(void)jpeg_read_header(d, TRUE);
	d->out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
	if (d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK)
		d->out_color_space = JCS_CMYK;
	d->dct_method = JDCT_ISLOW;             /* the same bytes with and without SIMD */
}

/* a * b / 255, rounded, as Pillow has it */
static unsigned product(unsigned a, unsigned b)
{
	unsigned t = a * b + 128;

	return ((t >> 8) + t) >> 8;
}

/* Of n pixels of cyan, magenta, yellow, black, in place. Adobe's files have them inverted. */
static void of_cmyk(uint8_t *row, size_t n, size_t channels, bool inverted)
{
	for (size_t i = 0; i < n; i++) {
		const uint8_t *p = row + 4 * i;
		unsigned flip = inverted ? 0 : 255, white = p[3] ^ flip, rgb[3];

		for (int c = 0; c < 3; c++)
			rgb[c] = product(p[c] ^ flip, white);
		if (channels == 1) {
			row[i] = (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
			continue;
		}
		for (int c = 0; c < 3; c++)
			row[3 * i + (size_t)c] = (uint8_t)rgb[c];
	}
}

static void rows(struct jpeg *j, struct sample *s, const struct window *v, size_t channels)
{
	struct jpeg_decompress_struct *d = &j->d;
	JDIMENSION left = v->x < MARGIN ? 0 : (JDIMENSION)(v->x - MARGIN), right = (JDIMENSION)(v->x + v->w + MARGIN), n;
	/* Blocks of a progressive file that lacks scans are smoothed by their neighbours, all of which must be there. */
	bool cmyk = d->out_color_space == JCS_CMYK, all = v->h == s->full_h, whole = d->progressive_mode;
	size_t unit = cmyk ? 4 : channels;
	uint8_t *row;

	d->progress = &j->progress;
	(void)jpeg_start_decompress(d);
	n = right > d->output_width ? d->output_width - left : right - left;
	if (n < d->output_width && !whole)
		jpeg_crop_scanline(d, &left, &n);
	else
		left = 0;
	row = sample_room(s, (size_t)d->output_width * unit);
	for (size_t y = 0; y < v->y && whole; y++) {
		JSAMPROW to = row;

		(void)jpeg_read_scanlines(d, &to, 1);
	}
	if (v->y && !whole)
		(void)jpeg_skip_scanlines(d, (JDIMENSION)v->y);
	for (size_t y = 0; y < v->h; y++) {
		JSAMPROW to = row;
		uint8_t *from = row + (v->x - left) * unit;

		(void)jpeg_read_scanlines(d, &to, 1);
		if (cmyk)
			of_cmyk(from, v->w, channels, d->saw_Adobe_marker);
		decode_row(s, y, from);
	}
	if (all)
		(void)jpeg_finish_decompress(d);
}

int decode_jpeg(const uint8_t *file, size_t n, size_t channels, struct sample *s, struct err *e)
{
	struct jpeg *volatile keep = jpeg_of(s);
	struct jpeg *j = keep;
	struct window v;
	volatile int rc = -1;

	if (!setjmp(j->back)) {
		start(j, file, n, channels);
		if (decode_start(s, j->d.image_height, j->d.image_width, channels, &v, e) == 0) {
			rows(j, s, &v, channels);
			rc = 0;
		}
	} else {
		text_clean(keep->text);
		(void)err_set(e, ERR_CORRUPT, "damaged JPEG: %.150s", keep->text);
	}
	if (keep->d.mem)
		jpeg_abort_decompress(&keep->d);
	return rc;
}

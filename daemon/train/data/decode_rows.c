/* What the formats of images have in common: room for the piece of an image that is wanted, and its rows put into
 * planes one by one. */
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include "train/data/decode.h"

int decode_start(struct sample *s, uint64_t h, uint64_t w, size_t channels, struct window *v, struct err *e)
{
	if (!w || !h || w > DECODE_SIDE_MAX || h > DECODE_SIDE_MAX || w * h > DECODE_PIXELS_MAX)
		return err_set(e, ERR_CORRUPT, "an image of %llux%llu; at most %d a side and %llu pixels are decoded",
			(unsigned long long)w, (unsigned long long)h, DECODE_SIDE_MAX, (unsigned long long)DECODE_PIXELS_MAX);
	sample_window(s, (size_t)h, (size_t)w, v);
	s->p = NULL;
	s->p = sample_room(s, v->w * v->h * channels);
	s->c = channels;
	s->h = v->h;
	s->w = v->w;
	s->full_h = (size_t)h;
	s->full_w = (size_t)w;
	s->top = v->y;
	s->left = v->x;
	s->bytes = true;
	return 0;
}

#ifdef __x86_64__
/* 16 pixels at a time: of each of three registers the bytes of one colour, put together. */
__attribute__((target("ssse3")))
static size_t apart(const uint8_t *row, size_t n, uint8_t *r, uint8_t *g, uint8_t *b)
{
	static const int8_t pick[3][3][16] = {
		{ { 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13 } },
		{ { 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14 } },
		{ { 2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1 },
		  { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15 } } };
	uint8_t *const to[3] = { r, g, b };
	size_t x = 0;

	for (; x + 16 <= n; x += 16, row += 48) {
		__m128i v[3];

#pragma GCC unroll 3
		for (int i = 0; i < 3; i++)
			v[i] = _mm_loadu_si128((const __m128i *)(row + 16 * i));
#pragma GCC unroll 3
		for (int c = 0; c < 3; c++) {
			__m128i sum = _mm_setzero_si128();

#pragma GCC unroll 3
			for (int i = 0; i < 3; i++)
				sum = _mm_or_si128(sum, _mm_shuffle_epi8(v[i], _mm_loadu_si128((const __m128i *)pick[c][i])));
			_mm_storeu_si128((__m128i *)(to[c] + x), sum);
		}
	}
	return x;
}
#endif

void decode_row(struct sample *s, size_t y, const uint8_t *row)
{
	uint8_t *to = (uint8_t *)s->p + y * s->w;
	size_t plane = s->h * s->w, x = 0;

	if (s->c == 1) {
		memcpy(to, row, s->w);
		return;
	}
#ifdef __x86_64__
	if (__builtin_cpu_supports("ssse3"))
		x = apart(row, s->w, to, to + plane, to + 2 * plane);
#endif
	for (row += 3 * x; x < s->w; x++, row += 3) {
		to[x] = row[0];
		to[plane + x] = row[1];
		to[2 * plane + x] = row[2];
	}
}

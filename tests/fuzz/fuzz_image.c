/* JPEG and PNG files: what is decoded has the size that it says, what is not has a reason. */
#include <stdlib.h>
#include <string.h>
#include "train/data/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A piece of it: as in the whole, when the whole can be decoded. */
static void piece(const uint8_t *data, size_t size, const struct sample *all)
{
	struct spec_step st = { .ops = step_find("crop"), .h = 1 + (uint32_t)(size % 7), .w = 1 + (uint32_t)(size % 11) };
	struct sample s = { .first = &st, .key = size, .train = true }, want;
	struct window v;
	struct err e;

	if (!image_decode(data, size, all->c, &s, &e) && s.full_h == all->h && s.full_w == all->w) {
		want = *all;
		want.room[0] = want.room[1] = NULL;
		want.cap[0] = want.cap[1] = 0;
		want.decoder = NULL;
		v = (struct window){ s.top, s.left, s.h, s.w };
		sample_cut(&want, &v);
		if (memcmp(want.p, s.p, sample_count(&s)))
			abort();
		free(want.room[0]);
		free(want.room[1]);
	}
	sample_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (size_t channels = 1; channels <= 3; channels += 2) {
		struct sample s = { .room = { NULL } };
		struct err e = { .code = ERR_NONE };
		unsigned sum = 0;

		if (image_decode(data, size, channels, &s, &e)) {
			if (!e.text[0])
				abort();
		} else {
			if (s.c != channels || sample_count(&s) > DECODE_PIXELS_MAX * channels)
				abort();
			for (size_t i = 0; i < sample_count(&s); i++)
				sum += ((uint8_t *)s.p)[i];
			if (sum > sample_count(&s) * 255)
				abort();
			piece(data, size, &s);
		}
		sample_free(&s);
	}
	return 0;
}

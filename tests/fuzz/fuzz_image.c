/* JPEG and PNG files: what is decoded has the size that it says, what is not has a reason. */
#include <stdlib.h>
#include "train/data/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
		}
		sample_free(&s);
	}
	return 0;
}

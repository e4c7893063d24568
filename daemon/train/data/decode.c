/* Images: by their first bytes, not by their names. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "train/data/decode.h"

bool image_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
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

void sample_free(struct sample *s)
{
	free(s->room[0]);
	free(s->room[1]);
	free(s->file);
	if (s->decoder)
		decode_jpeg_end(s->decoder);
}

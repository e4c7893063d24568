/* flip: in training left and right change places with chance 1/2. */
#include <string.h>
#include "common/rng.h"
#include "train/step.h"

static int read_(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const known[] = { "type", NULL };

	return read_known(o, at, known, e);
}

static int run(const struct spec_step *st, struct sample *s, uint64_t key, bool train, struct err *e)
{
	size_t w = s->w;

	if (!train || !(rng_at(key, 0) & 1))
		return 0;
	for (size_t r = 0; r < s->c * s->h; r++)
		for (size_t c = 0; c < w / 2; c++) {
			if (s->bytes) {
				uint8_t *x = (uint8_t *)s->p + r * w, t = x[c];

				x[c] = x[w - 1 - c];
				x[w - 1 - c] = t;
			} else {
				real *x = (real *)s->p + r * w, t = x[c];

				x[c] = x[w - 1 - c];
				x[w - 1 - c] = t;
			}
		}
	return 0;
}

const struct step_ops step_flip = { "flip", "left and right change places with chance 1/2, in training",
	true, false, false, read_, run };

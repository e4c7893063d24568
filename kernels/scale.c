/* Dynamic loss scaling: the rule. */
#include "kernels/scale.h"
#include <math.h>

bool scale_ok(double scale)
{
	int exponent;

	return scale >= 1 && scale <= SCALE_MAX && frexp(scale, &exponent) == 0.5;
}

void scale_step(struct scale *s, bool overflowed, uint32_t interval)
{
	if (overflowed) {
		s->scale = s->scale > 2 ? s->scale / 2 : 1;
		s->good = 0;
	} else if (++s->good >= interval) {
		s->scale = s->scale < SCALE_MAX ? 2 * s->scale : SCALE_MAX;
		s->good = 0;
	}
}

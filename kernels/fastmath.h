/* exp, sigmoid and tanh that loops can vectorise, in plain arithmetic: within 2 units in the last place of float32.
 * In double they are libm's, which the gradient checks use. NaN stays NaN, infinities give the limits. */
#ifndef KERNELS_FASTMATH_H
#define KERNELS_FASTMATH_H
#include <math.h>
#include <string.h>
#include "kernels/real.h"

#define FAST static inline __attribute__((always_inline))

#ifdef REAL_DOUBLE
FAST real fast_sigmoid(real x) { return 1 / (1 + exp(-x)); }
FAST real fast_tanh(real x) { return tanh(x); }
FAST real fast_exp_negative(real x) { return exp(x); }
FAST real fast_erf_of(real x, real e) { return erf(x); }
#else
/* S. Moshier's Cephes: x = n ln 2 + r, a polynomial for r, n put into the exponent. For x <= 0 only. */
FAST float fast_exp_negative(float x)
{
	const float shift = 12582912.0f;        /* 1.5 2^23: adding it rounds to a whole number */
	float n, r, p, scale;
	uint32_t u;

	x = x < -87.0f ? -87.0f : x;
	n = x * 1.44269504088896341f + shift;
	memcpy(&u, &n, sizeof u);
	n = n - shift;
	r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
	p = 1.9875691500e-4f;
	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = (p * (r * r) + r) + 1.0f;
	u = (u << 23) + 0x3f800000u;            /* the low bits of n + shift are n */
	memcpy(&scale, &u, sizeof scale);
	return p * scale;
}

FAST float fast_sigmoid(float x)
{
	float a = x < 0 ? x : -x, e = fast_exp_negative(a), y = 1.0f / (1.0f + e);

	return x < 0 ? e * y : y;
}

FAST float fast_tanh(float x)
{
	float a = x < 0 ? -x : x, z = x * x, small, e, big;

	small = -5.70498872745e-3f;
	small = small * z + 2.06390887954e-2f;
	small = small * z - 5.37397155531e-2f;
	small = small * z + 1.33314422036e-1f;
	small = small * z - 3.33332819422e-1f;
	small = small * z * x + x;
	e = fast_exp_negative(-2.0f * a);
	big = (1.0f - e) / (1.0f + e);
	big = x < 0 ? -big : big;
	return a < 0.625f ? small : big;
}

/* Abramowitz and Stegun 7.1.26: within 1.5e-7 absolutely. e: exp(-x x), which the caller may want as well. */
FAST float fast_erf_of(float x, float e)
{
	float a = x < 0 ? -x : x, t = 1.0f / (1.0f + 0.3275911f * a), p;

	p = 1.061405429f;
	p = p * t - 1.453152027f;
	p = p * t + 1.421413741f;
	p = p * t - 0.284496736f;
	p = p * t + 0.254829592f;
	p = 1.0f - p * t * e;
	return x < 0 ? -p : p;
}
#endif

FAST real fast_erf(real x) { return fast_erf_of(x, fast_exp_negative(-x * x)); }

#endif

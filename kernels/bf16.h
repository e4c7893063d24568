/* bfloat16: the upper half of a float. */
#ifndef KERNELS_BF16_H
#define KERNELS_BF16_H
#include <stdint.h>
#include <string.h>

/* Rounded to nearest, halfway to even; NaN stays NaN. */
static inline __attribute__((always_inline)) uint16_t bf16_of(float f)
{
	uint32_t u, r;

	memcpy(&u, &f, sizeof u);
	r = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
	return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16 | 0x40u) : r);
}

static inline __attribute__((always_inline)) float bf16_to_float(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

#endif

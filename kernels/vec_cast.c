/* Casts between real and the 16-bit formats, by integer arithmetic: the same bits with or without F16C. */
#include <string.h>
#include "kernels/bf16.h"
#include "kernels/isa.h"
#include "kernels/vec.h"

#define SERIAL_MAX 32768
#define GRAIN 1024

struct args { const void *in; void *out; };

static inline __attribute__((always_inline)) uint32_t bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return u;
}

static inline __attribute__((always_inline)) float float_of(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof f);
	return f;
}

/* Round to nearest even. Numbers below 2^-14 are rounded by the adder: 0.5 aligns their last bit with the half's. */
static inline __attribute__((always_inline)) uint16_t half_of(float f)
{
	uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
	uint32_t small = bits_of(float_of(mag) + 0.5f) - 0x3f000000u;
	/* Exponent bias from 127 to 15, and half a unit in the last place less one bit, more when odd. */
	uint32_t normal = (mag + 0xc8000fffu + (mag >> 13 & 1)) >> 13;
	uint32_t big = mag > 0x7f800000u ? 0x7e00u : 0x7c00u;
	uint32_t h = mag >= 0x47800000u ? big : mag < 0x38800000u ? small : normal;

	return (uint16_t)(sign | h);
}

static inline __attribute__((always_inline)) float float_of_half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fffu;
	uint32_t normal = (mag << 13) + 0x38000000u;
	uint32_t big = (mag << 13) | 0x7f800000u;
	uint32_t small = bits_of((float)(int32_t)mag * 0x1p-24f);
	uint32_t u = mag >= 0x7c00u ? big : mag < 0x400u ? small : normal;

	return float_of(sign | u);
}

ISA_BODY to_f16_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *restrict x = s->in;
	uint16_t *restrict h = s->out;

	for (size_t i = lo; i < hi; i++)
		h[i] = half_of((float)x[i]);
}
ISA_KERNEL(to_f16);

ISA_BODY from_f16_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const uint16_t *restrict h = s->in;
	real *restrict x = s->out;

	for (size_t i = lo; i < hi; i++)
		x[i] = (real)float_of_half(h[i]);
}
ISA_KERNEL(from_f16);

ISA_BODY round_f16_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->in;
	real *y = s->out;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = (real)float_of_half(half_of((float)x[i]));
}
ISA_KERNEL(round_f16);

ISA_BODY to_bf16_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *restrict x = s->in;
	uint16_t *restrict h = s->out;

	for (size_t i = lo; i < hi; i++)
		h[i] = bf16_of((float)x[i]);
}
ISA_KERNEL(to_bf16);

ISA_BODY round_bf16_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->in;
	real *y = s->out;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = (real)bf16_to_float(bf16_of((float)x[i]));
}
ISA_KERNEL(round_bf16);

ISA_BODY from_bf16_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const uint16_t *restrict h = s->in;
	real *restrict x = s->out;

	for (size_t i = lo; i < hi; i++)
		x[i] = (real)bf16_to_float(h[i]);
}
ISA_KERNEL(from_bf16);

ISA_BODY to_f32_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *restrict x = s->in;
	float *restrict f = s->out;

	for (size_t i = lo; i < hi; i++)
		f[i] = (float)x[i];
}
ISA_KERNEL(to_f32);

ISA_BODY from_f32_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const float *restrict f = s->in;
	real *restrict x = s->out;

	for (size_t i = lo; i < hi; i++)
		x[i] = (real)f[i];
}
ISA_KERNEL(from_f32);

void vec_to_f16(const struct par *par, size_t n, const real *x, uint16_t *h)
{
	isa_run(par, &to_f16, &(struct args){ x, h }, n, GRAIN, SERIAL_MAX);
}

void vec_from_f16(const struct par *par, size_t n, const uint16_t *h, real *x)
{
	isa_run(par, &from_f16, &(struct args){ h, x }, n, GRAIN, SERIAL_MAX);
}

void vec_to_bf16(const struct par *par, size_t n, const real *x, uint16_t *h)
{
	isa_run(par, &to_bf16, &(struct args){ x, h }, n, GRAIN, SERIAL_MAX);
}

void vec_from_bf16(const struct par *par, size_t n, const uint16_t *h, real *x)
{
	isa_run(par, &from_bf16, &(struct args){ h, x }, n, GRAIN, SERIAL_MAX);
}

void vec_round_f16(const struct par *par, size_t n, const real *x, real *y)
{
	isa_run(par, &round_f16, &(struct args){ x, y }, n, GRAIN, SERIAL_MAX);
}

void vec_round_bf16(const struct par *par, size_t n, const real *x, real *y)
{
	isa_run(par, &round_bf16, &(struct args){ x, y }, n, GRAIN, SERIAL_MAX);
}

void vec_to_f32(const struct par *par, size_t n, const real *x, float *f)
{
	isa_run(par, &to_f32, &(struct args){ x, f }, n, GRAIN, SERIAL_MAX);
}

void vec_from_f32(const struct par *par, size_t n, const float *f, real *x)
{
	isa_run(par, &from_f32, &(struct args){ f, x }, n, GRAIN, SERIAL_MAX);
}

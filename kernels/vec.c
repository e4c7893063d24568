/* Elementwise vector kernels. Same-or-disjoint operands: hence ISA_INDEPENDENT instead of restrict. */
#include "kernels/vec.h"
#include <string.h>
#include "kernels/isa.h"

#define SERIAL_MAX 32768        /* below this, waking the team costs more than it saves */
#define GRAIN 1024

struct args { const real *x, *z; real *y; real a; double da; int first; };

ISA_BODY fill_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	real *y = s->y, a = s->a;

	for (size_t i = lo; i < hi; i++)
		y[i] = a;
}
ISA_KERNEL(fill);

ISA_BODY scale_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	real *y = s->y, a = s->a;

	for (size_t i = lo; i < hi; i++)
		y[i] = y[i] * a;
}
ISA_KERNEL(scale);

ISA_BODY axpy_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x;
	real *y = s->y, a = s->a;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = y[i] + a * x[i];
}
ISA_KERNEL(axpy);

ISA_BODY sub_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x, *z = s->z;
	real *y = s->y;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = x[i] - z[i];
}
ISA_KERNEL(sub);

ISA_BODY lerp_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x;
	real *y = s->y, a = s->a;

	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++)
		y[i] = y[i] + a * (x[i] - y[i]);
}
ISA_KERNEL(lerp);

/* The product is taken in double and rounded once, so that equal members give equal terms whatever alpha is. */
ISA_BODY mean_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	const real *x = s->x;
	real *y = s->y;
	double a = s->da;

	if (s->first) {
		ISA_INDEPENDENT
		for (size_t i = lo; i < hi; i++)
			y[i] = (real)(a * (double)x[i]);
		return;
	}
	ISA_INDEPENDENT
	for (size_t i = lo; i < hi; i++) {
		real t = (real)(a * (double)x[i]);

		y[i] = y[i] + t;
	}
}
ISA_KERNEL(mean);

ISA_BODY clamp_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;
	real *y = s->y, a = s->a;

	for (size_t i = lo; i < hi; i++) {      /* comparisons with NaN are false: it stays */
		real t = y[i] > a ? a : y[i];

		y[i] = t < -a ? -a : t;
	}
}
ISA_KERNEL(clamp);

ISA_BODY copy_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;

	memcpy(s->y + lo, s->x + lo, (hi - lo) * sizeof(real));
}
ISA_KERNEL(copy);

void vec_fill(const struct par *par, size_t n, real value, real *x)
{
	isa_run(par, &fill, &(struct args){ .y = x, .a = value }, n, GRAIN, SERIAL_MAX);
}

void vec_copy(const struct par *par, size_t n, const real *x, real *y)
{
	if (x != y)
		isa_run(par, &copy, &(struct args){ .x = x, .y = y }, n, GRAIN, SERIAL_MAX);
}

void vec_scale(const struct par *par, size_t n, double a, real *x)
{
	isa_run(par, &scale, &(struct args){ .y = x, .a = (real)a }, n, GRAIN, SERIAL_MAX);
}

void vec_axpy(const struct par *par, size_t n, double a, const real *x, real *y)
{
	isa_run(par, &axpy, &(struct args){ .x = x, .y = y, .a = (real)a }, n, GRAIN, SERIAL_MAX);
}

void vec_sub(const struct par *par, size_t n, const real *a, const real *b, real *y)
{
	isa_run(par, &sub, &(struct args){ .x = a, .z = b, .y = y }, n, GRAIN, SERIAL_MAX);
}

void vec_lerp(const struct par *par, size_t n, double t, const real *x, real *y)
{
	isa_run(par, &lerp, &(struct args){ .x = x, .y = y, .a = (real)t }, n, GRAIN, SERIAL_MAX);
}

void vec_mean_add(const struct par *par, size_t n, double alpha, const real *x, real *acc, int first)
{
	isa_run(par, &mean, &(struct args){ .x = x, .y = acc, .da = alpha, .first = first }, n, GRAIN, SERIAL_MAX);
}

void vec_clip_value(const struct par *par, size_t n, double limit, real *x)
{
	isa_run(par, &clamp, &(struct args){ .y = x, .a = (real)limit }, n, GRAIN, SERIAL_MAX);
}

double vec_clip_factor(double norm, double max_norm)
{
	double factor = max_norm / (norm + 1e-6);

	return factor < 1 && factor > 0 ? factor : 1;   /* an infinite norm gives 0 and must not erase the evidence */
}

double vec_clip_norm(const struct par *par, size_t n, double max_norm, real *x)
{
	double norm = vec_norm2(par, n, x), factor = vec_clip_factor(norm, max_norm);

	if (factor < 1)
		vec_scale(par, n, factor, x);
	return norm;
}

/* Activations: every value by itself. CURVE(name, of x) and CURVE_SLOPE(name, of v and the gradient d) make the loops,
 * for each instruction set; v is the layer's output (needs_y: it may work in place) or its input (needs_x). */
#ifndef KERNELS_LAYER_CURVE_H
#define KERNELS_LAYER_CURVE_H
#include "kernels/fastmath.h"
#include "kernels/isa.h"
#include "kernels/layer.h"

#define CURVE_INLINE static inline __attribute__((always_inline)) real

struct curve_args { const real *v, *d; real *to; };

#define CURVE(name, of_x) \
	ISA_BODY name##_body(const void *args, size_t lo, size_t hi) \
	{ \
		const struct curve_args *s = args; \
		const real *from = s->v; \
		real *to = s->to; \
		ISA_INDEPENDENT \
		for (size_t i = lo; i < hi; i++) { \
			real x = from[i]; \
			to[i] = of_x; \
		} \
	} \
	ISA_KERNEL(name)

#define CURVE_SLOPE(name, of_v_and_d) \
	ISA_BODY name##_body(const void *args, size_t lo, size_t hi) \
	{ \
		const struct curve_args *s = args; \
		const real *from = s->v, *grad = s->d; \
		real *to = s->to; \
		ISA_INDEPENDENT \
		for (size_t i = lo; i < hi; i++) { \
			real v = from[i], d = grad[i]; \
			to[i] = of_v_and_d; \
		} \
	} \
	ISA_KERNEL(name)

/* Values that are worth a thread of their own. */
enum { CURVE_HEAVY = 8192 /* an exponential each */, CURVE_LIGHT = 32768 };

static inline int curve_shape(struct layer *l, struct kerr *e)
{
	l->out = l->in;
	return 0;
}

static inline void curve_forward(const struct par *par, const struct layer_call *c, const struct isa *k,
	size_t worth)
{
	isa_run(par, k, &(struct curve_args){ .v = c->x, .to = c->y }, c->batch * shape_count(&c->l->in), 1024, worth);
}

static inline void curve_backward(const struct par *par, const struct layer_call *c, const struct isa *k,
	const real *v, size_t worth)
{
	if (c->dx)
		isa_run(par, k, &(struct curve_args){ .v = v, .d = c->dy, .to = c->dx }, c->batch * shape_count(&c->l->in),
			1024, worth);
}

#endif

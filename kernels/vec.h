/* Flat vectors: what averaging, clipping and optimizers need. Bit-exact on every CPU: compiled with
 * -ffp-contract=off, only + - x / sqrt in the stated order, no libm in the element loop; reductions over blocks of
 * 1024 elements with 16 lanes in double, lanes summed by a fixed binary tree, blocks by a fixed binary tree that
 * depends on n alone. Equal bytes for every par->n and par->cpu.
 *
 * n counts elements. Vectors need no alignment. Two vectors are the same or do not overlap. Nothing here fails. */
#ifndef KERNELS_VEC_H
#define KERNELS_VEC_H
#include "kernels/par.h"

void vec_fill(const struct par *, size_t n, real value, real *x);
void vec_copy(const struct par *, size_t n, const real *x, real *y);                    /* y = x */
void vec_scale(const struct par *, size_t n, double a, real *x);                        /* x = x * (real)a */
void vec_axpy(const struct par *, size_t n, double a, const real *x, real *y);          /* y = y + (real)a * x */
void vec_sub(const struct par *, size_t n, const real *a, const real *b, real *y);      /* y = a - b */
void vec_lerp(const struct par *, size_t n, double t, const real *x, real *y);          /* y = y + (real)t * (x - y) */

/* One member's term of a weighted mean, in fp32 (real): t = (real)(alpha * (double)x); first: acc = t, else
 * acc = acc + t. Call in member order. alpha_i = w_i / sum(w) in double; alpha = 1 keeps the bits of x. */
void vec_mean_add(const struct par *, size_t n, double alpha, const real *x, real *acc, int first);

double vec_dot(const struct par *, size_t n, const real *x, const real *y);             /* products in double */
double vec_sum(const struct par *, size_t n, const real *x);
double vec_norm2(const struct par *, size_t n, const real *x);                          /* sqrt of the sum of squares */
double vec_max_abs(const struct par *, size_t n, const real *x);                        /* 0 for n = 0; NaN ignored */

/* PyTorch's clip_grad_norm_: factor = max_norm / (norm + 1e-6), applied when below 1. Returns the norm before.
 * A norm that is not finite leaves x as it is. */
double vec_clip_norm(const struct par *, size_t n, double max_norm, real *x);
double vec_clip_factor(double norm, double max_norm);                           /* 1: it stays as it is */
void vec_clip_value(const struct par *, size_t n, double limit, real *x);               /* NaN stays NaN */

/* Index of the first element that is NaN or infinite; n when all are finite. */
size_t vec_nonfinite(const struct par *, size_t n, const real *x);

/* Casts. f16 is IEEE binary16 (overflow becomes infinity), bf16 the upper half of binary32; both round to nearest
 * even and keep NaN. */
void vec_to_f16(const struct par *, size_t n, const real *x, uint16_t *h);
void vec_from_f16(const struct par *, size_t n, const uint16_t *h, real *x);
void vec_to_bf16(const struct par *, size_t n, const real *x, uint16_t *h);
void vec_from_bf16(const struct par *, size_t n, const uint16_t *h, real *x);
/* there and back; y may be x */
void vec_round_f16(const struct par *, size_t n, const real *x, real *y);
void vec_round_bf16(const struct par *, size_t n, const real *x, real *y);
void vec_to_f32(const struct par *, size_t n, const real *x, float *f);
void vec_from_f32(const struct par *, size_t n, const float *f, real *x);

#endif

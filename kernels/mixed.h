/* Mixed precision (Micikevicius et al., "Mixed Precision Training", ICLR 2018; with bfloat16: Kalamkar et al.,
 * arXiv:1905.12322): products of 16-bit operands, summed in single precision, over master weights, activations,
 * gradients and an optimizer in single precision.
 *
 * The rule: a layer that multiplies (layer_ops.multiplies) sees what it multiplies, which is its inputs, its first
 * parameter tensor and the gradient of its output, each number rounded to nearest even; what it makes is not rounded,
 * nor is a bias. Every product of two such numbers is exact in single precision. Layers that do not multiply work as
 * ever. In halves what is larger than 65 504 becomes infinite, and gradients are scaled (kernels/scale.h). In bf16 with
 * par->dot a layer that packs (layer_ops.packs) rounds as it packs, and sums as kernels/gemm_bf16.h says.
 * Else precision changes values that enter products and nothing else: with the same operands the bits of a layer
 * are those that it makes in single precision, on the same kind of CPU, and with the reference on every CPU. */
#ifndef KERNELS_MIXED_H
#define KERNELS_MIXED_H
#include "kernels/layer.h"

/* y = x rounded; y may be x. PRECISION_FP32: a copy. */
void mixed_round(const struct par *par, enum precision p, size_t n, const real *x, real *y);
/* Bytes in front of a call's scratch for its rounded operands; a multiple of 64. 0 where nothing is rounded. */
size_t mixed_bytes(const struct layer *l, size_t batch, bool backward);
/* The same call with its operands rounded into the first mixed_bytes() of its scratch, which begins behind them. */
struct layer_call mixed_call(const struct par *par, const struct layer_call *c, bool backward);

#endif

/* The rows of softmax cross entropy, for the losses that weigh them. */
#ifndef KERNELS_LOSS_CROSS_ENTROPY_H
#define KERNELS_LOSS_CROSS_ENTROPY_H
#include "kernels/layer.h"

int cross_entropy_check(const struct shape *out, struct kerr *e);
void cross_entropy_rows(const struct loss_call *c, size_t lo, size_t hi, double *sum, double *right);

#endif

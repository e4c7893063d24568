/* Losses in double, where PyTorch's values are met to 1e-11. */
#include "test_kernels_losses.c"

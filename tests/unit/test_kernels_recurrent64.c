/* Recurrences through 64 steps in double, where PyTorch's float64 is met to 1e-11. */
#include "test_kernels_recurrent.c"

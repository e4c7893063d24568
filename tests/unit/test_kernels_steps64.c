/* Two hundred steps in double, where PyTorch is followed to 1e-12. */
#include "test_kernels_steps.c"

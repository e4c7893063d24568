/* One training step of ResNet-18 in double, where PyTorch's float64 is met to 1e-9. */
#include "test_kernels_resnet.c"

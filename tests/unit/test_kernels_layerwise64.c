/* LARS and LAMB in double, where the papers' values are met to 1e-12. */
#include "test_kernels_layerwise.c"

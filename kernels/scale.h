/* Dynamic loss scaling (Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2): the gradient of the
 * loss is multiplied by `scale` before it goes back through products of halves, whose least number is 2^-24, and what
 * comes of it is divided by it. A scale is a power of two: neither rounds. A step whose gradient is not finite is left
 * out and halves it, down to 1; `interval` steps in a row that are made double it, up to SCALE_MAX. */
#ifndef KERNELS_SCALE_H
#define KERNELS_SCALE_H
#include <stdbool.h>
#include <stdint.h>

#define SCALE_MAX 16777216.0            /* 2^24: what the least half stands for is then 1 */
#define SCALE_INIT 65536.0
#define SCALE_INTERVAL 2000

struct scale { double scale; uint64_t good; };  /* good: steps since it changed */

bool scale_ok(double scale);            /* a power of two from 1 to SCALE_MAX */
void scale_step(struct scale *s, bool overflowed, uint32_t interval);

#endif

/* A micro-batch in memory: what LOAD brings and FWD, the loss and COMMIT go by. Whoever loads it owns it. */
#ifndef EXEC_BATCH_H
#define EXEC_BATCH_H
#include <stdbool.h>
#include <stdint.h>
#include "common/list.h"
#include "kernels/real.h"

struct batch {
	struct list link;
	uint32_t n;                             /* samples */
	uint64_t *position;                     /* n, ascending */
	real *x; void *y;
	uint64_t took_us;                       /* read and prepare */
	bool counted;                           /* its owner's mark: the samples have been accounted for */
};

#endif

/* One bump arena with a stated budget: memory claims are exact numbers, not resident sizes (instrument T5). It fails
 * over its budget and records its peak. Under ASan everything not handed out is poisoned, with a red zone behind
 * each piece, so that a kernel's overrun is seen. */
#ifndef KERNELS_ARENA_H
#define KERNELS_ARENA_H
#include "kernels/real.h"

#define ARENA_ALIGN 64

struct arena {
	unsigned char *base;
	size_t budget;          /* bytes it may hand out, rounded up per piece to ARENA_ALIGN */
	size_t used, peak;      /* bytes handed out now, and at most since arena_init */
	size_t top, cap;        /* with red zones */
};
struct arena_mark { size_t used, top; };

int arena_init(struct arena *a, size_t budget, struct kerr *e);         /* reserves it; the only allocation */
void arena_done(struct arena *a);
/* NULL and e when it would exceed the budget. 64-byte aligned, contents undefined. bytes = 0 gives a valid pointer. */
void *arena_alloc(struct arena *a, size_t bytes, const char *what, struct kerr *e);
struct arena_mark arena_mark(const struct arena *a);
void arena_release(struct arena *a, struct arena_mark m);               /* everything since the mark */
void arena_reset(struct arena *a);                                      /* everything; the peak stays */
static inline size_t arena_round(size_t bytes) { return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }

#endif

/* The number that kernels compute with: float in the daemon, double in lib_kernels64, where the tests check
 * gradients by central differences. Same sources, same results up to precision. Nothing here does I/O, logs, reads
 * a clock, starts a thread or keeps a mutable global. */
#ifndef KERNELS_REAL_H
#define KERNELS_REAL_H
#include <stddef.h>
#include <stdint.h>

#ifdef REAL_DOUBLE
typedef double real;
#define REAL_NAME "float64"
#else
typedef float real;
#define REAL_NAME "float32"
#endif

/* What was wrong, where, and what would be right. kernels/ knows nothing of common/, so it has its own. */
struct kerr { char text[256]; };
/* Returns -1; e may be NULL. */
int kerr_set(struct kerr *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Per-sample shape, outermost first: an image is {3, {channels, height, width}}. The batch is never part of it. */
#define SHAPE_MAX 4
struct shape { int nd; size_t d[SHAPE_MAX]; };
size_t shape_count(const struct shape *s);                      /* elements; 1 for nd = 0 */
const char *shape_text(const struct shape *s, char *out, size_t cap);   /* "[8, 3, 3]"; returns out */

#endif

/* Reductions with one fixed order: 1024-element blocks, 16 lanes in double, binary trees. To let a team share the
 * work without changing the order, the blocks are cut into at most 256 chunks of 2^k blocks: each chunk is a whole
 * subtree, so the result depends on n alone. */
#include "kernels/vec.h"
#include <math.h>
#include "kernels/isa.h"
#include "kernels/tree.h"

#define BLOCK TREE_BLOCK
#define LANES TREE_LANES
#define CHUNKS_MAX TREE_CHUNKS
#define SERIAL_CHUNKS 32

struct args { const real *x, *y; size_t n, chunk; /* blocks */ double *part; size_t *where; };

static inline __attribute__((always_inline)) double block_sum(const real *x, size_t n)
{
	double lane[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int j = 0; j < LANES; j++)
			lane[j] += (double)x[i + j];
	for (int j = 0; i + j < n; j++)
		lane[j] += (double)x[i + j];
	return lanes_total(lane);
}

static inline __attribute__((always_inline)) void sum_chunks(const struct args *s, size_t lo, size_t hi, int product)
{
	for (size_t c = lo; c < hi; c++) {
		struct tree t = { .top = 0 };
		size_t at = c * s->chunk * BLOCK, end = at + s->chunk * BLOCK;

		if (end > s->n)
			end = s->n;
		for (; at < end; at += BLOCK) {
			size_t len = end - at < BLOCK ? end - at : BLOCK;

			tree_push(&t, product ? tree_block_dot(s->x + at, s->y + at, len) : block_sum(s->x + at, len));
		}
		s->part[c] = tree_total(&t);
	}
}

ISA_BODY dot_body(const void *v, size_t lo, size_t hi) { sum_chunks(v, lo, hi, 1); }
ISA_KERNEL(dot);
ISA_BODY sum_body(const void *v, size_t lo, size_t hi) { sum_chunks(v, lo, hi, 0); }
ISA_KERNEL(sum);

ISA_BODY max_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;

	for (size_t c = lo; c < hi; c++) {
		size_t at = c * s->chunk * BLOCK, end = at + s->chunk * BLOCK;
		const real *x = s->x;
		real m = 0;

		if (end > s->n)
			end = s->n;
		for (; at < end; at++) {
			real a = x[at] < 0 ? -x[at] : x[at];

			m = a > m ? a : m;
		}
		s->part[c] = (double)m;
	}
}
ISA_KERNEL(max);

/* x - x is 0 for every finite x and NaN for the others. */
ISA_BODY bad_body(const void *v, size_t lo, size_t hi)
{
	const struct args *s = v;

	for (size_t c = lo; c < hi; c++) {
		size_t at = c * s->chunk * BLOCK, end = at + s->chunk * BLOCK;
		const real *x = s->x;

		if (end > s->n)
			end = s->n;
		s->where[c] = s->n;
		for (; at < end && s->where[c] == s->n; at += BLOCK) {
			size_t len = end - at < BLOCK ? end - at : BLOCK;
			int bad = 0;

			for (size_t i = at; i < at + len; i++)
				bad |= x[i] - x[i] != 0;
			for (size_t i = at; bad && i < at + len; i++)
				if (x[i] - x[i] != 0) {
					s->where[c] = i;
					break;
				}
		}
	}
}
ISA_KERNEL(bad);

static double reduce(const struct par *par, const struct isa *k, size_t n, const real *x, const real *y)
{
	double part[CHUNKS_MAX];
	struct args s = { .x = x, .y = y, .n = n, .part = part };
	size_t chunks = tree_cut(n, &s.chunk);
	struct tree t = { .top = 0 };

	isa_run(par, k, &s, chunks, 1, SERIAL_CHUNKS);
	for (size_t i = 0; i < chunks; i++)
		tree_push(&t, part[i]);
	return tree_total(&t);
}

double vec_dot(const struct par *par, size_t n, const real *x, const real *y)
{
	return reduce(par, &dot, n, x, y);
}

double vec_sum(const struct par *par, size_t n, const real *x)
{
	return reduce(par, &sum, n, x, x);
}

double vec_norm2(const struct par *par, size_t n, const real *x)
{
	return sqrt(vec_dot(par, n, x, x));
}

double vec_max_abs(const struct par *par, size_t n, const real *x)
{
	double part[CHUNKS_MAX], m = 0;
	struct args s = { .x = x, .n = n, .part = part };
	size_t chunks = tree_cut(n, &s.chunk);

	isa_run(par, &max, &s, chunks, 1, SERIAL_CHUNKS);
	for (size_t i = 0; i < chunks; i++)
		m = part[i] > m ? part[i] : m;
	return m;
}

size_t vec_nonfinite(const struct par *par, size_t n, const real *x)
{
	size_t where[CHUNKS_MAX];
	struct args s = { .x = x, .n = n, .where = where };
	size_t chunks = tree_cut(n, &s.chunk);

	isa_run(par, &bad, &s, chunks, 1, SERIAL_CHUNKS);
	for (size_t i = 0; i < chunks; i++)
		if (where[i] < n)
			return where[i];
	return n;
}

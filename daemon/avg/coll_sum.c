/* Sums, maxima and means of elements of every type, member after member, so that the bytes are the same wherever they
 * are computed: floats and doubles in their own precision, the halves in float with one rounding at the end, whole
 * numbers modulo their width. */
#include <string.h>
#include "avg/coll_int.h"
#include "kernels/vec.h"

#define BLOCK 4096

size_t coll_size(enum coll_type type)
{
	static const size_t bytes[] = { [COLL_F32] = 4, [COLL_F64] = 8, [COLL_I32] = 4, [COLL_I64] = 8, [COLL_F16] = 2,
		[COLL_BF16] = 2 };
	return bytes[type];
}

static void floats(enum coll_op op, const struct par *par, size_t n, const float *x, float *acc)
{
	if (op != COLL_MAX) {
		vec_axpy(par, n, 1, x, acc);
		return;
	}
	for (size_t k = 0; k < n; k++)          /* NaN wins, whoever brings it */
		acc[k] = acc[k] != acc[k] || acc[k] > x[k] ? acc[k] : x[k];
}

static void doubles(enum coll_op op, size_t n, const double *x, double *acc)
{
	for (size_t k = 0; k < n && op == COLL_MAX; k++)
		acc[k] = acc[k] != acc[k] || acc[k] > x[k] ? acc[k] : x[k];
	for (size_t k = 0; k < n && op != COLL_MAX; k++)
		acc[k] += x[k];
}

static void ints(enum coll_op op, size_t n, const int32_t *x, int32_t *acc)
{
	for (size_t k = 0; k < n && op == COLL_MAX; k++)
		acc[k] = acc[k] > x[k] ? acc[k] : x[k];
	for (size_t k = 0; k < n && op != COLL_MAX; k++)
		acc[k] = (int32_t)((uint32_t)acc[k] + (uint32_t)x[k]);
}

static void longs(enum coll_op op, size_t n, const int64_t *x, int64_t *acc)
{
	for (size_t k = 0; k < n && op == COLL_MAX; k++)
		acc[k] = acc[k] > x[k] ? acc[k] : x[k];
	for (size_t k = 0; k < n && op != COLL_MAX; k++)
		acc[k] = (int64_t)((uint64_t)acc[k] + (uint64_t)x[k]);
}

/* What the halves are added in. */
static void widen(enum coll_type type, const struct par *par, size_t n, const void *x, float *wide)
{
	(type == COLL_F16 ? vec_from_f16 : vec_from_bf16)(par, n, x, wide);
}

static void divide(enum coll_type type, size_t n, uint32_t members, void *acc)
{
	for (size_t k = 0; k < n; k++)
		switch (type) {
		case COLL_F64: ((double *)acc)[k] /= members; break;
		case COLL_I32: ((int32_t *)acc)[k] = (int32_t)(((int32_t *)acc)[k] / (int64_t)members); break;
		case COLL_I64: ((int64_t *)acc)[k] /= (int64_t)members; break;
		default: ((float *)acc)[k] /= (float)members;
		}
}

static void add(enum coll_type type, enum coll_op op, const struct par *par, size_t n, const void *x, bool first,
	void *acc)
{
	float wide[BLOCK];
	bool half = type == COLL_F16 || type == COLL_BF16;
	if (half) {
		widen(type, par, n, x, first ? acc : wide);
		x = wide;
	}
	if (first && !half)
		memcpy(acc, x, n * coll_size(type));
	if (first)
		return;
	switch (type) {
	case COLL_F64: doubles(op, n, x, acc); break;
	case COLL_I32: ints(op, n, x, acc); break;
	case COLL_I64: longs(op, n, x, acc); break;
	default: floats(op, par, n, x, acc);
	}
}

void coll_sum(enum coll_type type, enum coll_op op, size_t n, uint32_t members,
	const void *(*member)(const void *arg, uint32_t i), const void *arg, void *out)
{
	double acc[BLOCK];                      /* elements of any type, eight bytes at most */
	struct par par = par_serial(CPU_PLAIN, NULL);
	size_t size = coll_size(type);
	(void)cpu_pick(NULL, &par.cpu, NULL);
	for (size_t at = 0; at < n; at += BLOCK) {
		size_t len = n - at < BLOCK ? n - at : BLOCK;
		for (uint32_t i = 0; i < members; i++)
			add(type, op, &par, len, (const char *)member(arg, i) + at * size, i == 0, acc);
		if (op == COLL_MEAN)
			divide(type, len, members, acc);
		char *to = (char *)out + at * size;
		if (type == COLL_F16)
			vec_to_f16(&par, len, (const float *)(const void *)acc, (uint16_t *)(void *)to);
		else if (type == COLL_BF16)
			vec_to_bf16(&par, len, (const float *)(const void *)acc, (uint16_t *)(void *)to);
		else
			memcpy(to, acc, len * size);
	}
}

/* One contributor set, one order, one arithmetic: alpha_i = w_i / sum(w) in double, t = (float)(alpha x), acc += t.
 * The result depends on nothing else, so every peer that sums the same terms gets the same bytes (amendments B1). */
#include <assert.h>
#include "common/planted.h"
#include "avg/reduce.h"
#include "common/hash.h"
#include "kernels/vec.h"

#define BLOCK 16384                             /* floats: 64 KiB of result stay in cache over all terms */

void accum_begin(struct accum *a, float *out, size_t n, uint64_t total_weight)
{
	*a = (struct accum){ .out = out, .n = n, .total = (double)total_weight };
}

void accum_add(struct accum *a, const float *x, uint64_t weight)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	assert(a->total > 0);
	vec_mean_add(&par, a->n, (double)weight / a->total, x, a->out, a->terms++ == 0);
}

void reduce_mean(float *out, size_t n, const struct reduce_term *t, size_t terms, uint64_t total_weight,
	uint8_t ret_hash[16])
{
	for (size_t at = 0; at < n; at += BLOCK) {
		struct accum a;
		accum_begin(&a, out + at, n - at < BLOCK ? n - at : BLOCK, total_weight);
		for (size_t k = 0; k < terms; k++) {
			size_t i = PLANTED(WRONG_ORDER) ? terms - 1 - k : k;
			accum_add(&a, t[i].x + at, t[i].weight);
		}
	}
	xxh128_of(out, n * sizeof *out, ret_hash);
}

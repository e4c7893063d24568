/* The reducer's arithmetic: the weighted mean of one part over the contributor set, in member order, in fp32. It hides
 * behind struct accum, so that an exact fixed-point sum can take its place (design 9). */
#ifndef AVG_REDUCE_H
#define AVG_REDUCE_H
#include <stddef.h>
#include <stdint.h>

struct accum {
	float *out; size_t n;                   /* floats */
	double total;                           /* sum of the weights */
	size_t terms;                           /* added so far */
};
void accum_begin(struct accum *a, float *out, size_t n, uint64_t total_weight);
/* in member order; a lone member keeps its bits */
void accum_add(struct accum *a, const float *x, uint64_t weight);

struct reduce_term { const float *x; uint64_t weight; };
/* All terms, block by block while a block is in cache; ret_hash: XXH3-128 of the result's bytes. */
void reduce_mean(float *out, size_t n, const struct reduce_term *t, size_t terms, uint64_t total_weight,
	uint8_t ret_hash[16]);

#endif

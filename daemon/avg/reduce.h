/* The reducer's arithmetic: the weighted mean of one part over the contributor set, in member order, in fp32; or, when
 * members may send nonsense, a mean that few of them cannot move. It hides behind struct accum, so that an exact
 * fixed-point sum can take its place (design 9). Only the bytes that one reducer makes are ever used, by everybody. */
#ifndef AVG_REDUCE_H
#define AVG_REDUCE_H
#include <stddef.h>
#include <stdint.h>
#include "avg/coding.h"

struct accum {
	float *out; size_t n;                   /* floats */
	double total;                           /* sum of the weights */
	size_t terms;                           /* added so far */
};
void accum_begin(struct accum *a, float *out, size_t n, uint64_t total_weight);
/* in member order; a lone member keeps its bits */
void accum_add(struct accum *a, const float *x, uint64_t weight);

/* What guards the mean ("averaging.robust"). From three contributions on; fewer are averaged plainly.
 * median, trimmed: of every coordinate, whatever the samples of a member; trimmed leaves out the least and the greatest
 * fourth, one at least (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018, definitions 1 and 2).
 * clip: the weighted mean of contributions that are pulled towards a centre until they are at most a radius away
 * (Karimireddy et al., Learning from History for Byzantine Robust Optimization, ICML 2021, section 5; the centre is
 * the coordinates' median and the radius the median distance from it, both of this part and this round, so that a
 * reducer needs no history that it could lose). */
enum robust { ROBUST_NONE, ROBUST_CLIP, ROBUST_MEDIAN, ROBUST_TRIMMED };
int robust_parse(const char *name, enum robust *ret, struct err *e);
const char *robust_name(enum robust r);

#define REDUCE_ODD 5.0                          /* times the median distance: out of line */

struct reduce_term {
	const float *x;                         /* the floats, or NULL and */
	const uint8_t *coded;                   /* what coding_bytes() of them were sent */
	uint64_t weight;
	bool row;                               /* the sum of several members (the caller's note) */
	bool bad;                               /* out: holds a number that is not finite */
	bool odd;                               /* out: far from all others (with a robust mean only) */
};
/* All terms, block by block while a block is in cache. -1: some are bad, and out means nothing. */
int reduce_part(const struct coding *c, uint64_t off, size_t n, struct reduce_term *t, size_t terms,
	uint64_t total_weight, enum robust robust, float *out);

#endif

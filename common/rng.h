/* Seeded generator (xoshiro256**) and a counter-based one (random access: the same (key, counter)
 * gives the same bits). */
#ifndef COMMON_RNG_H
#define COMMON_RNG_H
#include <stdint.h>

struct rng { uint64_t s[4]; };
void rng_seed(struct rng *r, uint64_t seed);            /* splitmix64 expansion; any seed is fine */
uint64_t rng_u64(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n);          /* uniform in [0, n), unbiased; n > 0 */
double rng_unit(struct rng *r);                         /* [0, 1) with 53 bits */
uint64_t rng_at(uint64_t key, uint64_t counter);        /* counter-based */
uint64_t rng_mix(uint64_t a, uint64_t b);               /* combines keys */

/* A pseudo-random permutation of [0, n): index i -> position, O(1) memory (cycle-walking Feistel over
 * the next power of 4). */
uint64_t rng_permute(uint64_t key, uint64_t n, uint64_t i);

#endif

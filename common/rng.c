/* Random numbers: xoshiro256** (Blackman and Vigna, 2018) seeded by splitmix64; a counter-based generator from two
 * rounds of the same finalizer; and a permutation by a cycle-walking Feistel network, so that a data order
 * needs no table. */
#include <assert.h>
#include "common/rng.h"

#define GOLDEN 0x9e3779b97f4a7c15u

/* splitmix64's finalizer (Stafford's mix 13): a bijection of 64 bits. */
static uint64_t finalize(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

void rng_seed(struct rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		r->s[i] = finalize(seed += GOLDEN);
}

uint64_t rng_u64(struct rng *r)
{
	uint64_t *s = r->s, out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return out;
}

/* Lemire's multiply-shift with rejection. */
uint64_t rng_below(struct rng *r, uint64_t n)
{
	unsigned __int128 m;
	uint64_t reject;

	assert(n > 0);
	reject = -n % n;
	do
		m = (unsigned __int128)rng_u64(r) * n;
	while ((uint64_t)m < reject);
	return (uint64_t)(m >> 64);
}

double rng_unit(struct rng *r)
{
	return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

uint64_t rng_mix(uint64_t a, uint64_t b)
{
	return finalize(finalize(a + GOLDEN) ^ (b * 0xd1342543de82ef95u + GOLDEN));
}

uint64_t rng_at(uint64_t key, uint64_t counter)
{
	return finalize(rng_mix(key, counter) + GOLDEN);
}

uint64_t rng_permute(uint64_t key, uint64_t n, uint64_t i)
{
	unsigned half = 1;
	uint64_t mask, l, r, t;

	assert(i < n);
	while (half < 32 && (uint64_t)1 << (2 * half) < n)
		half++;
	mask = ((uint64_t)1 << half) - 1;
	/* leaves [0, n) at most about 3 times in 4: ends because it is a bijection */
	do {
		l = i >> half;
		r = i & mask;
		for (unsigned round = 0; round < 8; round++) {
			t = l ^ (rng_at(key + round * GOLDEN, r) & mask);
			l = r;
			r = t;
		}
		i = l << half | r;
	} while (i >= n);
	return i;
}

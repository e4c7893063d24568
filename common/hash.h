/* Digests: SHA-256 (libcrypto), BLAKE2sp and BLAKE3 (blake2sp.h, blake3.h) for what must not be forged, XXH3-128
 * (libxxhash) for what is compared with one's own bytes only. */
#ifndef COMMON_HASH_H
#define COMMON_HASH_H
#include <stddef.h>
#include <stdint.h>

struct sha256 { void *ctx; };
void sha256_init(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *p, size_t n);
void sha256_end(struct sha256 *h, uint8_t out[32]);     /* frees the context */
void sha256_of(const void *p, size_t n, uint8_t out[32]);
/* Of tensors that others have sent, too large for one pass of one thread: the SHA-256 of a label, the length in bytes
 * (u64, little-endian) and the hash of every granule of 64 Ki floats. Peers that compare what they hold must hash it in
 * one way: who does not say which it knows, knows the first only. */
enum hashes { HASHES_SHA256 = 1, HASHES_BLAKE2SP = 2, HASHES_BLAKE3 = 3, HASHES_NEWEST = HASHES_BLAKE3 };
/* The newest that both know; 0: the first. */
static inline enum hashes hashes_both(uint64_t x, uint64_t y)
{
	uint64_t least = x < y ? x : y;
	return least < HASHES_SHA256 ? HASHES_SHA256 : least > HASHES_NEWEST ? HASHES_NEWEST : (enum hashes)least;
}
#define TREE256 32
#define TREE256_GRANULE 262144
void tree256_of(enum hashes by /* 0: the first */, const void *p, size_t n, uint8_t out[TREE256]);
void xxh128_of(const void *p, size_t n, uint8_t out[16]);
uint64_t siphash(uint64_t k0, uint64_t k1, const void *p, size_t n);   /* SipHash-2-4 */
/* SipHash-1-3: enough against floods of collisions in a map, as in Rust's and Python's */
uint64_t siphash13(uint64_t k0, uint64_t k1, const void *p, size_t n);

#endif

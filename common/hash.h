/* Digests: SHA-256 (libcrypto) and BLAKE2sp (blake2sp.h) for what must not be forged, XXH3-128 (libxxhash) for what is
 * compared with one's own bytes only. */
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
 * (u64, little-endian) and the BLAKE2sp of every granule of 64 Ki floats. */
#define TREE256 32
#define TREE256_GRANULE 262144
void tree256_of(const void *p, size_t n, uint8_t out[TREE256]);
/* With another label, which ends with a NUL, and another hash of granules. */
void tree256_by(const char label[16], void (*of)(const void *p, size_t n, uint8_t out[32]), const void *p, size_t n,
	uint8_t out[TREE256]);
void xxh128_of(const void *p, size_t n, uint8_t out[16]);
uint64_t siphash(uint64_t k0, uint64_t k1, const void *p, size_t n);   /* SipHash-2-4 */
/* SipHash-1-3: enough against floods of collisions in a map, as in Rust's and Python's */
uint64_t siphash13(uint64_t k0, uint64_t k1, const void *p, size_t n);

#endif

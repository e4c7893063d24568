/* BLAKE2sp: a cryptographic hash of 32 bytes, as BLAKE2s (RFC 7693), computed in eight lanes at once. Of p, n bytes,
 * less than 32 GiB. The digests are the same whatever computes them. */
#ifndef COMMON_BLAKE2SP_H
#define COMMON_BLAKE2SP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void blake2sp_of(const void *p, size_t n, uint8_t out[32]);

enum blake2sp_isa { BLAKE2SP_PLAIN, BLAKE2SP_AVX2, BLAKE2SP_AVX512 };
/* With these instructions and no others, for tests; false: this CPU does not have them. */
bool blake2sp_by(enum blake2sp_isa isa, const void *p, size_t n, uint8_t out[32]);

#endif

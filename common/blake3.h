/* BLAKE3: a cryptographic hash of 32 bytes (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3: one function, fast
 * everywhere", 2020), without a key. Chunks of 1 KiB are hashed side by side. The digests are the same whatever makes
 * them. */
#ifndef COMMON_BLAKE3_H
#define COMMON_BLAKE3_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void blake3_of(const void *p, size_t n, uint8_t out[32]);

enum blake3_isa { BLAKE3_PLAIN, BLAKE3_AVX2, BLAKE3_AVX512 };
/* With these instructions and no others, for tests; false: this CPU does not have them. */
bool blake3_by(enum blake3_isa isa, const void *p, size_t n, uint8_t out[32]);

#endif

/* libcrypto alone, for seal.c: in a file of its own, because OpenSSL and common/err.h both have an ERR_STATE. */
#ifndef TESTS_BENCH_SEAL_H
#define TESTS_BENCH_SEAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct alone;
/* AES-256-GCM, or else ChaCha20-Poly1305. */
struct alone *alone_new(bool aes, const uint8_t key[32], bool seal);
void alone_free(struct alone *a);
/* One message under nonce number i; out has len bytes and the tag's 16. */
void alone_one(struct alone *a, uint32_t i, const uint8_t *in, size_t len, uint8_t *out);

#endif

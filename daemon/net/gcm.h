/* AES-256-GCM (NIST SP 800-38D) by libIPSec_MB, for CPUs with VAES: what libcrypto 3.0 makes of one block at a time
 * it makes of four, with the same bytes. */
#ifndef NET_GCM_H
#define NET_GCM_H
#include "net/crypt.h"

struct gcm;

/* NULL: libcrypto is as fast here, or there is no memory. It takes 0.2 ms, of which a small message gets nothing
 * back. */
struct gcm *gcm_new(const uint8_t key[AEAD_KEY]);
void gcm_free(struct gcm *g);
/* As aead_seal and aead_open. */
void gcm_seal(const struct gcm *g, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const struct piece *pieces, size_t n, uint8_t *out);
int gcm_open(const struct gcm *g, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const uint8_t *in, size_t len, uint8_t *out);

#endif

/* The cryptography of the wire, libcrypto's (and libIPSec_MB's: gcm.h): X25519, Ed25519, HMAC and HKDF over SHA-256,
 * and the two AEADs. Nothing here draws a random number: private keys come as bytes from env.secure. */
#ifndef NET_CRYPT_H
#define NET_CRYPT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/id.h"

#define AEAD_TAG 16
#define AEAD_KEY 32
#define AEAD_NONCE 12

/* Suites as bits, so that a HELLO can offer a set. The stronger preference is the lower bit. */
enum suite { SUITE_AES_256_GCM = 1, SUITE_CHACHA20_POLY1305 = 2 };
#define SUITES_ALL (SUITE_AES_256_GCM | SUITE_CHACHA20_POLY1305)
unsigned suites_of_cpu(void);                   /* what this CPU does at full speed: AES only with AES instructions */
/* The suite both sides like: AES when both offer it, else ChaCha20; 0 = nothing in common. */
unsigned suite_choose(unsigned ours, unsigned theirs);
const char *suite_name(unsigned suite);

/* Identity: an Ed25519 key from its 32-byte seed. */
struct signer { void *key; struct id id; };
int signer_init(struct signer *s, const uint8_t seed[32]);
void signer_done(struct signer *s);
void signer_sign(const struct signer *s, const void *p, size_t len, uint8_t ret_sig[64]);
bool sig_verify(const struct id *who, const void *p, size_t len, const uint8_t sig[64]);

/* X25519 from given private bytes. dh returns -1 on a low-order point of the other side. */
void x25519_public(const uint8_t priv[32], uint8_t ret_pub[32]);
int x25519_dh(const uint8_t priv[32], const uint8_t other[32], uint8_t ret_shared[32]);

void mac_of(const uint8_t key[32], const void *p, size_t len, uint8_t ret_mac[32]);     /* HMAC-SHA256 */
bool mac_equal(const uint8_t a[32], const uint8_t b[32]);                               /* constant time */
void hkdf(const uint8_t salt[32], const uint8_t *ikm, size_t ikm_len, const char *info, uint8_t *ret, size_t n);
void wipe(void *p, size_t n);                                                            /* not optimised away */

/* One direction of one channel: a keyed cipher. The context is made at the first use; asked: whether there is something
 * faster than libcrypto. */
struct aead { unsigned suite; bool sealing; uint8_t key[AEAD_KEY]; void *ctx;
	bool asked; struct gcm *fast; };
void aead_init(struct aead *a, unsigned suite, const uint8_t key[AEAD_KEY], bool sealing);
void aead_done(struct aead *a);
struct piece { const void *p; size_t len; };
/* Seals the pieces one after the other into out (sum of the lengths + AEAD_TAG bytes). */
void aead_seal(struct aead *a, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const struct piece *pieces, size_t n, uint8_t *out);
/* Opens in[0..len), tag included, into out (len - AEAD_TAG bytes; may be in itself). -1: forged, out is garbage. */
int aead_open(struct aead *a, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const uint8_t *in, size_t len, uint8_t *out);

#endif

/* libcrypto's ciphers alone: see seal.h. */
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include "seal.h"

#define TAG 16

struct alone { EVP_CIPHER_CTX *c; bool seal; };

struct alone *alone_new(bool aes, const uint8_t key[32], bool seal)
{
	struct alone *a = malloc(sizeof *a);

	if (!a)
		return NULL;
	a->c = EVP_CIPHER_CTX_new();
	a->seal = seal;
	EVP_CipherInit_ex(a->c, aes ? EVP_aes_256_gcm() : EVP_chacha20_poly1305(), NULL, key, NULL, seal);
	return a;
}

void alone_free(struct alone *a)
{
	EVP_CIPHER_CTX_free(a->c);
	free(a);
}

void alone_one(struct alone *a, uint32_t i, const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t nonce[12] = {0}, tag[TAG] = {0};
	int n;

	memcpy(nonce, &i, sizeof i);
	EVP_CipherInit_ex(a->c, NULL, NULL, NULL, nonce, a->seal);
	if (!a->seal)                           /* what is opened is no ciphertext: the work is the same */
		EVP_CIPHER_CTX_ctrl(a->c, EVP_CTRL_AEAD_SET_TAG, TAG, tag);
	EVP_CipherUpdate(a->c, out, &n, in, (int)len);
	(void)EVP_CipherFinal_ex(a->c, out + n, &n);
	if (a->seal)
		EVP_CIPHER_CTX_ctrl(a->c, EVP_CTRL_AEAD_GET_TAG, TAG, out + len);
}

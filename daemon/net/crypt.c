/* libcrypto behind crypt.h. Its calls fail only when memory is out or an argument is wrong, both of which are ours:
 * asserted. What depends on remote bytes (points, signatures, tags) is returned. */
#include <assert.h>
#include <string.h>
#define ERR_STATE openssl_err_state     /* libcrypto has a type of that name, common/err.h a code */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#undef ERR_STATE
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#include "common/mem.h"
#include "net/gcm.h"

#define WORTH 32768                     /* bytes of a message */

unsigned suites_of_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	if (__builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul"))
		return SUITES_ALL;
#elif defined(__aarch64__)
	if ((getauxval(AT_HWCAP) & 0x18) == 0x18)       /* HWCAP_AES, HWCAP_PMULL */
		return SUITES_ALL;
#endif
	return SUITE_CHACHA20_POLY1305;
}

unsigned suite_choose(unsigned ours, unsigned theirs)
{
	unsigned both = ours & theirs & SUITES_ALL;

	return both & SUITE_AES_256_GCM ? SUITE_AES_256_GCM : both & SUITE_CHACHA20_POLY1305;
}

const char *suite_name(unsigned suite)
{
	return suite == SUITE_AES_256_GCM ? "aes-256-gcm" : suite == SUITE_CHACHA20_POLY1305 ? "chacha20-poly1305" : "none";
}

int signer_init(struct signer *s, const uint8_t seed[32])
{
	size_t n = sizeof s->id.b;

	s->key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
	if (!s->key || EVP_PKEY_get_raw_public_key(s->key, s->id.b, &n) != 1) {
		signer_done(s);
		return -1;
	}
	return 0;
}

void signer_done(struct signer *s)
{
	EVP_PKEY_free(s->key);
	s->key = NULL;
}

void signer_sign(const struct signer *s, const void *p, size_t len, uint8_t ret_sig[64])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	size_t n = 64;
	int ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, s->key) == 1 &&
		EVP_DigestSign(ctx, ret_sig, &n, p, len) == 1 && n == 64;

	assert(ok);
	EVP_MD_CTX_free(ctx);
}

bool sig_verify(const struct id *who, const void *p, size_t len, const uint8_t sig[64])
{
	EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, who->b, sizeof who->b);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = key && ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key) == 1 &&
		EVP_DigestVerify(ctx, sig, 64, p, len) == 1;

	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(key);
	return ok;
}

void x25519_public(const uint8_t priv[32], uint8_t ret_pub[32])
{
	EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, priv, 32);
	size_t n = 32;
	int ok = key && EVP_PKEY_get_raw_public_key(key, ret_pub, &n) == 1 && n == 32;

	assert(ok);
	EVP_PKEY_free(key);
}

int x25519_dh(const uint8_t priv[32], const uint8_t other[32], uint8_t ret_shared[32])
{
	EVP_PKEY *mine = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, priv, 32);
	EVP_PKEY *theirs = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, other, 32);
	EVP_PKEY_CTX *ctx = mine ? EVP_PKEY_CTX_new(mine, NULL) : NULL;
	size_t n = 32;
	int ok = theirs && ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, theirs) == 1 &&
		EVP_PKEY_derive(ctx, ret_shared, &n) == 1 && n == 32;

	EVP_PKEY_CTX_free(ctx);
	EVP_PKEY_free(theirs);
	EVP_PKEY_free(mine);
	return ok ? 0 : -1;
}

void mac_of(const uint8_t key[32], const void *p, size_t len, uint8_t ret_mac[32])
{
	unsigned n = 32;
	const uint8_t *r = HMAC(EVP_sha256(), key, 32, p, len, ret_mac, &n);

	assert(r && n == 32);
}

bool mac_equal(const uint8_t a[32], const uint8_t b[32])
{
	return CRYPTO_memcmp(a, b, 32) == 0;
}

/* RFC 5869 over HMAC-SHA256. */
void hkdf(const uint8_t salt[32], const uint8_t *ikm, size_t ikm_len, const char *info, uint8_t *ret, size_t n)
{
	uint8_t prk[32], block[32 + 64 + 1];
	size_t info_len = strlen(info), have = 0;
	uint8_t t[32];

	assert(info_len <= 64 && n <= 255 * 32);
	mac_of(salt, ikm, ikm_len, prk);
	for (uint8_t i = 1; n; i++) {
		size_t part = n < 32 ? n : 32;

		memcpy(block, t, have);
		memcpy(block + have, info, info_len);
		block[have + info_len] = i;
		mac_of(prk, block, have + info_len + 1, t);
		memcpy(ret, t, part);
		ret += part;
		n -= part;
		have = 32;
	}
	wipe(prk, sizeof prk);
	wipe(t, sizeof t);
	wipe(block, sizeof block);
}

void wipe(void *p, size_t n)
{
	OPENSSL_cleanse(p, n);
}

void aead_init(struct aead *a, unsigned suite, const uint8_t key[AEAD_KEY], bool sealing)
{
	*a = (struct aead){ .suite = suite, .sealing = sealing };
	memcpy(a->key, key, AEAD_KEY);
}

void aead_done(struct aead *a)
{
	EVP_CIPHER_CTX_free(a->ctx);
	gcm_free(a->fast);
	a->ctx = a->fast = NULL;
	wipe(a->key, sizeof a->key);
}

static EVP_CIPHER_CTX *aead_ctx(struct aead *a)
{
	const EVP_CIPHER *c = a->suite == SUITE_AES_256_GCM ? EVP_aes_256_gcm() : EVP_chacha20_poly1305();
	int ok;

	if (a->ctx)
		return a->ctx;
	a->ctx = EVP_CIPHER_CTX_new();
	assert(a->ctx);
	ok = EVP_CipherInit_ex(a->ctx, c, NULL, a->key, NULL, a->sealing);
	assert(ok == 1);
	return a->ctx;
}

/* It is made with the first message that is worth it. */
static const struct gcm *faster(struct aead *a, size_t len)
{
	if (!a->asked && len >= WORTH && a->suite == SUITE_AES_256_GCM) {
		a->asked = true;
		a->fast = gcm_new(a->key);
	}
	return a->fast;
}

void aead_seal(struct aead *a, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const struct piece *pieces, size_t n, uint8_t *out)
{
	const struct gcm *fast;
	EVP_CIPHER_CTX *ctx;
	size_t len = 0;
	int k = 0, ok;

	for (size_t i = 0; i < n; i++)
		len += pieces[i].len;
	fast = faster(a, len);
	if (fast) {
		gcm_seal(fast, nonce, aad, aad_len, pieces, n, out);
		return;
	}
	ctx = aead_ctx(a);
	ok = EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, nonce) == 1 &&
		EVP_EncryptUpdate(ctx, NULL, &k, aad, (int)aad_len) == 1;
	for (size_t i = 0; ok && i < n; i++) {
		if (!pieces[i].len)
			continue;
		ok = EVP_EncryptUpdate(ctx, out, &k, pieces[i].p, (int)pieces[i].len) == 1 && k == (int)pieces[i].len;
		out += pieces[i].len;
	}
	ok = ok && EVP_EncryptFinal_ex(ctx, out, &k) == 1 && k == 0 &&
		EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG, out) == 1;
	assert(ok);
}

int aead_open(struct aead *a, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const uint8_t *in, size_t len, uint8_t *out)
{
	const struct gcm *fast = faster(a, len);
	EVP_CIPHER_CTX *ctx;
	uint8_t tag[AEAD_TAG];
	int k = 0;

	if (fast)
		return gcm_open(fast, nonce, aad, aad_len, in, len, out);
	if (len < AEAD_TAG || len > INT32_MAX)
		return -1;
	ctx = aead_ctx(a);
	memcpy(tag, in + len - AEAD_TAG, AEAD_TAG);
	len -= AEAD_TAG;
	if (EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, nonce) != 1 ||
	    EVP_DecryptUpdate(ctx, NULL, &k, aad, (int)aad_len) != 1 ||
	    (len && (EVP_DecryptUpdate(ctx, out, &k, in, (int)len) != 1 || k != (int)len)) ||
	    EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG, tag) != 1)
		return -1;
	return EVP_DecryptFinal_ex(ctx, out + len, &k) == 1 ? 0 : -1;
}

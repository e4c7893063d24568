/* The interface of net/crypt.h without its weight: SipHash instead of curves, ciphers and HMAC. Whoever
 * links this gets the same handshakes, frames and refusals at a hundredth of the time, and no secrecy at all: for
 * simulations of many peers, never for a daemon. A flipped bit or a wrong key is still refused. */
#include <string.h>
#include "common/hash.h"
#include "common/rng.h"
#include "net/crypt.h"
#include "light_crypt.h"

#ifdef LIGHT_OPEN                               /* a benchmark's: long messages go as they are, and are believed */
#define HASHED(len) ((len) < 4096 ? (len) : 4096)
#else
#define HASHED(len) (len)
#endif

static void fill(uint64_t k, const void *p, size_t len, uint8_t *out, size_t n)
{
	uint64_t h = siphash(k, n, p, len);
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = rng_mix(h, i);
		memcpy(out + i, &v, n - i < 8 ? n - i : 8);
	}
}

unsigned suites_of_cpu(void)
{
	return SUITES_ALL;
}

unsigned suite_choose(unsigned ours, unsigned theirs)
{
	unsigned both = ours & theirs;
	return both & SUITE_AES_256_GCM ? SUITE_AES_256_GCM : both & SUITE_CHACHA20_POLY1305;
}

const char *suite_name(unsigned suite)
{
	return suite ? "light" : "none";
}

int signer_init(struct signer *s, const uint8_t seed[32])
{
	s->key = NULL;
	return light_id(seed, s->id.b);
}

void signer_done(struct signer *s)
{
}

static void sign(const struct id *who, const void *p, size_t len, uint8_t sig[64])
{
	uint64_t k;
	memcpy(&k, who->b, 8);
	k = siphash(k, 2, p, len);
	for (int i = 0; i < 64; i += 8)
		memcpy(sig + i, &k, 8);
}

void signer_sign(const struct signer *s, const void *p, size_t len, uint8_t ret_sig[64])
{
	sign(&s->id, p, len, ret_sig);
}

bool sig_verify(const struct id *who, const void *p, size_t len, const uint8_t sig[64])
{
	uint8_t want[64];
	sign(who, p, len, want);
	return !memcmp(want, sig, 64);
}

void x25519_public(const uint8_t priv[32], uint8_t ret_pub[32])
{
	fill(3, priv, 32, ret_pub, 32);
}

int x25519_dh(const uint8_t priv[32], const uint8_t other[32], uint8_t ret_shared[32])
{
	uint8_t pub[32];
	x25519_public(priv, pub);
	for (int i = 0; i < 32; i++)            /* the same from both sides */
		ret_shared[i] = pub[i] ^ other[i];
	return 0;
}

void mac_of(const uint8_t key[32], const void *p, size_t len, uint8_t ret_mac[32])
{
	uint64_t k;
	memcpy(&k, key, 8);
	fill(k, p, len, ret_mac, 32);
}

bool mac_equal(const uint8_t a[32], const uint8_t b[32])
{
	return !memcmp(a, b, 32);
}

void hkdf(const uint8_t salt[32], const uint8_t *ikm, size_t ikm_len, const char *info, uint8_t *ret, size_t n)
{
	uint64_t k;
	memcpy(&k, salt, 8);
	fill(siphash(k, 4, info, strlen(info)), ikm, ikm_len, ret, n);
}

void wipe(void *p, size_t n)
{
	memset(p, 0, n);
}

void aead_init(struct aead *a, unsigned suite, const uint8_t key[AEAD_KEY], bool sealing)
{
	*a = (struct aead){ .suite = suite, .sealing = sealing };
	memcpy(a->key, key, AEAD_KEY);
}

void aead_done(struct aead *a)
{
	*a = (struct aead){ 0 };
}

static void tag(const struct aead *a, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const uint8_t *body, size_t len, uint8_t ret[AEAD_TAG])
{
	uint64_t k, t[2];
	uint8_t head[AEAD_NONCE + 16];
	memcpy(&k, a->key, 8);
	memcpy(head, nonce, AEAD_NONCE);
	xxh128_of(body, HASHED(len), head + AEAD_NONCE);
	t[0] = siphash(k, siphash(k, 6, aad, aad_len), head, sizeof head);
	t[1] = rng_mix(t[0], k);
	memcpy(ret, t, AEAD_TAG);
}

void aead_seal(struct aead *a, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const struct piece *pieces, size_t n, uint8_t *out)
{
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		if (pieces[i].len)
			memcpy(out + at, pieces[i].p, pieces[i].len);
		at += pieces[i].len;
	}
	tag(a, nonce, aad, aad_len, out, at, out + at);
}

int aead_open(struct aead *a, const uint8_t nonce[AEAD_NONCE], const void *aad, size_t aad_len,
	const uint8_t *in, size_t len, uint8_t *out)
{
	uint8_t want[AEAD_TAG];
	if (len < AEAD_TAG)
		return -1;
	tag(a, nonce, aad, aad_len, in, len - AEAD_TAG, want);
	if (memcmp(want, in + len - AEAD_TAG, AEAD_TAG) != 0)
		return -1;
	if (out != in)
		memmove(out, in, len - AEAD_TAG);
	return 0;
}

/* Digests: SHA-256 from libcrypto, XXH3-128 from libxxhash, SipHash (Aumasson and Bernstein,
 * 2012) by hand. */
#include <endian.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include "common/blake2sp.h"
#include "common/blake3.h"
#include "common/hash.h"
#include "common/xxh.h"

/* libcrypto fails here only without memory or with a broken provider configuration: nothing can go on
 * without SHA-256. */
static void must(int ok)
{
	if (!ok)
		abort();
}

void sha256_init(struct sha256 *h)
{
	h->ctx = EVP_MD_CTX_new();
	must(h->ctx && EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) == 1);
}

void sha256_add(struct sha256 *h, const void *p, size_t n)
{
	must(EVP_DigestUpdate(h->ctx, p, n) == 1);
}

void sha256_end(struct sha256 *h, uint8_t out[32])
{
	must(EVP_DigestFinal_ex(h->ctx, out, NULL) == 1);
	EVP_MD_CTX_free(h->ctx);
	h->ctx = NULL;
}

void sha256_of(const void *p, size_t n, uint8_t out[32])
{
	must(SHA256(p ? p : "", n, out) != NULL);
}

/* The label ends with a NUL. */
static const struct tree { char label[16]; void (*of)(const void *p, size_t n, uint8_t out[32]); } trees[] = {
	[HASHES_SHA256] = { "hivemind-tree-1", sha256_of },
	[HASHES_BLAKE2SP] = { "hivemind-tree-2", blake2sp_of },
	[HASHES_BLAKE3] = { "hivemind-tree-3", blake3_of },
};

void tree256_of(enum hashes by, const void *p, size_t n, uint8_t out[TREE256])
{
	const struct tree *tree = &trees[by ? by : HASHES_SHA256];
	const uint8_t *at = p;
	uint64_t len = htole64(n);
	uint8_t granule[32];
	struct sha256 h;

	sha256_init(&h);
	sha256_add(&h, tree->label, sizeof tree->label);
	sha256_add(&h, &len, sizeof len);
	for (size_t off = 0; off < n; off += TREE256_GRANULE) {
		tree->of(at + off, n - off < TREE256_GRANULE ? n - off : TREE256_GRANULE, granule);
		sha256_add(&h, granule, sizeof granule);
	}
	sha256_end(&h, out);
}

void xxh128_of(const void *p, size_t n, uint8_t out[16])
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, XXH3_128bits(p, n));
	memcpy(out, c.digest, 16);
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof v);
	return le64toh(v);
}

static inline __attribute__((always_inline)) void sip_round(uint64_t v[4])
{
#define ROTL(x, b) ((x) << (b) | (x) >> (64 - (b)))
	v[0] += v[1]; v[1] = ROTL(v[1], 13); v[1] ^= v[0]; v[0] = ROTL(v[0], 32);
	v[2] += v[3]; v[3] = ROTL(v[3], 16); v[3] ^= v[2];
	v[0] += v[3]; v[3] = ROTL(v[3], 21); v[3] ^= v[0];
	v[2] += v[1]; v[1] = ROTL(v[1], 17); v[1] ^= v[2]; v[2] = ROTL(v[2], 32);
#undef ROTL
}

/* c rounds a word, d at the end */
static inline __attribute__((always_inline)) uint64_t sip(int c, int d, uint64_t k0, uint64_t k1, const void *data,
	size_t n)
{
	uint64_t v[4] = { k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du,
		k0 ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u };
	const uint8_t *p = data;
	uint64_t m = (uint64_t)n << 56;
	size_t i;

	for (i = 0; i + 8 <= n; i += 8) {
		uint64_t w = load64(p + i);

		v[3] ^= w;
		for (int r = 0; r < c; r++)
			sip_round(v);
		v[0] ^= w;
	}
	for (unsigned shift = 0; i < n; i++, shift += 8)
		m |= (uint64_t)p[i] << shift;
	v[3] ^= m;
	for (int r = 0; r < c; r++)
		sip_round(v);
	v[0] ^= m;
	v[2] ^= 0xff;
	for (int r = 0; r < d; r++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t siphash(uint64_t k0, uint64_t k1, const void *p, size_t n)
{
	return sip(2, 4, k0, k1, p, n);
}

uint64_t siphash13(uint64_t k0, uint64_t k1, const void *p, size_t n)
{
	return sip(1, 3, k0, k1, p, n);
}

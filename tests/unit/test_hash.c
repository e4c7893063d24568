/* Digests against published vectors. */
#include "common/hash.h"
#include "common/xxh.h"
#include "tests/unit/t.h"
#undef XXH3_128bits                             /* the library's plain function */

static void hex(const uint8_t *p, size_t n, char *out)
{
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static void sha256_vectors(void **s)
{
	uint8_t d[32], d2[32];
	char h[65];
	struct sha256 c;

	sha256_of("abc", 3, d);
	hex(d, 32, h);
	assert_string_equal(h, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256_of(NULL, 0, d);
	hex(d, 32, h);
	assert_string_equal(h, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_of("hello, world", 12, d);
	sha256_init(&c);
	sha256_add(&c, "hello", 5);
	sha256_add(&c, "", 0);
	sha256_add(&c, ", world", 7);
	sha256_end(&c, d2);
	assert_memory_equal(d, d2, 32);
	assert_null(c.ctx);
}

static void xxh_vectors(void **s)
{
	uint8_t d[16];
	char h[33];

	xxh128_of("", 0, d);                            /* XXH3_128bits of nothing, canonical (big-endian) form */
	hex(d, 16, h);
	assert_string_equal(h, "99aa06d3014798d86001c324468d497f");
}

/* Whatever instructions it is made with, in one go and in pieces: checkpoints and transfers carry these hashes. */
static void xxh_is_the_same_on_every_cpu(void **s)
{
	enum { N = 300001 };
	static const size_t sizes[] = { 1, 16, 17, 128, 129, 240, 241, 1024, 1025, 65537, N };
	uint8_t *p = malloc(N), d[16];
	XXH3_state_t *x = XXH3_createState();
	XXH128_canonical_t one, pieces;

	for (size_t i = 0; i < N; i++)
		p[i] = (uint8_t)(i * 2654435761u >> 11);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		XXH128_canonicalFromHash(&one, XXH3_128bits(p, sizes[i]));
		xxh128_of(p, sizes[i], d);
		assert_memory_equal(d, one.digest, 16);
		XXH3_128bits_reset(x);
		for (size_t at = 0; at < sizes[i]; at += 4099)
			XXH3_128bits_update(x, p + at, sizes[i] - at < 4099 ? sizes[i] - at : 4099);
		XXH128_canonicalFromHash(&pieces, XXH3_128bits_digest(x));
		assert_memory_equal(pieces.digest, one.digest, 16);
	}
	XXH3_freeState(x);
	free(p);
}

/* The test vectors of the SipHash paper's appendix and reference code: key 00..0f, input 00 01 02 ... */
static void siphash_vectors(void **s)
{
	static const uint64_t want[] = { 0x726fdb47dd0e0e31u, 0x74f839c593dc67fdu, 0x0d6c8009d9a94f5au,
		0x85676696d7fb7e2du, 0xcf2794e0277187b7u, 0x18765564cd99a68du, 0xcbc9466e58fee3ceu, 0xab0200f58b01d137u,
		0x93f5f5799a932462u };
	uint8_t in[16];

	for (int i = 0; i < 16; i++)
		in[i] = (uint8_t)i;
	for (size_t n = 0; n < sizeof want / sizeof *want; n++)
		assert_true(siphash(0x0706050403020100u, 0x0f0e0d0c0b0a0908u, in, n) == want[n]);
	assert_true(siphash(0x0706050403020100u, 0x0f0e0d0c0b0a0908u, in, 15) == 0xa129ca6149be45e5u);
	assert_true(siphash13(0x0706050403020100u, 0x0f0e0d0c0b0a0908u, in, 0) == 0xabac0158050fc4dcu);
	assert_true(siphash13(0x0706050403020100u, 0x0f0e0d0c0b0a0908u, in, 1) == 0xc9f49bf37d57ca93u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sha256_vectors), cmocka_unit_test(xxh_vectors), cmocka_unit_test(siphash_vectors),
		cmocka_unit_test(xxh_is_the_same_on_every_cpu),
	};

	return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}

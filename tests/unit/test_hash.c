/* Digests against published vectors. */
#include "common/blake2sp.h"
#include "common/blake3.h"
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

/* By Python's hashlib, which knows BLAKE2s's parameters of trees: eight leaves blake2s(fanout=8, depth=2,
 * node_offset=i, inner_size=32, last_node=i == 7), their root (node_depth=1, last_node=True). The first is of the
 * published vectors. */
static void blake2sp_vectors(void **s)
{
	static const struct { size_t n; const char *digest; } want[] = {
		{ 0, "dd0e891776933f43c7d032b08a917e25741f8aa9a12c12e1cac8801500f2ca4f" },
		{ 1, "a6b9eecc25227ad788c99d3f236debc8da408849e9a5178978727a81457f7239" },
		{ 64, "d7ed73e5fbb7bcf76a8cab243147d1046fa623c76a4e9ab34fd092d4638adf97" },
		{ 65, "8febbf04e611db1b7ce07bdeb3f59a10191adde1381307cb730344ac962d3f25" },
		{ 449, "beeabfb228ec9a4a833bf59928ab0dbac75b3a87b9ce52071fa135c67e308363" },
		{ 511, "83f37e120cf0c7b38f23888be41d3d436b1eb920e506f8f6c322dbbb955e44e9" },
		{ 512, "e579d848b4402bd0b1c7b747299b3679659bc6431785af1b941c49a5aa3d52fb" },
		{ 513, "9725d2a69e048e061df98645de7a2929147c19321531a18fbfab3d6fc1f6a96a" },
		{ 577, "605404faf0345d90a1757f6f3dae5d4603055ae2a4dec8bda5082421ddde58d1" },
		{ 1023, "998c813b6fe3d70fc72c95674d0128ae9791ed677b71b037fb23e4820de3d5ec" },
		{ 1024, "9f6f26dc18faedce6b72dfa606a9a68d638266acce5ef224c635ec6fd5a105b9" },
		{ 1025, "1f19da9d12d5ff190274f40f82a8052548ce2074c288e0c84ea5cbff2de90e4e" },
		{ 1537, "7ea07c89f599655a1c3230df2639f136e97a327599a81e02cb7683cc2d5f2941" },
		{ 65537, "5667c043db3f530d4c48565b45c6b7c221cc6894000e581e71a8809789be785c" },
		{ 262143, "3314792599ecdc1bce0e02c5a74735df3dcd78f968439d6e3cbf41ebb6d6f74c" },
		{ 262144, "7b9ccd6f733ff015974c381ef7537d88c6cfb9ad76c19657d28db2102f959113" },
	};
	uint8_t *p = malloc(262144 + 1), d[32];
	char h[65];

	for (size_t i = 0; i < 262144; i++)
		p[i + 1] = (uint8_t)((i * i >> 3) ^ i);         /* aligned to nothing */
	for (size_t k = 0; k < sizeof want / sizeof *want; k++)
		for (int isa = BLAKE2SP_PLAIN; isa <= BLAKE2SP_AVX512; isa++) {
			if (!blake2sp_by((enum blake2sp_isa)isa, p + 1, want[k].n, d))
				continue;
			hex(d, 32, h);
			assert_string_equal(h, want[k].digest);
			blake2sp_of(p + 1, want[k].n, d);
			hex(d, 32, h);
			assert_string_equal(h, want[k].digest);
		}
	free(p);
}

/* Of bytes i mod 251, as the published vectors (test_vectors.json, whose lengths are among these); the other lengths by
 * the authors' own implementation. */
static void blake3_vectors(void **s)
{
	static const struct { size_t n; const char *digest; } want[] = {
		{ 0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262" },
		{ 1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213" },
		{ 63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b" },
		{ 64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98" },
		{ 65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee" },
		{ 1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11" },
		{ 1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7" },
		{ 1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444" },
		{ 2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a" },
		{ 2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030" },
		{ 3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3" },
		{ 8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63" },
		{ 8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b" },
		{ 9216, "e5ef79624045ef3e98fd23342e61d7eb965997b32928f9de591cd0d465a223fb" },
		{ 9217, "d42c90aa30bee83ecb52ad31b685d566145649496764878873598cef582d4d8f" },
		{ 16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4" },
		{ 16385, "1dabe216be2578830263b049de1639f39f05a4da616b9b78c7a5e4e41662fd1f" },
		{ 17409, "50bc54238ac9271c9f3471f5206a04eb25d2e26b3214ed971cc55230b0d22864" },
		{ 31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47" },
		{ 102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085" },
		{ 262143, "4fbb10c248894f1b56ec8298555b96e597147150a061b1cf1af19f16dbc0557b" },
		{ 262144, "d57dc906e20d3fd326ffaa85535500486f46a0979f5a323f028dcabfd381fd4a" },
		{ 262145, "531c319935cf78f34869faebd865e5748266b1799039103bfb851a680d9ed30c" },
		{ 263168, "016a8ebdc93c38f6e5afbfb937fdc9130808969f33fc82a10a36c92acd21eed7" },
		{ 263169, "5f939be9e0ff14200d35a1f37ac138d517c81ce2ddfd3b8b7a42c90be46e0105" },
		{ 1000000, "5e82c663d164c54e4fcdfcd70e3ca464662228bdbad45cce2e0c2bff999064ef" },
	};
	uint8_t *p = malloc(1000000 + 1), d[32];
	char h[65];

	for (size_t i = 0; i < 1000000; i++)
		p[i + 1] = (uint8_t)(i % 251);          /* aligned to nothing */
	for (size_t k = 0; k < sizeof want / sizeof *want; k++)
		for (int isa = BLAKE3_PLAIN; isa <= BLAKE3_AVX512; isa++) {
			if (!blake3_by((enum blake3_isa)isa, p + 1, want[k].n, d))
				continue;
			hex(d, 32, h);
			assert_string_equal(h, want[k].digest);
			blake3_of(p + 1, want[k].n, d);
			hex(d, 32, h);
			assert_string_equal(h, want[k].digest);
		}
	free(p);
}

/* As the header says, from its own pieces; one bit anywhere, or the length alone, makes it another. */
static void tree_by(enum hashes by, const char label[16], void (*of)(const void *, size_t, uint8_t *))
{
	enum { N = 2 * TREE256_GRANULE + 77 };
	static const size_t sizes[] = { 0, 1, TREE256_GRANULE - 1, TREE256_GRANULE, TREE256_GRANULE + 1, N };
	uint8_t *p = calloc(N, 1), d[TREE256], other[TREE256], inner[16 + 8 + 3 * 32];

	for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
		size_t n = sizes[k], at = 24;
		memcpy(inner, label, 16);
		for (int i = 0; i < 8; i++)
			inner[16 + i] = (uint8_t)((uint64_t)n >> 8 * i);
		for (size_t off = 0; off < n; off += TREE256_GRANULE, at += 32)
			of(p + off, n - off < TREE256_GRANULE ? n - off : TREE256_GRANULE, inner + at);
		sha256_of(inner, at, other);
		tree256_of(by, p, n, d);
		assert_memory_equal(d, other, TREE256);
	}
	for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
		size_t at = sizes[k] < N ? sizes[k] : N - 1;
		p[at] ^= 1;
		tree256_of(by, p, N, other);
		assert_memory_not_equal(d, other, TREE256);
		p[at] ^= 1;
	}
	tree256_of(by, p, N - 1, other);            /* zeros at the end count */
	assert_memory_not_equal(d, other, TREE256);
	free(p);
}

static void tree_is_what_the_header_says(void **s)
{
	static const char first[16] = "hivemind-tree-1", second[16] = "hivemind-tree-2", third[16] = "hivemind-tree-3";
	uint8_t one[TREE256], other[TREE256];

	tree_by(HASHES_SHA256, first, sha256_of);
	tree_by(HASHES_BLAKE2SP, second, blake2sp_of);
	tree_by(HASHES_BLAKE3, third, blake3_of);
	tree256_of(0, "said by nobody", 14, one);
	tree256_of(HASHES_SHA256, "said by nobody", 14, other);
	assert_memory_equal(one, other, TREE256);
	assert_int_equal(hashes_both(0, HASHES_NEWEST), HASHES_SHA256);
	assert_int_equal(hashes_both(HASHES_NEWEST, HASHES_NEWEST), HASHES_NEWEST);
	assert_int_equal(hashes_both(HASHES_BLAKE2SP, HASHES_SHA256), HASHES_SHA256);
	assert_int_equal(hashes_both(77, UINT64_MAX), HASHES_NEWEST);  /* a version that is still to come */
}

/* Why what others send is not named by XXH3: where a word's lower half is the secret's, its product is nothing and only
 * the words' sum counts. Two means that a part's owner could give to two members under one hash. */
static void two_means_of_one_xxh(void **s)
{
	static uint32_t one[256], two[256];
	uint8_t a[TREE256], b[TREE256];

	one[0] = two[0] = 0x396cfeb8;
	one[16] = two[16] = 0x2c81017c;
	one[1] = one[17] = 0x3f800000;                  /* 1.0 and 1.0 */
	two[1] = 0x40000000;                            /* 2.0 and 0.5 */
	two[17] = 0x3f000000;
	assert_memory_not_equal(one, two, sizeof one);
	xxh128_of(one, sizeof one, a);
	xxh128_of(two, sizeof two, b);
	assert_memory_equal(a, b, 16);
	tree256_of(HASHES_BLAKE2SP, one, sizeof one, a);
	tree256_of(HASHES_BLAKE2SP, two, sizeof two, b);
	assert_memory_not_equal(a, b, TREE256);
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
		cmocka_unit_test(sha256_vectors), cmocka_unit_test(blake2sp_vectors), cmocka_unit_test(blake3_vectors),
		cmocka_unit_test(tree_is_what_the_header_says),
		cmocka_unit_test(two_means_of_one_xxh), cmocka_unit_test(xxh_vectors),
		cmocka_unit_test(siphash_vectors),
		cmocka_unit_test(xxh_is_the_same_on_every_cpu),
	};

	return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}

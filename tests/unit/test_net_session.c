/* Sessions: the primitives against the RFCs' vectors, then what must not open: replays, reflections, other channels,
 * flipped bits, frames of a connection that is too old. */
#include "t.h"
#include "common/hash.h"
#include "common/rng.h"
#include "net/gcm.h"
#include "net/session.h"
#include "skip.h"

static void unhex(const char *s, uint8_t *out)
{
	for (; *s; s += 2) {
		unsigned v;

		sscanf(s, "%2x", &v);
		*out++ = (uint8_t)v;
	}
}

static void test_vectors(void **state)
{
	uint8_t a[64], b[64], c[64], want[64], okm[42];
	struct signer s;
	struct id id;

	memset(a, 0x21, 32);
	memset(b, 0x42, 32);
	/* both ends of an exchange agree, and a low-order point is refused */
	uint8_t pa[32], pb[32], zero[32] = {0};
	x25519_public(a, pa);
	x25519_public(b, pb);
	assert_int_equal(x25519_dh(a, pb, c), 0);
	assert_int_equal(x25519_dh(b, pa, want), 0);
	assert_memory_equal(c, want, 32);
	assert_int_equal(x25519_dh(a, zero, c), -1);
	/* RFC 8032 7.1, test 2 */
	unhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", a);
	assert_int_equal(signer_init(&s, a), 0);
	unhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", id.b);
	assert_memory_equal(&s.id, &id, 32);
	signer_sign(&s, "\x72", 1, c);
	unhex("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
		"085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00", want);
	assert_memory_equal(c, want, 64);
	assert_true(sig_verify(&id, "\x72", 1, c));
	assert_false(sig_verify(&id, "\x73", 1, c));
	signer_done(&s);
	/* RFC 5869, test case 1, with its 13-byte salt in HMAC's own zero padding */
	uint8_t salt[32] = {0}, ikm[22];
	memset(ikm, 0x0b, 22);
	for (int i = 0; i < 13; i++)
		salt[i] = (uint8_t)i;
	hkdf(salt, ikm, 22, "\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9", okm, 42);
	unhex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865", want);
	assert_memory_equal(okm, want, 42);
}

static void test_x25519_rfc(void **state)
{
	uint8_t k[32], u[32], out[32], want[32];

	/* RFC 7748 5.2, first vector */
	unhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4", k);
	unhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c", u);
	unhex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552", want);
	assert_int_equal(x25519_dh(k, u, out), 0);
	assert_memory_equal(out, want, 32);
}

static void fill(struct rng *r, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rng_u64(r);
}

/* What seals long messages on some CPUs makes libcrypto's bytes, opens them, and nothing that was touched. */
static void test_gcm(void **state)
{
	enum { MOST = 300000, TIMES = 400 };
	static uint8_t text[MOST], one[MOST + AEAD_TAG], two[MOST + AEAD_TAG], back[MOST + AEAD_TAG];
	uint8_t key[AEAD_KEY], nonce[AEAD_NONCE], aad[48];
	struct rng rng;

	rng_seed(&rng, 20);
	fill(&rng, text, sizeof text);
	for (int k = 0; k < TIMES; k++) {
		size_t len = rng_u64(&rng) % (k % 8 ? 2000 : MOST), cut = len ? rng_u64(&rng) % len : 0;
		struct piece p[3] = { { text, cut }, { NULL, 0 }, { text + cut, len - cut } };
		size_t naad = rng_u64(&rng) % sizeof aad, bit = rng_u64(&rng) % (8 * (len + AEAD_TAG));
		struct aead plain;
		struct gcm *g;

		fill(&rng, key, sizeof key);
		fill(&rng, nonce, sizeof nonce);
		fill(&rng, aad, sizeof aad);
		g = gcm_new(key);
		if (!g)
			skip_because("no libIPSec_MB when this was built, or no VAES here");
		aead_init(&plain, SUITE_AES_256_GCM, key, true);
		plain.asked = true;                             /* libcrypto's */
		aead_seal(&plain, nonce, aad, naad, p, 3, one);
		aead_done(&plain);
		gcm_seal(g, nonce, aad, naad, p, 3, two);
		assert_memory_equal(one, two, len + AEAD_TAG);
		assert_int_equal(gcm_open(g, nonce, aad, naad, one, len + AEAD_TAG, back), 0);
		assert_memory_equal(back, text, len);
		one[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(gcm_open(g, nonce, aad, naad, one, len + AEAD_TAG, back), -1);
		aad[0] ^= naad > 0;
		nonce[0] ^= naad == 0;
		assert_int_equal(gcm_open(g, nonce, aad, naad, two, len + AEAD_TAG, back), -1);
		aad[0] ^= naad > 0;
		nonce[0] ^= naad == 0;
		assert_int_equal(gcm_open(g, nonce, aad, naad, two, len + AEAD_TAG, two), 0);   /* into itself */
		assert_memory_equal(two, text, len);
		assert_int_equal(gcm_open(g, nonce, aad, naad, two, AEAD_TAG - 1, back), -1);
		gcm_free(g);
	}
}

/* Long messages go another way than short ones. */
static void test_long(void **state)
{
	static uint8_t text[100000], out[100000 + AEAD_TAG];
	static const size_t lens[] = { 100, 100000, 0, 32767, 32768, 5, 100000 };
	uint8_t key[AEAD_KEY] = { 1 }, nonce[AEAD_NONCE] = { 2 };
	struct aead tx, rx;

	for (unsigned suite = SUITE_AES_256_GCM; suite <= SUITE_CHACHA20_POLY1305; suite++) {
		aead_init(&tx, suite, key, true);
		aead_init(&rx, suite, key, false);
		for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
			struct piece p = { text, lens[i] };

			memset(text, (int)i + 1, sizeof text);
			nonce[1] = (uint8_t)i;
			aead_seal(&tx, nonce, "a", 1, &p, 1, out);
			assert_int_equal(aead_open(&rx, nonce, "a", 1, out, lens[i] + AEAD_TAG, out), 0);
			assert_memory_equal(out, text, lens[i]);
			assert_int_equal(aead_open(&rx, nonce, "b", 1, out, lens[i] + AEAD_TAG, out), -1);
		}
		assert_true(!tx.fast || suite == SUITE_AES_256_GCM);
		aead_done(&tx);
		aead_done(&rx);
	}
}

struct both { struct session *i, *r; };
static struct both make(unsigned suite)
{
	uint8_t dh[32] = { 1 }, mac[32] = { 2 }, transcript[32] = { 3 };
	struct both b = { session_new(true, suite, dh, mac, transcript), session_new(false, suite, dh, mac, transcript) };

	b.i->version = b.r->version = 1;
	return b;
}

static void unmake(struct both b)
{
	session_unref(b.i);
	session_unref(b.r);
}

#define BODY "{\"a\":1}blobblob"
static size_t seal(struct session *s, enum chan c, uint32_t connection, uint8_t *out)
{
	struct header h = { .pre = { .version = 1, .kind = KIND_DHT_GET, .oldest = 1, .length = (uint32_t)frame_bytes(7, 8,
		false) },
		.json_len = 7, .blob_len = 8, .chan = c };
	struct piece p[2] = { { BODY, 7 }, { BODY + 7, 8 } };

	session_seal(s, &h, connection, p, 2, out);
	return h.pre.length;
}

static enum open_rc open_(struct session *s, const uint8_t *w, size_t len)
{
	struct header h;
	uint8_t out[512];
	enum open_rc rc;

	if (header_read(&h, w, len, NULL))
		return OPEN_FORGED;
	rc = session_open(s, &h, w, len, out);
	if (rc == OPEN_OK)
		assert_memory_equal(out, BODY, 15);
	return rc;
}

static void test_keys(void **state)
{
	for (unsigned suite = 1; suite <= 2; suite++) {
		struct both b = make(suite);
		const uint8_t *keys[4] = { b.i->tx[0].key, b.i->tx[1].key, b.i->rx[0].key, b.i->rx[1].key };

		assert_int_equal(b.i->id, b.r->id);
		assert_memory_equal(b.i->tx[0].key, b.r->rx[0].key, 32);
		assert_memory_equal(b.i->rx[1].key, b.r->tx[1].key, 32);
		assert_memory_equal(b.i->tx_prefix[1], b.r->rx_prefix[1], 4);
		for (int i = 0; i < 4; i++)
			for (int k = 0; k < i; k++)
				assert_true(memcmp(keys[i], keys[k], 32) != 0);
		unmake(b);
	}
}

static void test_open(void **state)
{
	uint8_t w[512];

	for (unsigned suite = 1; suite <= 2; suite++)
		for (int c = 0; c < CHANS; c++) {
			struct both b = make(suite);
			size_t n = seal(b.i, c, 1, w);

			assert_int_equal(open_(b.i, w, n), OPEN_FORGED);        /* reflected to its sender */
			assert_int_equal(open_(b.r, w, n), OPEN_OK);
			assert_int_equal(open_(b.r, w, n), OPEN_REPLAYED);
			n = seal(b.r, c, 1, w);                                 /* and the other way */
			assert_int_not_equal(open_(b.r, w, n), OPEN_OK);
			assert_int_equal(open_(b.i, w, n), OPEN_OK);
			unmake(b);
		}
}

/* Every bit of header, body and tag is authenticated. */
static void test_flips(void **state)
{
	uint8_t w[512];

	for (unsigned suite = 1; suite <= 2; suite++) {
		struct both b = make(suite);
		size_t n = seal(b.i, CHAN_CTRL, 1, w);

		for (size_t i = 0; i < n; i++)
			for (int bit = 0; bit < 8; bit++) {
				w[i] ^= (uint8_t)(1 << bit);
				assert_int_not_equal(open_(b.r, w, n), OPEN_OK);
				w[i] ^= (uint8_t)(1 << bit);
			}
		assert_int_equal(open_(b.r, w, n), OPEN_OK);
		unmake(b);
	}
}

/* Sealed for control, offered as bulk or door: the header says the channel, and it is authenticated. */
static void test_channels(void **state)
{
	struct both b = make(1);
	uint8_t w[512];
	size_t n = seal(b.i, CHAN_CTRL, 1, w);

	for (int c = 1; c < CHANS; c++) {
		w[84] = (uint8_t)c;
		assert_int_equal(open_(b.r, w, n), OPEN_FORGED);
	}
	unmake(b);
}

/* Amendment C11: old and new connections interleave; each is strictly increasing; one more drives out the oldest. */
static void test_connections(void **state)
{
	struct both b = make(1);
	static uint8_t w[CONNECTIONS_KEPT + 2][4][512];
	size_t n = 0;

	for (uint32_t c = 1; c <= CONNECTIONS_KEPT + 1; c++)
		for (int i = 0; i < 4; i++)
			n = seal(b.i, CHAN_CTRL, c, w[c][i]);
	assert_int_equal(open_(b.r, w[1][0], n), OPEN_OK);
	assert_int_equal(open_(b.r, w[2][0], n), OPEN_OK);
	assert_int_equal(open_(b.r, w[1][1], n), OPEN_OK);      /* leftovers of the old connection */
	assert_int_equal(open_(b.r, w[2][2], n), OPEN_OK);      /* one was lost */
	assert_int_equal(open_(b.r, w[2][1], n), OPEN_REPLAYED);/* but inside a connection order holds */
	for (uint32_t c = CONNECTIONS_KEPT; c >= 3; c--)
		assert_int_equal(open_(b.r, w[c][0], n), OPEN_OK);
	assert_int_equal(open_(b.r, w[CONNECTIONS_KEPT + 1][0], n), OPEN_OK);   /* connection 1 is forgotten */
	assert_int_equal(open_(b.r, w[1][2], n), OPEN_REPLAYED);
	assert_int_equal(open_(b.r, w[1][0], n), OPEN_REPLAYED);
	assert_int_equal(open_(b.r, w[2][3], n), OPEN_OK);
	unmake(b);
}

/* Random interleavings: each frame opens at most once, whatever is replayed in between. */
static void test_replay_property(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct both b = make(2);
		uint8_t (*w)[256] = calloc(300, 256);
		unsigned opened[300] = {0};
		size_t n = 0;
		struct rng r;

		rng_seed(&r, seed);
		for (int i = 0; i < 300; i++)
			n = seal(b.i, CHAN_CTRL, 1 + i / 40 + (uint32_t)rng_below(&r, 2), w[i]);
		for (int k = 0; k < 3000; k++) {
			size_t i = rng_below(&r, 300);

			opened[i] += open_(b.r, w[i], n) == OPEN_OK;
			assert_true(opened[i] <= 1);
		}
		free(w);
		unmake(b);
	}
}

static void test_m3(void **state)
{
	uint8_t seed[32] = { 5 }, transcript[32] = { 6 }, other[32] = { 7 }, m3[M3_BYTES];
	struct signer s;
	struct id id;

	signer_init(&s, seed);
	m3_make(m3, &s, transcript);
	assert_int_equal(m3_check(m3, transcript, &id), 0);
	assert_memory_equal(&id, &s.id, 32);
	assert_int_equal(m3_check(m3, other, &id), -1);         /* of another HELLO */
	for (size_t i = 0; i < M3_BYTES; i++) {
		m3[i] ^= 2;
		assert_int_equal(m3_check(m3, transcript, &id), -1);
		m3[i] ^= 2;
	}
	signer_done(&s);
}

static void test_suites(void **state)
{
	assert_int_equal(suite_choose(3, 3), SUITE_AES_256_GCM);
	assert_int_equal(suite_choose(3, 2), SUITE_CHACHA20_POLY1305);
	assert_int_equal(suite_choose(2, 3), SUITE_CHACHA20_POLY1305);
	assert_int_equal(suite_choose(1, 2), 0);
	assert_int_equal(suite_choose(3, 0xfffffffc), 0);
	assert_true(suites_of_cpu() & SUITE_CHACHA20_POLY1305);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_vectors), cmocka_unit_test(test_x25519_rfc),
		cmocka_unit_test(test_gcm), cmocka_unit_test(test_long), cmocka_unit_test(test_keys),
		cmocka_unit_test(test_open), cmocka_unit_test(test_flips), cmocka_unit_test(test_channels),
		cmocka_unit_test(test_connections), cmocka_unit_test(test_replay_property), cmocka_unit_test(test_m3),
		cmocka_unit_test(test_suites) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

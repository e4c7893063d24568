/* Frames and the plain messages byte by byte: what is written reads back, and nothing that is cut, flipped or too large
 * is taken for a message. */
#include "t.h"
#include "common/hash.h"
#include "net/frame.h"

static const uint8_t swarm[32] = { 1, 2, 3 }, other_swarm[32] = { 1, 2, 4 };

static void test_names(void **state)
{
	for (unsigned k = 0; k < 65536; k++) {
		const char *name = kind_name((enum kind)k);

		assert_int_equal(kind_known(k), strcmp(name, "?") != 0);
		for (const char *p = name; *p; p++)
			assert_false(*p >= 'A' && *p <= 'Z');
	}
#define KIND(n, number, who) { const char *s = #n; assert_int_equal(strcasecmp(kind_name(KIND_##n), s), 0); \
	assert_int_equal(kind_plain(number), who == 'p'); }
#include "net/kinds.h"
#undef KIND
}

static struct header sample(size_t json, size_t blob, bool m3)
{
	struct header h = { .pre = { .version = 1, .kind = KIND_DHT_GET, .flags = FLAG_CALL | (m3 ? FLAG_M3 : 0),
		.oldest = 1,
		.length = (uint32_t)frame_bytes(json, blob, m3) }, .request = 0x1122334455667788, .boot = 7, .session = 8,
		.counter = 9,
		.json_len = (uint32_t)json, .blob_len = (uint32_t)blob, .connection = 10, .span = 11, .chan = CHAN_BULK,
		.cls = CLASS_weight };

	memset(h.sender.b, 0xab, 32);
	return h;
}

static void test_header(void **state)
{
	struct header h = sample(5, 7, true), r;
	uint8_t w[1024] = {0};
	struct err e;

	header_write(&h, w);
	assert_int_equal(header_read(&r, w, h.pre.length, &e), 0);
	assert_int_equal(r.request, h.request);
	assert_int_equal(r.boot, 7);
	assert_int_equal(r.session, 8);
	assert_int_equal(r.counter, 9);
	assert_int_equal(r.connection, 10);
	assert_int_equal(r.span, 11);
	assert_int_equal(r.chan, CHAN_BULK);
	assert_int_equal(r.cls, CLASS_weight);
	assert_int_equal(r.json_len, 5);
	assert_int_equal(r.blob_len, 7);
	assert_memory_equal(&r.sender, &h.sender, 32);
	/* the first 16 bytes, as every version reads them */
	assert_memory_equal(w, "HVMD\x01\x00\x22\x00", 8);
	for (size_t n = 0; n < h.pre.length; n++)
		assert_int_equal(header_read(&r, w, n, &e), -1);
	assert_int_equal(header_read(&r, w, h.pre.length + 1, &e), -1);
}

static void expect_bad(struct header h, size_t len, enum err_code code, const char *text)
{
	uint8_t *w = calloc(1, len);
	struct header r;
	struct err e;

	h.pre.length = (uint32_t)len;
	header_write(&h, w);
	assert_int_equal(header_read(&r, w, len, &e), -1);
	assert_err(e, code, text);
	free(w);
}

static void test_header_limits(void **state)
{
	struct header h = sample(0, 0, false);

	h.blob_len = NET_BLOB_MAX + 1;
	expect_bad(h, frame_bytes(0, NET_BLOB_MAX + 1, false), ERR_LIMIT, "blob");
	h.pre.kind = KIND_CHUNK;
	h.blob_len = NET_CHUNK_MAX + 1;
	expect_bad(h, frame_bytes(0, NET_CHUNK_MAX + 1, false), ERR_LIMIT, "524288");
	h = sample(0, 0, false);
	h.blob_len = UINT32_MAX;                /* a sum that would wrap in 32 bits */
	h.json_len = 0;
	expect_bad(h, 200, ERR_LIMIT, "blob");
	h = sample(0, 0, false);
	h.json_len = 8193;
	expect_bad(h, frame_bytes(8193, 0, false), ERR_LIMIT, "8192");
	h.pre.kind = KIND_AVG_COMMIT;
	h.json_len = NET_JSON_MAX + 1;
	expect_bad(h, frame_bytes(NET_JSON_MAX + 1, 0, false), ERR_LIMIT, "65536");
	h = sample(0, 0, false);
	h.pre.kind = KIND_HELLO1;
	expect_bad(h, h.pre.length, ERR_PROTOCOL, "sealed");
	h.pre.kind = 9999;
	expect_bad(h, h.pre.length, ERR_PROTOCOL, "9999");
	h = sample(0, 0, false);
	h.chan = CHANS;
	expect_bad(h, h.pre.length, ERR_PROTOCOL, "channel");
	h = sample(0, 0, false);
	h.cls = CLASS_COUNT_;
	expect_bad(h, h.pre.length, ERR_PROTOCOL, "class");
	h = sample(3, 4, false);
	expect_bad(h, h.pre.length + 1, ERR_PROTOCOL, "add up");
}

static struct hello1 hello1_sample(void)
{
	struct hello1 m = { .version_min = 1, .version_max = 3, .flags = HELLO_CLIENT, .suites = 3, .boot = 99,
		.software = "test 1" };

	memset(m.e, 0x11, 32);
	m.at.ip[15] = 1;
	m.at.port[0] = 4237;
	m.at.port[2] = 4239;
	return m;
}

static void test_hello1(void **state)
{
	struct hello1 m = hello1_sample(), r;
	struct buf b = {0};
	struct err e;

	hello1_write(&m, swarm, &b);
	assert_int_equal(hello1_read(&r, b.p, b.len, swarm, &e), 0);
	assert_memory_equal(r.e, m.e, 32);
	assert_int_equal(r.version_max, 3);
	assert_int_equal(r.suites, 3);
	assert_int_equal(r.boot, 99);
	assert_int_equal(r.at.port[2], 4239);
	assert_string_equal(r.software, "test 1");
	assert_int_equal(hello1_read(&r, b.p, b.len, other_swarm, &e), -1);
	assert_err(e, ERR_AUTH, "another swarm key");
	for (size_t i = 0; i < b.len; i++)
		for (int bit = 0; bit < 8; bit++) {
			b.p[i] ^= (uint8_t)(1 << bit);
			assert_int_equal(hello1_read(&r, b.p, b.len, swarm, &e), -1);
			b.p[i] ^= (uint8_t)(1 << bit);
		}
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(hello1_read(&r, b.p, n, swarm, &e), -1);
	buf_free(&b);
}

/* Unknown extensions are skipped: a later version may add some. */
static void test_hello1_extension(void **state)
{
	struct hello1 m = hello1_sample(), r;
	struct buf b = {0};
	struct prelude p;
	struct err e;

	hello1_write(&m, swarm, &b);
	b.len -= 32 + 2;
	buf_u16(&b, 5);
	buf_put(&b, "later", 5);
	buf_grow(&b, 32);
	assert_int_equal(prelude_read(&p, b.p, b.len), PRELUDE_LENGTH);
	p.length = (uint32_t)b.len;
	prelude_write(&p, b.p);
	mac_of(swarm, b.p, b.len - 32, b.p + b.len - 32);
	assert_int_equal(hello1_read(&r, b.p, b.len, swarm, &e), 0);
	assert_int_equal(r.boot, 99);
	buf_free(&b);
}

/* Further addresses are an extension; an odd one, too many of them, or one that is cut, harms nobody. */
static void test_hello1_others(void **state)
{
	static const uint16_t bytes[] = { 0, 21, 44, 9 * 22 };
	struct hello1 m = hello1_sample(), r;
	struct buf b = {0};
	struct prelude p;
	struct err e;

	for (m.also.n = 0; m.also.n <= NET_ALSO; m.also.n++) {
		m.to = (struct endpoint){ .ip = { 0xfe, (uint8_t)m.also.n }, .port = { 4, 5, 6 } };
		for (unsigned i = 0; i < m.also.n; i++)
			m.also.v[i] = (struct endpoint){ .ip = { 0xfd, (uint8_t)i }, .port = { 1, 2, (uint16_t)(i + 3) } };
		buf_clear(&b);
		hello1_write(&m, swarm, &b);
		memset(&r, 0xff, sizeof r);
		assert_int_equal(hello1_read(&r, b.p, b.len, swarm, &e), 0);
		assert_int_equal(r.also.n, m.also.n);
		assert_memory_equal(r.also.v, m.also.v, m.also.n * sizeof *m.also.v);
		assert_memory_equal(&r.to, &m.to, sizeof m.to);
		assert_true(b.len <= HELLO1_MAX);
	}
	m.also.n = 0;
	m.to = (struct endpoint){0};
	for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
		buf_clear(&b);
		hello1_write(&m, swarm, &b);
		b.len -= 32 + 2;
		buf_u16(&b, (uint16_t)(4 + bytes[i] + 3));
		buf_u16(&b, 1);
		buf_u16(&b, bytes[i]);
		memset(buf_grow(&b, bytes[i]), 7, bytes[i]);
		buf_put(&b, "end", 3);
		buf_grow(&b, 32);
		(void)prelude_read(&p, b.p, b.len);
		p.length = (uint32_t)b.len;
		prelude_write(&p, b.p);
		mac_of(swarm, b.p, b.len - 32, b.p + b.len - 32);
		assert_int_equal(hello1_read(&r, b.p, b.len, swarm, &e), 0);
		assert_int_equal(r.also.n, bytes[i] / 22 < NET_ALSO ? bytes[i] / 22 : NET_ALSO);
	}
	buf_free(&b);
}

static void test_hello2(void **state)
{
	struct hello2 m = { .version = 1, .suite = 1, .boot = 5, .flags = HELLO_AS_CLIENT, .software = "x",
		.also = { .n = 2, .v = { [1] = { .port = { 7 } } } } }, r;
	uint8_t seed[32] = { 3 }, m1_hash[32] = { 4 }, wrong_hash[32] = { 5 };
	struct buf b = {0};
	struct signer s;
	struct err e;

	signer_init(&s, seed);
	m.id = s.id;
	memset(m.e, 0x77, 32);
	memset(m.ref, 0x66, HELLO_REF);
	hello2_write(&m, m1_hash, &s, swarm, &b);
	assert_int_equal(hello2_look(&r, b.p, b.len, &e), 0);
	assert_int_equal(r.also.n, 2);
	assert_int_equal(r.also.v[1].port[0], 7);
	assert_int_equal(hello2_verify(&r, b.p, b.len, m1_hash, swarm, &e), 0);
	assert_memory_equal(&r.id, &s.id, 32);
	assert_int_equal(r.boot, 5);
	assert_int_equal(hello2_verify(&r, b.p, b.len, wrong_hash, swarm, &e), -1);     /* an answer to another M1 */
	assert_int_equal(hello2_verify(&r, b.p, b.len, m1_hash, other_swarm, &e), -1);
	assert_err(e, ERR_AUTH, "swarm key");
	/* somebody in the swarm replaces the identity: the MAC can be made anew, the signature cannot */
	struct hello2 evil = m;
	struct buf v = {0};
	uint8_t seed2[32] = { 8 };
	struct signer s2;

	signer_init(&s2, seed2);
	hello2_write(&evil, m1_hash, &s2, swarm, &v);           /* says s.id, signed by s2 */
	assert_int_equal(hello2_look(&r, v.p, v.len, &e), 0);
	assert_int_equal(hello2_verify(&r, v.p, v.len, m1_hash, swarm, &e), -1);
	assert_err(e, ERR_AUTH, "signature");
	for (size_t i = 0; i < b.len; i++) {
		b.p[i] ^= 0x40;
		assert_true(hello2_look(&r, b.p, b.len, &e) || hello2_verify(&r, b.p, b.len, m1_hash, swarm, &e));
		b.p[i] ^= 0x40;
	}
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(hello2_look(&r, b.p, n, &e), -1);
	signer_done(&s);
	signer_done(&s2);
	buf_free(&b);
	buf_free(&v);
}

static void test_small_ones(void **state)
{
	struct reset r = { .session = 5, .boot = 6 }, rr;
	struct too_old t = { .why = REFUSAL_VERSION, .version_min = 2, .version_max = 9 }, tt;
	uint8_t w[256];
	struct err e;

	r.from.b[0] = 1;
	r.to.b[0] = 2;
	reset_write(&r, swarm, w);
	assert_int_equal(reset_read(&rr, w, RESET_BYTES, swarm, &e), 0);
	assert_int_equal(rr.session, 5);
	assert_int_equal(rr.to.b[0], 2);
	for (size_t i = 0; i < RESET_BYTES; i++) {
		w[i] ^= 1;
		assert_int_equal(reset_read(&rr, w, RESET_BYTES, swarm, &e), -1);
		w[i] ^= 1;
	}
	memset(t.ref, 9, HELLO_REF);
	too_old_write(&t, swarm, w);
	assert_int_equal(too_old_read(&tt, w, TOO_OLD_BYTES, swarm, &e), 0);
	assert_true(tt.authentic);
	assert_int_equal(tt.version_max, 9);
	assert_int_equal(too_old_read(&tt, w, TOO_OLD_BYTES, other_swarm, &e), 0);
	assert_false(tt.authentic);             /* readable all the same: a hint */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_names), cmocka_unit_test(test_header),
		cmocka_unit_test(test_header_limits), cmocka_unit_test(test_hello1), cmocka_unit_test(test_hello1_extension),
		cmocka_unit_test(test_hello1_others),
		cmocka_unit_test(test_hello2), cmocka_unit_test(test_small_ones) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

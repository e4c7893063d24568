/* Encoding and decoding of what lies on the wire. Remote bytes never reach an assert here: a frame that does not add
 * up to its length exactly is refused with the field that is wrong. */
#include <string.h>
#include "common/hash.h"
#include "common/text.h"
#include "net/frame.h"

static const uint8_t magic[4] = { 'H', 'V', 'M', 'D' };

static void put16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)v; p[1] = (uint8_t)(v >> 8); }
static void put32(uint8_t *p, uint32_t v) { put16(p, (uint16_t)v); put16(p + 2, (uint16_t)(v >> 16)); }
static void put64(uint8_t *p, uint64_t v) { put32(p, (uint32_t)v); put32(p + 4, (uint32_t)(v >> 32)); }
static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t get32(const uint8_t *p) { return get16(p) | (uint32_t)get16(p + 2) << 16; }
static uint64_t get64(const uint8_t *p) { return get32(p) | (uint64_t)get32(p + 4) << 32; }

const char *kind_name(enum kind k)
{
	static const struct { enum kind k; const char *name; } names[] = {
		{ KIND_HELLO1, "hello1" }, { KIND_HELLO2, "hello2" }, { KIND_RESET, "reset" },
		{ KIND_TOO_OLD, "too_old" }, { KIND_REPLY, "reply" }, { KIND_REFUSE, "refuse" }, { KIND_PING, "ping" },
		{ KIND_GOODBYE, "goodbye" }, { KIND_VIEW, "view" }, { KIND_CHUNK, "chunk" }, { KIND_CHUNK_WANT, "chunk_want" },
		{ KIND_DHT_FIND, "dht_find" }, { KIND_DHT_STORE, "dht_store" }, { KIND_DHT_GET, "dht_get" },
		{ KIND_AVG_JOIN, "avg_join" }, { KIND_AVG_PROGRESS, "avg_progress" }, { KIND_AVG_BEGIN, "avg_begin" },
		{ KIND_AVG_ATTEMPT, "avg_attempt" }, { KIND_AVG_MISSING, "avg_missing" }, { KIND_AVG_ACK, "avg_ack" },
		{ KIND_AVG_COMMIT, "avg_commit" }, { KIND_AVG_RECOVER, "avg_recover" },
		{ KIND_AVG_LEAVE, "avg_leave" }, { KIND_AVG_PROPOSE, "avg_propose" },
		{ KIND_AVG_GRANT, "avg_grant" }, { KIND_AVG_REDIRECT, "avg_redirect" }, { KIND_AVG_SHOW, "avg_show" },
		{ KIND_AVG_PROOF, "avg_proof" }, { KIND_AVG_SENT, "avg_sent" }, { KIND_AVG_AUDIT, "avg_audit" },
		{ KIND_AVG_WRONG, "avg_wrong" },
		{ KIND_RUN_STATE, "run_state" },
		{ KIND_RUN_CTL, "run_ctl" }, { KIND_RUN_DATA, "run_data" }, { KIND_RUN_SHARD, "run_shard" },
		{ KIND_RUN_SAVED, "run_saved" },
		{ KIND_PLAN_DATA, "plan_data" }, { KIND_CREW_PROPOSE, "crew_propose" },
		{ KIND_CREW_GO, "crew_go" }, { KIND_CREW_ASK, "crew_ask" }, { KIND_CREW_SHOW, "crew_show" },
	};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].k == k)
			return names[i].name;
	return "?";
}

bool kind_known(unsigned k)
{
	switch (k) {
#define KIND(name, number, who) case number: return true;
#include "net/kinds.h"
#undef KIND
	default: return false;
	}
}

bool kind_plain(unsigned k)
{
	switch (k) {
#define KIND(name, number, who) case number: return who == 'p';
#include "net/kinds.h"
#undef KIND
	default: return false;
	}
}

size_t blob_max(enum kind k) { return k == KIND_CHUNK ? NET_CHUNK_MAX : NET_BLOB_MAX; }

size_t json_max(enum kind k)
{
	switch (k) {
	case KIND_PING: case KIND_GOODBYE: case KIND_CHUNK: case KIND_CHUNK_WANT: case KIND_REFUSE:
	case KIND_DHT_FIND: case KIND_DHT_STORE: case KIND_DHT_GET:
		return 8192;
	default:
		return NET_JSON_MAX;
	}
}

enum prelude_rc prelude_read(struct prelude *ret, const uint8_t *p, size_t len)
{
	if (len < PRELUDE_BYTES)
		return PRELUDE_SHORT;
	if (memcmp(p, magic, 4))
		return PRELUDE_MAGIC;
	ret->version = get16(p + 4);
	ret->kind = get16(p + 6);
	ret->length = get32(p + 8);
	ret->flags = get16(p + 12);
	ret->oldest = get16(p + 14);
	return ret->length == len ? PRELUDE_OK : PRELUDE_LENGTH;
}

void prelude_write(const struct prelude *h, uint8_t out[PRELUDE_BYTES])
{
	memcpy(out, magic, 4);
	put16(out + 4, h->version);
	put16(out + 6, h->kind);
	put32(out + 8, h->length);
	put16(out + 12, h->flags);
	put16(out + 14, h->oldest);
}

size_t frame_bytes(size_t json_len, size_t blob_len, bool m3)
{
	return HEADER_BYTES + (m3 ? M3_BYTES : 0) + json_len + blob_len + AEAD_TAG;
}

void header_write(const struct header *h, uint8_t out[HEADER_BYTES])
{
	prelude_write(&h->pre, out);
	put64(out + 16, h->request);
	put32(out + 24, h->json_len);
	put32(out + 28, h->blob_len);
	memcpy(out + 32, h->sender.b, 32);
	put64(out + 64, h->boot);
	put64(out + 72, h->session);
	put32(out + 80, h->connection);
	out[84] = h->chan;
	out[85] = h->cls;
	put16(out + 86, 0);
	put64(out + 88, h->counter);
	put32(out + 96, h->span);
	put32(out + 100, 0);
}

int header_read(struct header *ret, const uint8_t *p, size_t len, struct err *e)
{
	if (prelude_read(&ret->pre, p, len) != PRELUDE_OK || len < HEADER_BYTES + AEAD_TAG)
		return err_set(e, ERR_PROTOCOL, "a frame of %zu bytes that says %s", len,
			len < HEADER_BYTES + AEAD_TAG ? "nothing: it is too short" : "another length");
	ret->request = get64(p + 16);
	ret->json_len = get32(p + 24);
	ret->blob_len = get32(p + 28);
	memcpy(ret->sender.b, p + 32, 32);
	ret->boot = get64(p + 64);
	ret->session = get64(p + 72);
	ret->connection = get32(p + 80);
	ret->chan = p[84];
	ret->cls = p[85];
	ret->counter = get64(p + 88);
	ret->span = get32(p + 96);
	if (!kind_known(ret->pre.kind) || kind_plain(ret->pre.kind))
		return err_set(e, ERR_PROTOCOL, "kind %u is not one that is sealed", ret->pre.kind);
	if (ret->json_len > json_max(ret->pre.kind) || ret->blob_len > blob_max(ret->pre.kind))
		return err_set(e, ERR_LIMIT, "%s: %u bytes of JSON and %u of blob, at most %zu and %zu",
			kind_name(ret->pre.kind), ret->json_len, ret->blob_len, json_max(ret->pre.kind),
			blob_max(ret->pre.kind));
	if (len != frame_bytes(ret->json_len, ret->blob_len, ret->pre.flags & FLAG_M3))
		return err_set(e, ERR_PROTOCOL, "%s: %zu bytes, but its parts add up to %zu", kind_name(ret->pre.kind), len,
			frame_bytes(ret->json_len, ret->blob_len, ret->pre.flags & FLAG_M3));
	if (ret->chan >= CHANS || ret->cls >= CLASS_COUNT_ || get16(p + 86) || get32(p + 100))
		return err_set(e, ERR_PROTOCOL, "%s: channel %u, class %u, or a reserved byte is set",
			kind_name(ret->pre.kind), ret->chan, ret->cls);
	return 0;
}

void endpoint_write(const struct endpoint *at, struct buf *b)
{
	buf_put(b, at->ip, 16);
	for (int i = 0; i < CHANS; i++)
		buf_u16(b, at->port[i]);
}

void endpoint_read(struct endpoint *ret, struct rd *r)
{
	const uint8_t *ip = rd_bytes(r, 16);

	memset(ret, 0, sizeof *ret);
	if (ip)
		memcpy(ret->ip, ip, 16);
	for (int i = 0; i < CHANS; i++)
		ret->port[i] = rd_u16(r);
}

/* ---- plain messages: prelude, body, MAC over all that stands before it ---- */

static size_t plain_begin(struct buf *b)
{
	size_t at = b->len;

	memset(buf_grow(b, PRELUDE_BYTES), 0, PRELUDE_BYTES);
	return at;
}

/* Writes the prelude once the length is known; `more` bytes follow. */
static void plain_head(struct buf *b, size_t at, enum kind kind, uint16_t version, size_t more)
{
	struct prelude h = { .version = version, .kind = kind, .oldest = PROTOCOL_OLDEST,
		.length = (uint32_t)(b->len - at + more) };

	prelude_write(&h, b->p + at);
}

static int plain_check(const uint8_t *p, size_t len, enum kind kind, size_t min, size_t max, struct err *e)
{
	struct prelude h;

	if (prelude_read(&h, p, len) != PRELUDE_OK || h.kind != kind || len < min || len > max)
		return err_set(e, ERR_PROTOCOL, "%zu bytes that are no %s", len, kind_name(kind));
	return 0;
}

static void text24(struct buf *b, const char s[24])
{
	size_t n = strnlen(s, 23);
	uint8_t *p = buf_grow(b, 24);

	memset(p, 0, 24);
	memcpy(p, s, n);
}

static void read24(struct rd *r, char out[24])
{
	const uint8_t *p = rd_bytes(r, 24);

	memset(out, 0, 24);
	if (p)
		memcpy(out, p, 23);
	text_clean(out);
}

/* Extensions of HELLO: type (2), bytes (2), content; unknown ones are passed over. 1: further endpoints, 22 bytes
 * each; 2: of HELLO1, the endpoint that it is sent to. */
#define EXT_OTHERS 1
#define EXT_TO 2
#define ENDPOINT_BYTES (16 + 2 * CHANS)

static void extension(struct buf *out, uint16_t type, const struct endpoint *v, unsigned n)
{
	buf_u16(out, type);
	buf_u16(out, (uint16_t)(n * ENDPOINT_BYTES));
	for (unsigned i = 0; i < n; i++)
		endpoint_write(&v[i], out);
}

/* to: NULL in HELLO2, and when it is not known. */
static void extensions_write(const struct others *o, const struct endpoint *to, struct buf *out)
{
	unsigned blocks = (o->n > 0) + (to != NULL), ends = o->n + (to != NULL);

	buf_u16(out, (uint16_t)(4 * blocks + ends * ENDPOINT_BYTES));
	if (o->n)
		extension(out, EXT_OTHERS, o->v, o->n);
	if (to)
		extension(out, EXT_TO, to, 1);
}

static void extensions_read(struct others *ret, struct endpoint *ret_to, struct rd *r)
{
	size_t len = rd_u16(r);
	const uint8_t *p = rd_bytes(r, len);
	struct rd x = rd_of(p, p ? len : 0);

	ret->n = 0;
	memset(ret_to, 0, sizeof *ret_to);
	while (rd_left(&x) >= 4 && !x.bad) {
		uint16_t type = rd_u16(&x);
		size_t n = rd_u16(&x);
		const uint8_t *body = rd_bytes(&x, n);
		struct rd e = rd_of(body, body ? n : 0);

		while (type == EXT_OTHERS && ret->n < NET_ALSO && rd_left(&e) >= ENDPOINT_BYTES)
			endpoint_read(&ret->v[ret->n++], &e);
		if (type == EXT_TO && rd_left(&e) == ENDPOINT_BYTES)
			endpoint_read(ret_to, &e);
	}
}

void hello1_write(const struct hello1 *h, const uint8_t mac_key[32], struct buf *out)
{
	size_t at = plain_begin(out);

	buf_put(out, h->e, 32);
	buf_u16(out, h->version_min);
	buf_u16(out, h->version_max);
	buf_u16(out, h->flags);
	buf_u32(out, h->suites);
	buf_u64(out, h->boot);
	endpoint_write(&h->at, out);
	text24(out, h->software);
	extensions_write(&h->also, h->to.port[CHAN_CTRL] || h->to.port[CHAN_DOOR] ? &h->to : NULL, out);
	plain_head(out, at, KIND_HELLO1, h->version_max, 32);
	buf_grow(out, 32);
	mac_of(mac_key, out->p + at, out->len - at - 32, out->p + out->len - 32);
}

int hello1_read(struct hello1 *ret, const uint8_t *p, size_t len, const uint8_t mac_key[32], struct err *e)
{
	struct rd r = rd_of(p, len);
	const uint8_t *x;
	uint8_t mac[32];

	if (plain_check(p, len, KIND_HELLO1, PRELUDE_BYTES + 32, HELLO1_MAX, e))
		return -1;
	rd_bytes(&r, PRELUDE_BYTES);
	x = rd_bytes(&r, 32);
	if (x)
		memcpy(ret->e, x, 32);
	ret->version_min = rd_u16(&r);
	ret->version_max = rd_u16(&r);
	ret->flags = rd_u16(&r);
	ret->suites = rd_u32(&r);
	ret->boot = rd_u64(&r);
	endpoint_read(&ret->at, &r);
	read24(&r, ret->software);
	extensions_read(&ret->also, &ret->to, &r);
	if (r.bad || rd_left(&r) != 32)
		return err_set(e, ERR_PROTOCOL, "a HELLO of %zu bytes that does not add up", len);
	mac_of(mac_key, p, len - 32, mac);
	if (!mac_equal(mac, p + len - 32))
		return err_set(e, ERR_AUTH, "a HELLO made with another swarm key");
	return 0;
}

static const char sig2_context[16] = "hivemind HELLO 2";

static void hello2_signed(const uint8_t m1_hash[32], const uint8_t *m2, size_t upto, uint8_t ret[16 + 32])
{
	struct sha256 h;

	memcpy(ret, sig2_context, 16);
	sha256_init(&h);
	sha256_add(&h, m1_hash, 32);
	sha256_add(&h, m2, upto);
	sha256_end(&h, ret + 16);
}

static void hello2_mac(const uint8_t mac_key[32], const uint8_t m1_hash[32], const uint8_t *m2, size_t upto,
	uint8_t ret[32])
{
	uint8_t whole[32 + HELLO2_MAX];

	memcpy(whole, m1_hash, 32);
	memcpy(whole + 32, m2, upto);
	mac_of(mac_key, whole, 32 + upto, ret);
}

void hello2_write(const struct hello2 *h, const uint8_t m1_hash[32], const struct signer *s, const uint8_t mac_key[32],
	struct buf *out)
{
	size_t at = plain_begin(out), n;
	uint8_t to_sign[48];

	buf_put(out, h->ref, HELLO_REF);
	buf_put(out, h->e, 32);
	buf_put(out, h->id.b, 32);
	buf_u16(out, h->version);
	buf_u16(out, h->flags);
	buf_u32(out, h->suite);
	buf_u64(out, h->boot);
	endpoint_write(&h->at, out);
	text24(out, h->software);
	extensions_write(&h->also, NULL, out);
	plain_head(out, at, KIND_HELLO2, h->version, SIG_BYTES + 32);
	n = out->len - at;
	buf_grow(out, SIG_BYTES + 32);
	hello2_signed(m1_hash, out->p + at, n, to_sign);
	signer_sign(s, to_sign, sizeof to_sign, out->p + at + n);
	hello2_mac(mac_key, m1_hash, out->p + at, n + SIG_BYTES, out->p + at + n + SIG_BYTES);
}

int hello2_look(struct hello2 *ret, const uint8_t *p, size_t len, struct err *e)
{
	struct endpoint to;                     /* HELLO1 only */
	struct rd r = rd_of(p, len);
	const uint8_t *x;

	if (plain_check(p, len, KIND_HELLO2, PRELUDE_BYTES + HELLO_REF + 64 + SIG_BYTES + 32, HELLO2_MAX, e))
		return -1;
	rd_bytes(&r, PRELUDE_BYTES);
	x = rd_bytes(&r, HELLO_REF + 64);
	memcpy(ret->ref, x, HELLO_REF);
	memcpy(ret->e, x + HELLO_REF, 32);
	memcpy(ret->id.b, x + HELLO_REF + 32, 32);
	ret->version = rd_u16(&r);
	ret->flags = rd_u16(&r);
	ret->suite = rd_u32(&r);
	ret->boot = rd_u64(&r);
	endpoint_read(&ret->at, &r);
	read24(&r, ret->software);
	extensions_read(&ret->also, &to, &r);
	if (r.bad || rd_left(&r) != SIG_BYTES + 32)
		return err_set(e, ERR_PROTOCOL, "an answer to HELLO of %zu bytes that does not add up", len);
	return 0;
}

int hello2_verify(const struct hello2 *h, const uint8_t *p, size_t len, const uint8_t m1_hash[32],
	const uint8_t mac_key[32], struct err *e)
{
	uint8_t mac[32], to_sign[48];

	hello2_mac(mac_key, m1_hash, p, len - 32, mac);
	if (!mac_equal(mac, p + len - 32))
		return err_set(e, ERR_AUTH, "an answer to HELLO made with another swarm key");
	hello2_signed(m1_hash, p, len - 32 - SIG_BYTES, to_sign);
	if (!sig_verify(&h->id, to_sign, sizeof to_sign, p + len - 32 - SIG_BYTES))
		return err_set(e, ERR_AUTH, "an answer to HELLO whose signature is not its sender's");
	return 0;
}

void reset_write(const struct reset *r, const uint8_t mac_key[32], uint8_t out[RESET_BYTES])
{
	struct prelude h = { .version = PROTOCOL_VERSION, .kind = KIND_RESET, .oldest = PROTOCOL_OLDEST,
		.length = RESET_BYTES };

	prelude_write(&h, out);
	put64(out + 16, r->session);
	put64(out + 24, r->boot);
	memcpy(out + 32, r->from.b, 32);
	memcpy(out + 64, r->to.b, 32);
	mac_of(mac_key, out, RESET_BYTES - 32, out + RESET_BYTES - 32);
}

int reset_read(struct reset *ret, const uint8_t *p, size_t len, const uint8_t mac_key[32], struct err *e)
{
	uint8_t mac[32];

	if (plain_check(p, len, KIND_RESET, RESET_BYTES, RESET_BYTES, e))
		return -1;
	ret->session = get64(p + 16);
	ret->boot = get64(p + 24);
	memcpy(ret->from.b, p + 32, 32);
	memcpy(ret->to.b, p + 64, 32);
	mac_of(mac_key, p, RESET_BYTES - 32, mac);
	return mac_equal(mac, p + RESET_BYTES - 32) ? 0 : err_set(e, ERR_AUTH, "a RESET made with another swarm key");
}

void too_old_write(const struct too_old *t, const uint8_t mac_key[32], uint8_t out[TOO_OLD_BYTES])
{
	struct prelude h = { .version = t->version_max, .kind = KIND_TOO_OLD, .oldest = t->version_min,
		.length = TOO_OLD_BYTES };

	prelude_write(&h, out);
	put16(out + 16, t->why);
	put16(out + 18, t->version_min);
	put16(out + 20, t->version_max);
	put16(out + 22, 0);
	memcpy(out + 24, t->ref, HELLO_REF);
	mac_of(mac_key, out, TOO_OLD_BYTES - 32, out + TOO_OLD_BYTES - 32);
}

int too_old_read(struct too_old *ret, const uint8_t *p, size_t len, const uint8_t mac_key[32], struct err *e)
{
	uint8_t mac[32];

	if (plain_check(p, len, KIND_TOO_OLD, TOO_OLD_BYTES, TOO_OLD_BYTES, e))
		return -1;
	ret->why = get16(p + 16);
	ret->version_min = get16(p + 18);
	ret->version_max = get16(p + 20);
	memcpy(ret->ref, p + 24, HELLO_REF);
	mac_of(mac_key, p, TOO_OLD_BYTES - 32, mac);
	ret->authentic = mac_equal(mac, p + TOO_OLD_BYTES - 32);
	return 0;
}

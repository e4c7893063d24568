/* Records of the DHT as a hostile peer sends them: read, written again, signed bytes, and put into a small store
 * together, whose counts and bounds must hold. First byte: how many keys the records are spread over. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/values.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW_US 5000000u
#define WALL_MS 1700000000000ull

static void again(const struct rec *r)
{
	struct buf b = { 0 };
	struct rec *c;
	struct rd rd;

	rec_write(&b, r, NOW_US);
	rd = rd_of(b.p, b.len);
	c = rec_read(&rd, &r->key, NOW_US);
	if (!c || rd.bad || rd_left(&rd) || strcmp(c->subkey, r->subkey) || c->vlen != r->vlen ||
		memcmp(c->value, r->value, r->vlen) || c->rank != r->rank || c->life_ms != r->life_ms ||
		c->ends_us > r->ends_us || !id_eq(&c->owner, &r->owner) || c->is_signed != r->is_signed)
		abort();
	rec_free(c);
	buf_clear(&b);
	rec_signed_bytes(&b, r);
	buf_free(&b);
}

static void whole(struct values *v)
{
	struct entry *en;
	size_t records = 0;

	for (size_t i = 0; (en = map_next(v->keys, &i, NULL, NULL));) {
		if (list_len(&en->recs) != en->n)
			abort();
		records += en->n;
	}
	if (records != v->records || records > v->conf.records_max || v->bytes > v->conf.bytes_max)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct values_conf conf = { .records_max = 8, .per_peer_max = 6, .bytes_max = 4096 };
	struct values v;
	struct rd rd = rd_of(data, size);
	unsigned keys = rd_u8(&rd) % 3 + 1;
	struct err e;

	values_init(&v, &conf, 1);
	for (unsigned n = 0; n < 64 && rd_left(&rd) && !rd.bad; n++) {
		struct id key = { .b = { (uint8_t)(n % keys) } };
		struct rec *r = rec_read(&rd, &key, NOW_US);
		enum put_result rc;

		if (!r)
			break;
		if (r->vlen > VALUE_MAX || strlen(r->subkey) > SUBKEY_MAX || r->ends_us > NOW_US + LIFE_MAX_MS * 1000)
			abort();
		again(r);
		r->from.b[0] = (uint8_t)(n % 2);
		e.code = ERR_NONE;
		rc = values_put(&v, r, NOW_US, WALL_MS, &e);
		if (rc == PUT_REFUSED && (!e.code || !e.text[0]))
			abort();
		whole(&v);
	}
	values_sweep(&v, NOW_US + LIFE_MAX_MS * 1000 + 1);
	whole(&v);
	if (v.records)
		abort();
	values_done(&v);
	return 0;
}

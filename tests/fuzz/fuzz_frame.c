/* What lies on the wire: every reader on any bytes; what a reader accepts must be written again as the same bytes; and
 * messages made of the input's bytes must survive writing and reading. */
#include <stdlib.h>
#include <string.h>
#include "net/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t mac_key[32] = { 1, 2, 3 };

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void as_header(const uint8_t *p, size_t n)
{
	struct err e = { .code = ERR_NONE };
	struct header h, again;
	uint8_t out[HEADER_BYTES];

	if (header_read(&h, p, n, &e)) {
		check(e.code != ERR_NONE && e.text[0]);
		return;
	}
	check(n >= HEADER_BYTES && n <= WIRE_LARGE && (uint64_t)h.json_len + h.blob_len <= n);
	header_write(&h, out);
	check(header_read(&again, p, n, NULL) == 0 && !memcmp(&again.sender, &h.sender, sizeof h.sender));
	check(!memcmp(out, p, HEADER_BYTES));
}

static void as_plain(const uint8_t *p, size_t n)
{
	struct err e = { .code = ERR_NONE };
	struct prelude pre;
	struct hello1 h1;
	struct hello2 h2;
	struct reset r;
	struct too_old t;
	uint8_t out[PRELUDE_BYTES];

	if (prelude_read(&pre, p, n) == PRELUDE_OK) {
		check(n >= PRELUDE_BYTES);
		prelude_write(&pre, out);
		check(!memcmp(out, p, PRELUDE_BYTES));
		(void)(kind_known(pre.kind) && json_max((enum kind)pre.kind) > WIRE_MAX && (abort(), 0));
	}
	check(hello1_read(&h1, p, n, mac_key, &e) == 0 || e.text[0]);
	check(hello2_look(&h2, p, n, &e) == 0 || e.text[0]);
	check(reset_read(&r, p, n, mac_key, &e) == 0 || e.text[0]);
	check(too_old_read(&t, p, n, mac_key, &e) == 0 || e.text[0]);
}

static void take(struct rd *r, void *out, size_t n)
{
	const uint8_t *p = rd_bytes(r, n);

	if (p)
		memcpy(out, p, n);
}

/* A HELLO of our own with the input's fields: written, read, equal; with one byte changed: refused. */
static void there_and_back(const uint8_t *p, size_t n)
{
	struct rd r = rd_of(p, n);
	struct hello1 h = { .version_min = rd_u16(&r), .version_max = rd_u16(&r), .flags = rd_u16(&r), .suites = rd_u32(&r),
		.boot = rd_u64(&r) }, back;
	size_t at = rd_u16(&r);
	struct buf b = {0};
	struct err e;

	take(&r, h.e, sizeof h.e);
	take(&r, &h.at.ip, sizeof h.at.ip);
	for (int i = 0; i < CHANS; i++)
		h.at.port[i] = rd_u16(&r);
	take(&r, h.software, 5);
	hello1_write(&h, mac_key, &b);
	if (hello1_read(&back, b.p, b.len, mac_key, &e) == 0) {
		check(back.boot == h.boot && back.suites == h.suites && !memcmp(back.e, h.e, sizeof h.e));
		check(!memcmp(&back.at, &h.at, sizeof h.at));
		b.p[at % b.len] ^= 0x10;
		check(hello1_read(&back, b.p, b.len, mac_key, &e) == -1);
	}
	buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	as_header(data, size);
	as_plain(data, size);
	there_and_back(data, size);
	return 0;
}

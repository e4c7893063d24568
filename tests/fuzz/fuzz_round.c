/* What peers of a run say to each other in blobs. First byte of the input, modulo 5: 0 BEGIN or COMMIT, 1 ATTEMPT,
 * 2 READY, 3 a point, 4 a member. Refused with a text, or taken; what was taken, written and read again is the same:
 * a COMMIT that is passed on means to the next peer what it meant to this one. */
#include <stdlib.h>
#include <string.h>
#include "avg/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int rc, const struct err *e)
{
	if (rc < 0 && (!e->code || !e->text[0]))
		abort();                        /* refused without saying why */
}

static int body(const uint8_t *p, size_t n, struct buf *ret, struct err *e)
{
	struct body b = { 0 };
	int rc = body_decode(&b, p, n, e);

	if (!rc) {
		body_encode(&b, ret);
		body_free(&b);
	}
	return rc;
}

static int attempt(const uint8_t *p, size_t n, struct buf *ret, struct err *e)
{
	struct attempt a = { 0 };
	int rc = attempt_decode(&a, p, n, e);

	if (!rc) {
		attempt_encode(&a, ret);
		attempt_free(&a);
	}
	return rc;
}

static int ready(const uint8_t *p, size_t n, struct buf *ret, struct err *e)
{
	struct ready r = { 0 };
	int rc = ready_decode(&r, p, n, e);

	if (!rc) {
		ready_encode(&r, ret);
		ranges_free(&r.claimed);
	}
	return rc;
}

static int point(const uint8_t *p, size_t n, struct buf *ret, struct err *e)
{
	struct rd r = rd_of(p, n);
	struct avg_point at;
	int rc;

	avg_point_init(&at);
	rc = wire_get_point(&r, &at, e);
	if (!rc)
		wire_put_point(ret, &at);
	avg_point_done(&at);
	return rc;
}

static int member(const uint8_t *p, size_t n, struct buf *ret, struct err *e)
{
	struct rd r = rd_of(p, n);
	struct wire_member m = { 0 };
	int rc = wire_get_member(&r, &m, e);

	if (!rc)
		wire_put_member(ret, &m);
	ranges_free(&m.claimed);
	ranges_free(&m.grant);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int (*const kinds[])(const uint8_t *p, size_t n, struct buf *ret, struct err *e) = { body, attempt, ready,
		point, member };
	struct buf once = { 0 }, twice = { 0 };
	struct err e = { 0 };

	if (!size)
		return 0;
	check(kinds[data[0] % 5](data + 1, size - 1, &once, &e), &e);
	if (once.len && (kinds[data[0] % 5](once.p, once.len, &twice, &e) < 0 || twice.len != once.len ||
		memcmp(twice.p, once.p, once.len)))
		abort();
	buf_free(&once);
	buf_free(&twice);
	return 0;
}

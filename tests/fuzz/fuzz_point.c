/* Where a run stands, as JSON: what a donor tells with the state's list, and what a checkpoint says of itself.
 * Refused with a text, or taken; what was taken, written and read again as JSON and as bytes is the same. */
#include <stdlib.h>
#include <string.h>
#include "avg/wire.h"
#include "common/jrpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void same(const struct avg_point *a, const struct avg_point *b)
{
	check(a->epoch == b->epoch && !memcmp(a->prev, b->prev, DIGEST) && a->samples == b->samples &&
		a->params_version == b->params_version && json_equal(a->params, b->params) && a->done.n == b->done.n);
	for (size_t i = 0; i < a->done.n; i++)
		check(a->done.v[i].lo == b->done.v[i].lo && a->done.v[i].hi == b->done.v[i].hi &&
			a->done.v[i].lo < a->done.v[i].hi && (!i || a->done.v[i - 1].hi < a->done.v[i].lo));
}

static void again(const struct avg_point *p)
{
	json_t *j = avg_point_json(p), *ledger = avg_point_ledger(p, 1000);
	struct avg_point q;
	struct buf b = { 0 };
	struct err e = { 0 };

	check(j && ledger);
	avg_point_init(&q);
	check(!avg_point_parse(&q, j, &e));
	same(p, &q);
	wire_put_point(&b, p);
	struct rd r = rd_of(b.p, b.len);
	if (wire_get_point(&r, &q, &e))
		check(e.code && e.text[0]);             /* more hyperparameters than a frame takes */
	else
		same(p, &q);
	buf_free(&b);
	avg_point_done(&q);
	json_decref(j);
	json_decref(ledger);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = { 0 };
	json_t *j = json_read((const char *)data, size, JSON_POINT, &e);
	struct avg_point p;

	avg_point_init(&p);
	if (!j || avg_point_parse(&p, j, &e))
		check(e.code && e.text[0]);
	else
		again(&p);
	avg_point_done(&p);
	json_decref(j);
	return 0;
}

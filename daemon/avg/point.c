/* A point of the history: life, copy, JSON (checkpoints) and bytes (welcome messages). */
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"
#include "avg/seen.h"
#include "common/jrpc.h"

void avg_point_init(struct avg_point *p)
{
	*p = (struct avg_point){ 0 };
}

void avg_point_copy(struct avg_point *to, const struct avg_point *from)
{
	if (to == from)
		return;
	json_t *params = from->params ? json_deep_copy(from->params) : NULL;
	json_decref(to->params);
	to->params = params;
	json_t *recent = from->recent ? json_deep_copy(from->recent) : NULL;
	json_decref(to->recent);
	to->recent = recent;
	to->epoch = from->epoch;
	memcpy(to->prev, from->prev, DIGEST);
	to->samples = from->samples;
	to->params_version = from->params_version;
	ranges_copy(&to->done, &from->done);
	seen_copy(to, from);
	free(to->past);
	to->past = from->npast ? xmemdup(from->past, from->npast) : NULL;
	to->npast = from->npast;
}

void avg_point_done(struct avg_point *p)
{
	json_decref(p->params);
	json_decref(p->recent);
	ranges_free(&p->done);
	free(p->seen);
	free(p->past);
	*p = (struct avg_point){ 0 };
}

json_t *avg_point_json(const struct avg_point *p)
{
	json_t *params = p->params ? json_deep_copy(p->params) : json_object();
	json_t *j = json_pack("{s:I,s:o,s:I,s:I,s:o,s:o}", "epoch", (json_int_t)p->epoch, "prev",
		json_hex(p->prev, DIGEST), "samples", (json_int_t)p->samples, "params_version", (json_int_t)p->params_version,
		"params", params, "done", ranges_json(&p->done));
	if (json_object_size(p->recent))
		json_object_set_new(j, "recent", json_deep_copy(p->recent));
	if (p->nseen)
		json_object_set_new(j, "seen", seen_json(p));
	if (p->npast)
		json_object_set_new(j, "past", json_hex(p->past, p->npast));
	return j;
}

static int past_parse(struct avg_point *p /* its epoch and prev are set */, const json_t *j, struct err *e)
{
	const char *text;
	if (!json_object_get(j, "past"))
		return 0;                       /* of an older version */
	if (json_get_str(j, "past", &text, e))
		return -1;
	p->npast = strlen(text) / 2;
	p->past = xmalloc(p->npast + 1);
	if (json_get_hex(j, "past", p->past, p->npast, e))
		return -1;
	if (!past_fits(p, p->past, p->npast))
		return err_set(e, ERR_INVALID, "past: these are not the COMMITs that lead to the point, newest first");
	return 0;
}

int avg_point_parse(struct avg_point *ret, const json_t *j, struct err *e)
{
	struct avg_point p;
	avg_point_init(&p);
	const json_t *params = json_object_get(j, "params"), *recent = json_object_get(j, "recent");
	int rc = json_get_u64(j, "epoch", &p.epoch, e) || json_get_hex(j, "prev", p.prev, DIGEST, e) ||
		json_get_u64(j, "samples", &p.samples, e) || json_get_u64(j, "params_version", &p.params_version, e) ||
		ranges_parse(&p.done, json_object_get(j, "done"), e) || seen_parse(&p, json_object_get(j, "seen"), e) ||
		past_parse(&p, j, e);
	if (!rc && !json_is_object(params))
		rc = err_set(e, ERR_INVALID, "params: expected an object");
	if (rc) {
		avg_point_done(&p);
		return err_wrap(e, "point of the history");
	}
	p.params = json_deep_copy(params);
	p.recent = json_is_object(recent) ? json_deep_copy(recent) : NULL;
	avg_point_done(ret);
	*ret = p;
	return 0;
}

/* ---- bytes: without what led to it, which whoever sends a point says beside it ---- */

void wire_put_point(struct buf *b, const struct avg_point *p)
{
	buf_u64(b, p->epoch);
	buf_put(b, p->prev, DIGEST);
	buf_u64(b, p->samples);
	buf_u64(b, p->params_version);
	wire_put_json(b, p->params);
	wire_put_json(b, p->recent);
	wire_put_ranges(b, &p->done);
	seen_put(b, p);
}

int wire_get_point(struct rd *r, struct avg_point *ret, struct err *e)
{
	struct avg_point p;
	avg_point_init(&p);
	p.epoch = rd_u64(r);
	const uint8_t *prev = rd_bytes(r, DIGEST);
	p.samples = rd_u64(r);
	p.params_version = rd_u64(r);
	if (wire_get_json(r, &p.params, e) || wire_get_json(r, &p.recent, e) || wire_get_ranges(r, &p.done, e) ||
			seen_get(r, &p, e) || !prev || r->bad) {
		avg_point_done(&p);
		return prev && !r->bad ? -1 : err_set(e, ERR_PROTOCOL, "point of the history: cut short");
	}
	memcpy(p.prev, prev, DIGEST);
	avg_point_done(ret);
	*ret = p;
	return 0;
}

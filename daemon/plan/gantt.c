/* The timeline as text and as JSON: one line per peer and lane. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "plan/predict.h"

double prediction_idle(const struct prediction *p, uint32_t k, uint32_t lane, uint64_t from_us, uint64_t to_us)
{
	uint64_t busy = 0;
	for (size_t i = 0; i < p->nspans; i++) {
		const struct predict_span *s = &p->span[i];
		if (s->peer != k || s->lane != lane)
			continue;
		uint64_t a = s->start_us > from_us ? s->start_us : from_us, b = s->end_us < to_us ? s->end_us : to_us;
		busy += b > a ? b - a : 0;
	}
	return to_us > from_us ? 1 - (double)busy / (double)(to_us - from_us) : 0;
}

/* F as digits (micro-batch modulo 10), B as letters from a, other work as * and transfers as -. A RECV that waits is
 * none: the SEND that it waits for is drawn. */
static char mark(const struct predict_span *s)
{
	int64_t m = s->index % 10;
	m = m < 0 ? m + 10 : m;
	switch (s->kind) {
	case PLAN_FWD: return (char)('0' + m);
	case PLAN_BWD: return (char)('a' + m);
	case PLAN_SEND: case PLAN_RECV: case PLAN_SUM: case PLAN_GATHER: case PLAN_SCATTER: case PLAN_ALLTOALL: return '-';
	default: return '*';
	}
}

static bool draw(const struct prediction *p, uint32_t k, uint32_t lane, uint32_t columns, char *line)
{
	bool any = false;
	memset(line, '.', columns);
	for (size_t i = 0; i < p->nspans; i++) {
		const struct predict_span *s = &p->span[i];
		if (s->peer != k || s->lane != lane || s->end_us == s->start_us || s->kind == PLAN_RECV)
			continue;
		any = true;
		uint64_t a = s->start_us * columns / p->us, b = s->end_us * columns / p->us;
		for (uint64_t c = a; c < (b > a ? b : a + 1) && c < columns; c++)
			line[c] = mark(s);
	}
	return any;
}

void plan_gantt(const struct prediction *p, const struct plan *const *v, uint32_t columns, struct buf *out)
{
	if (columns == 0 || p->us == 0)
		return;
	char *line = xcalloc(columns + 1, 1);
	for (uint32_t k = 0; k < p->npeers; k++)
		for (uint32_t l = 0; l < v[k]->nlanes; l++)
			if (draw(p, k, l, columns, line))
				buf_printf(out, "%3u %-6.6s |%s|\n", v[k]->me, v[k]->lane[l].name, line);
	free(line);
}

static json_t *peer_json(const struct predict_peer *x, const struct plan *p)
{
	json_t *o = json_object(), *busy = json_object(), *peak = json_object(), *sent = json_object(),
		*got = json_object();
	json_object_set_new(o, "peer", json_integer(p->me));
	json_object_set_new(o, "finish_us", json_integer((json_int_t)x->finish_us));
	json_object_set_new(o, "bubble", json_real(x->bubble));
	json_object_set_new(o, "finished", json_boolean(x->finished));
	for (uint32_t l = 0; l < p->nlanes; l++)
		if (x->busy_us[l] > 0)
			json_object_set_new(busy, p->lane[l].name, json_integer((json_int_t)x->busy_us[l]));
	for (uint32_t t = 0; t < p->ntiers; t++)
		json_object_set_new(peak, p->tier[t].name, json_integer((json_int_t)x->peak[t]));
	for (int c = 0; c < PLAN_CLASSES_COUNT; c++) {
		const char *name = plan_class_name((enum plan_class)c);
		if (x->sent[c] > 0)
			json_object_set_new(sent, name, json_integer((json_int_t)x->sent[c]));
		if (x->received[c] > 0)
			json_object_set_new(got, name, json_integer((json_int_t)x->received[c]));
	}
	json_object_set_new(o, "busy_us", busy);
	json_object_set_new(o, "peak_bytes", peak);
	json_object_set_new(o, "sent_bytes", sent);
	json_object_set_new(o, "received_bytes", got);
	return o;
}

json_t *prediction_json(const struct prediction *p, const struct plan *const *v)
{
	json_t *o = json_object(), *peers = json_array();
	json_object_set_new(o, "us", json_integer((json_int_t)p->us));
	json_object_set_new(o, "stuck", json_boolean(p->stuck));
	if (p->stuck)
		json_object_set_new(o, "why", json_stringn((const char *)p->why.p, p->why.len));
	for (uint32_t k = 0; k < p->npeers; k++)
		json_array_append_new(peers, peer_json(&p->peer[k], v[k]));
	json_object_set_new(o, "peers", peers);
	return o;
}

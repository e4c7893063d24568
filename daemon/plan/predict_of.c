/* One program out of several that follow each other on every member: what it takes once all are under way. */
#include <string.h>
#include "common/mem.h"
#include "plan/predict.h"

/* What x has from one end to the other. */
static struct predict_peer between(const struct predict_peer *x, const struct predict_peer *a,
	const struct predict_peer *b)
{
	struct predict_peer o = *x;

	o.nended = 0;
	o.ended = NULL;
	o.values = x->nbufs ? xmemdup(x->values, x->nbufs * sizeof(*x->values)) : NULL;
	o.finish_us = b->finish_us - a->finish_us;
	for (int l = 0; l < PLAN_LANES_MAX; l++)
		o.busy_us[l] = b->busy_us[l] - a->busy_us[l];
	for (int c = 0; c < PLAN_CLASSES_COUNT; c++) {
		o.sent[c] = b->sent[c] - a->sent[c];
		o.received[c] = b->received[c] - a->received[c];
	}
	for (int k = 0; k < PLAN_KINDS_COUNT; k++)
		o.ran[k] = b->ran[k] - a->ran[k];
	return o;
}

/* Those of [from, from + us), whose beginning is 0. */
static void spans(const struct prediction *p, uint64_t from, struct prediction *ret)
{
	ret->span = xcalloc(p->nspans + 1, sizeof(*ret->span));
	for (size_t i = 0; i < p->nspans; i++) {
		struct predict_span s = p->span[i];

		if (s.end_us < from || s.start_us >= from + ret->us)
			continue;
		s.start_us = s.start_us > from ? s.start_us - from : 0;
		s.end_us = s.end_us - from < ret->us ? s.end_us - from : ret->us;
		ret->span[ret->nspans++] = s;
	}
}

bool prediction_of(const struct prediction *p, const struct plan *const *v, uint32_t at, struct prediction *ret)
{
	uint64_t from = 0, us = 0;

	for (uint32_t k = 0; k < p->npeers; k++) {
		const struct predict_peer *x = &p->peer[k];
		uint64_t took;

		if (at < 1 || x->nended <= at)
			return false;
		took = x->ended[at].finish_us - x->ended[at - 1].finish_us;
		if (took > us) {
			us = took;
			from = x->ended[at - 1].finish_us;
		}
	}
	*ret = (struct prediction){ .us = us, .npeers = p->npeers, .nmembers = p->nmembers };
	ret->peer = xcalloc(p->npeers, sizeof(*ret->peer));
	spans(p, from, ret);
	for (uint32_t k = 0; k < p->npeers; k++) {
		const struct predict_peer *x = &p->peer[k];
		uint32_t train = plan_find_lane(v[k], "train");

		ret->peer[k] = between(x, &x->ended[at - 1], &x->ended[at]);
		ret->peer[k].bubble = us && train != PLAN_NONE ? prediction_idle(ret, k, train, 0, us) : 0;
	}
	return true;
}

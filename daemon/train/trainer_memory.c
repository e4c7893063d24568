/* How much memory training takes: the prediction of its programs, and what would fit when it does not. */
#include <stdio.h>
#include "plan/tokens.h"
#include "train/trainer_int.h"

#define PROGRAMS_PLAIN 3                /* micro-batches, the round, micro-batches */
#define PROGRAMS 5                      /* with rounds beside: what follows it, micro-batches and the round again */

/* The tokens of one program, run in order: what is held at once is their count. */
static struct tokens *rehearse(const struct plan *p, const struct tokens *before, size_t *peak)
{
	struct tokens *k = tokens_new(p, NULL, before);
	struct token_run *r;

	while ((r = tokens_start(k)))
		tokens_end(k, r, NULL);
	*peak = tokens_peak(k, 0) > *peak ? (size_t)tokens_peak(k, 0) : *peak;
	return k;
}

struct tokens *model_rehearse(const struct plan *p, const struct tokens *before)
{
	size_t peak = 0;

	return rehearse(p, before, &peak);
}

size_t predict_bytes(struct trainer *t, struct err *e)
{
	struct view_member me = { .id = t->c.self, .speed = 1 };
	const struct plan_results none = { 0, NULL };
	struct tokens *before = NULL;
	struct plan p[PROGRAMS];
	size_t peak = 0;
	int n = 0, programs = t->s->mode.under_way ? PROGRAMS : PROGRAMS_PLAIN;

	for (; n < programs; n++) {     /* each with what those before have left */
		struct view v = trainer_plan_view(t, &me, before ? (uint64_t)tokens_next_index(before) : 0);
		struct tokens *k;

		v.granted = true;
		v.samples = n % 3 == 1 ? t->target : 0;
		v.begun = n % 3 == 1 && t->strategy->needs_swarm;
		v.agreed = n == 2;
		v.gave = n > 0;
		v.fresh = n == 0;
		if (t->strategy->plan(&v, &none, &p[n], e) < 0)
			break;
		k = rehearse(&p[n], before, &peak);
		tokens_free(before);
		before = k;
	}
	tokens_free(before);
	if (n < programs)
		peak = 0;
	for (int i = 0; i < n; i++)
		plan_free(&p[i]);
	return peak;
}

/* The prediction grows with the batch. Afterwards everything is as it was. */
uint32_t trainer_fits(struct trainer *t, uint64_t bytes)
{
	uint32_t lo = 0, hi = t->s->local.batch;        /* lo fits, hi does not */
	struct err e;

	while (hi - lo > 1) {
		uint32_t batch = lo + (hi - lo) / 2;
		size_t need;

		profile_free(&t->profile);
		model_profile_at(t, batch);
		need = predict_bytes(t, &e);
		if (need && need + loader_bytes(t->c.data, batch, load_depth(t, batch)) <= bytes)
			lo = batch;
		else
			hi = batch;
	}
	profile_free(&t->profile);
	model_profile(t);
	return lo;
}

/* "--batch 4 would fit", for errors. */
const char *trainer_fits_text(struct trainer *t, uint64_t bytes, char *out, size_t cap)
{
	uint32_t n = trainer_fits(t, bytes);

	if (n)
		(void)snprintf(out, cap, "--batch %u would fit", n);
	else
		(void)snprintf(out, cap, "not even a batch of 1 would fit: a smaller model is needed");
	return out;
}

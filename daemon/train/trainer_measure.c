/* Predicted against measured: the model's profile with the times that instructions really took on this machine since
 * the run has begun. Forward and backward are timed as the pieces that plans run, and shared out among their ops by
 * what the model's profile says of them (multiply-adds at the measured speed of matrix products, stated sleeps). */
#include <string.h>
#include "common/mem.h"
#include "plan/predict.h"
#include "train/memory.h"
#include "train/trainer_int.h"

static uint64_t total(const struct profile *m, bool backward)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < m->nops; i++)
		sum += backward ? m->op[i].variant[0].bwd_us : m->op[i].variant[0].fwd_us;
	return sum;
}

static void share_out(struct profile *m, bool backward, uint64_t us)
{
	uint64_t before = total(m, backward), given = 0;

	for (uint32_t i = 0; i < m->nops && us != UINT64_MAX; i++) {
		uint64_t *at = backward ? &m->op[i].variant[0].bwd_us : &m->op[i].variant[0].fwd_us;

		*at = i + 1 == m->nops ? us - given : before ? (uint64_t)((double)us * (double)*at / (double)before) :
			us / m->nops;
		given += *at;
	}
}

/* Where passes go in pieces, what each op took on the lane, in the mean, stands for it. */
static void by_op(const struct trainer *t, struct profile *m)
{
	const struct exec_layer *l = exec_layers(t->x);

	for (uint32_t i = 0; l && i < m->nops; i++) {
		struct profile_variant *v = &m->op[i].variant[0];

		v->fwd_us = l[i].fwd.samples ? l[i].fwd.ns / l[i].fwd.samples * m->batch / 1000 : 0;
		v->bwd_us = l[i].bwd.samples ? l[i].bwd.ns / l[i].bwd.samples * m->batch / 1000 : 0;
	}
}

bool measured_profile(struct trainer *t, struct profile *ret)
{
	static const char *const fn[] = { "loss", "accumulate", "mean", "opt", "digest" };
	uint64_t fwd = exec_took_us(t->x, PLAN_FWD, ""), bwd = exec_took_us(t->x, PLAN_BWD, "");
	uint64_t load = exec_took_us(t->x, PLAN_LOAD, "");

	if (fwd == UINT64_MAX || bwd == UINT64_MAX)
		return false;
	*ret = t->profile;
	ret->op = xmemdup(t->profile.op, t->profile.nops * sizeof(*ret->op));
	if (memory_segments(memory_units(ret, 0, ret->nops - 1, &t->pass), &t->pass) > 1) {
		by_op(t, ret);
	} else {
		share_out(ret, false, fwd);
		share_out(ret, true, bwd);
	}
	ret->load_us = load == UINT64_MAX ? 0 : load;
	ret->nfns = 0;
	ret->fn = xcalloc(sizeof(fn) / sizeof(*fn), sizeof(*ret->fn));
	for (size_t k = 0; k < sizeof(fn) / sizeof(*fn); k++) {
		uint64_t us = exec_took_us(t->x, PLAN_VEC, fn[k]);
		struct profile_fn *f = &ret->fn[ret->nfns];

		if (us == UINT64_MAX)
			continue;
		memcpy(f->name, fn[k], strlen(fn[k]) + 1);
		f->us = us;
		ret->nfns++;
	}
	return true;
}

static int plan_of(struct trainer *t, bool step, uint64_t first, struct plan *ret)
{
	struct view_member me = { .id = t->c.self, .speed = 1 };
	const struct plan_results none = { 0, NULL };
	struct view v = trainer_plan_view(t, &me, first);
	struct err e;

	v.granted = v.fresh = !step;    /* the round alone, without what goes on beside it */
	v.samples = step ? t->target : 0;
	v.begun = step && t->strategy->needs_swarm;
	return t->strategy->plan(&v, &none, ret, &e);
}

static void predict_both(struct trainer *t, const struct profile *m, struct trainer_times *ret)
{
	struct predict_conf c = { .profile = m };
	struct prediction r;
	struct plan micro, step;
	const struct plan *v = &micro;
	struct tokens *left;
	struct err e;

	if (plan_of(t, false, 0, &micro) < 0)
		return;
	if (predict(&v, 1, &c, &r, &e) == 0) {
		ret->micro_batch_us = micro.iterations ? r.us / micro.iterations : r.us;
		prediction_free(&r);
	}
	left = memory_rehearse(&micro, NULL, NULL);
	if (plan_of(t, true, (uint64_t)tokens_next_index(left), &step) == 0) {
		v = &step;
		c.before = (const struct tokens *const *)&left;
		if (predict(&v, 1, &c, &r, &e) == 0) {
			ret->step_us = r.us;
			prediction_free(&r);
		}
		plan_free(&step);
	}
	tokens_free(left);
	plan_free(&micro);
}

void trainer_times(struct trainer *t, struct trainer_times *ret)
{
	struct profile m;

	*ret = (struct trainer_times){ 0 };
	if (t->strategy->crew)                  /* its times are those of all members together */
		return;
	ret->measured = measured_profile(t, &m);
	predict_both(t, ret->measured ? &m : &t->profile, ret);
	if (ret->measured)
		profile_free(&m);
	ret->took_us = exec_median(t->ntook, t->took);
	if (ret->took_us == UINT64_MAX)
		ret->took_us = 0;
}

/* What follows from what a trainer is and has: questions that change nothing, for whoever needs to know. Of a run at an
 * epoch the replay asks the same. */
#include "train/trainer_int.h"

/* All parts have one length, but the last ones may have less of the parameters, or nothing. Behind each are all running
 * statistics. */
size_t round_len_of(const struct spec *s, const struct model *m, uint32_t nused)
{
	size_t n = m->nparam, parts = s->mode.parts;

	return (parts > 1 ? (n + parts - 1) / parts : n * (s->mode.both ? 1 + nused : 1)) + m->nbuffer;
}

void round_part_of(const struct spec *s, const struct model *m, uint64_t epoch, size_t *ret_lo, size_t *ret_n)
{
	size_t n = m->nparam, parts = s->mode.parts, len = round_len_of(s, m, 0) - m->nbuffer;
	size_t lo = parts > 1 ? (size_t)(epoch % parts) * len : 0;

	*ret_lo = lo < n ? lo : n;
	*ret_n = n - *ret_lo < len ? n - *ret_lo : len;
}

double round_lr_of(const struct spec *s, double lr, uint64_t target, uint64_t epoch)
{
	return lr * spec_lr_factor_of(s, target, epoch);
}

size_t trainer_contribution_len(const struct trainer *t)
{
	return round_len_of(t->s, t->model, (uint32_t)t->nused);
}

static uint64_t epoch_of(const struct trainer *t) { return t->applying ? t->applying->epoch - 1 : t->epoch; }

void round_part(const struct trainer *t, size_t *ret_lo, size_t *ret_n)
{
	round_part_of(t->s, t->model, epoch_of(t), ret_lo, ret_n);
}

double round_lr(const struct trainer *t)
{
	const struct commit *c = t->applying;

	return round_lr_of(t->s, c ? c->hyper[0] : t->hyper[0], c ? c->batch : t->batch ? t->batch : t->target,
		epoch_of(t));
}

bool trainer_needs_swarm(const struct trainer *t)
{
	return t->strategy->needs_swarm;
}

bool round_carries(const struct trainer *t)
{
	return t->flight.out && !t->flight.taken;
}

bool round_waits(const struct trainer *t)
{
	if (t->s->mode.any)
		return !list_empty(&t->commits);
	return (t->in_begin && !t->flight.out && !t->passed) || !list_empty(&t->commits);
}

struct shard *trainer_shard(const struct trainer *t) { return state_shard(t->state); }
struct shard *trainer_shards(const struct trainer *t, uint32_t *ret_n) { return state_shards(t->state, ret_n); }

bool trainer_lies_still(const struct trainer *t)
{
	return !t->applying && list_empty(&t->commits) && !state_busy(t->state);
}

const struct model *trainer_model(const struct trainer *t)
{
	return t->model;
}

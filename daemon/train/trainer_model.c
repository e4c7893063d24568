/* What the model costs (train/profile.h) in this trainer. */
#include <assert.h>
#include "train/trainer_int.h"

void model_profile_at(struct trainer *t, uint32_t batch)
{
	profile_model(&t->profile, &t->source, batch);
	t->profile.state_bytes = trainer_shard(t)->opt_bytes;
	t->profile.state_vectors = (uint32_t)t->nused;
	t->profile.scaled = t->s->precision == PRECISION_FP16;
	assert(t->profile.stats_bytes == t->stats_bytes);
}

void model_profile(struct trainer *t)
{
	bool crew = t->strategy->crew;

	t->source = (struct profile_source){ .model = t->model, .parts = crew ? TRAINER_THREADS_MAX : t->par.n,
		.macs_per_us = crew ? TRAINER_CREW_MACS : t->c.macs_per_us, .x_bytes = data_x_bytes(t->c.data),
		.y_bytes = data_y_bytes(t->c.data) };
	model_profile_at(t, t->s->local.batch);
}

/* Life of a trainer: what it is built of, and how it begins to go (trainer_gone.c). */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/trainer_int.h"

/* Of a run that one peer can hold: is there room for it here? */
static int fits(struct trainer *t, struct err *e)
{
	size_t memory = t->s->local.memory_bytes, loader = loader_bytes(t->c.data, t->s->local.batch,
		load_depth(t, t->s->local.batch));
	const struct shard *s = trainer_shard(t);
	char text[TRAINER_FITS];

	if (memory_settle(t, e) < 0)
		return -1;
	if (memory && t->predicted_bytes + loader > memory)
		return err_set(e, ERR_LIMIT,
			"local.memory: %zu bytes are allowed, and the run needs %zu (parameters and optimizer %zu, gradients and "
			"one micro-batch %zu, batches ahead %zu); %s", memory, t->predicted_bytes + loader, s->bytes,
			t->predicted_bytes - s->bytes, loader, trainer_fits_text(t, memory, text, sizeof(text)));
	return load_new(t, e) < 0 ? -1 : valid_new(t, e);
}

static void bind(struct trainer *t)
{
	const struct shard *s = trainer_shard(t);

	exec_bind(t->x, "w", shard_w(s), s->w_bytes);
	exec_bind(t->x, "opt", shard_opt(s), s->opt_bytes);
	exec_bind(t->x, "stats", t->stats, t->stats_bytes);
	exec_count(t->x, "acc");        /* an interrupt loses no micro-batch that is being added */
	exec_count(t->x, "sent");       /* the averager reads it */
	exec_count(t->x, "mean");
	exec_count(t->x, "work");
	for (uint32_t k = 0; k < t->s->mode.nstate; k++)
		exec_bind(t->x, t->s->mode.state[k], shard_extra(s, k), s->w_bytes);
}

static int build(struct trainer *t, struct err *e)
{
	struct exec_conf conf = { .env = t->env, .par = &t->par, .profile = &t->profile, .check = true };
	size_t memory = t->s->local.memory_bytes;

	t->model = spec_model(t->s, t->c.host, e);
	if (!t->model || trainer_hold(t, e) < 0)
		return -1;
	conf.model = t->model;
	model_profile(t);
	t->pass = spec_memory(&t->s->local);
	if (!t->strategy->crew && fits(t, e) < 0)
		return -1;
	t->counts = t->s->loss->counts;
	conf.budget_bytes = memory && !t->strategy->crew ? memory - loader_bytes(t->c.data, t->s->local.batch, load_depth(t,
		t->s->local.batch)) : 0;
	conf.buffers = t->model->nbuffer ? t->stats : NULL;
	conf.seed = t->s->seed;
	t->x = trainer_exec(t, &conf);
	if (!t->strategy->crew)
		bind(t);
	return grow_new(t, e);
}

struct trainer *trainer_new(const struct trainer_conf *conf, const struct trainer_cb *cb, void *arg, struct err *e)
{
	struct trainer *t = xcalloc(1, sizeof(*t));

	t->c = *conf;
	t->cb = *cb;
	t->arg = arg;
	t->s = conf->spec;
	t->env = conf->env;
	t->strategy = conf->strategy ? conf->strategy : strategy_find(conf->spec->strategy);
	t->par = *conf->par;
	if (conf->spec->local.deterministic)
		t->par = par_serial(conf->par->cpu, NULL);
	memcpy(t->hyper, conf->spec->hyper, sizeof(t->hyper));
	t->clip_norm = conf->spec->clip_norm;
	t->target = conf->spec->target_batch;
	t->later = (struct timer){ .fire = trainer_now, .name = "trainer" };
	t->halt = (struct timer){ .fire = load_halt_fire, .name = "trainer.halt" };
	list_init(&t->commits);
	trouble_init(t);
	trainer_reset_epoch(t);
	if (build(t, e) < 0) {
		trainer_free(t, NULL, NULL);
		return NULL;
	}
	return t;
}

/* The executor goes before the loader: batches return when abandoned jobs end. */
static void exec_gone(void *arg)
{
	struct trainer *t = arg;

	if (t->loader)
		loader_free(t->loader, trainer_part_gone, t);
	else
		trainer_part_gone(t);
}

void trainer_free(struct trainer *t, void (*done)(void *arg), void *arg)
{
	if (!t) {
		if (done)
			done(arg);
		return;
	}
	t->dying = true;
	t->cb = trainer_nobody;
	t->gone = done;
	t->gone_arg = arg;
	env_timer(t->env, &t->later, 0);
	env_timer(t->env, &t->halt, 0);
	env_timer(t->env, &t->rest, 0);
	if (t->state)
		state_close(t->state);
	t->parts = 2 + (t->check ? 1 : 0) + valid_parts(t) + t->loaders + t->readers;
	valid_stop(t);
	round_give_back(t);
	if (t->x)
		exec_free(t->x, exec_gone, t);
	else
		exec_gone(t);
	trainer_part_gone(t);
}

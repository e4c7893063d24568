/* Life of a trainer: what it is built of, and how it goes when nothing touches its memory any more. */
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
	return 0;
}

static void released(void *arg)
{
	struct trainer *t = arg;
	void (*gone)(void *arg) = t->gone;
	void *gone_arg = t->gone_arg;

	valid_free(t);                          /* a copy of the parameters may have been under way to it */
	model_free(t->model);
	free(t->sums.v);
	free(t);
	if (gone)
		gone(gone_arg);
}

/* The state is the last to go: jobs may be at it. */
static void release(struct trainer *t)
{
	round_drop(t);
	ranges_free(&t->grant);
	ranges_free(&t->claimed);
	ranges_free(&t->out);
	ranges_free(&t->last);
	ranges_free(&t->flight.claimed);
	profile_free(&t->profile);
	seat_free(t);
	free(t->load_more);
	trainer_let_go(t, released, t);
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

void trainer_part_gone(void *arg)
{
	struct trainer *t = arg;

	if (!--t->parts)
		release(t);
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

/* Jobs that end after trainer_free find nobody who listens: their owner may be gone. */
static void no_progress(void *arg, const struct trainer_progress *p) { (void)arg; (void)p; }
static void no_contribute(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed)
{
	(void)arg; (void)epoch; (void)x; (void)samples; (void)claimed;
}
static void no_applied(void *arg, const struct trainer_applied *a) { (void)arg; (void)a; }
static void no_validated(void *arg, const struct trainer_validated *v) { (void)arg; (void)v; }
static void no_idle(void *arg) { (void)arg; }
static void no_broken(void *arg, const struct err *e) { (void)arg; (void)e; }
static void no_event(void *arg, enum log_level level, const char *code, const char *text)
{
	(void)arg; (void)level; (void)code; (void)text;
}
static void no_log(void *arg, const char *line, size_t len) { (void)arg; (void)line; (void)len; }
static const struct trainer_cb nobody = { no_progress, no_contribute, no_applied, no_validated, no_idle, no_broken,
	no_event, no_log };     /* the others may be NULL */

void trainer_free(struct trainer *t, void (*done)(void *arg), void *arg)
{
	if (!t) {
		if (done)
			done(arg);
		return;
	}
	t->dying = true;
	t->cb = nobody;
	t->gone = done;
	t->gone_arg = arg;
	env_timer(t->env, &t->later, 0);
	env_timer(t->env, &t->halt, 0);
	env_timer(t->env, &t->rest, 0);
	if (t->state)
		state_close(t->state);
	t->parts = 2 + (t->check ? 1 : 0) + valid_parts(t) + t->loaders + t->readers;
	valid_stop(t);
	if (t->x)
		exec_free(t->x, exec_gone, t);
	else
		exec_gone(t);
	trainer_part_gone(t);
}

/* For tests of train/: one simulated peer with a trainer on synthetic or digits data, an averager that is alone, and
 * the bare training loop on kernels that everything is compared with. */
#ifndef TESTS_TRAIN_KIT_H
#define TESTS_TRAIN_KIT_H
#include "t.h"
#include <math.h>
#include "kernels/gemm.h"
#include "kernels/vec.h"
#include "sim.h"
#include "train/trainer.h"

#define KIT_EPOCHS 4096

struct kit {
	struct sim *sim; struct env *env;
	struct spec *spec; struct data *data; struct trainer *t;
	struct par par;
	bool alone;                     /* answer contributions with a commit of one */
	struct timer answer;
	uint64_t begin_at, granted;     /* alone: a round begins when so many samples are there */
	uint64_t epoch, progress, contributed_epoch, contributed;
	const real *x;
	struct ranges there; uint64_t parts;    /* of x, where it is given in parts; calls that have brought some */
	uint64_t applied, validated, stop_at; bool gone, quiet, broken, paused;
	uint8_t digest[KIT_EPOCHS][TRAINER_DIGEST];
	uint64_t samples[KIT_EPOCHS];
	struct trainer_validated v;
	struct err error;
	double last_loss;
	unsigned events, halted;
	char *log; size_t log_len, log_room;
	const struct trainer_cb *also; void *also_arg;  /* told what comes, too; may be NULL */
};

static inline void kit_progress(void *arg, const struct trainer_progress *p)
{
	struct kit *k = arg;

	assert_int_equal(ranges_count(p->claimed), p->samples);
	k->progress += p->batch > 0;            /* else it is only told again */
	k->last_loss = p->loss;
	if (k->also)
		k->also->progress(k->also_arg, p);
	if (k->alone && p->samples >= k->begin_at)
		env_after(k->env, &k->answer, 0);
}

static inline void kit_contribute(void *arg, uint64_t epoch, const real *x, uint64_t samples,
	const struct ranges *claimed)
{
	struct kit *k = arg;

	assert_int_equal(samples, ranges_count(claimed));
	k->x = x;
	k->contributed = samples;
	k->contributed_epoch = epoch + 1;
	if (k->also)
		k->also->contribute(k->also_arg, epoch, x, samples, claimed);
	if (k->alone)
		env_after(k->env, &k->answer, 0);
}

static inline void kit_contribute_part(void *arg, uint64_t epoch, const real *x, uint64_t samples,
	const struct ranges *claimed, size_t lo, size_t hi)
{
	struct kit *k = arg;

	assert_int_equal(samples, ranges_count(claimed));
	if (lo == hi)
		ranges_clear(&k->there);
	ranges_add(&k->there, lo, hi);
	k->parts += hi > lo;
	k->x = x;
	k->contributed = samples;
	if (ranges_count(&k->there) < trainer_contribution_len(k->t))
		return;
	k->contributed_epoch = epoch + 1;
	if (k->alone)
		env_after(k->env, &k->answer, 0);
}

/* The averager's timer: BEGIN, or the COMMIT of what was contributed. */
static inline void kit_answer(struct timer *tm)
{
	struct kit *k = container_of(tm, struct kit, answer);
	struct err e;

	if (k->contributed_epoch != k->epoch + 1) {
		trainer_begin(k->t, k->epoch);
		return;
	}
	k->epoch++;
	if (trainer_commit(k->t, k->epoch, (const void *)k->x, NULL, k->contributed, 0, NULL, &e) < 0)
		fail_msg("commit: %s", e.text);
}

static inline void kit_applied(void *arg, const struct trainer_applied *a)
{
	struct kit *k = arg;

	assert_int_equal(a->epoch, k->applied + 1);
	if (a->claimed)
		assert_int_equal(a->samples, ranges_count(a->claimed));
	k->applied = a->epoch;
	memcpy(k->digest[a->epoch % KIT_EPOCHS], a->digest, TRAINER_DIGEST);
	k->samples[a->epoch % KIT_EPOCHS] = a->samples;
	if (k->also)
		k->also->applied(k->also_arg, a);
	if (a->epoch == k->stop_at)
		trainer_pause(k->t);
}

static inline void kit_validated(void *arg, const struct trainer_validated *v)
{
	struct kit *k = arg;

	k->v = *v;
	k->validated++;
}

static inline void kit_broken(void *arg, const struct err *e)
{
	struct kit *k = arg;

	k->broken = true;
	k->error = *e;
}

static inline void kit_event(void *arg, enum log_level level, const char *code, const char *text)
{
	((struct kit *)arg)->events++;
}

static inline void kit_log(void *arg, const char *line, size_t len)
{
	struct kit *k = arg;

	if (k->also)
		k->also->log(k->also_arg, line, len);
	if (k->log_len + len + 2 > k->log_room) {
		k->log_room = 2 * (k->log_len + len + 2);
		k->log = realloc(k->log, k->log_room);
	}
	memcpy(k->log + k->log_len, line, len);
	memcpy(k->log + k->log_len + len, "\n", 2);
	k->log_len += len + 1;
}

static inline void *kit_start(struct env *env, int node, void *arg) { return arg; }
static inline void kit_stop(void *app) { }

static inline struct spec *kit_spec(const char *json)
{
	struct err e;
	struct spec *s = spec_parse(json, strlen(json), &e);

	if (!s)
		fail_msg("spec: %s", e.text);
	return s;
}

static inline void kit_halted(void *arg, const struct err *e)
{
	struct kit *k = arg;

	k->halted++;
	k->error = *e;
}

static bool kit_halts;                          /* the trainer halts where it could break */
static const struct planner_ops *kit_strategy;  /* instead of the spec's; NULL: the spec's */
static const struct exec_ops *kit_ops;          /* strict groups and transfers; NULL: nobody carries them */

static inline void kit_open(struct kit *k, const char *json, const struct layer_host *host, bool log)
{
	struct trainer_cb cb = { .progress = kit_progress, .contribute = kit_contribute,
		.contribute_part = kit_contribute_part, .applied = kit_applied,
		.validated = kit_validated, .broken = kit_broken, .event = kit_event, .log = log ? kit_log : NULL };
	struct sim_app app = { kit_start, kit_stop, k };
	struct trainer_conf conf;
	struct err e;

	cb.halted = kit_halts ? kit_halted : NULL;
	memset(k, 0, sizeof(*k));
	k->sim = sim_new(1);
	(void)sim_node_add(k->sim, NULL, &app);
	k->env = sim_env(k->sim, 0);
	k->spec = kit_spec(json);
	k->data = data_open(k->env->files, "data", k->spec, &e);
	if (!k->data)
		fail_msg("data: %s", e.text);
	k->par = par_serial(CPU_PLAIN, NULL);
	k->answer = (struct timer){ .fire = kit_answer };
	k->begin_at = k->spec->target_batch;
	conf = (struct trainer_conf){ .env = k->env, .spec = k->spec, .data = k->data, .par = &k->par, .host = host,
		.macs_per_us = 10, .strategy = kit_strategy, .ops = kit_ops };
	k->t = trainer_new(&conf, &cb, k, &e);
	if (!k->t)
		fail_msg("trainer: %s", e.text);
	trainer_init_params(k->t);
	assert_int_equal(trainer_loaded(k->t, 0, NULL, &e), 0);
}

static inline void kit_grant(struct kit *k, uint64_t lo, uint64_t hi)
{
	struct ranges r = { 0 };

	ranges_add(&r, lo, hi);
	trainer_grant(k->t, &r);
	ranges_free(&r);
}

static inline void kit_gone(void *arg) { ((struct kit *)arg)->gone = true; }
static inline bool kit_is_gone(struct sim *s, void *arg) { return ((struct kit *)arg)->gone; }

static inline void kit_close(struct kit *k)
{
	env_timer(k->env, &k->answer, 0);
	trainer_free(k->t, kit_gone, k);
	assert_true(k->gone || sim_run_until(k->sim, kit_is_gone, k, 10000000));
	data_free(k->data);
	spec_free(k->spec);
	sim_free(k->sim);
	ranges_free(&k->there);
	free(k->log);
}

struct kit_goal { struct kit *k; uint64_t epoch; };
static inline bool kit_reached(struct sim *s, void *arg)
{
	struct kit_goal *g = arg;

	return g->k->applied >= g->epoch || g->k->broken;
}

static inline void kit_run(struct kit *k, uint64_t epoch)
{
	struct kit_goal g = { k, epoch };

	k->stop_at = epoch;
	if (!sim_run_until(k->sim, kit_reached, &g, 3600000000ull))
		fail_msg("epoch %llu of %llu: %s", (unsigned long long)k->applied, (unsigned long long)epoch,
			sim_failed(k->sim) ? sim_failed(k->sim) : "nothing goes on");
	if (k->broken)
		fail_msg("broken: %s", k->error.text);
}

/* --- the bare loop: kernels and nothing else */

struct bare { const struct model *model; real *w, *g, *sum, *state[OPTIM_STATES_MAX]; size_t n;
	real *stats;                    /* running statistics, the caller's; NULL: the model has none */
	struct optim_clock clock; uint64_t next; };

static inline void bare_open(struct bare *b, const struct kit *k, const struct model *m)
{
	memset(b, 0, sizeof(*b));
	b->model = m;
	b->n = m->nparam;
	b->w = calloc(b->n, sizeof(real));
	b->g = calloc(b->n, sizeof(real));
	b->sum = calloc(b->n, sizeof(real));
	for (int i = 0; i < k->spec->optim->nstates; i++)
		if (optim_uses_state(k->spec->optim, k->spec->hyper, i))
			b->state[i] = calloc(b->n, sizeof(real));
	optim_clock_init(&b->clock);
	model_init(m, k->spec->seed, b->w);
}

/* Gradient of the mean loss of n positions, into b->g; returns their loss. */
static inline double bare_gradient(struct bare *b, const struct kit *k, const struct model *m, uint32_t n)
{
	struct model_need need;
	uint64_t *position = calloc(n, sizeof(*position));
	real *x = malloc(n * data_x_bytes(k->data)), *y, *dy;
	void *target = malloc(n * data_y_bytes(k->data)), *saved, *work;
	struct err e;

	model_need(m, 0, m->nops, n, 1, &need);
	y = malloc(need.y);
	dy = malloc(need.y);
	saved = aligned_alloc(64, (need.saved + 127) / 64 * 64);
	work = aligned_alloc(64, (need.work_fwd + need.work_bwd + 127) / 64 * 64);
	for (uint32_t i = 0; i < n; i++)
		position[i] = b->next++;
	assert_int_equal(data_read(k->data, DATA_TRAIN, position, n, x, target, &e), 0);
	struct model_call c = { .batch = n, .param = b->w, .saved = saved, .work = work, .train = true,
		.buffer = b->stats };
	model_forward(&k->par, m, 0, m->nops, &c, x, y);
	double loss = loss_run(&k->par, k->spec->loss, n, shape_count(&m->out), y, target, 1.0 / n, dy, NULL);
	memset(b->g, 0, b->n * sizeof(real));
	model_backward(&k->par, m, 0, m->nops, &c, x, dy, NULL, b->g);
	free(position);
	free(x);
	free(target);
	free(y);
	free(dy);
	free(saved);
	free(work);
	return loss;
}

static inline void bare_step(struct bare *b, const struct kit *k, real *g, uint64_t epoch)
{
	double hyper[OPTIM_KEYS_MAX];

	memcpy(hyper, k->spec->hyper, sizeof(hyper));
	hyper[0] *= spec_lr_factor(k->spec, epoch);
	if (k->spec->clip_norm > 0)
		(void)vec_clip_norm(&k->par, b->n, k->spec->clip_norm, g);
	optim_tick(k->spec->optim, hyper, &b->clock);
	optim_step(&(struct optim_call){ .par = &k->par, .ops = k->spec->optim, .hyper = hyper, .clock = &b->clock,
		.state = b->state, .param = b->w, .grad = g, .tensor = b->model->param, .ntensors = b->model->nparams,
		.decay_all = k->spec->decay_all });
}

static inline void bare_close(struct bare *b)
{
	free(b->w);
	free(b->g);
	free(b->sum);
	for (int i = 0; i < OPTIM_STATES_MAX; i++)
		free(b->state[i]);
}

static inline void assert_same_params(const struct kit *k, const struct bare *b)
{
	size_t bytes;
	const real *w = trainer_state(k->t, &bytes);

	for (size_t i = 0; i < b->n; i++)
		if (memcmp(&w[i], &b->w[i], sizeof(real)))
			fail_msg("parameter %zu: %a and %a", i, (double)w[i], (double)b->w[i]);
}

#endif

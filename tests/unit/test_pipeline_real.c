/* Pipelines with real numbers: the plans of all members run in one process (pipe_world.h). Gradients and parameters are
 * those of one process: the same bits without replicas, to 1e-12 in double with them and with several pipelines (rows
 * D01, D02, D03, D08); and whoever holds a stage for others has the bits of those who train it. */
#include "pipe_agree.h"

static void all_wait(const struct world *w)
{
	for (uint32_t k = 0; k < w->n; k++)
		if (!w->peer[k].waits && w->peer[k].n)
			fail_msg("member %u is not in the round", k);
}

/* What the round gives a member: the mean of what all pipelines have of its part, by samples; of a pipeline's replicas
 * one has spoken for all. */
static real *heard(const struct world *w, const struct peer *p)
{
	real *mean = xcalloc(p->n, sizeof(real));
	uint64_t all = samples_of(w, 0, w->micro);
	uint32_t many = 0;

	for (uint32_t k = 0; k < w->n; k++) {
		const struct peer *o = &w->peer[k];
		uint64_t samples = samples_of(w, o->of.first, o->of.n);

		if (!o->gave || o->lo != p->lo || o->n != p->n)
			continue;
		for (uint64_t i = 0; i < p->n; i++)
			mean[i] += samples == all ? o->mean[i] : o->mean[i] * (real)samples / (real)all;
		many++;
	}
	assert_int_equal(many, w->units);
	return mean;
}

/* The step is the test's own: plain SGD with the mean that the round was given. */
static void step(struct world *w, real *param, bool exact)
{
	real *mean = xcalloc(w->model->nparam, sizeof(real));
	double loss = 0, told = 0;
	uint64_t counted = 0, given = 0;

	alone(w, param, mean, &loss);
	vec_axpy(&w->par, w->model->nparam, RATE, mean, param);
	for (uint32_t k = 0; k < w->n; k++) {
		struct peer *p = &w->peer[k];
		real *got;

		counted += p->counted;
		told += p->loss;
		if (!p->n)
			continue;
		got = heard(w, p);
		given += p->gave ? p->n : 0;
		compare(p, got, mean, exact);
		vec_axpy(&w->par, p->n, RATE, got, p->held[p->stage].w);
		compare(p, p->held[p->stage].w, param, exact);
		free(got);
	}
	assert_int_equal(given, w->units * w->model->nparam);   /* every parameter once a pipeline, whoever else has it */
	assert_int_equal(counted, samples_of(w, 0, w->micro));
	assert_true(fabs(told - loss) < 1e-5 * fabs(loss));
	free(mean);
}

static void train(uint32_t members, uint64_t micro, bool exact, const char *values)
{
	struct world w;
	real *param;

	world_open(&w, members, micro, "{\"name\":\"sgd\",\"lr\":0.1}");
	pipe_values(&w.kit, "%s", values);
	param = xcalloc(w.model->nparam, sizeof(real));
	model_init(w.model, 3, param);
	for (uint32_t k = 0; k < members; k++)
		peer_open(&w, k);
	for (; w.epoch < EPOCHS; w.epoch++) {
		for (uint32_t k = 0; k < members; k++)
			exec_wake(w.peer[k].x);
		sim_run_for(w.sim, 1000000);
		all_wait(&w);
		step(&w, param, exact);
		w.begin += w.micro + 1;                 /* the round has an index, too */
		for (uint32_t k = 0; k < members; k++) {
			w.peer[k].waits = w.peer[k].gave = false;
			w.peer[k].unit = w.peer[k].loss = 0;
			w.peer[k].counted = 0;
			exec_interrupt(w.peer[k].x);
		}
	}
	free(param);
	world_close(&w);
}

/* Every schedule and depth, in one flush and in several, the last of them shorter; and a member that has no stage. */
static void schedules(void **state)
{
	static const char *const schedule[] = { "naive", "gpipe", "1f1b" };
	char values[100];

	for (int s = 0; s < 3; s++)
		for (uint32_t p = 1; p <= 5; p++)
			for (uint32_t m = 1; m <= 9; m += 4) {
				(void)snprintf(values, sizeof(values), "{'stages':%u,'schedule':'%s','micro_batches':%u}", p,
					schedule[s], m);
				train(p, 7, true, values);
			}
	train(4, 5, true, "{'stages':3}");
}

static void named_layers(void **state)
{
	train(3, 6, true, "{'stages':[{'layers':'in-mid'},{'layers':4},{'layers':'7-9'}],'micro_batches':4}");
	train(2, 6, true, "{'stages':[{'layers':'in'},{'layers':'t-9'}],'schedule':'gpipe'}");
}

static void replicas(void **state)
{
	train(3, 7, false, "{'stages':[{'replicas':2},{}]}");
	train(3, 7, false, "{'stages':[{},{'replicas':2}],'schedule':'gpipe'}");
	train(4, 8, false, "{'stages':[{'replicas':2},{},{}],'micro_batches':3}");
	train(6, 9, false, "{'stages':[{'replicas':3},{'replicas':2},{}],'micro_batches':5}");
	train(4, 6, false, "{'stages':[{'replicas':2},{'replicas':2}],'schedule':'naive','micro_batches':2}");
}

/* Several pipelines, of one speed and of several; with replicas of a stage, and a member that is left over. */
static void side_by_side(void **state)
{
	train(4, 8, false, "{'stages':2}");
	train(4, 7, false, "{'stages':2,'schedule':'gpipe','micro_batches':2}");
	train(6, 9, false, "{'stages':2,'schedule':'naive'}");
	train(7, 11, false, "{'stages':3,'micro_batches':3}");
	train(8, 12, false, "{'stages':[{'replicas':2},{},{}],'micro_batches':5}");
	train(3, 8, false, "{'stages':1}");
}

/* --- state in several copies: here the round is had, and the optimizer's step is the plan's */

struct whole { real *w, *mean, *state[OPTIM_STATES_MAX]; struct optim_clock clock; };

/* One process, to which what the stage `spoilt` has learned in an epoch does not count. */
static void whole_step(const struct world *w, struct whole *o, const struct held *spoilt)
{
	struct optim_call c = { .par = &w->par, .ops = w->spec->optim, .hyper = w->spec->hyper, .clock = &o->clock,
		.state = o->state, .param = o->w, .grad = o->mean, .tensor = w->model->param, .ntensors = w->model->nparams };
	real *was = xmemdup(o->w, w->model->nparam * sizeof(real));
	double loss = 0;

	alone(w, o->w, o->mean, &loss);
	optim_tick(w->spec->optim, w->spec->hyper, &o->clock);
	optim_step(&c);
	if (spoilt)
		memcpy(o->w + spoilt->lo, was + spoilt->lo, spoilt->n * sizeof(real));
	free(was);
}

/* Every holder of stage t, k of them at least, has what its first replica has, bit for bit. */
static void equal_copies(const struct world *w, uint32_t t)
{
	const struct held *own = NULL;
	uint32_t n = 0;

	for (uint32_t k = 0; k < w->n; k++)
		own = !own && w->peer[k].stage == t && w->peer[k].n ? &w->peer[k].held[t] : own;
	for (uint32_t k = 0; own && k < w->n; k++) {
		const struct held *h = &w->peer[k].held[t];

		if (!h->w)
			continue;
		n++;
		assert_int_equal(h->n, own->n);
		assert_memory_equal(h->w, own->w, own->n * sizeof(real));
		assert_int_equal(h->opt_bytes, own->opt_bytes);
		assert_memory_equal(h->opt, own->opt, own->opt_bytes);
	}
	assert_true(!own || n >= w->kit.v.redundancy);
}

/* After an epoch: all holders are equal, they are what one process is, and each has told one digest. */
static void all_is_kept(const struct world *w, const struct whole *o, bool exact, uint32_t spoilt)
{
	for (uint32_t k = 0; k < w->n; k++) {
		const struct peer *p = &w->peer[k];
		uint32_t holds = 0;

		for (uint32_t t = 0; t < STAGES; t++)
			holds += p->held[t].w != NULL;
		assert_int_equal(p->digests, holds > 0);
		assert_int_equal(p->skips, spoilt != PLAN_NONE && p->held[spoilt].w ? 1u << spoilt : 0);
		if (p->n)
			compare(p, p->held[p->stage].w, o->w, exact);
	}
	for (uint32_t t = 0; t < STAGES; t++)
		equal_copies(w, t);
}

/* With the state of each stage in k copies. In the last epoch the gradient of one stage is not finite. */
static void kept(uint32_t members, uint64_t micro, uint32_t k, bool exact, const char *optimizer, const char *values)
{
	struct world w;
	struct whole o = { 0 };

	world_open(&w, members, micro, optimizer);
	w.kit.v.redundancy = k;
	pipe_values(&w.kit, "%s", values);
	o.w = xcalloc(w.model->nparam, sizeof(real));
	o.mean = xcalloc(w.model->nparam, sizeof(real));
	for (int i = 0; i < OPTIM_STATES_MAX; i++)
		o.state[i] = w.states[i] ? xcalloc(w.model->nparam, sizeof(real)) : NULL;
	optim_clock_init(&o.clock);
	model_init(w.model, 3, o.w);
	for (uint32_t r = 0; r < members; r++)
		peer_open(&w, r);
	for (; w.epoch < EPOCHS; w.epoch++) {
		uint32_t spoilt = w.epoch + 1 == EPOCHS ? w.peer[0].stage : PLAN_NONE;

		for (uint32_t r = 0; r < members; r++) {
			w.peer[r].waits = w.peer[r].gave = false;
			w.peer[r].unit = 0;
			w.peer[r].digests = 0;
			exec_wake(w.peer[r].x);
		}
		sim_run_for(w.sim, 1000000);
		all_wait(&w);
		agree(&w, spoilt);
		sim_run_for(w.sim, 1000000);
		whole_step(&w, &o, spoilt == PLAN_NONE ? NULL : &w.peer[0].held[spoilt]);
		all_is_kept(&w, &o, exact, spoilt);
		w.begin += w.micro + 1;
	}
	free(o.w);
	free(o.mean);
	for (int i = 0; i < OPTIM_STATES_MAX; i++)
		free(o.state[i]);
	world_close(&w);
}

static const char momentum[] = "{\"name\":\"sgd\",\"lr\":0.1,\"momentum\":0.9}";
static const char adam[] = "{\"name\":\"adam\",\"lr\":0.01}";

static void copies(void **state)
{
	kept(2, 5, 2, true, momentum, "{'stages':2}");
	kept(3, 5, 2, true, adam, "{'stages':3,'schedule':'gpipe'}");
	kept(5, 6, 2, true, momentum, "{'stages':4,'micro_batches':4}");        /* and one that has no stage */
	kept(5, 6, 3, true, adam, "{'stages':5,'schedule':'naive'}");
	kept(4, 5, 3, true, momentum, "{'stages':4}");
	kept(3, 5, 3, true, adam, "{'stages':3}");
}

/* Each stage keeps its inputs alone, and goes forward again for every way back: the same bits. */
static void from_its_input(void **state)
{
	static const char *const schedule[] = { "naive", "gpipe", "1f1b" };
	char values[100];

	for (int s = 0; s < 3; s++)
		for (uint32_t p = 1; p <= 4; p++)
			for (uint32_t m = 2; m <= 7; m += 5) {
				(void)snprintf(values, sizeof(values), "{'stages':%u,'schedule':'%s','micro_batches':%u,"
					"'remat':'boundary'}", p, schedule[s], m);
				train(p, 7, true, values);
			}
	train(6, 9, false, "{'stages':[{'replicas':3},{'replicas':2},{}],'micro_batches':9,'remat':'boundary'}");
	train(6, 9, false, "{'stages':3,'remat':'boundary'}");
	kept(5, 6, 3, true, adam, "{'stages':5,'schedule':'gpipe','remat':'boundary'}");
}

/* A stage without parameters holds those of its neighbours. */
static void copies_with_who_learns_nothing(void **state)
{
	kept(3, 5, 2, true, adam, "{'stages':[{'layers':'in'},{'layers':'t'},{'layers':'mid-9'}]}");
	kept(3, 5, 3, true, momentum, "{'stages':[{'layers':'in'},{'layers':'t'},{'layers':'mid-9'}]}");
}

static void copies_and_replicas(void **state)
{
	kept(4, 8, 2, false, momentum, "{'stages':[{'replicas':2},{},{}],'micro_batches':3}");
	kept(5, 8, 2, false, momentum, "{'stages':[{},{'replicas':3},{}]}");
	kept(6, 9, 3, false, momentum, "{'stages':[{},{'replicas':3},{'replicas':2}],'micro_batches':5}");
	kept(6, 8, 3, false, momentum, "{'stages':[{'replicas':2},{'replicas':2},{},{}]}");
	kept(4, 6, 2, false, momentum, "{'stages':[{'replicas':2},{'replicas':2}],'micro_batches':2}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schedules),
		cmocka_unit_test(from_its_input),
		cmocka_unit_test(named_layers),
		cmocka_unit_test(replicas),
		cmocka_unit_test(side_by_side),
		cmocka_unit_test(copies),
		cmocka_unit_test(copies_with_who_learns_nothing),
		cmocka_unit_test(copies_and_replicas),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

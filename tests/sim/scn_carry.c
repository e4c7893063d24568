/* Plans that need other peers, with real numbers: strategy pipeline over two and three nodes, and three replicas whose
 * gradients are scattered, gathered and summed, give the bits of one peer that does the same alone; a member that is
 * killed at any moment is trouble for the others, nothing of the step under way is left, and they go on without it. */
#include "carry_kit.h"

/* The step counts when it has been made: its COMMIT comes just before. */
static void on_commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *b)
{
	struct peer *p = arg;

	(void)i; (void)index;
	if (b && p->world->pipeline)            /* a micro-batch of the first stage */
		return;
	p->steps++;
	p->unit = 0;
}

static void on_scalar(void *arg, const char *name, int64_t index, const void *v, size_t bytes)
{
	(void)index; (void)bytes;
	if (!strcmp(name, "unit"))
		((struct peer *)arg)->unit = *(const double *)v;
}

static enum exec_outcome on_failed(void *arg, const struct plan *plan, const struct plan_instr *i,
	enum exec_outcome meant, const struct err *e)
{
	struct peer *p = arg;

	(void)plan; (void)i;
	p->troubles++;
	p->error = *e;
	p->world->hold = true;                  /* until the leader has a new plan */
	return meant;
}

static void on_broken(void *arg, const struct err *e)
{
	((struct peer *)arg)->broken = true;
	((struct peer *)arg)->error = *e;
}

static void vec_env(void *arg, struct vec_env *ret)
{
	ret->loss = ((struct peer *)arg)->world->spec->loss;
	ret->counts = true;
	ret->unit = ((struct peer *)arg)->unit;
}

/* --- nodes */

static struct endpoint where(int node)
{
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10 }, .port = { 4237, 4238, 4239 } };

	at.ip[15] = (uint8_t)(node + 1);
	return at;
}

static void bind(struct peer *p)
{
	const struct model *m = p->world->model;
	uint32_t n = p->world->n, s = (uint32_t)p->node;
	size_t lo = p->world->pipeline ? m->offset[cut[n][s]] : 0, hi = p->world->pipeline ? m->offset[cut[n][s + 1]] :
		m->nparam;

	char name[8] = "w";

	if (p->world->pipeline)
		(void)snprintf(name, sizeof(name), "w%u", s);
	exec_bind(p->x, name, p->w + lo, (hi - lo) * sizeof(real));
}

static void *start(struct env *env, int node, void *arg)
{
	static const struct exec_ops ops = { .load = load, .unload = batch_free, .net = net_op, .cancel = cancel,
		.busy = busy };
	const struct exec_cb cb = { .plan = make_plan, .commit = on_commit, .scalar = on_scalar, .env = vec_env,
		.failed = on_failed, .broken = on_broken };
	struct net_conf c = { .has_swarm_key = true, .self = where(node), .seed = { (uint8_t)(node + 1) } };
	struct world *w = arg;
	struct peer *p = xcalloc(1, sizeof(*p));
	struct exec_conf conf = { .env = env, .model = w->model, .par = &w->par, .ops = &ops, .ops_arg = p, .check = true };
	struct err e;

	env->ops->secure(env, &c.boot_id, sizeof(c.boot_id));
	p->world = w;
	p->env = env;
	p->node = node;
	p->net = net_new(env, &c, &e);
	p->chunks = chunks_new(env, p->net);
	p->carry = carry_new(&(struct carry_conf){ .env = env, .net = p->net, .chunks = p->chunks, .run = { { 5 } } });
	p->x = exec_new(&conf, &cb, p);
	p->w = xcalloc(w->model->nparam, sizeof(real));
	model_init(w->model, 3, p->w);
	bind(p);
	w->id[node] = *net_self(p->net);
	return p;
}

static void stop(void *app)
{
	struct peer *p = app;

	p->env->ops->detach(p->env);
	exec_free(p->x, NULL, NULL);
	carry_free(p->carry);
	chunks_free(p->chunks);
	net_free(p->net);
	free(p->w);
	free(p);
}

static struct peer *at(struct sim *s, uint32_t node)
{
	return sim_app(s, (int)node);
}

static void open_world(struct sim *s, struct world *w, uint32_t n, bool pipeline)
{
	const struct layer_host host = { .wait = wait_nobody };
	struct sim_app app = { start, stop, w };
	struct err e;

	*w = (struct world){ .n = n, .alive = n, .generation = 1, .stop = STEPS, .pipeline = pipeline,
		.gathers = sim_seed(s) % 2 };
	w->spec = spec_parse(text, strlen(text), &e);
	w->model = spec_model(w->spec, &host, &e);
	w->data = data_open(NULL, "", w->spec, &e);
	w->source = (struct profile_source){ .model = w->model, .parts = 1, .x_bytes = data_x_bytes(w->data),
		.y_bytes = data_y_bytes(w->data) };
	profile_model(&w->profile, &w->source, BATCH);
	w->par = par_serial(CPU_PLAIN, NULL);
	for (uint32_t k = 0; k < n; k++) {
		struct endpoint where_k = where((int)k);

		w->member[k] = k;
		(void)sim_node_add(s, &where_k, &app);
	}
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t j = 0; j < n; j++)
			net_learn(at(s, k)->net, &w->id[j], sim_endpoint(s, (int)j));
}

static void close_world(struct world *w)
{
	profile_free(&w->profile);
	data_free(w->data);
	model_free(w->model);
	spec_free(w->spec);
}

/* All plans of the generation together, as their leader would. */
static void check_plans(struct sim *s, const struct world *w)
{
	struct plan plan[N_MAX];
	const struct plan *v[N_MAX];
	struct err e;

	for (uint32_t k = 0; k < w->alive; k++) {
		plan_for(&plan[k], w, k, 0);
		v[k] = &plan[k];
	}
	if (plan_check(v, w->alive, NULL, NULL, &e) < 0)
		sim_fail(s, "%s", e.text);
	for (uint32_t k = 0; k < w->alive; k++)
		plan_free(&plan[k]);
}

/* --- one peer alone */

static void gradient(const struct world *w, const real *param, uint64_t j, real *sum)
{
	struct batch *b = batch_new(w, j);
	struct model_need need;
	real y[BATCH * 3], dy[BATCH * 3];
	void *saved, *work;

	model_need(w->model, 0, 5, BATCH, 1, &need);
	saved = aligned_alloc(64, (need.saved + 127) / 64 * 64);
	work = aligned_alloc(64, (need.work_fwd + need.work_bwd + 127) / 64 * 64);
	struct model_call c = { .batch = BATCH, .param = param, .saved = saved, .work = work, .train = true };
	model_forward(&w->par, w->model, 0, 5, &c, b->x, y);
	(void)loss_run(&w->par, w->spec->loss, BATCH, 3, y, b->y, 1.0 / BATCH, dy, NULL);
	model_backward(&w->par, w->model, 0, 5, &c, b->x, dy, NULL, sum);
	free(saved);
	free(work);
	batch_free(NULL, b);
}

/* After `steps` steps, of which the first `whole` had all members and the rest those that w has now. */
static real *alone(const struct world *w, uint64_t steps, uint64_t whole)
{
	size_t n = w->model->nparam;
	real *param = xcalloc(n, sizeof(real)), *g = xcalloc(n, sizeof(real)), *sum = xcalloc(n, sizeof(real));

	model_init(w->model, 3, param);
	for (uint64_t k = 0; k < steps; k++) {
		uint32_t members = k < whole ? w->n : w->alive;

		memset(sum, 0, n * sizeof(real));
		for (uint64_t j = 0; j < MICRO && w->pipeline; j++) {
			memset(g, 0, n * sizeof(real));
			gradient(w, param, k * MICRO + j, g);
			if (j)
				vec_axpy(&w->par, n, 1, g, sum);
			else
				memcpy(sum, g, n * sizeof(real));
		}
		for (uint32_t r = 0; r < members && !w->pipeline; r++) {
			memset(g, 0, n * sizeof(real));
			gradient(w, param, k * N_MAX + (k < whole ? r : w->member[r]), g);
			for (size_t i = 0; i < n; i++)
				sum[i] = r ? sum[i] + g[i] : g[i];
		}
		for (size_t i = 0; i < n && !w->pipeline; i++)
			sum[i] /= (real)members;
		vec_axpy(&w->par, n, RATE, sum, param);
	}
	free(g);
	free(sum);
	return param;
}

static void compare(struct sim *s, const struct world *w, uint64_t steps, uint64_t whole)
{
	real *want = alone(w, steps, whole);

	for (uint32_t k = 0; k < w->alive; k++) {
		const struct peer *p = at(s, w->member[k]);
		uint32_t node = w->member[k];
		size_t lo = w->pipeline ? w->model->offset[cut[w->n][node]] : 0;
		size_t hi = w->pipeline ? w->model->offset[cut[w->n][node + 1]] : w->model->nparam;

		if (memcmp(p->w + lo, want + lo, (hi - lo) * sizeof(real)))
			sim_fail(s, "node %u has other parameters after %llu steps than one peer alone", node,
				(unsigned long long)steps);
	}
	free(want);
}

/* --- scenarios */

static bool all_there(struct sim *s, void *arg)
{
	const struct world *w = arg;

	for (uint32_t k = 0; k < w->alive; k++)
		if (at(s, w->member[k])->broken)
			sim_fail(s, "%s", at(s, w->member[k])->error.text);
	for (uint32_t k = 0; k < w->alive; k++)
		if (at(s, w->member[k])->steps < w->stop || !exec_quiet(at(s, w->member[k])->x))
			return false;
	return true;
}

static void wake(struct sim *s, const struct world *w)
{
	for (uint32_t k = 0; k < w->alive; k++)
		exec_wake(at(s, w->member[k])->x);
}

static void whole_run(struct sim *s, uint32_t n, bool pipeline)
{
	struct world w;

	open_world(s, &w, n, pipeline);
	check_plans(s, &w);
	wake(s, &w);
	sim_await(s, all_there, &w, 60000000);
	compare(s, &w, STEPS, STEPS);
	for (uint32_t k = 0; k < n; k++)
		sim_check(s, carry_open(at(s, k)->carry) == 0 && at(s, k)->troubles == 0);
	close_world(&w);
}

static void scn_pipeline2(struct sim *s) { whole_run(s, 2, true); }
static void scn_pipeline3(struct sim *s) { whole_run(s, 3, true); }
/* One to three. */
static void scn_replicas(struct sim *s) { whole_run(s, 1 + (uint32_t)(sim_seed(s) / 2 % 3), false); }

static bool troubled(struct sim *s, void *arg)
{
	const struct world *w = arg;

	bool done = true;

	for (uint32_t k = 0; k + 1 < w->n; k++) {
		if (at(s, k)->troubles || at(s, k)->broken)
			return true;
		done = done && at(s, k)->steps >= w->stop && exec_quiet(at(s, k)->x);
	}
	return done;
}

static bool all_quiet(struct sim *s, void *arg)
{
	const struct world *w = arg;

	for (uint32_t k = 0; k + 1 < w->n; k++)
		if (!exec_quiet(at(s, k)->x) || carry_open(at(s, k)->carry))
			return false;
	return true;
}

/* The last member dies somewhere in the first steps. */
static bool die(struct sim *s, struct world *w)
{
	wake(s, w);
	sim_run_for(s, 2000 + rng_below(sim_rng(s), 30000));
	if (all_there(s, w))
		return false;
	sim_kill(s, (int)w->n - 1);
	sim_await(s, troubled, w, 30000000);
	w->hold = true;
	w->alive--;
	for (uint32_t k = 0; k < w->alive; k++) /* who hears of it from a neighbour only */
		exec_lost(at(s, k)->x, w->n - 1);
	sim_await(s, all_quiet, w, 1000000);
	for (uint32_t k = 0; k < w->alive; k++) {
		const struct peer *p = at(s, k);

		sim_check(s, !p->broken);
		sim_check(s, !p->troubles || p->error.code == ERR_UNREACHABLE || p->error.code == ERR_TIMEOUT);
	}
	return true;
}

/* Replicas hold each other's state: who is a step behind takes it, and the two go on in a new generation. */
static void scn_killed_replica(struct sim *s)
{
	struct world w;
	uint64_t whole;

	open_world(s, &w, 3, false);
	if (die(s, &w)) {
		uint32_t ahead = at(s, 1)->steps > at(s, 0)->steps;

		whole = at(s, ahead)->steps;
		sim_check(s, whole - at(s, !ahead)->steps <= 1);
		memcpy(at(s, !ahead)->w, at(s, ahead)->w, w.model->nparam * sizeof(real));
		at(s, !ahead)->steps = whole;
		w.generation++;
		w.hold = false;
		check_plans(s, &w);
		wake(s, &w);
		sim_await(s, all_there, &w, 60000000);
		compare(s, &w, STEPS, whole);
	}
	close_world(&w);
}

/* A pipeline without one stage cannot go on; what it has are the weights of its last step. */
static void scn_killed_stage(struct sim *s)
{
	struct world w;

	open_world(s, &w, 3, true);
	if (die(s, &w))
		for (uint32_t k = 0; k < 2; k++) {
			real *want = alone(&w, at(s, k)->steps, STEPS);
			size_t lo = w.model->offset[cut[3][k]], hi = w.model->offset[cut[3][k + 1]];

			sim_check(s, !memcmp(at(s, k)->w + lo, want + lo, (hi - lo) * sizeof(real)));
			free(want);
		}
	close_world(&w);
}

static const struct scn list[] = { SCN(pipeline2), SCN(pipeline3), SCN(replicas), SCN(killed_replica),
	SCN(killed_stage), { 0 } };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

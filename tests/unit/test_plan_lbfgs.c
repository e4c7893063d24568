/* Paper plan 10: L-BFGS with line search. How many evaluations a step needs is known only from their results, so
 * plan() is asked again after every program; trial points are other buffers, the history is a ring, scalars are
 * double. The programs are really executed here, value by value, on plan/tokens.h, and must walk exactly the path of
 * a plain L-BFGS. And Sandblaster's portions: more portions than workers, the last ones handed out twice, the first
 * answer counts. */
#include "plan_kit.h"

#define NMAX 10
#define M 5             /* history */
#define ARMIJO 1e-4

/* --- the function and the plain algorithm */

static double rosenbrock(const double *x, int n, double *g)
{
	double f = 0;
	for (int i = 0; g && i < n; i++)
		g[i] = 0;
	for (int i = 0; i + 1 < n; i += 2) {
		double a = 1 - x[i], b = x[i + 1] - x[i] * x[i];
		f += a * a + 100 * b * b;
		if (g) {
			g[i] = -2 * a - 400 * x[i] * b;
			g[i + 1] = 200 * b;
		}
	}
	return f;
}

static double dot(const double *a, const double *b, int n)
{
	double s = 0;
	for (int i = 0; i < n; i++)
		s += a[i] * b[i];
	return s;
}

struct plain { int n, h, evaluations; double x[NMAX], g[NMAX], p[NMAX], f, s[M][NMAX], y[M][NMAX]; };

static void plain_step(struct plain *o)
{
	double t[NMAX], gt[NMAX], a[M], alpha = 1, slope = dot(o->g, o->p, o->n), ft;
	for (;; alpha /= 2) {
		for (int i = 0; i < o->n; i++)
			t[i] = o->x[i] + alpha * o->p[i];
		o->evaluations++;
		if ((ft = rosenbrock(t, o->n, NULL)) <= o->f + ARMIJO * alpha * slope)
			break;
	}
	rosenbrock(t, o->n, gt);
	for (int k = M - 1; k > 0; k--) {               /* the ring, by hand */
		memcpy(o->s[k], o->s[k - 1], sizeof t);
		memcpy(o->y[k], o->y[k - 1], sizeof t);
	}
	for (int i = 0; i < o->n; i++) {
		o->s[0][i] = t[i] - o->x[i];
		o->y[0][i] = gt[i] - o->g[i];
		o->x[i] = t[i];
		o->g[i] = o->p[i] = gt[i];
	}
	o->f = ft;
	o->h = o->h < M ? o->h + 1 : M;
	for (int k = 0; k < o->h; k++) {
		a[k] = dot(o->s[k], o->p, o->n) / dot(o->s[k], o->y[k], o->n);
		for (int i = 0; i < o->n; i++)
			o->p[i] -= a[k] * o->y[k][i];
	}
	double gamma = dot(o->s[0], o->y[0], o->n) / dot(o->y[0], o->y[0], o->n);
	for (int i = 0; i < o->n; i++)
		o->p[i] *= gamma;
	for (int k = o->h - 1; k >= 0; k--) {
		double b = a[k] - dot(o->y[k], o->p, o->n) / dot(o->s[k], o->y[k], o->n);
		for (int i = 0; i < o->n; i++)
			o->p[i] += b * o->s[k][i];
	}
	for (int i = 0; i < o->n; i++)
		o->p[i] = -o->p[i];
	/* no descent: begin anew along the gradient */
	if (dot(o->g, o->p, o->n) >= 0) {
		o->h = 0;
		for (int i = 0; i < o->n; i++)
			o->p[i] = -o->g[i];
	}
}

/* --- the strategy: four kinds of programs, chosen by what the last one found */

static void buffers(struct plan *p, uint64_t bytes)
{
	static const char *const state[] = { "g", "p" }, *const kept[] = { "wt", "gt", "q" };
	static const char *const scalar[] = { "f", "slope" }, *const result[] = { "ft", "alpha", "phase", "history", "yy",
		"b" };
	struct plan_buf b = { .class = PLAN_WEIGHT, .dtype = PLAN_F64, .bytes = bytes, .initial = true };
	plan_buf(p, &b, "w");
	b.class = PLAN_WEIGHT_GRAD;
	for (int i = 0; i < 2; i++)
		plan_buf(p, &b, "%s", state[i]);
	b.initial = false;
	for (int i = 0; i < 3; i++)
		plan_buf(p, &b, "%s", kept[i]);
	b.depth = M;
	plan_buf(p, &b, "s");
	plan_buf(p, &b, "y");
	b = (struct plan_buf){ .class = PLAN_SCALAR, .dtype = PLAN_F64, .bytes = 8 };
	for (int i = 0; i < 6; i++)
		plan_buf(p, &b, "%s", result[i]);
	for (int k = 0; k < M; k++) {
		plan_buf(p, &b, "a%d", k);
		plan_buf(p, &b, "sy%d", k);
	}
	b.initial = true;
	for (int i = 0; i < 2; i++)
		plan_buf(p, &b, "%s", scalar[i]);
}

static void set(struct plan *p, const char *name, double value)
{
	plan_vec(p, 0, "set", "-> %s", name)->scale = value;
}

static void accept(struct plan *p, int h)
{
	plan_piece(plan_do(p, PLAN_BWD, 0, "wt -> gt"), 0, 0);
	plan_vec(p, 0, "sub", "wt w -> s");
	plan_vec(p, 0, "sub", "gt g -> y");
	plan_vec(p, 0, "copy", "wt -> w'");
	plan_vec(p, 0, "copy", "gt -> g'");
	plan_vec(p, 0, "copy", "ft -> f'");
	plan_vec(p, 0, "copy", "gt -> q");
	for (int k = 0; k < h; k++) {
		plan_vec(p, 0, "dot", "s=%d y=%d -> sy%d", k, k, k);
		plan_vec(p, 0, "dot", "s=%d q -> a%d", k, k);
		plan_vec(p, 0, "div", "a%d sy%d -> a%d", k, k, k);
		plan_vec(p, 0, "axpy", "q y=%d a%d -> q", k, k)->scale = -1;
	}
	plan_vec(p, 0, "dot", "y y -> yy");
	plan_vec(p, 0, "div", "sy0 yy -> yy");
	plan_vec(p, 0, "scale", "q yy -> q");
	for (int k = h - 1; k >= 0; k--) {
		plan_vec(p, 0, "dot", "y=%d q -> b", k);
		plan_vec(p, 0, "div", "b sy%d -> b", k);
		plan_vec(p, 0, "sub", "a%d b -> b", k);
		plan_vec(p, 0, "axpy", "q s=%d b -> q", k)->scale = 1;
	}
	plan_vec(p, 0, "neg", "q -> p'");
	plan_vec(p, 0, "dot", "g' p' -> slope'");
	plan_do(p, PLAN_COMMIT, 0, "w'");
	set(p, "history", h);
	set(p, "phase", 2);
}

static int lbfgs_plan(const struct view *v, const struct plan_results *r, struct plan *p, struct err *e)
{
	int phase = (int)plan_result(r, "phase", 0), h = (int)plan_result(r, "history", 0);
	double alpha = plan_result(r, "alpha", 1);
	struct id id[1] = {{{1}}};
	plan_init(p, "lbfgs", v->me, 1, id);
	buffers(p, v->profile->params * 8);
	p->first = v->first;
	p->iterations = 1;
	plan_section(p, PLAN_BODY);
	if (phase == 0) {
		plan_piece(plan_do(p, PLAN_FWD, 0, "w -> f'"), 0, 0);
		plan_piece(plan_do(p, PLAN_BWD, 0, "w -> g'"), 0, 0);
		plan_vec(p, 0, "neg", "g' -> p'");
		plan_vec(p, 0, "dot", "g' p' -> slope'");
		set(p, "phase", 2);
		return 0;
	}
	double ft = plan_result(r, "ft", 0), f = plan_result(r, "f", 0), slope = plan_result(r, "slope", 0);
	if (phase == 1 && ft <= f + ARMIJO * alpha * slope) {
		accept(p, h < M ? h + 1 : M);
		return 0;
	}
	if (phase == 2 && slope >= 0) {
		plan_vec(p, 0, "neg", "g -> p");
		plan_vec(p, 0, "dot", "g p -> slope");
		set(p, "history", 0);
		return 0;
	}
	alpha = phase == 2 ? 1 : alpha / 2;
	plan_vec(p, 0, "axpy", "w p -> wt")->scale = alpha;
	plan_piece(plan_do(p, PLAN_FWD, 0, "wt -> ft"), 0, 0);
	set(p, "alpha", alpha);
	set(p, "phase", 1);
	return 0;
}

static bool lbfgs_lost(const struct view *v, uint32_t rank)
{
	return false;
}

static const struct planner_ops lbfgs = { .name = "lbfgs", .help = "L-BFGS with backtracking", .plan = lbfgs_plan,
	.lost = lbfgs_lost };

/* --- a small executor: one instruction at a time, values in memory by buffer and slot */

struct machine { int n, evaluations; double value[32][M][NMAX]; struct plan_result result[32]; uint32_t nresults; };

static void compute(struct machine *m, const struct plan *p, const struct token_run *r)
{
	const struct plan_instr *i = r->instr;
	const double *in[4] = {0};
	double *out = i->nout > 0 ? m->value[r->out[0].buf][r->out[0].slot] : NULL, last[NMAX];
	for (uint32_t k = 0; k < i->nin && k < 4; k++)
		in[k] = m->value[r->in[k].buf][r->in[k].slot];
	int n = i->nin > 0 && p->buf[i->in[0].buf].class == PLAN_SCALAR ? 1 : m->n;
	if (i->kind == PLAN_FWD) {
		m->evaluations++;
		*out = rosenbrock(in[0], m->n, NULL);
	} else if (i->kind == PLAN_BWD) {
		rosenbrock(in[0], m->n, out);
	} else if (i->kind == PLAN_VEC && strcmp(i->fn, "set") == 0) {
		*out = i->scale;
	} else if (i->kind == PLAN_VEC && strcmp(i->fn, "dot") == 0) {
		*out = dot(in[0], in[1], m->n);
	} else if (i->kind == PLAN_VEC) {
		for (int k = 0; k < n; k++)
			last[k] = strcmp(i->fn, "copy") == 0 ? in[0][k] : strcmp(i->fn, "neg") == 0 ? -in[0][k] :
				strcmp(i->fn, "sub") == 0 ? in[0][k] - in[1][k] : strcmp(i->fn, "div") == 0 ? in[0][k] / in[1][k] :
				strcmp(i->fn, "scale") == 0 ? in[0][k] * *in[1] :
				in[0][k] + i->scale * (in[2] ? *in[2] : 1) * in[1][k];
		memcpy(out, last, n * sizeof *out);
	}
	if (i->nout > 0 && p->buf[i->out[0].buf].class == PLAN_SCALAR) {
		struct plan_result x = { .value = *out };
		memcpy(x.name, p->buf[i->out[0].buf].name, PLAN_NAME);
		uint32_t k = 0;
		while (k < m->nresults && strcmp(m->result[k].name, x.name) != 0)
			k++;
		m->result[k] = x;
		m->nresults += k == m->nresults;
	}
}

/* Runs one program; returns its tokens for the next one. A COMMIT of w is a step. */
static struct tokens *execute(struct machine *m, const struct plan *p, struct tokens *before, bool *ret_step)
{
	struct tokens *t = tokens_new(p, NULL, before);
	*ret_step = false;
	for (struct token_run *r; (r = tokens_start(t));) {
		compute(m, p, r);
		*ret_step = *ret_step || r->instr->kind == PLAN_COMMIT;
		tokens_end(t, r, NULL);
	}
	if (!tokens_finished(t)) {
		struct buf b = {0};
		tokens_why(t, &b);
		fail_msg("%s", (const char *)b.p);
	}
	return t;
}

static void walks_the_plain_path(void **state)
{
	for (int n = 2; n <= 10; n += 8) {
		struct machine m = { .n = n };
		struct plain o = { .n = n };
		struct profile profile = { .params = (uint64_t)n };
		struct view v = { .profile = &profile, .nmembers = 1 };
		struct plan plan[2] = {{{0}}};
		struct tokens *t = NULL;
		int steps = 0, programs = 0, cur = 0;
		for (int i = 0; i < n; i++)
			m.value[0][0][i] = o.x[i] = i % 2 ? 1 : -1.2;
		o.f = rosenbrock(o.x, n, o.g);
		for (int i = 0; i < n; i++)
			o.p[i] = -o.g[i];
		o.evaluations = 1;
		while (o.f > 1e-16 && programs < 1000) {
			struct plan_results r = { m.nresults, m.result };
			struct err e = {0};
			bool step;
			cur = !cur;
			assert_int_equal(lbfgs.plan(&v, &r, &plan[cur], &e), 0);
			const struct plan *list[] = { &plan[cur] };
			if (programs == 0 && plan_check(list, 1, NULL, NULL, &e) < 0)
				fail_msg("%s", e.text);
			struct tokens *next = execute(&m, &plan[cur], t, &step);
			tokens_free(t);
			plan_free(&plan[!cur]);
			t = next;
			programs++;
			if (!step)
				continue;
			v.first++;
			plain_step(&o);
			steps++;
			const double *w = m.value[0][tokens_newest(t, 0, 0)];
			for (int i = 0; i < n; i++)
				kit_near(w[i], o.x[i], 1e-12 * (1 + fabs(o.x[i])));
		}
		assert_true(steps > 20 && steps < 60);
		/* the number of trials is the data's choice, and the same */
		assert_int_equal(m.evaluations, o.evaluations);
		assert_true(m.evaluations > steps + 5);
		assert_true(rosenbrock(o.x, n, NULL) <= 1e-16);
		tokens_free(t);
		plan_free(&plan[cur]);
	}
}

/* --- Sandblaster: portions of the batch as fragments, index = portion */

#define WORKERS 4
#define PORTIONS 1000           /* 1.3 is near the ideal: a portion of the slow worker may take 1 % of the whole */

static void coordinator(struct plan *p, uint32_t portions)
{
	uint32_t g = plan_group(p, "workers", PLAN_OP_SUM, false, false);
	for (uint32_t w = 1; w <= WORKERS; w++)
		plan_join(p, g, w, 0);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .dtype = PLAN_F64, .bytes = 8 * portions, .bounded = true },
		"part");
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	struct plan_instr *r = plan_recv(p, 0, 1, "part");
	r->with = PLAN_ANY;
	r->group = g;
	r->quorum = r->most = portions;
	r->unique = true;
	plan_vec(p, 0, "sum", "part!");
}

/* What a coordinator would hand out: the next portion to whoever is free; at the end, to idle workers, those again that
 * would be ready last (backup). */
static void fragments(struct kit *k, bool portioned, const double *speed)
{
	static double ready[PORTIONS];
	double busy[WORKERS + 1] = {0};
	uint32_t portions = portioned ? PORTIONS : WORKERS, left = portions;
	for (uint32_t w = 1; w <= WORKERS; w++) {
		struct plan *p = &k->plan[w];
		plan_init(p, "worker", w, WORKERS + 1, k->member);
		p->author = k->member[0];
		plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = 40000 }, "grad");
		plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .dtype = PLAN_F64, .bytes = 8 }, "part");
	}
	for (uint32_t n = 0; n < portions + (portioned ? WORKERS : 0); n++) {
		uint32_t best = 1, portion = n < portions ? n : 0;
		for (uint32_t i = 1; n >= portions && i < portions; i++)
			portion = ready[i] > ready[portion] ? i : portion;
		for (uint32_t w = 2; w <= WORKERS; w++)
			if (portioned ? busy[w] < busy[best] : w == n + 1)
				best = w;
		busy[best] += 1 / speed[best];
		ready[portion] = n < portions || busy[best] < ready[portion] ? busy[best] : ready[portion];
		plan_piece(plan_do(&k->plan[best], PLAN_FWD, portion, "-> grad"), 0, 0);
		plan_vec(&k->plan[best], portion, "dot", "grad! -> part");
		plan_send(&k->plan[best], portion, 0, "part!");
		left--;
	}
}

static void portions_absorb_a_slow_worker(void **state)
{
	uint64_t us[3];
	double even[WORKERS + 1] = { 1, 1, 1, 1, 1 }, slow[WORKERS + 1] = { 1, 1, 1, 1, 0.1 };
	for (int i = 0; i < 3; i++) {
		struct kit k;
		bool portioned = i < 2;
		kit_open(&k, WORKERS + 1);
		kit_chain(&k, 1, portioned ? 10000 * WORKERS / PORTIONS : 10000, 0, 0, 0);
		k.conf.speed = i == 0 ? even : slow;
		plan_init(&k.plan[0], "sandblaster", 0, k.n, k.member);
		coordinator(&k.plan[0], portioned ? PORTIONS : WORKERS);
		fragments(&k, portioned, k.conf.speed);
		kit_json(&k);
		/* double answers are dropped by their key, so the coordinator gets each portion once */
		kit_predict(&k);
		us[i] = k.out.peer[0].finish_us;
		assert_true(k.out.peer[0].finished);
		/* a portion's answer is a scalar: the coordinator never sees gradients */
		assert_int_equal(k.out.peer[0].received[PLAN_WEIGHT_GRAD], 0);
		kit_close(&k);
	}
	/* 4 workers of speed 1 against 3 and a tenth: ideal 4 / 3.1 = 1.29; a static split takes ten times as long */
	assert_true(us[1] * 10 <= us[0] * 13);
	assert_true(us[2] >= 9 * us[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(walks_the_plain_path),
		cmocka_unit_test(portions_absorb_a_slow_worker),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a strategy plans is checked before it runs: a strategy that is wrong breaks its run with the name of the rule,
 * right ones are checked once per shape of program, and not once per program. */
#include "train_kit.h"
#include <time.h>
#include "plan/check.h"
#include "train/replay_int.h"
#include "train/strategy.h"
#include "train/strategy/replica.h"

static const char json[] = "{\"name\":\"p\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5},"
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\","
	"\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},\"target_batch\":48,\"strategy\":\"%s\","
	"\"seed\":3,\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500},"
	"\"local\":{\"batch\":8}}";

/* --- planted: each begins as single and makes one mistake */

static struct plan *begin(struct plan *p, const struct view *v)
{
	plan_begin(p, "planted", v);
	replica_buffers(p, v, true);
	return p;
}

static int never_made(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	plan_vec(begin(ret, v), 0, "mean", "acc -> acc unit");
	return 0;
}

static int too_large(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	replica_micro_batches(begin(ret, v), v, 2, false);
	plan_tier(ret, "arena", 256);
	return 0;
}

static int step_before_commit(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	uint32_t all;

	plan_vec(begin(ret, v), 0, "opt", "w opt -> w opt skipped");
	all = plan_group(ret, "peers", PLAN_OP_MEAN, true, false);
	plan_join(ret, all, 0, 0);
	plan_coll(ret, PLAN_SUM, 0, all, "acc -> acc");
	plan_do(ret, PLAN_COMMIT, 0, "%s", "");
	return 0;
}

static int never_committed(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	plan_vec(begin(ret, v), 0, "opt", "w opt -> w opt skipped");
	return 0;
}

/* Right at first: only the second program, the step, reads what the first has dropped. */
static int wrong_later(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	begin(ret, v);
	if (v->samples < v->target_batch) {
		replica_micro_batches(ret, v, 6, false);
		plan_section(ret, PLAN_EPILOGUE);
		plan_do(ret, PLAN_DROP, 0, "acc ->");
		return 0;
	}
	plan_vec(ret, 0, "mean", "acc -> acc unit");
	plan_do(ret, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_SELF;
	replica_step(ret);
	return 0;
}

static bool is_broken(struct sim *s, void *arg) { return ((struct kit *)arg)->broken; }

static void test_planted(void **state)
{
	static const struct { struct planner_ops ops; const char *rule; uint64_t progress; } bad[] = {
		{ { .name = "a", .plan = never_made }, "VALUE", 0 }, { { .name = "b", .plan = too_large }, "PEAK", 0 },
		{ { .name = "c", .plan = step_before_commit }, "COMMIT", 0 },
		{ { .name = "d", .plan = never_committed }, "COMMIT", 0 },
		{ { .name = "e", .plan = wrong_later }, "VALUE", 6 },
	};
	char text[1000], want[100];

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct kit k;

		(void)snprintf(text, sizeof(text), json, "single");
		kit_strategy = &bad[i].ops;
		kit_open(&k, text, NULL, false);
		kit_strategy = NULL;
		kit_grant(&k, 0, 1000);
		trainer_start(k.t);
		if (!sim_run_until(k.sim, is_broken, &k, 10000000))
			fail_msg("%s was not refused", bad[i].ops.name);
		(void)snprintf(want, sizeof(want), "strategy planted: plan refused, %s: ", bad[i].rule);
		if (strncmp(k.error.text, want, strlen(want)))
			fail_msg("%zu: expected \"%s...\", got \"%s\"", i, want, k.error.text);
		assert_int_equal(k.progress, bad[i].progress);
		sim_run_for(k.sim, 1000000);
		assert_int_equal(k.progress, bad[i].progress);  /* nothing runs on */
		kit_close(&k);
	}
}

/* --- the price */

static double ms_of_checks(const struct plan *p, int n)
{
	struct timespec a, b;
	struct err e;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
	for (int i = 0; i < n; i++)
		if (plan_check(&p, 1, NULL, NULL, &e) < 0)
			fail_msg("%s", e.text);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
	return ((double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6) / n;
}

static json_int_t generation_planned(struct kit *k)
{
	struct err e;
	json_t *o = trainer_plan_json(k->t, false, &e);
	json_int_t g = json_integer_value(json_object_get(json_array_get(json_object_get(o, "plans"), 1), "generation"));

	json_decref(o);
	return g;
}

static void test_once_per_shape(void **state)
{
	char text[1000];

	for (int i = 0; i < 2; i++) {
		struct trainer_view v, later;
		struct kit k;

		(void)snprintf(text, sizeof(text), json, i ? "single" : "hivemind");
		kit_open(&k, text, NULL, false);
		k.alone = !i;
		kit_grant(&k, 0, 100000);
		trainer_start(k.t);
		kit_run(&k, 5);
		trainer_start(k.t);
		trainer_view(k.t, &v);
		kit_run(&k, 205);
		trainer_view(k.t, &later);
		assert_in_range(v.checks, 2, 6);
		assert_int_equal(later.checks, v.checks);       /* two hundred epochs further: nothing new */
		assert_true(later.programs > v.programs + 300);
		assert_int_equal(v.generation, 6);              /* each commit begins one, and plans say which */
		assert_int_equal(later.generation, 206);
		assert_int_equal(generation_planned(&k), 206);
		kit_close(&k);
	}
}

static void test_price(void **state)
{
	struct view_member me = { .speed = 1 };
	struct profile_op op[20] = { { .out_bytes = 100, .saved_bytes = 100 } };
	struct profile m = { .batch = 8, .nops = 20, .op = op, .params = 1000, .batch_bytes = 100,
		.state_bytes = 1000 };
	struct view v = { .profile = &m, .nmembers = 1, .member = &me, .target_batch = 800, .granted = true };
	const struct planner_ops *s = strategy_find("hivemind");
	const struct plan_results none = { 0, NULL };
	struct plan p;
	struct err e;
	double ms;

	assert_int_equal(s->plan(&v, &none, &p, &e), 0);
	ms = ms_of_checks(&p, 50);
	print_message("a check of %u instructions, %llu iterations: %.2f ms\n", p.ninstrs,
		(unsigned long long)p.iterations, ms);
	assert_true(ms < 20);           /* 1 ms is usual; sanitizers and a busy machine */
	plan_free(&p);
}

/* Of a view with many members every strategy plans for just these: their ids, in order, all in the group that sums. */
static void test_members(void **state)
{
	struct view_member member[3] = { { .id = { { 1, 2, 3 } }, .speed = 2, .memory_bytes = UINT64_MAX },
		{ .id = { { 40, 5 } }, .speed = 0.5, .worker = true }, { .id = { { 9 } }, .speed = 1 } };
	struct profile_op op[4] = { { .out_bytes = 100, .saved_bytes = 100 } };
	struct profile m = { .batch = 8, .nops = 4, .op = op, .params = 1000, .batch_bytes = 100, .state_bytes = 1000 };
	struct view v = { .profile = &m, .nmembers = 3, .member = member, .me = 1, .generation = 7, .first = 5,
		.target_batch = 800, .granted = true, .begun = true, .samples = 8 };
	const struct plan_results none = { 0, NULL };
	const struct planner_ops *s;
	json_t *values = json_pack("{s:i}", "stages", 3);
	struct plan p;
	struct err e;

	for (int i = 0; (s = strategy_at(i)); i++) {
		v.values = s->crew ? values : NULL;
		assert_int_equal(s->plan(&v, &none, &p, &e), 0);
		assert_true(p.nmembers == 3 && p.me == 1 && p.generation == 7 && p.first == 5);
		for (uint32_t k = 0; k < 3; k++)
			assert_memory_equal(&p.member[k], &member[k].id, sizeof(struct id));
		if (s->needs_swarm && !s->crew)
			assert_int_equal(p.group[plan_find_group(&p, "peers")].n, 3);
		plan_free(&p);
	}
	json_decref(values);
}

/* --- the replay of a run knows what its strategy does with vectors */

static unsigned known(const struct plan *p)
{
	unsigned n = 0;

	for (uint32_t k = 0; k < p->ninstrs; k++) {
		const struct plan_instr *i = &p->instr[k];
		const char *in[REPLAY_REFS], *out[REPLAY_REFS];
		struct err e;

		if (i->kind != PLAN_VEC || !strcmp(i->fn, "loss"))      /* that is computed with the gradient */
			continue;
		assert_true(i->nin <= REPLAY_REFS && i->nout <= REPLAY_REFS);
		for (uint32_t a = 0; a < i->nin; a++)
			in[a] = p->buf[i->in[a].buf].name;
		for (uint32_t a = 0; a < i->nout; a++)
			out[a] = p->buf[i->out[a].buf].name;
		if (replay_known(i->fn, in, i->nin, out, i->nout, &e) < 0)
			fail_msg("%s: %s", p->strategy, e.text);
		n++;
	}
	return n;
}

/* Whatever is under way, with running statistics and without. */
static unsigned all_known(const struct planner_ops *s, const struct plan_results *settings)
{
	static const uint64_t samples[] = { 0, 8, 800 };
	struct view_member me = { .speed = 1 };
	struct profile_op op[2] = { { .out_bytes = 100, .saved_bytes = 100 }, { .out_bytes = 8 } };
	struct profile m = { .batch = 8, .nops = 2, .op = op, .params = 1000, .batch_bytes = 100, .state_bytes = 1000 };
	struct view v = { .profile = &m, .nmembers = 1, .member = &me, .target_batch = 800, .settings = *settings };
	const struct plan_results none = { 0, NULL };
	unsigned n = 0;

	for (unsigned bits = 0; bits < 3 << 7; bits++) {
		struct plan p;
		struct err e;

		v.begun = bits & 1;
		v.sent = bits & 2;
		v.agreed = bits & 4;
		v.gave = bits & 8;
		v.fresh = bits & 16;
		v.granted = bits & 32;
		m.stats_bytes = bits & 64 ? 40 : 0;
		v.samples = samples[bits >> 7];
		assert_int_equal(s->plan(&v, &none, &p, &e), 0);
		n += known(&p);
		plan_free(&p);
	}
	return n;
}

/* The k-th choice of values for its keys; false: there are no more. */
static bool chosen(const struct planner_ops *s, unsigned k, struct plan_result *v)
{
	for (uint32_t i = 0; i < s->nkeys; i++) {
		const struct planner_key *key = &s->key[i];
		const double some[] = { key->kind == PLANNER_NUMBER ? key->def : key->min, key->min + 1, 4 };
		unsigned n = key->kind == PLANNER_NUMBER ? 1 : key->kind == PLANNER_FLAG ? 2 : 3;

		(void)snprintf(v[i].name, sizeof(v[i].name), "%s", key->name);
		v[i].value = some[k % n];
		k /= n;
	}
	return !k;
}

static void test_replayed(void **state)
{
	const struct planner_ops *s;

	for (int i = 0; (s = strategy_at(i)); i++) {
		struct plan_result v[PLANNER_KEYS_MAX];
		const struct plan_results settings = { s->nkeys, v };
		unsigned n = 0;

		for (unsigned k = 0; !s->crew && chosen(s, k, v); k++) {
			struct planner_mode mode = { 0 };
			struct err e;

			if (!s->mode || s->mode(&settings, NULL, &mode, &e) == 0)
				n += all_known(s, &settings);
		}
		assert_true(s->crew || n > 100);
	}
}

/* A planner that is not told what it needs says so. */
static void test_untold(void **state)
{
	struct view_member member[2] = { { .speed = 1 }, { .speed = 1 } };
	struct profile_op op[4] = { { .out_bytes = 100, .saved_bytes = 100 } };
	struct profile m = { .batch = 8, .nops = 4, .op = op, .params = 1000, .batch_bytes = 100, .state_bytes = 1000 };
	struct view v = { .profile = &m, .nmembers = 2, .member = member, .target_batch = 800, .granted = true };
	const struct plan_results none = { 0, NULL };
	struct plan p;
	struct err e;

	assert_int_equal(strategy_find("pipeline")->plan(&v, &none, &p, &e), -1);
	assert_non_null(strstr(e.text, "stages is missing"));
}

static void of_three(void *arg, uint32_t batch, uint32_t a, uint32_t b, struct piece_need *ret)
{
	*ret = (struct piece_need){ .x = batch, .y = a, .saved = b, .work_fwd = *(int *)arg, .work_bwd = 1 };
}

/* What a planner asks of a piece: what whoever owns the model says exactly, else what its ops say. */
static void test_need(void **state)
{
	struct profile_op op[3] = { { .out_bytes = 10, .saved_bytes = 1, .variant = { { .work_bytes = 7 } } },
		{ .out_bytes = 20, .saved_bytes = 2, .variant = { { .work_bytes = 9 } } },
		{ .out_bytes = 40, .saved_bytes = 4 } };
	struct profile m = { .batch = 8, .nops = 3, .op = op, .batch_bytes = 100 };
	struct piece_need n;
	int work = 5;

	profile_need(&m, 0, 1, &n);
	assert_true(n.x == 100 && n.y == 20 && n.saved == 33 && n.work_fwd == 9 && n.work_bwd == 9);
	profile_need(&m, 1, 2, &n);
	assert_true(n.x == 10 && n.y == 40 && n.saved == 66 && n.work_fwd == 9);
	m.need = of_three;
	m.need_arg = &work;
	profile_need(&m, 1, 2, &n);
	assert_true(n.x == 8 && n.y == 1 && n.saved == 2 && n.work_fwd == 5 && n.work_bwd == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_planted), cmocka_unit_test(test_once_per_shape), cmocka_unit_test(test_price),
		cmocka_unit_test(test_members), cmocka_unit_test(test_replayed), cmocka_unit_test(test_untold),
		cmocka_unit_test(test_need),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

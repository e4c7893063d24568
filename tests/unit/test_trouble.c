/* Instructions between peers that fail: told, planned anew after a rest, bounded in a row; the parameters are in the
 * end those of a run in which nothing failed, and every sample counts once. */
#include "train_kit.h"
#include "train/strategy.h"
#include "train/strategy/replica.h"

#define EPOCHS 3

static const char json[] = "{\"name\":\"p\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5},"
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\","
	"\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},\"target_batch\":48,\"strategy\":\"single\","
	"\"seed\":3,\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":5000},"
	"\"local\":{\"batch\":8}}";

/* Who carries: the next `fails` attempts end with `code` after having torn what was to be written. */
static struct { uint32_t fails, asked; enum err_code code; } line;
static const char *summed;              /* what a strict group of this peer alone sums up before the step */
static bool behind;                     /* or behind the COMMIT */

static void carry(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	struct err e;

	(void)arg; (void)in; (void)nin; (void)nout;
	assert_int_equal(n->instr->kind, PLAN_SUM);
	line.asked++;
	if (!line.fails) {
		exec_done(w, NULL, NULL);
		return;
	}
	line.fails--;
	if (out[0].bytes > sizeof(double))      /* unit is the sum's own */
		memset(out[0].p, 0x5a, out[0].bytes);
	(void)err_set(&e, line.code, "peer 2 has not answered");
	exec_done(w, NULL, &e);
}

static void cancel(void *arg, struct exec_wait *w) { fail_msg("nothing waits here"); }

static const struct exec_ops ops = { .net = carry, .cancel = cancel };

static int plan(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	uint64_t n = replica_left(v, 64);
	uint32_t all;

	plan_begin(ret, "strict", v);
	if (v->samples < v->target_batch && !n)
		return 0;
	replica_buffers(ret, v, true);
	if (n) {
		replica_micro_batches(ret, v, n, false);
		return 0;
	}
	all = plan_group(ret, "unit", PLAN_OP_MEAN, true, false);
	plan_join(ret, all, 0, 0);
	plan_vec(ret, 0, "mean", "acc -> acc unit");
	if (!behind)
		plan_coll(ret, PLAN_SUM, 0, all, "%s -> %s", summed, summed);
	plan_do(ret, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_SELF;
	if (behind) {
		plan_coll(ret, PLAN_SUM, 0, all, "%s -> %s", summed, summed);
		plan_do(ret, PLAN_COMMIT, 0, "%s", "")->scope = PLAN_SHARD;
	}
	replica_step(ret);
	return 0;
}

static void begin(struct kit *k, const char *what, uint32_t fails, enum err_code code)
{
	static const struct planner_ops strict = { .name = "strict", .plan = plan };

	summed = what;
	behind = false;
	line.fails = fails;
	line.asked = 0;
	line.code = code;
	kit_strategy = &strict;
	kit_ops = &ops;
	kit_open(k, json, NULL, false);
	kit_strategy = NULL;
	kit_ops = NULL;
}

static void go(struct kit *k)
{
	kit_grant(k, 0, 4000);
	trainer_start(k->t);
}

/* Of each epoch just its own positions, so that batches read ahead do not change the order. */
static void run(struct kit *k)
{
	for (uint64_t e = 0; e < EPOCHS; e++) {
		kit_grant(k, 48 * e, 48 * (e + 1));
		trainer_start(k->t);
		kit_run(k, e + 1);
	}
}

static bool is_broken(struct sim *s, void *arg) { return ((struct kit *)arg)->broken; }
static bool was_told(struct sim *s, void *arg) { return ((struct kit *)arg)->events > 0; }

static void same_steps(const struct kit *a, const struct kit *b)
{
	for (int e = 1; e <= EPOCHS; e++) {
		assert_memory_equal(a->digest[e], b->digest[e], TRAINER_DIGEST);
		assert_int_equal(a->samples[e], 48);
		assert_int_equal(b->samples[e], 48);
	}
}

/* What is summed was the epoch's sum: its samples come again. A scalar: they stay. */
static void test_goes_on(void **state)
{
	static const struct { const char *what; uint64_t progress; } row[] = { { "acc", 6 * (EPOCHS + 5) },
		{ "unit", 6 * EPOCHS } };

	for (int i = 0; i < 2; i++) {
		struct kit well, ill;

		begin(&well, row[i].what, 0, ERR_NONE);
		run(&well);
		assert_int_equal(well.events, 0);
		assert_int_equal(well.progress, 6 * EPOCHS);
		begin(&ill, row[i].what, 5, i ? ERR_TIMEOUT : ERR_UNREACHABLE);
		run(&ill);
		same_steps(&well, &ill);
		assert_int_equal(ill.events, 5);
		assert_int_equal(line.asked, EPOCHS + 5);
		assert_int_equal(ill.progress, row[i].progress);
		/* 0.1, 0.2 ... 1.6 s */
		assert_in_range(env_now(ill.env) - env_now(well.env), 3100000, 3200000);
		kit_close(&well);
		kit_close(&ill);
	}
}

/* Only those in a row count. */
static void test_steps_between(void **state)
{
	struct kit k;

	begin(&k, "acc", 0, ERR_TIMEOUT);
	go(&k);
	for (uint64_t e = 1; e <= EPOCHS; e++) {
		line.fails = 15;
		kit_run(&k, e);
		assert_int_equal(k.events, 15 * e);
		trainer_start(k.t);
	}
	kit_close(&k);
}

static void test_bound(void **state)
{
	struct kit k;

	begin(&k, "acc", UINT32_MAX, ERR_TIMEOUT);
	go(&k);
	assert_true(sim_run_until(k.sim, is_broken, &k, 200000000));
	assert_int_equal(line.asked, 16);
	assert_int_equal(k.events, 15);
	assert_err(k.error, ERR_TIMEOUT, "SUM failed 16 times in a row: peer 2 has not answered");
	assert_in_range(env_now(k.env), 90000000, 100000000);
	sim_run_for(k.sim, 100000000);
	assert_int_equal(line.asked, 16);       /* nothing runs on */
	assert_int_equal(k.applied, 0);
	kit_close(&k);
}

/* What no later try can mend ends the run at once. */
static void test_at_once(void **state)
{
	static const struct { const char *what; bool behind; enum err_code code; } row[] = {
		{ "acc", false, ERR_INVALID }, { "acc", false, ERR_NOMEM }, { "w", false, ERR_TIMEOUT },
		{ "acc", true, ERR_TIMEOUT } };

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
		struct kit k;

		begin(&k, row[i].what, 1, row[i].code);
		behind = row[i].behind;
		go(&k);
		assert_true(sim_run_until(k.sim, is_broken, &k, 10000000));
		assert_err(k.error, row[i].code, "peer 2 has not answered");
		assert_int_equal(k.events, 0);
		assert_int_equal(line.asked, 1);
		kit_close(&k);
	}
}

/* The state changes hands, or everything ends, while it rests. */
static void test_rests(void **state)
{
	struct kit k;
	struct err e;

	begin(&k, "acc", 12, ERR_TIMEOUT);
	go(&k);
	assert_true(sim_run_until(k.sim, was_told, &k, 10000000));
	sim_run_for(k.sim, 5000000);
	assert_in_range(k.events, 5, 7);
	trainer_quiet(k.t, kit_gone, &k);
	assert_true(sim_run_until(k.sim, kit_is_gone, &k, 10000000));
	k.gone = false;
	line.fails = 15;                        /* counted from nothing again */
	assert_int_equal(trainer_loaded(k.t, 0, NULL, &e), 0);
	kit_grant(&k, 0, 4000);
	trainer_start(k.t);
	kit_run(&k, 1);
	kit_close(&k);
	begin(&k, "acc", 12, ERR_TIMEOUT);
	go(&k);
	assert_true(sim_run_until(k.sim, was_told, &k, 10000000));
	kit_close(&k);
	line.fails = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goes_on), cmocka_unit_test(test_steps_between), cmocka_unit_test(test_bound),
		cmocka_unit_test(test_at_once), cmocka_unit_test(test_rests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

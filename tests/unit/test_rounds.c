/* The trainer between rounds, in virtual time: a round that begins at any moment leaves no trace of the micro-batch
 * under way; failed rounds, contributions that are left out, commits without a begin; NaN; memory. */
#include "train_kit.h"

#define DATA "\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500}"
static const char form[] = "{\"name\":\"r\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5,\"name\":\"a\"},"
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3,\"name\":\"b\"}],\"loss\":\"cross_entropy\","
	"\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},\"target_batch\":%u,\"strategy\":\"%s\",\"seed\":3,%s" DATA ","
	"\"local\":{\"batch\":8%s}}";

static const char *spec_text(uint32_t target, const char *strategy, const char *more, const char *local)
{
	static char json[2048];

	(void)snprintf(json, sizeof(json), form, target, strategy, more, local);
	return json;
}

static bool has_contributed(struct sim *s,
	void *arg) { struct kit *k = arg; return k->contributed_epoch == k->epoch + 1; }
static bool is_broken(struct sim *s, void *arg) { return ((struct kit *)arg)->broken; }
static bool is_validated(struct sim *s, void *arg) { return ((struct kit *)arg)->validated > 0; }

static void until_contributed(struct kit *k)
{
	assert_true(sim_run_until(k->sim, has_contributed, k, 60000000));
}

static void commit(struct kit *k, const real *mean, uint64_t samples)
{
	struct err e;

	if (trainer_commit(k->t, ++k->epoch, mean, NULL, samples, 0, NULL, &e) < 0)
		fail_msg("%s", e.text);
}

/* The mean over the positions that a contribution claims, from kernels alone. */
static void expect_mean(struct kit *k, struct bare *b, uint64_t lo, uint64_t n)
{
	memset(b->sum, 0, b->n * sizeof(real));
	b->next = lo;
	for (uint64_t at = 0; at < n; at += 8) {
		bare_gradient(b, k, trainer_model(k->t), 8);
		if (at)
			vec_axpy(&k->par, b->n, 1, b->g, b->sum);
		else
			memcpy(b->sum, b->g, b->n * sizeof(real));
	}
	if (n > 8)
		vec_scale(&k->par, b->n, 8.0 / (double)n, b->sum);
}

/* Contributes after a BEGIN at a moment; what is contributed is exactly what was reported. How many micro-batches? */
static uint64_t strike(uint64_t at, snapshot_fn *copy)
{
	struct snapshot *snap = NULL;
	struct kit k;
	struct bare b;
	uint64_t n;

	kit_open(&k, spec_text(1000, "hivemind", "", ""), NULL, false);
	kit_grant(&k, 0, 10000);
	trainer_start(k.t);
	sim_run_for(k.sim, at);
	if (copy)
		trainer_snapshot(k.t, copy, &snap);
	trainer_begin(k.t, 0);
	until_contributed(&k);
	assert_true(!copy || snap);
	n = k.contributed / 8;
	assert_int_equal(k.contributed % 8, 0);
	if (n) {
		bare_open(&b, &k, trainer_model(k.t));
		expect_mean(&k, &b, 0, k.contributed);
		assert_memory_equal(b.sum, k.x, b.n * sizeof(real));
		commit(&k, k.x, k.contributed);
		bare_step(&b, &k, b.sum, 0);
		kit_run(&k, 1);
		assert_same_params(&k, &b);
		bare_close(&b);
	} else {
		assert_null(k.x);
	}
	snapshot_unref(snap);
	kit_close(&k);
	return n;
}

static void strikes(snapshot_fn *copy)
{
	unsigned counts[40] = { 0 };

	for (uint64_t at = 1; at < 400; at += 3) {
		uint64_t n = strike(at, copy);

		assert_true(n < 40);
		counts[n]++;
	}
	assert_true(counts[0] && counts[1] && counts[2]);       /* it did strike at different places */
}

/* BEGIN strikes at every microsecond of the first micro-batches. */
static void test_interrupt(void **state)
{
	strikes(NULL);
}

static void copied(void *arg, struct snapshot *s, const struct err *e)
{
	assert_non_null(s);
	*(struct snapshot **)arg = s;
}

/* The same while a copy of the state is due: between the micro-batch that is abandoned and the round nothing is
 * planned, and nothing of the old program may run on. */
static void test_interrupt_copy(void **state)
{
	strikes(copied);
}

/* A failed round keeps what was accumulated; training goes on and the next contribution holds all of it. */
static void test_failed(void **state)
{
	struct kit k;
	struct bare b;
	double worst = 0;

	kit_open(&k, spec_text(16, "hivemind", "", ""), NULL, false);
	kit_grant(&k, 0, 10000);
	trainer_start(k.t);
	sim_run_for(k.sim, 50000);
	assert_int_equal(k.progress, 2);        /* the target is reached: it waits */
	trainer_begin(k.t, 0);
	until_contributed(&k);
	assert_int_equal(k.contributed, 16);
	trainer_failed(k.t, 0);
	k.contributed_epoch = 0;
	sim_run_for(k.sim, 50000);
	assert_int_equal(k.progress, 3);        /* one more, and it waits again */
	trainer_begin(k.t, 0);
	until_contributed(&k);
	assert_int_equal(k.contributed, 24);
	bare_open(&b, &k, trainer_model(k.t));
	expect_mean(&k, &b, 0, 24);
	for (size_t i = 0; i < b.n; i++)
		if (fabs((double)b.sum[i] - (double)k.x[i]) > worst)
			worst = fabs((double)b.sum[i] - (double)k.x[i]);
	assert_true(worst < 1e-7);
	commit(&k, k.x, 24);
	kit_run(&k, 1);
	assert_int_equal(k.samples[1], 24);
	bare_close(&b);
	kit_close(&k);
}

/* Left out: the mean of the others is adopted, what was accumulated is dropped and its positions may come again. */
static void test_left_out(void **state)
{
	struct kit k;
	struct bare b;
	real *mean;

	kit_open(&k, spec_text(16, "hivemind", "", ""), NULL, false);
	kit_grant(&k, 0, 16);
	trainer_start(k.t);
	sim_run_for(k.sim, 50000);
	trainer_begin(k.t, 0);
	until_contributed(&k);
	bare_open(&b, &k, trainer_model(k.t));
	mean = calloc(b.n, sizeof(real));
	for (size_t i = 0; i < b.n; i++)
		mean[i] = (real)(i % 7) * (real)0.01;
	commit(&k, mean, 0);
	kit_grant(&k, 0, 16);
	bare_step(&b, &k, mean, 0);
	kit_run(&k, 1);
	assert_same_params(&k, &b);
	assert_int_equal(k.samples[1], 0);
	trainer_start(k.t);
	sim_run_for(k.sim, 50000);
	assert_int_equal(k.progress, 4);        /* the same sixteen again */
	trainer_begin(k.t, 1);
	until_contributed(&k);
	assert_int_equal(k.contributed, 16);
	expect_mean(&k, &b, 0, 16);
	assert_memory_equal(b.sum, k.x, b.n * sizeof(real));
	free(mean);
	bare_close(&b);
	kit_close(&k);
}

/* A follower: commits come one after the other, faster than they are applied, without begin, before it was started. */
static void test_follower(void **state)
{
	struct kit k;
	struct bare b;
	real *mean;

	kit_open(&k, spec_text(16, "hivemind", "", ""), NULL, false);
	bare_open(&b, &k, trainer_model(k.t));
	mean = calloc(b.n, sizeof(real));
	for (uint64_t e = 0; e < 5; e++) {
		for (size_t i = 0; i < b.n; i++)
			mean[i] = (real)((i + e) % 5) * (real)0.02;
		commit(&k, mean, 0);
		bare_step(&b, &k, mean, e);
	}
	memset(mean, 0, b.n * sizeof(real));    /* it was read during the call */
	kit_run(&k, 5);
	assert_same_params(&k, &b);
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	for (uint64_t e = 5; e < 9; e++) {      /* and in the middle of micro-batches */
		for (size_t i = 0; i < b.n; i++)
			mean[i] = (real)((i + e) % 5) * (real)0.02;
		sim_run_for(k.sim, 37 + 11 * e);
		commit(&k, mean, 0);
		bare_step(&b, &k, mean, e);
	}
	kit_run(&k, 9);
	assert_same_params(&k, &b);
	free(mean);
	bare_close(&b);
	kit_close(&k);
}

/* A commit strikes at any moment: a micro-batch that ends between its arrival and the step is not counted into the next
 * epoch, whose sums it is not in; its positions come again. */
static void test_commit_any_time(void **state)
{
	for (uint64_t at = 1; at < 400; at += 3) {
		struct kit k;
		struct bare b;
		real *mean;

		kit_open(&k, spec_text(1000, "hivemind", "", ""), NULL, false);
		bare_open(&b, &k, trainer_model(k.t));
		mean = calloc(b.n, sizeof(real));
		kit_grant(&k, 0, 160);
		trainer_start(k.t);
		sim_run_for(k.sim, at);
		commit(&k, mean, 0);
		kit_grant(&k, 0, 160);          /* what it had done is its own again */
		while (k.applied < 1)
			sim_run_for(k.sim, 1);
		trainer_begin(k.t, 1);
		until_contributed(&k);
		assert_true(k.contributed <= 8);
		commit(&k, mean, 0);
		kit_run(&k, 2);
		trainer_start(k.t);
		kit_grant(&k, 0, 160);
		sim_run_for(k.sim, 100000);
		trainer_begin(k.t, 2);
		until_contributed(&k);
		assert_int_equal(k.contributed, 160);   /* all of it, once */
		free(mean);
		bare_close(&b);
		kit_close(&k);
	}
}

/* A second begin of the same round is answered again. */
static void test_begin_again(void **state)
{
	struct kit k;

	kit_open(&k, spec_text(16, "hivemind", "", ""), NULL, false);
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	sim_run_for(k.sim, 50000);
	trainer_begin(k.t, 0);
	until_contributed(&k);
	k.contributed_epoch = 0;
	trainer_begin(k.t, 0);
	until_contributed(&k);
	assert_int_equal(k.contributed, 16);
	commit(&k, k.x, 16);
	kit_run(&k, 1);
	kit_close(&k);
}

static void test_pause(void **state)
{
	struct kit k;
	uint64_t n;

	kit_open(&k, spec_text(100000, "hivemind", "", ""), NULL, false);
	kit_grant(&k, 0, 100000);
	trainer_start(k.t);
	sim_run_for(k.sim, 2000);
	trainer_pause(k.t);
	sim_run_for(k.sim, 2000);
	n = k.progress;
	assert_true(n > 0);
	sim_run_for(k.sim, 100000);
	assert_int_equal(k.progress, n);
	trainer_begin(k.t, 0);                  /* rounds go on */
	until_contributed(&k);
	assert_int_equal(k.contributed, 8 * n);
	commit(&k, k.x, k.contributed);
	kit_run(&k, 1);
	sim_run_for(k.sim, 100000);
	assert_int_equal(k.progress, n);
	trainer_start(k.t);
	sim_run_for(k.sim, 10000);
	assert_true(k.progress > n);
	kit_close(&k);
}

/* C05, first half: local updates with SGD equal the averaged gradient when everybody takes one step. Here: the
 * contribution is the parameters, and what comes back is adopted. */
static void test_local(void **state)
{
	struct kit k;
	size_t bytes;
	real *w, *other;

	kit_open(&k, spec_text(16, "hivemind", "\"averaging\":{\"local_updates\":true,\"average_optimizer\":true},", ""),
		NULL,
		false);
	assert_int_equal(trainer_contribution_len(k.t), 3 * trainer_model(k.t)->nparam);
	w = trainer_state(k.t, &bytes);
	other = calloc(trainer_contribution_len(k.t), sizeof(real));
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	sim_run_for(k.sim, 50000);
	trainer_begin(k.t, 0);
	until_contributed(&k);
	assert_ptr_equal(k.x, w);
	for (size_t i = 0; i < trainer_contribution_len(k.t); i++)
		other[i] = (w[i] + (real)0.5) / 2;
	commit(&k, other, 16);
	kit_run(&k, 1);
	assert_memory_equal(w, other, trainer_contribution_len(k.t) * sizeof(real));
	free(other);
	kit_close(&k);
}

/* --- not finite */

/* A micro-batch whose loss is NaN is left out; three in a row end the run and name the layer. */
static void test_nonfinite(void **state)
{
	struct kit k;
	size_t bytes;
	real *w;

	kit_open(&k, spec_text(1000, "hivemind", "\"nonfinite_max\":4,", ""), NULL, false);
	w = trainer_state(k.t, &bytes);
	w[model_param_find(trainer_model(k.t), "b.bias")->offset] = INFINITY;
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	assert_true(sim_run_until(k.sim, is_broken, &k, 1000000));
	assert_int_equal(k.events, 4);
	assert_err(k.error, ERR_NONFINITE, "4 micro-batches in a row");
	assert_non_null(strstr(k.error.text, "parameters of b.bias are not finite (element 0)"));
	kit_close(&k);
	kit_open(&k, spec_text(1000, "hivemind", "", ""), NULL, false);
	w = trainer_state(k.t, &bytes);
	for (size_t i = 0; i < 5; i++)          /* finite, and too large to multiply */
		w[model_param_find(trainer_model(k.t), "b.weight")->offset + i] = (real)3e38;
	for (size_t i = 0; i < 30; i++)
		w[i] = 100;
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	assert_true(sim_run_until(k.sim, is_broken, &k, 1000000));
	assert_err(k.error, ERR_NONFINITE, "layer b (linear) is the first whose output is not finite");
	kit_close(&k);
}

/* A bad micro-batch among good ones: the gradient is as if it had been zero, and its samples count. */
static void test_one_bad(void **state)
{
	struct kit k;
	struct bare b;
	real *mean;

	kit_open(&k, spec_text(16, "hivemind", "", ""), NULL, false);
	bare_open(&b, &k, trainer_model(k.t));
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	sim_run_for(k.sim, 50000);
	trainer_begin(k.t, 0);
	until_contributed(&k);
	mean = calloc(b.n, sizeof(real));
	memcpy(mean, k.x, b.n * sizeof(real));
	mean[7] = NAN;                          /* some other peer's doing */
	commit(&k, mean, 16);
	kit_run(&k, 1);
	assert_same_params(&k, &b);             /* the step was skipped, the epoch counted */
	assert_int_equal(k.events, 1);
	assert_int_equal(k.samples[1], 16);
	free(mean);
	bare_close(&b);
	kit_close(&k);
}

/* --- memory and validation (A05) */

static void test_memory(void **state)
{
	struct kit k;
	struct spec *s;
	struct data *d;
	struct trainer_view v;
	struct par par = par_serial(CPU_PLAIN, NULL);
	char local[64];
	struct err e;

	kit_open(&k, spec_text(32, "hivemind", "", ""), NULL, false);
	k.alone = true;
	kit_grant(&k, 0, 10000);
	trainer_start(k.t);
	kit_run(&k, 10);
	trainer_view(k.t, &v);
	assert_int_equal(v.arena_peak_bytes, v.arena_predicted_bytes);
	(void)snprintf(local, sizeof(local), ",\"memory\":%llu",
		(unsigned long long)(v.arena_predicted_bytes + v.loader_bytes));
	s = kit_spec(spec_text(32, "hivemind", "", local));
	d = data_open(k.env->files, "", s, &e);
	struct trainer_conf conf = { .env = k.env, .spec = s, .data = d, .par = &par };
	const struct trainer_cb none = { .progress = NULL };
	struct trainer *t = trainer_new(&conf, &none, NULL, &e);
	assert_non_null(t);
	trainer_free(t, NULL, NULL);
	s->local.memory_bytes--;
	assert_null(trainer_new(&conf, &none, NULL, &e));
	assert_err(e, ERR_LIMIT, "local.memory: ");
	data_free(d);
	spec_free(s);
	kit_close(&k);
}

/* Validation changes nothing, counts every held-out sample once, and does not stop training. */
static void test_validation(void **state)
{
	struct kit k, with;
	struct bare b;
	double loss = 0;
	size_t right = 0, n;

	kit_open(&k, spec_text(8, "hivemind", "\"validation\":{\"split\":0.5},", ""), NULL, false);
	n = data_count(k.data, DATA_VALIDATION);
	assert_int_equal(n, 250);
	trainer_validate(k.t, false);
	assert_true(sim_run_until(k.sim, is_validated, &k, 10000000));
	bare_open(&b, &k, trainer_model(k.t));
	for (uint64_t p = 0; p < n; p++) {
		const struct model *m = trainer_model(k.t);
		real x[6], y[3];
		int32_t target;
		struct model_need need;
		struct err e;
		size_t one = 0;

		model_need(m, 0, m->nops, 1, 1, &need);
		assert_int_equal(data_read(k.data, DATA_VALIDATION, &p, 1, x, &target, &e), 0);
		struct model_call c = { .batch = 1, .param = b.w, .work = aligned_alloc(64, (need.work_eval + 127) / 64 * 64) };
		model_forward(&k.par, m, 0, m->nops, &c, x, y);
		loss += loss_run(&k.par, k.spec->loss, 1, 3, y, &target, 1, NULL, &one);
		right += one;
		free(c.work);
	}
	assert_int_equal(k.v.samples, n);
	assert_true(fabs(k.v.loss - loss / (double)n) < 1e-6);
	assert_true(fabs(k.v.accuracy - (double)right / (double)n) < 1e-12);
	bare_close(&b);
	kit_open(&with, spec_text(8, "hivemind", "\"validation\":{\"split\":0.5},", ""), NULL, false);
	k.alone = with.alone = true;
	kit_grant(&k, 0, 10000);
	kit_grant(&with, 0, 10000);
	trainer_start(k.t);
	trainer_start(with.t);
	for (uint64_t e = 1; e < 20; e++) {
		kit_run(&k, e);
		kit_run(&with, e);
		trainer_start(k.t);
		trainer_start(with.t);
		trainer_validate(with.t, false);
		assert_memory_equal(k.digest[e], with.digest[e], TRAINER_DIGEST);
	}
	kit_close(&k);
	kit_close(&with);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interrupt), cmocka_unit_test(test_interrupt_copy), cmocka_unit_test(test_failed),
		cmocka_unit_test(test_left_out),
		cmocka_unit_test(test_follower), cmocka_unit_test(test_commit_any_time),
		cmocka_unit_test(test_begin_again), cmocka_unit_test(test_pause),
		cmocka_unit_test(test_local), cmocka_unit_test(test_nonfinite), cmocka_unit_test(test_one_bad),
		cmocka_unit_test(test_memory), cmocka_unit_test(test_validation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

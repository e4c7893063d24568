/* Activations that are sent away and come back, to host memory or to a file, change no bit of what is trained; what
 * tiers hold at most is what the predictor said; a disk without room, one that fails at any call, an interrupt or the
 * end of the executor in the middle of any instruction leave the training where it was. */
#include "tiers_kit.h"

static struct {
	const char *tier;
	int loads, failed, starts, gone;
	int at; uint64_t delay_us; bool ends;   /* that much after the at-th start: an interrupt, or the executor's end */
	struct timer timer; struct bed *bed;
	void (*mend)(struct bed *b);            /* when something has failed */
	int strikes, per_step; bool spoilt;
	int64_t wrong;
} t;

static int far_plan(void *arg, const struct plan_results *r, uint64_t first, struct plan *ret, struct err *e)
{
	struct bed *b = arg;

	plan_init(ret, "far", 0, 2, (struct id[]){ { { 1 } }, { { 2 } } });
	ret->first = first;
	b->planned++;
	b->over = b->commits >= STEPS;
	if (!b->over)
		tiers_plan(b, ret, t.tier, STEPS - (uint64_t)b->commits);
	return 0;
}

static enum exec_outcome far_failed(void *arg, const struct plan *p, const struct plan_instr *i,
	enum exec_outcome meant, const struct err *e)
{
	struct bed *b = arg;

	b->error = *e;
	t.failed++;
	assert_int_equal(i->kind, PLAN_MOVE);
	assert_int_equal(meant, EXEC_REPLAN);
	if (t.mend)
		t.mend(b);
	return meant;
}

/* The step that is to be abandoned has other samples than when it is made again: nothing of it may be left. */
static void far_load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	struct bed *b = arg;
	bool wrong = t.per_step && !t.strikes && b->commits >= (t.at - 1) / t.per_step;

	for (int k = 0; k < N * 7; k++)
		b->x[k] = (real)((k * 37) % 19) / 7 - (real)(wrong ? 3 : 1);
	if (wrong)
		t.wrong = index;
	t.loads++;
	exec_loaded(w, &b->batch, NULL);
}

static void far_commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *b)
{
	t.spoilt = t.spoilt || index == t.wrong;        /* it was complete before it could be abandoned */
	commit(arg, i, index, b);
}

static void gone(void *arg) { t.gone++; }

static void strike(struct timer *timer)
{
	t.strikes++;
	if (!t.ends) {
		exec_interrupt(t.bed->x_);
		return;
	}
	sim_files_fail(t.bed->sim, 0, 1, ERR_IO);       /* of what still runs nobody hears */
	exec_free(t.bed->x_, gone, NULL);
	t.bed->x_ = NULL;
}

static void far_log(void *arg, const char *line, size_t len)
{
	struct bed *b = arg;

	if (strstr(line, "\"ev\":\"start\"") && ++t.starts == t.at) {
		t.bed = b;
		t.timer = (struct timer){ .fire = strike, .name = "strike" };
		env_after(b->env, &t.timer, t.delay_us);
	}
}

static void train(struct bed *b, const char *tier)
{
	static const struct exec_ops ops = { .load = far_load, .unload = unload, .cancel = cancel };
	const struct exec_cb cb = { .plan = far_plan, .commit = far_commit, .scalar = scalar, .env = vec_env,
		.failed = far_failed, .broken = broken, .log = far_log };

	t.tier = tier;
	t.loads = t.failed = t.starts = t.gone = t.strikes = 0;
	t.wrong = -1;
	t.spoilt = false;
	bed_begin(b, NULL, &ops, &cb);
	if (b->broken)
		fail_msg("%s", b->error.text);
}

static int count_name(void *arg, const char *name)
{
	(*(int *)arg)++;
	return 0;
}

/* Nothing of it has a name. */
static void folder_empty(struct bed *b)
{
	int names = 0;
	struct err e;

	if (b->env->files->list(b->env->files, FOLDER, count_name, &names, &e) < 0)
		assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_int_equal(names, 0);
}

static void trained(struct bed *b)
{
	assert_true(b->over);
	assert_int_equal(b->commits, STEPS);
	assert_int_equal(b->unloaded, t.loads);
	folder_empty(b);
}

static struct { size_t n; real w[512], g[512]; double loss; } plain;

static void as_plain(struct bed *b)
{
	trained(b);
	assert_memory_equal(b->w, plain.w, plain.n * sizeof(real));
	assert_memory_equal(b->g, plain.g, plain.n * sizeof(real));
	assert_true(b->loss == plain.loss);
}

static int train_plain(void **state)
{
	struct bed b = { .check = true };
	struct exec_view v;
	double moved = 0;

	train(&b, NULL);
	trained(&b);
	plain.n = b.model->nparam;
	assert_true(plain.n <= 512);
	memcpy(plain.w, b.w, plain.n * sizeof(real));
	memcpy(plain.g, b.g, plain.n * sizeof(real));
	plain.loss = b.loss;
	model_init(b.model, 9, b.w);
	for (size_t i = 0; i < plain.n; i++)
		moved += (double)(b.w[i] != plain.w[i]);
	assert_true(moved > (double)plain.n / 2);
	exec_view(b.x_, &v);
	assert_int_equal(v.tier[1].peak_bytes + v.tier[2].peak_bytes, 0);
	bed_close(&b);
	return 0;
}

/* What the predictor says of the same plan and times. */
static void foretell(struct kit *k, struct bed *b, const char *tier)
{
	struct err e;

	plan_init(&k->plan[0], "far", 0, 2, (struct id[]){ { { 1 } }, { { 2 } } });
	tiers_plan(b, &k->plan[0], tier, STEPS);
	kit_check(k);
	if (predict(k->list, 1, &k->conf, &k->out, &e) < 0)
		fail_msg("%s", e.text);
}

static const char *const tiers[] = { NULL, "host", "file" };

static void test_bits_and_peaks(void **state)
{
	for (int n = 0; n < 3; n++) {
		struct kit k;
		struct bed b = { .check = true, .folder = n == 2 ? FOLDER : NULL, .profile = &k.profile };
		struct exec_view v;

		tiers_profile(&k);
		train(&b, tiers[n]);
		as_plain(&b);
		assert_int_equal(t.failed, 0);
		foretell(&k, &b, tiers[n]);
		exec_view(b.x_, &v);
		for (int at = 0; at <= PLAN_FILE; at++) {
			assert_int_equal(v.tier[at].peak_bytes, k.out.peer[0].peak[at]);
			assert_true((v.tier[at].peak_bytes > 0) == (at == 0 || at == n));
		}
		assert_true(n == 0 || v.tier[n].peak_bytes > (LAYERS - 1) * 4096);
		assert_int_equal(v.tier[n].bytes, n ? 0 : v.arena_bytes);
		bed_close(&b);
		kit_close(&k);
	}
}

/* --- budgets of tiers: one byte under the peak is too little */

static void test_budgets(void **state)
{
	for (int n = 1; n < 3; n++)
		for (int less = 0; less < 2; less++) {
			struct bed b = { .folder = FOLDER };
			struct exec_view v;

			train(&b, tiers[n]);
			exec_view(b.x_, &v);
			bed_close(&b);
			*(n == 1 ? &b.host_bytes : &b.file_bytes) = v.tier[n].peak_bytes - (uint64_t)less;
			if (!less) {
				train(&b, tiers[n]);
				as_plain(&b);
			} else {
				static const struct exec_ops ops = { .load = far_load, .unload = unload, .cancel = cancel };
				const struct exec_cb cb = { .plan = far_plan, .commit = commit, .env = vec_env, .broken = broken };

				bed_begin(&b, NULL, &ops, &cb);
				assert_int_equal(b.broken, 1);
				assert_err(b.error, ERR_LIMIT, n == 1 ? "tier host: the step needs" : "tier file: the step needs");
			}
			bed_close(&b);
		}
}

/* The plan's own budget of a tier: no room, and the checker says so before anything runs. */
static int tight_plan(void *arg, const struct plan_results *r, uint64_t first, struct plan *ret, struct err *e)
{
	(void)far_plan(arg, r, first, ret, e);
	ret->tier[2].budget = 4096;
	return 0;
}

static void test_plan_budget(void **state)
{
	static const struct exec_ops ops = { .load = far_load, .unload = unload, .cancel = cancel };
	const struct exec_cb cb = { .plan = tight_plan, .commit = commit, .env = vec_env, .broken = broken };
	struct bed b = { .folder = FOLDER, .check = true };

	t.tier = "file";
	bed_begin(&b, NULL, &ops, &cb);
	assert_int_equal(b.broken, 1);
	assert_non_null(strstr(b.error.text, "memory in tier file"));
	bed_close(&b);
}

/* --- the disk */

static int64_t room;
static int nth;

static void little_room(struct bed *b) { sim_disk_full(b->sim, 0, room); }
static void more_room(struct bed *b) { sim_disk_full(b->sim, 0, -1); }
static void fail_nth(struct bed *b) { sim_files_fail(b->sim, 0, nth, ERR_IO); }

/* Places are used again: the file never needs more than what lives in it at once, in pages. */
static void test_room(void **state)
{
	struct bed b = { .folder = FOLDER };
	int64_t least = 0;

	for (room = 4096; !least; room += 4096) {
		b.ready = little_room;
		t.mend = more_room;
		train(&b, "file");
		as_plain(&b);
		assert_int_equal(t.failed > 0, b.planned > 2);
		if (t.failed)
			assert_err(b.error, ERR_IO, "plan far: MOVE of index 0: pwrite: No space left on device");
		else
			least = room;
		bed_close(&b);
	}
	/* a page each for what five layers keep and for four inputs; some come back before the last ones leave */
	assert_in_range(least, 5 * 4096, 9 * 4096);
	t.mend = NULL;
}

static void test_disk_fails(void **state)
{
	bool struck = true;

	for (nth = 1; struck; nth++) {
		struct bed b = { .folder = FOLDER, .ready = fail_nth };

		train(&b, "file");
		struck = sim_struck(b.sim, 0);
		sim_files_fail(b.sim, 0, 0, ERR_IO);
		trained(&b);
		assert_int_equal(t.failed, struck);
		assert_memory_equal(b.w, plain.w, plain.n * sizeof(real));
		if (t.failed)
			assert_err(b.error, ERR_IO, "plan far: MOVE of index");
		bed_close(&b);
	}
	assert_true(nth > 2 * 9 * STEPS);       /* every value was written and read */
}

/* --- abandoned in the middle of anything */

/* Lanes lag behind: what is abandoned there ends when the next program has long begun. */
static void lanes_lag(struct bed *b)
{
	static const char *const lane[] = { "copy-in", "copy-out", "disk" };

	for (uint64_t k = 0; k < 3; k++)
		sim_lane_slow(b->sim, 0, lane[k], 1 + (unsigned)((t.delay_us >> 2 * k) % 24));
}

static int all_starts(struct kit *k)
{
	struct bed b = { .folder = FOLDER, .profile = &k->profile };

	train(&b, "file");
	bed_close(&b);
	return t.starts;
}

static void test_interrupts(void **state)
{
	uint64_t seed = any_seed();
	struct kit k;
	int n, struck = 0, cut = 0, same = 0;

	tiers_profile(&k);
	n = all_starts(&k);
	for (int at = 1; at <= n; at++)
		for (int file = 0; file < 2; file++) {
			struct bed b = { .folder = FOLDER, .profile = &k.profile, .check = true, .ready = lanes_lag };
			struct exec_view v;

			t.at = at;
			t.per_step = n / STEPS;
			t.delay_us = 1 + (seed + (uint64_t)at * 7919) % 1000;
			train(&b, file ? "file" : "host");
			t.at = t.per_step = 0;
			trained(&b);
			if (!t.spoilt)
				assert_memory_equal(b.w, plain.w, plain.n * sizeof(real));
			same += !t.spoilt;
			exec_view(b.x_, &v);
			struck += t.strikes;
			cut += v.cut_short > 0;
			assert_true(exec_quiet(b.x_));
			bed_close(&b);
		}
	assert_int_equal(struck, 2 * n);
	assert_true(cut > n && same > n);
	kit_close(&k);
}

static void test_ends(void **state)
{
	uint64_t seed = any_seed();
	struct kit k;
	int n;

	tiers_profile(&k);
	n = all_starts(&k);
	t.ends = true;
	for (int at = 1; at <= n; at++) {
		struct bed b = { .folder = FOLDER, .profile = &k.profile };

		t.at = at;
		t.delay_us = 1 + (seed + (uint64_t)at * 7919) % 1000;
		train(&b, "file");
		t.at = 0;
		assert_int_equal(t.strikes, 1);
		assert_int_equal(t.gone, 1);
		assert_int_equal(t.failed, 0);
		sim_files_fail(b.sim, 0, 0, ERR_IO);
		folder_empty(&b);
		bed_close(&b);
	}
	t.ends = false;
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bits_and_peaks), cmocka_unit_test(test_budgets), cmocka_unit_test(test_plan_budget),
		cmocka_unit_test(test_room), cmocka_unit_test(test_disk_fails), cmocka_unit_test(test_interrupts),
		cmocka_unit_test(test_ends),
	};

	return cmocka_run_group_tests(tests, train_plain, NULL);
}

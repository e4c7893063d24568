/* Rows B01 and B03, and DiLoCo, at the trainer: the trajectory of N peers against the serial one of the same samples,
 * equal bytes after every commit; steps of their own between averagings; the outer step against its reference; and
 * peers that never wait. What the averager does is done by hand here; tests/sim has the whole. */
#include "b01_kit.h"

/* 50 steps of N peers, whose batches differ, against one that takes all of a step's samples at once. */
static void serial(int n, const int *batch, const char *averaging)
{
	struct kit *k = calloc(PEERS, sizeof(*k));
	struct bare b;
	uint64_t at = 0;
	size_t bytes;
	double worst = 0;

	for (int i = 0; i < n; i++)
		open_peer(&k[i], SGD, "allreduce", averaging, batch[i]);
	bare_open(&b, &k[0], trainer_model(k[0].t));
	for (uint64_t e = 0; e < 50; e++) {
		const real *w = trainer_state(k[0].t, &bytes);
		uint64_t from = at;

		for (int i = 0; i < n; i++) {
			work(&k[i], at, at + (uint64_t)batch[i], 1);
			at += (uint64_t)batch[i];
		}
		round_(k, n, e);
		b.next = from;
		bare_gradient(&b, &k[0], trainer_model(k[0].t), (uint32_t)(at - from));
		bare_step(&b, &k[0], b.g, e);
		for (size_t p = 0; p < b.n; p++) {
			double d = fabs((double)w[p] - (double)b.w[p]) / (fabs((double)b.w[p]) + 1);

			worst = d > worst ? d : worst;
		}
	}
	print_message("%d peers: relative difference at most %.2g after 50 steps\n", n, worst);
	assert_true(sizeof(real) == sizeof(double) ? worst < 1e-12 : worst < 1e-6);
	if (n == 1)
		assert_true(worst == 0);
	bare_close(&b);
	for (int i = 0; i < n; i++)
		kit_close(&k[i]);
	free(k);
}

static void test_serial(void **state)
{
	static const int even[PEERS] = { 8, 8, 8, 8, 8, 8, 8, 8 }, odd[PEERS] = { 3, 16, 8, 5, 1, 7, 12, 2 };

	serial(1, even, "");
	serial(2, even, "");
	serial(3, odd, "");
	serial(4, even, "");
	serial(8, odd, "");
	serial(3, odd, "\"sync_every\":1");      /* row B03: one step between averages is no other */
}

/* Of four peers one dies in the middle of a round: the others' step is the serial one of their samples. */
static void test_death(void **state)
{
	struct kit *k = calloc(PEERS, sizeof(*k));
	struct bare b;
	size_t bytes;

	for (int i = 0; i < 4; i++)
		open_peer(&k[i], SGD, "allreduce", "", 8);
	bare_open(&b, &k[0], trainer_model(k[0].t));
	for (int i = 0; i < 4; i++) {
		work(&k[i], 8 * (uint64_t)i, 8 * (uint64_t)i + 500, 1);
		begin(&k[i], 0);
	}
	kit_close(&k[3]);
	real *mean = mean_of(k, 3, b.n);
	for (int i = 0; i < 3; i++)
		commit(&k[i], mean, 8);
	bare_gradient(&b, &k[0], trainer_model(k[0].t), 24);
	bare_step(&b, &k[0], b.g, 0);
	const real *w = trainer_state(k[0].t, &bytes);
	for (size_t p = 0; p < b.n; p++)
		assert_true(fabs((double)w[p] - (double)b.w[p]) < 1e-6);
	trainer_failed(k[1].t, 1);
	for (int i = 0; i < 3; i++)
		work(&k[i], 100 + 8 * (uint64_t)i, 600, 1);
	begin(&k[0], 1);                        /* a round that comes to nothing: the same batch is given again */
	trainer_failed(k[0].t, 1);
	k[0].contributed_epoch = 0;
	sim_run_for(k[0].sim, 5000);
	assert_int_equal(k[0].progress, 2);
	round_(k, 3, 1);
	free(mean);
	bare_close(&b);
	for (int i = 0; i < 3; i++)
		kit_close(&k[i]);
	free(k);
}

/* k steps of their own, then the mean of the parameters: against local SGD on kernels alone. */
static void test_sync_every(void **state)
{
	struct kit *k = calloc(PEERS, sizeof(*k));
	struct bare b[3];
	real *mean;
	size_t bytes;

	for (int i = 0; i < 3; i++) {
		open_peer(&k[i], SGD, "allreduce", "\"sync_every\":4", 8);
		bare_open(&b[i], &k[i], trainer_model(k[i].t));
	}
	assert_int_equal(trainer_contribution_len(k[0].t), b[0].n);
	for (uint64_t e = 0; e < 10; e++) {
		for (int i = 0; i < 3; i++) {
			b[i].next = (e * 3 + (uint64_t)i) * 32;
			work(&k[i], b[i].next, b[i].next + 32, 4);
			for (int n = 0; n < 4; n++) {
				bare_gradient(&b[i], &k[i], trainer_model(k[i].t), 8);
				bare_step(&b[i], &k[i], b[i].g, e);
			}
			assert_same_params(&k[i], &b[i]);
		}
		round_(k, 3, e);
		mean = calloc(b[0].n, sizeof(real));
		for (int i = 0; i < 3; i++)
			vec_mean_add(&k[0].par, b[0].n, 32.0 / 96, b[i].w, mean, i == 0);
		for (int i = 0; i < 3; i++)
			memcpy(b[i].w, mean, b[i].n * sizeof(real));
		assert_memory_equal(trainer_state(k[1].t, &bytes), mean, b[0].n * sizeof(real));
		free(mean);
	}
	for (int i = 0; i < 3; i++) {
		bare_close(&b[i]);
		kit_close(&k[i]);
	}
	free(k);
}

/* DiLoCo: H AdamW steps each, the outer step in double by the paper's formula. */
static void test_diloco(void **state)
{
	struct kit *k = calloc(PEERS, sizeof(*k));
	const struct ckpt_tensor *tensor;
	struct bare b[3];
	double *anchor, *m;
	size_t bytes, n, found = 0;

	for (int i = 0; i < 3; i++) {
		open_peer(&k[i], ADAMW, "diloco", "\"inner_steps\":5,\"outer_lr\":0.6,\"outer_momentum\":0.8", 8);
		bare_open(&b[i], &k[i], trainer_model(k[i].t));
	}
	n = b[0].n;
	anchor = calloc(n, sizeof(*anchor));
	m = calloc(n, sizeof(*m));
	for (size_t p = 0; p < n; p++)
		anchor[p] = b[0].w[p];
	for (size_t i = 0; i < trainer_tensors(k[0].t, &tensor); i++)
		found += !strncmp(tensor[i].name, "averaging.anchor.", 17) +
			!strncmp(tensor[i].name, "averaging.momentum.", 19);
	assert_int_equal(found, 8);
	for (uint64_t e = 0; e < 8; e++) {
		const real *w = trainer_state(k[0].t, &bytes);

		for (int i = 0; i < 3; i++) {
			b[i].next = (e * 3 + (uint64_t)i) * 40;
			work(&k[i], b[i].next, b[i].next + 40, 5);
			for (int s = 0; s < 5; s++) {
				bare_gradient(&b[i], &k[i], trainer_model(k[i].t), 8);
				bare_step(&b[i], &k[i], b[i].g, e);
			}
			assert_same_params(&k[i], &b[i]);
		}
		round_(k, 3, e);
		for (size_t p = 0; p < n; p++) {
			double d = anchor[p] - ((double)b[0].w[p] + (double)b[1].w[p] + (double)b[2].w[p]) / 3;

			m[p] = 0.8 * m[p] + d;
			anchor[p] -= 0.6 * (d + 0.8 * m[p]);
			assert_true(fabs((double)w[p] - anchor[p]) < (sizeof(real) == sizeof(double) ? 1e-13 : 2e-6));
			anchor[p] = w[p];
		}
		for (int i = 0; i < 3; i++)
			memcpy(b[i].w, w, n * sizeof(real));
		for (int i = 1; i < 3; i++) {   /* anchor and outer momentum too; inner states are each peer's own */
			size_t extra = bytes - 2 * n * sizeof(real);

			assert_memory_equal((const char *)w + extra, (const char *)trainer_state(k[i].t, &bytes) + extra,
				2 * n * sizeof(real));
			assert_memory_not_equal((const char *)w + n * sizeof(real),
				(const char *)trainer_state(k[i].t, &bytes) + n * sizeof(real), n * sizeof(real));
		}
	}
	free(anchor);
	free(m);
	for (int i = 0; i < 3; i++) {
		bare_close(&b[i]);
		kit_close(&k[i]);
	}
	free(k);
}

/* A newcomer that takes a donor's state in the middle of an epoch, and the commit behind it, is where they are. */
static void test_diloco_joins(void **state)
{
	struct kit *k = calloc(PEERS, sizeof(*k));
	size_t bytes;
	struct err e;

	for (int i = 0; i < 3; i++)
		open_peer(&k[i], ADAMW, "diloco", "\"inner_steps\":3", 8);
	for (int i = 0; i < 2; i++)
		work(&k[i], 100 * (uint64_t)i, 500, 3);
	round_(k, 2, 0);
	for (int i = 0; i < 2; i++)
		work(&k[i], 1000 + 100 * (uint64_t)i, 2000, 3);
	const void *from = trainer_state(k[0].t, &bytes);
	memcpy(trainer_state(k[2].t, &bytes), from, bytes);
	assert_int_equal(trainer_loaded(k[2].t, 1, NULL, &e), 0);
	k[2].epoch = k[2].applied = 1;
	for (int i = 0; i < 2; i++)
		begin(&k[i], 1);
	real *mean = mean_of(k, 2, trainer_contribution_len(k[0].t));
	for (int i = 0; i < 3; i++)
		commit(&k[i], mean, i < 2 ? k[i].contributed : 0);
	for (int i = 1; i < 3; i++)
		assert_memory_equal(k[i].digest[2], k[0].digest[2], TRAINER_DIGEST);
	free(mean);
	for (int i = 0; i < 3; i++)
		kit_close(&k[i]);
	free(k);
}

/* async: rounds begin, end and fail at any moment; micro-batches never wait for them, every position counts once, and
 * the parameters are those of the commits. */
static void test_async(void **state)
{
	uint64_t stale = 0;

	for (uint64_t at = 20; at < 1200; at += 97) {
		struct kit k, quiet;
		struct trainer_view v;
		uint64_t counted = 0, busy;
		size_t n, bytes;
		real *mean;
		struct err e;

		open_peer(&k, SGD, "allreduce", "\"async\":true", 8);
		open_peer(&quiet, SGD, "allreduce", "\"async\":true", 8);
		n = trainer_model(k.t)->nparam;
		mean = calloc(n, sizeof(real));
		kit_grant(&k, 0, 100000);
		trainer_start(k.t);
		for (uint64_t r = 0; r < 30; r++) {
			bool given;

			sim_run_for(k.sim, at + 31 * r % 200);
			trainer_begin(k.t, r);
			assert_true(sim_run_until(k.sim, contributed, &k, 20));         /* at once */
			given = k.x != NULL;
			sim_run_for(k.sim, at * 7 % 400);
			if (r % 7 == 3) {
				trainer_failed(k.t, r);
				k.contributed_epoch = 0;
				sim_run_for(k.sim, at);
				trainer_begin(k.t, r);
				assert_true(sim_run_until(k.sim, contributed, &k, 20));
				given = k.x != NULL;
			}
			for (size_t p = 0; p < n; p++)
				mean[p] = given ? k.x[p] : (real)0.01;
			counted += k.contributed;
			k.epoch++;
			if (trainer_commit(k.t, k.epoch, (const void *)mean, NULL, k.contributed, 0, NULL, &e) < 0)
				fail_msg("%s", e.text);
			commit(&quiet, mean, 0);
			sim_run_for(k.sim, 300);
		}
		assert_true(sim_run_until(k.sim, applied, &k, 10000000));
		assert_memory_equal(trainer_state(k.t, &bytes), trainer_state(quiet.t, &bytes), n * sizeof(real));
		trainer_view(k.t, &v);
		busy = v.busy_us;
		assert_true(counted > 0 && counted <= 8 * k.progress);
		if (8 * k.progress - counted >= 160)    /* what has not been given yet */
			fail_msg("%llu samples", (unsigned long long)(8 * k.progress - counted));
		assert_int_equal(v.abandoned, 0);               /* nothing was thrown away for a round */
		assert_true(busy * 10 > env_now(k.env) * 8 - 8000000);  /* and it worked all the time */
		stale += v.stale;
		free(mean);
		kit_close(&k);
		kit_close(&quiet);
	}
	assert_true(stale > 0);
}

/* A round that goes on without this peer while what it gives is still being copied: the commit is applied, whatever the
 * moment, and the next round has its samples. */
static void left_out(const char *strategy, const char *averaging)
{
	for (uint64_t at = 0; at < 40; at += at < 10 ? 1 : 6) {
		struct kit k;
		real *mean;
		struct err e;

		open_peer(&k, SGD, strategy, averaging, 8);
		kit_grant(&k, 0, 10000);
		mean = calloc(trainer_contribution_len(k.t), sizeof(real));
		trainer_start(k.t);
		sim_run_for(k.sim, 2000);
		for (uint64_t r = 0; r < 3; r++) {
			trainer_begin(k.t, r);
			if (r != 1)
				assert_true(sim_run_until(k.sim, contributed, &k, 1000000));
			sim_run_for(k.sim, at);
			k.epoch++;
			if (trainer_commit(k.t, k.epoch, (const void *)mean, NULL, r == 1 ? 0 : k.contributed, 0, NULL, &e) < 0)
				fail_msg("%s", e.text);
			if (!sim_run_until(k.sim, applied, &k, 1000000))
				fail_msg("commit %llu, %llu us after BEGIN, is never applied", (unsigned long long)r + 1,
					(unsigned long long)at);
			kit_grant(&k, 10000 * (r + 1), 10000 * (r + 2));
			sim_run_for(k.sim, 2000);
		}
		assert_true(k.contributed > 0 && !k.broken);
		free(mean);
		kit_close(&k);
	}
}

static void test_left_out(void **state)
{
	left_out("hivemind", "\"local_updates\":true,\"delay_state\":true");
	left_out("hivemind", "\"delay_grad\":true");
	left_out("hivemind", "\"delay_step\":true");
	left_out("hivemind", "\"delay_grad\":true,\"delay_step\":true");
	left_out("allreduce", "\"async\":true");
	left_out("diloco", "\"inner_steps\":6,\"fragments\":2,\"overlap\":2");
}

static void copied(void *arg, struct snapshot *s, const struct err *e)
{
	assert_non_null(s);
	*(struct snapshot **)arg = s;
}
static bool has_copy(struct sim *s, void *arg) { return *(struct snapshot **)arg != NULL; }

/* What lies ready for a round that never begins does not keep anybody from the state; and it is still there. */
static void test_async_paused(void **state)
{
	struct snapshot *snap = NULL;
	struct kit k;

	open_peer(&k, SGD, "allreduce", "\"async\":true", 8);
	kit_grant(&k, 0, 1000);
	trainer_start(k.t);
	sim_run_for(k.sim, 2000);
	for (int twice = 0; twice < 2; twice++) {
		trainer_pause(k.t);
		sim_run_for(k.sim, 1000);
		trainer_snapshot(k.t, copied, &snap);
		assert_true(sim_run_until(k.sim, has_copy, &snap, 10000));
		snapshot_unref(snap);
		snap = NULL;
		begin(&k, (uint64_t)twice);
		assert_non_null(k.x);
		assert_true(k.contributed >= 8);
		commit(&k, k.x, k.contributed);
		trainer_start(k.t);
		sim_run_for(k.sim, 2000);
	}
	kit_close(&k);
}

/* Row B04: base * B / base_batch, exactly, B the samples of every commit: who comes and goes changes the rate of the
 * next step, and of that one only. */
static void test_track(void **state)
{
	static const uint64_t counted[] = { 64, 64, 128, 96, 1, 24, 24, 1000 };
	const char *sgd = "{\"name\":\"sgd\",\"lr\":0.25},\"schedule\":{\"base_batch\":48,\"track\":\"peers\"}";
	struct kit k;

	open_peer(&k, sgd, "allreduce", "", 8);
	size_t n = trainer_model(k.t)->nparam, bytes;
	real *mean = calloc(n, sizeof(*mean)), *was = malloc(n * sizeof(*was));

	kit_grant(&k, 0, 100000);
	trainer_start(k.t);
	for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
		double lr = 0.25 * ((double)counted[i] / 48);
		struct trainer_view v;
		struct err e;

		begin(&k, i);
		memcpy(was, trainer_state(k.t, &bytes), n * sizeof(*was));
		for (size_t p = 0; p < n; p++)
			mean[p] = (real)(p % 7) - 3;
		if (trainer_commit(k.t, ++k.epoch, (const void *)mean, NULL, k.contributed, counted[i], NULL, &e) < 0)
			fail_msg("%s", e.text);
		assert_true(sim_run_until(k.sim, applied, &k, 10000000));
		trainer_view(k.t, &v);
		assert_true(v.lr == lr);
		const real *now = trainer_state(k.t, &bytes);
		for (size_t p = 0; p < n; p++) {
			double step = lr * (double)mean[p];

			assert_true(fabs((double)(was[p] - now[p]) - step) <= 1e-6 * (1 + fabs(step)));
		}
	}
	free(mean);
	free(was);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_serial), cmocka_unit_test(test_death), cmocka_unit_test(test_sync_every),
		cmocka_unit_test(test_diloco), cmocka_unit_test(test_diloco_joins), cmocka_unit_test(test_async),
		cmocka_unit_test(test_async_paused), cmocka_unit_test(test_left_out), cmocka_unit_test(test_track),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

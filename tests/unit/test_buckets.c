/* Gradients that are given in parts while backward goes on (strategy allreduce, bucket_bytes): the same bits as in one
 * piece, whatever a round does in the middle of one. What the averager does is done by hand here;
 * tests/sim/scn_avg_grow has it in whole. */
#include "b01_kit.h"
#include "train/strategy/replica.h"

#define DENSE "{\"type\":\"linear\",\"out\":24},{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":16}," \
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":9},{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3}"
#define NORMED "{\"type\":\"linear\",\"out\":24},{\"type\":\"batchnorm\"},{\"type\":\"relu\"}," \
	"{\"type\":\"linear\",\"out\":12},{\"type\":\"batchnorm\"},{\"type\":\"relu\"},{\"type\":\"linear\",\"out\":3}"
#define TRIO 3

static void open_with(struct kit *k, const char *model, const char *optimizer, const char *averaging, const char *more,
	int batch)
{
	char json[2000];

	(void)snprintf(json, sizeof(json), "{\"name\":\"buckets\",\"input\":[6],\"model\":[%s],\"loss\":\"cross_entropy\","
		"\"optimizer\":%s,\"target_batch\":64,\"seed\":11,\"strategy\":\"allreduce\",\"averaging\":{%s},%s"
		"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":4000},\"local\":{\"batch\":%d%s}}", model, optimizer,
		averaging, strstr(more, "clip") ? more : "", batch, strstr(more, "remat") ? more : "");
	kit_open(k, json, NULL, false);
}

static bool counted(struct sim *s, void *arg) { struct kit *k = arg; return k->progress >= k->granted; }

/* Until its samples count; where they are given in parts, backward is still to come. */
static void count_one(struct kit *k, uint64_t lo, uint64_t hi)
{
	kit_grant(k, lo, hi);
	k->granted++;
	trainer_start(k->t);
	assert_true(sim_run_until(k->sim, counted, k, 10000000));
}

/* BEGIN after so many us of backward. */
static void step_of(struct kit *k, int n, uint64_t epoch, uint64_t *at, const int *batch, uint64_t us)
{
	for (int i = 0; i < n; i++) {
		count_one(&k[i], *at, *at + (uint64_t)batch[i]);
		sim_run_for(k[i].sim, us);
		*at += (uint64_t)batch[i];
	}
	round_(k, n, epoch);
}

/* 50 steps of three peers in parts, against the same three in one piece: the parameters have the same bits. */
static void equal(const char *model, const char *optimizer, const char *more, int bytes, unsigned least_parts)
{
	static const int batch[TRIO] = { 8, 5, 12 };
	struct kit *k = calloc(TRIO, sizeof(*k)), *plain = calloc(TRIO, sizeof(*k));
	uint64_t at = 0, there = 0;
	size_t n;
	char averaging[80];

	(void)snprintf(averaging, sizeof(averaging), "\"bucket_bytes\":%d", bytes);
	for (int i = 0; i < TRIO; i++) {
		open_with(&k[i], model, optimizer, averaging, more, batch[i]);
		open_with(&plain[i], model, optimizer, "", more, batch[i]);
	}
	for (uint64_t e = 0; e < 50; e++) {
		step_of(k, TRIO, e, &at, batch, e * 7 % 60);
		step_of(plain, TRIO, e, &there, batch, 0);
		assert_memory_equal(k[0].digest[e + 1], plain[0].digest[e + 1], TRAINER_DIGEST);
		for (int i = 0; i < TRIO; i++)  /* samples count when forward is over, with what it says */
			assert_true(k[i].last_loss == plain[i].last_loss);
	}
	assert_true(k[0].parts >= 50 * least_parts && k[0].parts <= 50 * 64);
	assert_int_equal(plain[0].parts, 0);
	for (int i = 0; i < TRIO; i++) {        /* the optimizer's vectors and the running statistics, too */
		const void *a = trainer_state(k[i].t, &n), *b = trainer_state(plain[i].t, &n);

		assert_memory_equal(a, b, n);
		kit_close(&k[i]);
		kit_close(&plain[i]);
	}
	free(k);
	free(plain);
}

static void test_equal(void **state)
{
	equal(DENSE, SGD, "", 1, 4);
	equal(DENSE, ADAMW, "\"clip_norm\":0.05,", 200, 3);
	equal(NORMED, SGD, "\"clip_norm\":0.01,", 1, 5);
	equal(NORMED, ADAMW, "", 600, 2);
	equal(DENSE, "{\"name\":\"lamb\",\"lr\":0.01}", "", 300, 2);
}

/* Where activations are made twice, with the pieces that there are. */
static void test_remat(void **state)
{
	equal(DENSE, ADAMW, ",\"remat\":\"periodic:3\"", 1, 2);
	equal(NORMED, SGD, ",\"remat\":\"periodic:2\"", 1, 2);
	equal(DENSE, SGD, ",\"remat\":\"periodic:5\"", 400, 2);
}

/* More than the model has: in one piece. */
static void test_one(void **state)
{
	equal(DENSE, SGD, "", 1 << 20, 0);
}

/* Everything at once: what `us` after its samples count is the case. */
struct pair { struct kit k, plain; uint64_t at; };

static void open_pair(struct pair *p)
{
	open_with(&p->k, NORMED, ADAMW, "\"bucket_bytes\":1", "\"clip_norm\":0.05,", 8);
	open_with(&p->plain, NORMED, ADAMW, "", "\"clip_norm\":0.05,", 8);
	p->at = 0;
}

static void close_pair(struct pair *p)
{
	kit_close(&p->k);
	kit_close(&p->plain);
}

/* Both give the same, and are the same after it. */
static void same_step(struct pair *p, uint64_t epoch)
{
	real *x = calloc(trainer_contribution_len(p->k.t), sizeof(*x));
	size_t n = trainer_contribution_len(p->k.t) * sizeof(*x);

	count_one(&p->plain, p->at, p->at + 8);
	begin(&p->plain, epoch);
	begin(&p->k, epoch);
	assert_int_equal(p->k.contributed, 8);
	assert_memory_equal(p->k.x, p->plain.x, n);
	memcpy(x, p->k.x, n);
	commit(&p->k, x, 8);
	commit(&p->plain, x, 8);
	assert_memory_equal(p->k.digest[epoch + 1], p->plain.digest[epoch + 1], TRAINER_DIGEST);
	free(x);
	p->at += 8;
}

/* A round that comes to nothing while this peer is at it: the next one has the whole micro-batch, once. */
static void test_failed(void **state)
{
	for (uint64_t us = 0; us < 90; us += us < 20 ? 1 : 7) {
		struct pair p;

		open_pair(&p);
		for (uint64_t e = 0; e < 3; e++) {
			count_one(&p.k, p.at, p.at + 8);
			trainer_begin(p.k.t, e);
			sim_run_for(p.k.sim, us);
			trainer_failed(p.k.t, e);
			p.k.contributed_epoch = 0;
			sim_run_for(p.k.sim, us * 3 % 50);
			same_step(&p, e);
		}
		assert_int_equal(p.k.progress, 3);
		close_pair(&p);
	}
}

/* The others went on without it, at any moment: what they agreed is applied at once, nothing of the micro-batch is in
 * the next one, and its positions come again. */
static void test_left_out(void **state)
{
	for (uint64_t us = 0; us < 90; us += us < 20 ? 1 : 7)
		for (int begun = 0; begun < 2; begun++) {
			struct pair p;
			real *mean;

			open_pair(&p);
			mean = calloc(trainer_contribution_len(p.k.t), sizeof(*mean));
			for (size_t i = 0; i < trainer_model(p.k.t)->nparam; i++)
				mean[i] = (real)0.01;
			for (uint64_t e = 0; e < 4; e += 2) {
				count_one(&p.k, p.at, p.at + 8);
				if (begun)
					trainer_begin(p.k.t, e);
				sim_run_for(p.k.sim, us);
				commit(&p.k, mean, 0);
				commit(&p.plain, mean, 0);
				assert_memory_equal(p.k.digest[e + 1], p.plain.digest[e + 1], TRAINER_DIGEST);
				p.k.contributed_epoch = 0;
				count_one(&p.k, p.at, p.at + 8);
				same_step(&p, e + 1);
			}
			assert_int_equal(p.k.progress, 4);
			free(mean);
			close_pair(&p);
		}
}

static void copied(void *arg, struct snapshot *s, const struct err *e)
{
	assert_non_null(s);
	*(struct snapshot **)arg = s;
}
static bool has_copy(struct sim *s, void *arg) { return *(struct snapshot **)arg != NULL; }

/* Whoever wants the state has it, paused or not, whatever is being made for a round, and that is given as it is. */
static void test_paused(void **state)
{
	for (uint64_t us = 0; us < 90; us += us < 20 ? 1 : 7) {
		struct snapshot *snap = NULL;
		struct pair p;

		open_pair(&p);
		for (uint64_t e = 0; e < 3; e++) {
			count_one(&p.k, p.at, p.at + 8);
			sim_run_for(p.k.sim, us);
			if (e != 1)
				trainer_pause(p.k.t);
			if (e == 2)
				trainer_begin(p.k.t, e);
			trainer_snapshot(p.k.t, copied, &snap);
			assert_true(sim_run_until(p.k.sim, has_copy, &snap, 10000));
			snapshot_unref(snap);
			snap = NULL;
			trainer_start(p.k.t);
			same_step(&p, e);
		}
		assert_int_equal(p.k.progress, 3);
		close_pair(&p);
	}
}

/* While a round has it, a pause waits for its end. */
static void test_paused_late(void **state)
{
	for (uint64_t us = 0; us < 90; us += us < 20 ? 1 : 7) {
		struct pair p;

		open_pair(&p);
		for (uint64_t e = 0; e < 3; e++) {
			count_one(&p.k, p.at, p.at + 8);
			trainer_begin(p.k.t, e);
			sim_run_for(p.k.sim, us);
			trainer_pause(p.k.t);
			same_step(&p, e);
		}
		close_pair(&p);
	}
}

static void is_quiet(void *arg) { ((struct kit *)arg)->quiet = true; }
static bool has_quiet(struct sim *s, void *arg) { return ((struct kit *)arg)->quiet; }

/* Another state is fetched in the middle of it: nothing of the micro-batch is left. */
static void test_quiet(void **state)
{
	for (uint64_t us = 0; us < 90; us += us < 20 ? 1 : 7) {
		struct pair p;
		size_t n;
		struct err e;

		open_pair(&p);
		count_one(&p.k, p.at, p.at + 8);
		trainer_begin(p.k.t, 0);
		sim_run_for(p.k.sim, us);
		trainer_quiet(p.k.t, is_quiet, &p.k);
		assert_true(sim_run_until(p.k.sim, has_quiet, &p.k, 100000));
		const void *from = trainer_state(p.plain.t, &n);
		memcpy(trainer_state(p.k.t, &n), from, n);
		assert_int_equal(trainer_loaded(p.k.t, 0, NULL, &e), 0);
		p.k.contributed_epoch = 0;
		for (uint64_t k = 0; k < 2; k++) {
			count_one(&p.k, p.at, p.at + 8);
			same_step(&p, k);
		}
		close_pair(&p);
	}
}

/* --- behind other micro-batches of the epoch: four, of which the last is given in parts */

static int accumulates(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	uint64_t done = v->samples / v->profile->batch;
	double bytes = plan_result(&v->settings, "bucket_bytes", 0);

	plan_begin(ret, "allreduce", v);
	if (!v->begun && (!v->granted || done >= 4))
		return 0;
	replica_buffers(ret, v, true);
	if (v->begun)
		replica_round(ret, v, false, false);
	else if (done < 3 || !(bytes > 0))
		replica_micro_batches(ret, v, done < 3 ? 3 - done : 1, false);
	else
		assert_true(replica_buckets(ret, v, (uint64_t)bytes));
	return 0;
}

static void test_accumulated(void **state)
{
	static const struct planner_ops ops = { .name = "allreduce", .needs_swarm = true, .plan = accumulates };

	for (uint64_t us = 0; us < 60; us += 9) {
		struct pair p;

		kit_strategy = &ops;
		open_pair(&p);
		kit_strategy = NULL;
		for (uint64_t e = 0; e < 4; e++) {
			struct kit *both[2] = { &p.k, &p.plain };
			size_t n = trainer_contribution_len(p.k.t) * sizeof(real);
			real *x = malloc(n);

			for (int i = 0; i < 2; i++) {
				kit_grant(both[i], 32 * e, 32 * e + 32);
				both[i]->granted += 4;
				trainer_start(both[i]->t);
				assert_true(sim_run_until(both[i]->sim, counted, both[i], 10000000));
			}
			if (e % 2) {                    /* comes to nothing in the middle: the three before it are still there */
				trainer_begin(p.k.t, e);
				sim_run_for(p.k.sim, us);
				trainer_pause(p.k.t);
				trainer_failed(p.k.t, e);
				trainer_start(p.k.t);
				p.k.contributed_epoch = 0;
			}
			for (int i = 0; i < 2; i++)
				begin(both[i], e);
			assert_int_equal(p.k.contributed, 32);
			assert_memory_equal(p.k.x, p.plain.x, n);
			memcpy(x, p.k.x, n);
			for (int i = 0; i < 2; i++)
				commit(both[i], x, 32);
			assert_memory_equal(p.k.digest[e + 1], p.plain.digest[e + 1], TRAINER_DIGEST);
			free(x);
		}
		close_pair(&p);
	}
}

static void refused(const char *averaging, const char *why)
{
	char json[1200];
	struct err e;

	(void)snprintf(json, sizeof(json), form, SGD, "allreduce", averaging, 8);
	assert_null(spec_parse(json, strlen(json), &e));
	if (!strstr(e.text, why))
		fail_msg("%s", e.text);
}

static void test_refused(void **state)
{
	refused("\"bucket_bytes\":1000,\"async\":true", "bucket_bytes is for the gradient");
	refused("\"bucket_bytes\":1000,\"sync_every\":2", "bucket_bytes is for the gradient");
	refused("\"bucket_bytes\":-1", "averaging.bucket_bytes");
	refused("\"bucket_bytes\":\"many\"", "averaging.bucket_bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal), cmocka_unit_test(test_remat), cmocka_unit_test(test_one),
		cmocka_unit_test(test_failed), cmocka_unit_test(test_left_out), cmocka_unit_test(test_paused),
		cmocka_unit_test(test_paused_late), cmocka_unit_test(test_quiet), cmocka_unit_test(test_accumulated),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

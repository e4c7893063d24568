/* Runs whose rounds go on beside micro-batches, and runs of steps of one's own, again in one process from the logs of
 * all that were ever in them: the same losses, and the same bytes after every epoch. */
#include "replay_kit.h"
#include "train/trainer_int.h"

static void test_modes(void **state)
{
	char spec[1200];
	unsigned seeds = getenv("REPLAY_SEEDS") ? (unsigned)strtoul(getenv("REPLAY_SEEDS"), NULL, 10) : 4;

	for (size_t m = 0; m < MODES; m++) {
		unsigned lives = 0;
		uint64_t contributions = 0, late = 0;

		for (unsigned seed = 1; seed <= seeds; seed++) {
			struct swarm *w = run(spec_for(spec, modes[m].strategy, modes[m].averaging), 100 * m + seed);
			struct replay_result r;
			struct err e;
			uint64_t stale = 0;

			if (again(w, &r, &e) < 0)
				fail_msg("%s, seed %u: %s", modes[m].name, seed, e.text);
			assert_int_equal(r.epochs, EPOCHS);
			for (unsigned i = 0; i < w->n; i++)
				stale += w->m[i].stale;
			assert_int_equal(r.stale, stale);
			late += stale;
			contributions += r.contributions;
			lives += w->n;
			over(w);
		}
		print_message("%s: %u seeds, %u lives, %llu contributions, %llu of them late\n", modes[m].name, seeds, lives,
			(unsigned long long)contributions, (unsigned long long)late);
		assert_true(lives > seeds * PEERS && contributions > 2 * EPOCHS * seeds);
		assert_int_equal(late > 0, modes[m].stale);
	}
}

/* Of what was computed in halves the scales of the losses are the same again, whatever overflowed meanwhile. */
static void test_scaled(void **state)
{
	char spec[1200];

	for (size_t m = 0; m < MODES; m++) {
		unsigned first = 0, later = 0;

		for (unsigned seed = 1; seed <= 1 && strcmp(modes[m].name, "buckets"); seed++) {
			struct swarm *w = run(spec_with(spec, modes[m].strategy, modes[m].averaging, "\"precision\":\"fp16\","
				"\"loss_scale\":{\"init_scale\":16777216,\"growth_interval\":3},"), 100 * m + seed);
			struct replay_result r;
			struct err e;

			if (again(w, &r, &e) < 0)
				fail_msg("%s, seed %u: %s", modes[m].name, seed, e.text);
			assert_int_equal(r.epochs, EPOCHS);
			for (unsigned i = 0; i < w->n; i++) {
				const struct life *l = &w->m[i];

				first += l->log && memmem(l->log, l->len, "\"loss_scale\":\"0x1p+24\"", 22);
				later += l->log && memmem(l->log, l->len, "\"loss_scale\":\"0x1p+22\"", 22);
			}
			over(w);
		}
		if (strcmp(modes[m].name, "buckets"))
			assert_true(first > 0 && later > 0);
	}
}

/* The rate follows the samples of each commit (row B04): it is the same again. */
static void test_tracked(void **state)
{
	const char *min = "\"min\":0.1";
	char spec[1200], text[1200];
	unsigned said = 0;

	for (size_t m = 0; m < MODES; m++) {
		const char *at = strstr(spec_for(spec, modes[m].strategy, modes[m].averaging), min) + strlen(min);
		struct replay_result r;
		struct swarm *w;
		struct err e;

		if (strstr(spec, "local_updates") || strstr(spec, "sync_every") || strstr(spec, "diloco"))
			continue;
		(void)snprintf(text, sizeof(text), "%.*s,\"base_batch\":96,\"track\":\"peers\"%s", (int)(at - spec), spec, at);
		w = run(text, 300 + (unsigned)m);
		if (again(w, &r, &e) < 0)
			fail_msg("%s: %s", modes[m].name, e.text);
		assert_int_equal(r.epochs, EPOCHS);
		for (unsigned i = 0; i < w->n; i++)
			said += w->m[i].log && memmem(w->m[i].log, w->m[i].len, ",\"batch\":", 9);
		over(w);
	}
	assert_true(said > 10);
}

/* Somebody has had a history of its own, which has lost: its rounds are run again, too, and no round of that epoch is
 * taken for another. */
static void test_strays(void **state)
{
	char spec[1200];
	unsigned strays = 0;

	for (size_t m = 0; m < MODES; m++)
		for (unsigned seed = 1; seed <= 4; seed++) {
			const char *text = spec_for(spec, modes[m].strategy, modes[m].averaging);
			struct swarm *w = run_with(text, 7000 + 100 * m + seed, true);
			struct replay_result r;
			struct err e;

			if (again(w, &r, &e) < 0)
				fail_msg("%s, seed %u: %s", modes[m].name, seed, e.text);
			assert_true(r.epochs >= EPOCHS);
			strays += w->strays;
			over(w);
		}
	assert_true(strays > 4 * MODES);
	print_message("%u rounds of histories that have lost\n", strays);
}

/* Steps of one's own that have ended. */
static uint64_t steps(const struct kit *k)
{
	uint64_t n = 0;

	for (const char *at = k->log, *nl; (nl = memchr(at, '\n', (size_t)(k->log + k->log_len - at))); at = nl + 1)
		n += memmem(at, (size_t)(nl - at), "\"ev\":\"end\"", 10) && memmem(at, (size_t)(nl - at), "\"fn\":\"opt\"", 10);
	return n;
}

/* A step that a round cuts short on its way back has taught nobody anything: its samples do not weigh. */
static void test_counted(void **state)
{
	char text[1200];
	struct kit k;
	real *mean;
	uint64_t made = 0;
	struct err e;

	kit_open(&k, spec_for(text, "hivemind", "\"local_updates\":true"), NULL, true);
	kit_grant(&k, 0, 100000);
	trainer_start(k.t);
	mean = calloc(trainer_contribution_len(k.t), sizeof(*mean));
	for (unsigned i = 0; i < 40; i++) {
		sim_run_for(k.sim, 500 + 7 * i);
		trainer_begin(k.t, k.epoch);
		assert_true(sim_run_until(k.sim, contributed, &k, 1000000));
		assert_int_equal(k.contributed, 8 * (steps(&k) - made));
		memcpy(mean, k.x, trainer_contribution_len(k.t) * sizeof(*mean));
		k.epoch++;
		assert_int_equal(trainer_commit(k.t, k.epoch, mean, NULL, k.contributed, 0, NULL, &e), 0);
		made = steps(&k);
		assert_true(sim_run_until(k.sim, applied, &k, 1000000));
		assert_int_equal(steps(&k), made);
	}
	free(mean);
	kit_close(&k);
}

static bool stepping(struct sim *s, void *arg)
{
	const struct trainer *t = ((struct kit *)arg)->t;

	return t->stepping && t->sums.n;
}

/* A copy is wanted, or a pause, while a step is being made and the next round's SUM waits beside it: the step is made
 * to its end, and once. */
static void looked_at(const char *averaging, const char *strategy, bool pauses)
{
	char text[1200];
	struct kit k;
	unsigned met = 0;
	real *mean;
	struct err e;

	kit_open(&k, spec_for(text, strategy, averaging), NULL, true);
	k.t->profile.fn = calloc(1, sizeof(*k.t->profile.fn));         /* its digest takes its time */
	k.t->profile.fn[0] = (struct profile_fn){ "digest", 400, 0 };
	k.t->profile.nfns = 1;
	kit_grant(&k, 0, 100000);
	trainer_start(k.t);
	mean = calloc(trainer_contribution_len(k.t), sizeof(*mean));
	for (int i = 0; i < 30; i++) {
		sim_run_for(k.sim, 2000);
		trainer_begin(k.t, k.epoch);
		assert_true(sim_run_until(k.sim, contributed, &k, 1000000));
		memcpy(mean, k.x, trainer_contribution_len(k.t) * sizeof(*mean));
		sim_run_for(k.sim, 2000);
		k.epoch++;
		assert_int_equal(trainer_commit(k.t, k.epoch, mean, NULL, k.contributed, 0, NULL, &e), 0);
		if (!sim_run_until(k.sim, stepping, &k, 20000))
			continue;
		met++;
		if (pauses) {
			trainer_pause(k.t);
			sim_run_for(k.sim, 5000);
			trainer_start(k.t);
		} else {
			trainer_snapshot(k.t, looked, NULL);
		}
		sim_run_for(k.sim, 2000);
		if (k.broken)
			fail_msg("epoch %llu: %s", (unsigned long long)k.applied, k.error.text);
	}
	assert_true(met > 10 && k.applied > 20);
	free(mean);
	kit_close(&k);
}

static void test_looked_at(void **state)
{
	looked_at("\"async\":true", "allreduce", false);
	looked_at("\"async\":true", "allreduce", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes), cmocka_unit_test(test_scaled), cmocka_unit_test(test_tracked),
		cmocka_unit_test(test_strays),
		cmocka_unit_test(test_looked_at),
		cmocka_unit_test(test_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

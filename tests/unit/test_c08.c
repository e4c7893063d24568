/* Row C08, rounds beside micro-batches. Delayed gradients and steps: whenever the mean comes, the trajectory is that of
 * the reference whose epoch e + 1 works with the parameters from before the step of e, to the bit; what dies, fails or
 * is paused meanwhile changes nothing of that. Local updates with the delta rule: w = mean + (w - sent). */
#include "train_kit.h"

static const char form[] =
	"{\"name\":\"c08\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":8},{\"type\":\"tanh\"},"
	"{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\",\"optimizer\":%s,\"target_batch\":32,\"seed\":11,"
	"\"averaging\":{%s},\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":5000},\"local\":{\"batch\":8}}";

#define PEERS 3
#define MICRO 2                                 /* micro-batches of a peer in an epoch */
#define ADAM "{\"name\":\"adamw\",\"lr\":0.01}"

static const char *spec_text(const char *averaging)
{
	static char json[1200];

	(void)snprintf(json, sizeof(json), form, ADAM, averaging);
	return json;
}

static bool contributed(struct sim *s, void *arg) { struct kit *k = arg; return k->contributed_epoch == k->epoch + 1; }
static bool applied(struct sim *s, void *arg) { struct kit *k = arg; return k->applied == k->epoch; }
static bool renewed(struct sim *s, void *arg) { struct kit *k = arg; return k->progress >= k->granted; }

static uint64_t position(uint64_t epoch, int peer) { return (epoch * PEERS + (uint64_t)peer) * MICRO * 8; }

/* Micro-batches of epoch e, so many of them. */
static void work(struct kit *k, int peer, uint64_t epoch, unsigned from, unsigned to)
{
	kit_grant(k, position(epoch, peer) + 8 * from, position(epoch, peer) + 8 * to);
	k->granted += to - from;
	trainer_start(k->t);
	assert_true(sim_run_until(k->sim, renewed, k, 10000000));
}

/* A mean out of what all have given; copies, as the wire makes them. */
static real *mean_of(struct kit *k, size_t len)
{
	real *mean = calloc(len, sizeof(*mean));
	double total = 0;

	for (int i = 0; i < PEERS; i++)
		total += (double)k[i].contributed;
	for (int i = 0; i < PEERS; i++)
		vec_mean_add(&k[i].par, len, (double)k[i].contributed / total, k[i].x, mean, i == 0);
	return mean;
}

static void begin(struct kit *k, uint64_t epoch)
{
	trainer_begin(k->t, epoch);
	assert_true(sim_run_until(k->sim, contributed, k, 10000000));
}

static void commit(struct kit *k, const real *mean, uint64_t samples)
{
	struct err e;

	if (trainer_commit(k->t, ++k->epoch, (const void *)mean, NULL, samples, 0, NULL, &e) < 0)
		fail_msg("%s", e.text);
}

static void settle(struct kit *k)
{
	assert_true(sim_run_until(k->sim, applied, k, 10000000));
	assert_false(k->broken);
}

/* --- the reference: gradients of epoch e at `at`, then the step of w */

struct reference { struct bare b; real *at, *w, *mean; };

static void reference_gradient(struct reference *r, struct kit *k, uint64_t epoch)
{
	const struct model *m = trainer_model(k->t);
	real *w = r->b.w;

	r->b.w = r->at;
	for (int i = 0; i < PEERS; i++) {
		r->b.next = position(epoch, i);
		for (unsigned n = 0; n < MICRO; n++) {
			bare_gradient(&r->b, k, m, 8);
			if (n)
				vec_axpy(&k->par, r->b.n, 1, r->b.g, r->b.sum);
			else
				memcpy(r->b.sum, r->b.g, r->b.n * sizeof(real));
		}
		vec_scale(&k->par, r->b.n, 1.0 / MICRO, r->b.sum);
		vec_mean_add(&k->par, r->b.n, 1.0 / PEERS, r->b.sum, r->mean, i == 0);
	}
	r->b.w = w;
}

static void same(const struct kit *k, const struct reference *r)
{
	assert_same_params(k, &r->b);
}

/* when: micro-batches of the next epoch that are done before the commit of this one comes. */
static void trajectory(const char *averaging, const unsigned when[], size_t nwhen, bool overlaps)
{
	struct kit *k = calloc(PEERS, sizeof(*k));
	struct reference r = { 0 };
	struct trainer_view v;

	for (int i = 0; i < PEERS; i++)
		kit_open(&k[i], spec_text(averaging), NULL, false);
	bare_open(&r.b, &k[0], trainer_model(k[0].t));
	r.at = malloc(r.b.n * sizeof(real));
	r.mean = malloc(r.b.n * sizeof(real));
	memcpy(r.at, r.b.w, r.b.n * sizeof(real));
	for (int i = 0; i < PEERS; i++)
		work(&k[i], i, 0, 0, MICRO);
	for (uint64_t e = 0; e < 12; e++) {
		unsigned early = overlaps ? when[e % nwhen] : 0;
		real *mean;

		for (int i = 0; i < PEERS; i++) {
			begin(&k[i], e);
			assert_int_equal(k[i].contributed, 8 * MICRO);
		}
		mean = mean_of(k, r.b.n);
		for (int i = 0; i < PEERS; i++) {
			if (early)
				work(&k[i], i, e + 1, 0, early);        /* beside the round */
			commit(&k[i], mean, k[i].contributed);
			settle(&k[i]);
			work(&k[i], i, e + 1, early, MICRO);
			assert_memory_equal(k[i].digest[e + 1], k[0].digest[e + 1], TRAINER_DIGEST);
			assert_int_equal(k[i].samples[e + 1], 8 * MICRO);
		}
		reference_gradient(&r, &k[0], e);
		assert_memory_equal(mean, r.mean, r.b.n * sizeof(real));
		memcpy(r.at, r.b.w, r.b.n * sizeof(real));      /* e + 1 works with what was before the step of e */
		bare_step(&r.b, &k[0], r.mean, e);
		for (int i = 0; i < PEERS; i++)
			same(&k[i], &r);
		free(mean);
	}
	struct err err;
	json_t *plans = trainer_plan_json(k[0].t, false, &err);
	assert_int_equal(json_array_size(json_object_get(plans, "plans")), 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(json_is_false(json_object_get(json_array_get(json_object_get(plans, "predicted"), i), "stuck")));
	json_decref(plans);
	trainer_view(k[0].t, &v);
	assert_int_equal(v.stale, 11);                  /* all but the first */
	assert_int_equal(v.stale_most, 1);
	assert_true(v.arena_peak_bytes <= v.arena_predicted_bytes);
	bare_close(&r.b);
	free(r.at);
	free(r.mean);
	for (int i = 0; i < PEERS; i++)
		kit_close(&k[i]);
	free(k);
}

static void test_delayed(void **state)
{
	static const unsigned at_once[] = { 0 }, late[] = { MICRO }, mixed[] = { 0, 1, MICRO, 1 };

	trajectory("\"delay_grad\":true,\"delay_step\":true", at_once, 1, true);
	trajectory("\"delay_grad\":true,\"delay_step\":true", late, 1, true);
	trajectory("\"delay_grad\":true,\"delay_step\":true", mixed, 4, true);
	trajectory("\"delay_grad\":true", mixed, 4, true);
	trajectory("\"delay_step\":true", at_once, 1, false);
}

static void test_delta(void **state)
{
	struct kit *k = calloc(PEERS, sizeof(*k));
	size_t bytes, n;
	real *before[PEERS], *mean;

	for (int i = 0; i < PEERS; i++)
		kit_open(&k[i], spec_text("\"local_updates\":true,\"delay_state\":true"), NULL, false);
	n = trainer_model(k[0].t)->nparam;
	for (int i = 0; i < PEERS; i++) {
		before[i] = malloc(n * sizeof(real));
		work(&k[i], i, 0, 0, MICRO);
		sim_run_for(k[i].sim, 10);      /* the step behind the last gradient */
	}
	for (uint64_t e = 0; e < 6; e++) {
		for (int i = 0; i < PEERS; i++) {
			memcpy(before[i], trainer_state(k[i].t, &bytes), n * sizeof(real));
			begin(&k[i], e);
			assert_memory_equal(k[i].x, before[i], n * sizeof(real));
		}
		mean = mean_of(k, n);
		for (int i = 0; i < PEERS; i++) {
			const real *w = trainer_state(k[i].t, &bytes);
			real *then = malloc(n * sizeof(real));

			if (i)                          /* peer 0 does nothing meanwhile */
				work(&k[i], i, e + 1, 0, 1);
			sim_run_for(k[i].sim, 10);
			memcpy(then, w, n * sizeof(real));
			commit(&k[i], mean, k[i].contributed);
			settle(&k[i]);
			assert_memory_equal(k[i].digest[e + 1], k[0].digest[e + 1], TRAINER_DIGEST);
			if (!i)
				assert_memory_equal(w, mean, n * sizeof(real));
			for (size_t p = 0; p < n; p++)
				assert_true(w[p] == (then[p] - before[i][p]) + mean[p]);
			if (i)
				assert_memory_not_equal(w, mean, n * sizeof(real));
			work(&k[i], i, e + 1, i ? 1 : 0, MICRO);
			sim_run_for(k[i].sim, 10);
			free(then);
		}
		free(mean);
	}
	for (int i = 0; i < PEERS; i++) {
		kit_close(&k[i]);
		free(before[i]);
	}
	free(k);
}

/* A round that fails leaves what was given where it is; the next one takes it, and then comes the epoch that was done
 * meanwhile. Paused, copied, begun again: nothing is lost and nothing counts twice. */
static void test_failed(void **state)
{
	struct kit a, b;
	real *first;
	size_t n;

	kit_open(&a, spec_text("\"delay_grad\":true"), NULL, false);
	kit_open(&b, spec_text("\"delay_grad\":true"), NULL, false);
	n = trainer_model(a.t)->nparam;
	work(&a, 0, 0, 0, MICRO);
	work(&b, 0, 0, 0, MICRO);
	begin(&a, 0);
	first = malloc(n * sizeof(real));
	memcpy(first, a.x, n * sizeof(real));
	work(&a, 0, 1, 0, 1);
	trainer_failed(a.t, 0);
	a.contributed_epoch = 0;
	sim_run_for(a.sim, 1000);
	trainer_pause(a.t);
	sim_run_for(a.sim, 1000);
	begin(&a, 0);
	assert_int_equal(a.contributed, 8 * MICRO);
	assert_memory_equal(a.x, first, n * sizeof(real));
	a.contributed_epoch = 0;
	begin(&a, 0);                           /* another attempt */
	assert_memory_equal(a.x, first, n * sizeof(real));
	commit(&a, first, 8 * MICRO);
	settle(&a);
	work(&a, 0, 1, 1, MICRO);
	begin(&a, 1);
	begin(&b, 0);
	commit(&b, b.x, 8 * MICRO);
	settle(&b);
	work(&b, 0, 1, 0, MICRO);
	begin(&b, 1);
	assert_int_equal(a.contributed, 8 * MICRO);
	assert_memory_equal(a.x, b.x, n * sizeof(real));
	assert_memory_equal(a.digest[1], b.digest[1], TRAINER_DIGEST);
	free(first);
	kit_close(&a);
	kit_close(&b);
}

static void copied(void *arg, struct snapshot *s, const struct err *e)
{
	assert_non_null(s);
	snapshot_unref(*(struct snapshot **)arg);
	*(struct snapshot **)arg = s;
}

/* BEGIN, COMMIT and a copy of the state strike at any moment; a peer that was left out goes on. All that is given is
 * what was counted, positions come once, and parameters are those of the commits. */
static void test_any_time(void **state)
{
	for (uint64_t at = 1; at < 400; at += 7) {
		struct kit k, quiet;
		struct snapshot *snap = NULL;
		size_t n, bytes;
		real *mean;

		kit_open(&k, spec_text(at % 2 ? "\"delay_grad\":true,\"delay_step\":true" : "\"delay_grad\":true"), NULL,
			false);
		kit_open(&quiet, spec_text("\"delay_grad\":true"), NULL, false);
		n = trainer_model(k.t)->nparam;
		mean = calloc(n, sizeof(real));
		kit_grant(&k, 0, 4000);
		trainer_start(k.t);
		for (uint64_t e = 0; e < 4; e++) {
			sim_run_for(k.sim, at);
			if (e % 2)
				trainer_snapshot(k.t, copied, &snap);
			begin(&k, e);
			sim_run_for(k.sim, at * 3 % 251);
			for (size_t i = 0; i < n; i++)
				mean[i] = (real)((i + e) % 5) * (real)0.02;
			commit(&k, mean, e == 2 ? 0 : k.contributed);
			commit(&quiet, mean, 0);
			if (e == 1)
				sim_run_for(k.sim, 1);
			else
				settle(&k);
			settle(&quiet);
		}
		settle(&k);
		assert_memory_equal(trainer_state(k.t, &bytes), trainer_state(quiet.t, &bytes), n * sizeof(real));
		assert_memory_equal(k.digest[4], quiet.digest[4], TRAINER_DIGEST);
		sim_run_for(k.sim, 100000);
		assert_non_null(snap);
		snapshot_unref(snap);
		free(mean);
		kit_close(&k);
		kit_close(&quiet);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_delayed), cmocka_unit_test(test_delta), cmocka_unit_test(test_failed),
		cmocka_unit_test(test_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

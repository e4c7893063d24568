/* Running statistics of batch normalization in rounds (amended C5): averaged with the same weights in the same round,
 * equal on all peers after every commit of every mode, part of the digest; and what an abandoned micro-batch has
 * moved is in nobody's. */
#include "b01_kit.h"

static const char normed[] =
	"{\"name\":\"normed\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":8},"
	"{\"type\":\"batchnorm\",\"name\":\"bn\"},{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3}],"
	"\"loss\":\"cross_entropy\",\"optimizer\":%s,\"target_batch\":64,\"seed\":11,\"strategy\":\"%s\","
	"\"averaging\":{%s},\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":4000},"
	"\"local\":{\"batch\":%d}}";

enum { TRIO = 3, STATS = 16 };
static const int batch_of[TRIO] = { 4, 16, 8 };

static void open_normed(struct kit *k, const char *optimizer, const char *strategy, const char *averaging, int batch)
{
	char json[1200];

	(void)snprintf(json, sizeof(json), normed, optimizer, strategy, averaging, batch);
	kit_open(k, json, NULL, false);
	assert_int_equal(trainer_model(k->t)->nbuffer, STATS);
}

/* By name, as a checkpoint has them. */
static const real *tensor(struct kit *k, const char *name)
{
	const struct ckpt_tensor *v;
	size_t n = trainer_tensors(k->t, &v);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(v[i].name, name))
			return v[i].data;
	fail_msg("no tensor %s", name);
	return NULL;
}

static void assert_stats(struct kit *k, const char *of, const real *want)
{
	char mean[64], var[64];

	(void)snprintf(mean, sizeof(mean), "%sbn.running_mean", of);
	(void)snprintf(var, sizeof(var), "%sbn.running_var", of);
	assert_memory_equal(tensor(k, mean), want, STATS / 2 * sizeof(real));
	assert_memory_equal(tensor(k, var), want + STATS / 2, STATS / 2 * sizeof(real));
}

/* --- gradients: every peer's part is what its own micro-batches make of the common ones, to the bit */

/* first: of each micro-batch of the epoch that has ended, in that order, its first position. */
struct pair { struct kit k; struct bare b; uint64_t from; real stats[STATS]; struct ranges known; uint64_t first[64];
	size_t n; };

static void ended(void *arg, const struct trainer_progress *now)
{
	struct pair *p = arg;
	struct ranges fresh = { 0 };

	if (ranges_count(&p->known) > now->samples) {
		ranges_clear(&p->known);
		p->n = 0;
	}
	ranges_copy(&fresh, now->claimed);
	ranges_sub_all(&fresh, &p->known);
	assert_true(fresh.n <= 1 && p->n < 64);
	if (fresh.n)
		p->first[p->n++] = fresh.v[0].lo;
	ranges_free(&fresh);
	ranges_copy(&p->known, now->claimed);
}

static void given(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed) { }
static void has_applied(void *arg, const struct trainer_applied *a) { }
static const struct trainer_cb listener = { .progress = ended, .contribute = given, .applied = has_applied };

static void follow(struct pair *p, int batch, const real *common)
{
	memcpy(p->stats, common, sizeof(p->stats));
	p->b.stats = p->stats;
	assert_int_equal(p->n * (size_t)batch, p->k.contributed);
	for (size_t i = 0; i < p->n; i++) {
		p->b.next = p->first[i];
		bare_gradient(&p->b, &p->k, trainer_model(p->k.t), (uint32_t)batch);
	}
}

/* Begins wherever it is in a micro-batch. The first attempt comes to nothing and it works on. */
static void give(struct pair *p, uint64_t epoch, int batch, uint64_t us, bool twice, const real *common)
{
	size_t n = trainer_model(p->k.t)->nparam;

	kit_grant(&p->k, p->from, p->from + 480);
	trainer_start(p->k.t);
	for (int attempt = 0; attempt <= twice; attempt++) {
		sim_run_for(p->k.sim, us);
		begin(&p->k, epoch);
		if (p->k.contributed) {
			follow(p, batch, common);
			assert_memory_equal(p->k.x + n, p->stats, sizeof(p->stats));
		}
		if (attempt < twice) {
			trainer_failed(p->k.t, epoch);
			p->k.contributed_epoch = 0;
		}
	}
}

static real *mean_of_pairs(struct pair *p)
{
	size_t len = trainer_contribution_len(p[0].k.t);
	real *mean = calloc(len, sizeof(*mean));
	double total = 0;
	int first = 1;

	for (int i = 0; i < TRIO; i++)
		total += (double)p[i].k.contributed;
	for (int i = 0; i < TRIO; i++)
		if (p[i].k.contributed) {
			vec_mean_add(&p[i].k.par, len, (double)p[i].k.contributed / total, p[i].k.x, mean, first);
			first = 0;
		}
	assert_false(first);
	return mean;
}

static void test_gradients(void **state)
{
	struct pair *p = calloc(TRIO, sizeof(*p));
	uint64_t seed = 5, contributed = 0;
	real common[STATS];
	size_t bytes;

	for (int i = 0; i < TRIO; i++) {
		open_normed(&p[i].k, SGD, "hivemind", "", batch_of[i]);
		bare_open(&p[i].b, &p[i].k, trainer_model(p[i].k.t));
		p[i].k.also = &listener;
		p[i].k.also_arg = &p[i];
	}
	model_init_buffers(trainer_model(p[0].k.t), common);
	for (uint64_t e = 0; e < 40; e++) {
		size_t n = p[0].b.n;
		real *mean;

		for (int i = 0; i < TRIO; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			p[i].from = (e * TRIO + (uint64_t)i) * 480;
			memcpy(p[i].b.w, trainer_state(p[i].k.t, &bytes), n * sizeof(real));
			give(&p[i], e, batch_of[i], (seed >> 33) % 1500 + 600, seed >> 20 & 1, common);
			contributed += p[i].k.contributed;
		}
		mean = mean_of_pairs(p);
		memcpy(common, mean + n, sizeof(common));
		for (int i = 0; i < TRIO; i++) {
			commit(&p[i].k, mean, p[i].k.contributed);
			assert_stats(&p[i].k, "", common);
			assert_memory_equal(p[i].k.digest[e + 1], p[0].k.digest[e + 1], TRAINER_DIGEST);
		}
		free(mean);
	}
	assert_true(contributed > 1000);
	for (int i = 0; i < TRIO; i++) {
		ranges_free(&p[i].known);
		bare_close(&p[i].b);
		kit_close(&p[i].k);
	}
	free(p);
}

/* --- every mode: the mean is what all have afterwards, where the mode keeps it */

/* at: where statistics begin in what is given; 0: behind all parameters. */
struct mode { const char *strategy, *averaging, *where; unsigned steps; size_t at; unsigned overlap; };

static void mode(const struct mode *m)
{
	struct kit *k = calloc(PEERS, sizeof(*k));
	size_t at, len;
	real *mean = NULL;

	for (int i = 0; i < TRIO; i++)
		open_normed(&k[i], ADAMW, m->strategy, m->averaging, 8);
	at = m->at ? m->at : trainer_model(k[0].t)->nparam;
	len = trainer_contribution_len(k[0].t);
	for (uint64_t e = 0; e < 6; e++) {
		for (int i = 0; i < TRIO; i++) {
			uint64_t lo = (e * TRIO + (uint64_t)i) * 200;

			kit_grant(&k[i], lo, lo + 200);
			k[i].granted = k[i].progress + m->steps - (e ? m->overlap : 0);       /* those it has made already */
			trainer_start(k[i].t);
			assert_true(sim_run_until(k[i].sim, worked, &k[i], 10000000));
			begin(&k[i], e);
			assert_true(k[i].contributed > 0);
		}
		free(mean);
		mean = mean_of(k, TRIO, len);
		for (int i = 0; i < TRIO; i++) {
			assert_true(memcmp(k[i].x + at, mean + at, STATS * sizeof(real)) != 0);
			commit(&k[i], mean, k[i].contributed);
			assert_memory_equal(k[i].digest[e + 1], k[0].digest[e + 1], TRAINER_DIGEST);
			if (m->where)           /* else steps of its own move them on */
				assert_stats(&k[i], m->where, mean + at);
		}
	}
	print_message("%s %s: %zu values are averaged\n", m->strategy, m->averaging, len);
	for (int i = 0; i < TRIO; i++)
		kit_close(&k[i]);
	free(mean);
	free(k);
}

static void test_modes(void **state)
{
	static const struct mode modes[] = {
		{ "allreduce", "", "", 1, 0 },
		{ "allreduce", "\"sync_every\":4", "", 4, 0 },
		{ "allreduce", "\"sync_every\":4,\"average_optimizer\":true", "", 4, 0 },
		{ "hivemind", "\"local_updates\":true", "", 3, 0 },
		{ "hivemind", "\"delay_grad\":true", "", 3, 0 },
		{ "hivemind", "\"delay_step\":true", "", 3, 0 },
		{ "hivemind", "\"local_updates\":true,\"delay_state\":true", NULL, 3, 0 },
		{ "allreduce", "\"async\":true", NULL, 1, 0 },
		{ "diloco", "\"inner_steps\":4", "", 4, 0 },
		{ "diloco", "\"inner_steps\":4", "averaging.anchor.", 4, 0 },
	};

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		mode(&modes[i]);
}

/* Fragments: 56 + 16 + 27 = 99 parameters in two, and behind each half all statistics. */
static void test_fragments(void **state)
{
	static const struct mode modes[] = {
		{ "diloco", "\"inner_steps\":4,\"fragments\":2", "", 2, 50 },
		{ "diloco", "\"inner_steps\":4,\"fragments\":2", "averaging.anchor.", 2, 50 },
		{ "diloco", "\"inner_steps\":12,\"fragments\":3,\"overlap\":2", "averaging.anchor.", 4, 33, 2 },
	};

	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		mode(&modes[i]);
}

/* A micro-batch of nonsense moves no statistics, or they would be nonsense for ever. */
static void test_nonsense(void **state)
{
	const struct model *m;
	struct bare b;
	struct kit k;
	real stats[STATS], before[STATS];

	open_normed(&k, SGD, "hivemind", "", 8);
	m = trainer_model(k.t);
	bare_open(&b, &k, m);
	model_init_buffers(m, stats);
	b.stats = stats;
	bare_gradient(&b, &k, m, 8);
	memcpy(before, stats, sizeof(stats));
	for (size_t i = 0; i < 6; i++)
		b.w[i] = NAN;                   /* of the first channel */
	bare_gradient(&b, &k, m, 8);
	for (size_t i = 0; i < STATS; i++) {
		assert_true(isfinite(stats[i]));
		assert_true((stats[i] == before[i]) == (i % (STATS / 2) == 0));
	}
	bare_close(&b);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_gradients), cmocka_unit_test(test_modes),
		cmocka_unit_test(test_fragments), cmocka_unit_test(test_nonsense) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The mean of a round as it is lent to the trainer: read where it lies, kept until the step that it is for is made, and
 * given back then; also of one that waits, of one that nobody has asked for, and when the trainer goes. */
#include "train_kit.h"
#include "common/lease.h"

static const char form[] = "{\"name\":\"m\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5,\"name\":\"a\"},"
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3,\"name\":\"b\"}],\"loss\":\"cross_entropy\","
	"\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},\"target_batch\":16,\"strategy\":\"hivemind\",\"seed\":3,"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500},\"local\":{\"batch\":8}}";

static const char clipped[] = "{\"name\":\"m\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5,\"name\":\"a\"},"
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3,\"name\":\"b\"}],\"loss\":\"cross_entropy\",\"clip_norm\":0.01,"
	"\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},\"target_batch\":16,\"strategy\":\"hivemind\",\"seed\":3,"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500},\"local\":{\"batch\":8}}";

struct mine { struct lease lease; int back; real *was; };

static void given_back(struct lease *l)
{
	struct mine *m = container_of(l, struct mine, lease);

	m->back++;
	assert_memory_equal(l->p, m->was, l->bytes);    /* others may read it still */
	memset(l->p, 0xff, l->bytes);           /* NaNs: nobody reads it any more */
}

static void lend(struct mine *m, const struct bare *b, uint64_t e)
{
	*m = (struct mine){ .lease = { .p = malloc(b->n * sizeof(real)), .bytes = b->n * sizeof(real), .refs = 1,
		.back = given_back } };
	for (size_t i = 0; i < b->n; i++)
		((real *)m->lease.p)[i] = (real)((i + e) % 7) * (real)0.02;
	m->was = malloc(m->lease.bytes);
	memcpy(m->was, m->lease.p, m->lease.bytes);
}

/* The step that is made with it, in memory that it may scale. */
static void bare(struct bare *b, const struct kit *k, const struct mine *m, uint64_t e)
{
	real *g = malloc(m->lease.bytes);

	memcpy(g, m->lease.p, m->lease.bytes);
	bare_step(b, k, g, e);
	free(g);
}

static void commit(struct kit *k, struct mine *m, uint64_t samples)
{
	struct err e;

	if (trainer_commit(k->t, ++k->epoch, m->lease.p, &m->lease, samples, 0, NULL, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(m->lease.refs, 2);
	lease_put(&m->lease);
	assert_int_equal(m->back, 0);
}

static bool contributed(struct sim *s, void *arg)
{
	const struct kit *k = arg;

	return k->contributed_epoch == k->epoch + 1;
}

static void of_a_round(const char *spec)
{
	struct mine m[9];
	struct kit k;
	struct bare b;

	kit_open(&k, spec, NULL, false);
	bare_open(&b, &k, trainer_model(k.t));
	for (uint64_t e = 0; e < 3; e++) {      /* of a follower: they wait for each other */
		lend(&m[e], &b, e);
		bare(&b, &k, &m[e], e);
		commit(&k, &m[e], 0);
	}
	kit_run(&k, 3);
	assert_same_params(&k, &b);
	kit_grant(&k, 0, 10000);
	trainer_start(k.t);
	for (uint64_t e = 3; e < 6; e++) {      /* of one that waits for it */
		trainer_begin(k.t, e);
		assert_true(sim_run_until(k.sim, contributed, &k, 60000000));
		lend(&m[e], &b, e);
		bare(&b, &k, &m[e], e);
		commit(&k, &m[e], k.contributed);
		kit_run(&k, e + 1);
		assert_same_params(&k, &b);
	}
	for (int e = 0; e < 6; e++) {
		assert_int_equal(m[e].back, 1);
		free(m[e].lease.p);
		free(m[e].was);
	}
	bare_close(&b);
	kit_close(&k);
}

static void test_lent(void **state) { of_a_round(form); }
static void test_clipped(void **state) { of_a_round(clipped); }

/* Commits that wait when the trainer goes. */
static void test_gone(void **state)
{
	struct mine m[3];
	struct kit k;
	struct bare b;

	kit_open(&k, form, NULL, false);
	bare_open(&b, &k, trainer_model(k.t));
	for (uint64_t e = 0; e < 3; e++) {
		lend(&m[e], &b, e);
		commit(&k, &m[e], 0);
	}
	bare_close(&b);
	kit_close(&k);
	for (int e = 0; e < 3; e++) {
		assert_int_equal(m[e].back, 1);
		free(m[e].lease.p);
		free(m[e].was);
	}
}

static void gone(void *arg) { *(bool *)arg = true; }

/* What it has given itself is the mean, and lies in its own memory: that does not keep it. */
static void test_gone_alone(void **state)
{
	bool ended = false;
	struct kit k;
	struct err e;

	kit_open(&k, form, NULL, false);
	kit_grant(&k, 0, 10000);
	trainer_start(k.t);
	trainer_begin(k.t, 0);
	assert_true(sim_run_until(k.sim, contributed, &k, 60000000));
	while (!k.contributed) {
		trainer_failed(k.t, 0);
		sim_run_for(k.sim, 1000);
		k.contributed_epoch = 0;
		trainer_begin(k.t, 0);
		assert_true(sim_run_until(k.sim, contributed, &k, 60000000));
	}
	assert_int_equal(trainer_commit(k.t, ++k.epoch, (const void *)k.x, NULL, k.contributed, 0, NULL, &e), 0);
	trainer_free(k.t, gone, &ended);
	k.t = NULL;
	sim_run_for(k.sim, 1000000);
	assert_true(ended);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_lent), cmocka_unit_test(test_clipped),
		cmocka_unit_test(test_gone), cmocka_unit_test(test_gone_alone) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

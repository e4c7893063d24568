/* Peers of one run at the trainer, whose averager is done by hand. */
#ifndef TESTS_B01_KIT_H
#define TESTS_B01_KIT_H
#include "train_kit.h"

static const char form[] =
	"{\"name\":\"b01\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":8},{\"type\":\"tanh\"},"
	"{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\",\"optimizer\":%s,\"target_batch\":64,\"seed\":11,"
	"\"strategy\":\"%s\",\"averaging\":{%s},\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":4000},"
	"\"local\":{\"batch\":%d}}";

#define PEERS 8
#define SGD "{\"name\":\"sgd\",\"lr\":0.2,\"momentum\":0.9}"
#define ADAMW "{\"name\":\"adamw\",\"lr\":0.01}"

static inline bool contributed(struct sim *s, void *arg)
{
	struct kit *k = arg;

	return k->contributed_epoch == k->epoch + 1;
}

static inline bool applied(struct sim *s, void *arg) { struct kit *k = arg; return k->applied == k->epoch; }
static inline bool worked(struct sim *s, void *arg) { struct kit *k = arg; return k->progress >= k->granted; }

static inline void open_peer(struct kit *k, const char *optimizer, const char *strategy, const char *averaging,
	int batch)
{
	char json[1200];

	(void)snprintf(json, sizeof(json), form, optimizer, strategy, averaging, batch);
	kit_open(k, json, NULL, false);
}

/* Everything that peer has positions for; it stops by itself after `steps` of its own. */
static inline void work(struct kit *k, uint64_t lo, uint64_t hi, unsigned steps)
{
	kit_grant(k, lo, hi);
	k->granted += steps;
	trainer_start(k->t);
	assert_true(sim_run_until(k->sim, worked, k, 10000000));
	sim_run_for(k->sim, 5000);
	assert_int_equal(k->progress, k->granted);      /* it waits, whatever is granted */
}

static inline void begin(struct kit *k, uint64_t epoch)
{
	trainer_begin(k->t, epoch);
	assert_true(sim_run_until(k->sim, contributed, k, 10000000));
}

static inline void commit(struct kit *k, const real *mean, uint64_t samples)
{
	struct err e;

	if (trainer_commit(k->t, ++k->epoch, (const void *)mean, NULL, samples, 0, NULL, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(sim_run_until(k->sim, applied, k, 10000000));
	assert_false(k->broken);
}

static inline real *mean_of(struct kit *k, int n, size_t len)
{
	real *mean = calloc(len, sizeof(*mean));
	double total = 0;

	for (int i = 0; i < n; i++)
		total += (double)k[i].contributed;
	for (int i = 0; i < n; i++)
		vec_mean_add(&k[i].par, len, (double)k[i].contributed / total, k[i].x, mean, i == 0);
	return mean;
}

static inline void round_(struct kit *k, int n, uint64_t epoch)
{
	real *mean;

	for (int i = 0; i < n; i++)
		begin(&k[i], epoch);
	mean = mean_of(k, n, trainer_contribution_len(k[0].t));
	for (int i = 0; i < n; i++) {
		commit(&k[i], mean, k[i].contributed);
		assert_memory_equal(k[i].digest[epoch + 1], k[0].digest[epoch + 1], TRAINER_DIGEST);
	}
	free(mean);
}

#endif

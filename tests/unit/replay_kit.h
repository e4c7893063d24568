/* A swarm of trainers under an averager that is a dice: rounds fail or leave somebody out, hyperparameters change,
 * peers of three speeds are killed at any moment, come back, fall behind, or join. Every life's log is kept. */
#ifndef TESTS_REPLAY_KIT_H
#define TESTS_REPLAY_KIT_H
#include "train_kit.h"
#include "common/rng.h"
#include "train/replay.h"

#define LIVES 12                                /* of all peers together */
#define PEERS 4                                 /* at once */
#ifndef EPOCHS
#define EPOCHS 24
#endif

struct life {
	struct kit k;
	bool lives, gave;
	unsigned id, slow;
	real *x; uint64_t samples;              /* what it gave */
	char *log; size_t len;
	uint64_t stale;
	struct snapshot *copy; bool quiet;
};
struct swarm {
	const char *spec;
	struct life m[LIVES]; unsigned n, ids;
	uint64_t epoch, next;
	bool stray; unsigned strays;            /* somebody goes on alone now and then; how often */
	double lr; int target;
	struct rng rng;
	size_t len;
};

/* more: keys of the spec, each with a comma behind it. */
static inline const char *spec_with(char out[1200], const char *strategy, const char *averaging, const char *more)
{
	(void)snprintf(out, 1200, "{\"name\":\"r\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5},"
		"{\"type\":\"batchnorm\"},{\"type\":\"tanh\"},{\"type\":\"dropout\",\"p\":0.1},"
		"{\"type\":\"linear\",\"out\":3}],"
		"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},\"clip_norm\":0.3,"
		"\"schedule\":{\"name\":\"cosine\",\"total\":60,\"min\":0.1},\"target_batch\":96,\"seed\":3,"
		"\"strategy\":\"%s\",\"averaging\":{%s},%s\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500},"
		"\"local\":{\"batch\":8,\"deterministic\":true}}", strategy, averaging, more);
	return out;
}

static inline const char *spec_for(char out[1200], const char *strategy, const char *averaging)
{
	return spec_with(out, strategy, averaging, "");
}

static inline uint64_t any(struct swarm *w, uint64_t n) { return rng_below(&w->rng, n); }

static inline void say(struct life *l, const char *line)
{
	kit_log(&l->k, line, strlen(line));
}

/* More to learn from, and time to do it in. */
static inline void work(struct swarm *w, struct life *l, uint64_t us)
{
	struct trainer_view v;

	trainer_view(l->k.t, &v);
	if (v.left < 100) {
		kit_grant(&l->k, w->next, w->next + 400);
		w->next += 400;
	}
	sim_run_for(l->k.sim, us / l->slow);
	if (l->k.broken)
		fail_msg("broken: %s", l->k.error.text);
}

static inline struct life *born(struct swarm *w, unsigned id)
{
	struct life *l = &w->m[w->n++];
	char line[80];

	assert_true(w->n <= LIVES);
	kit_open(&l->k, w->spec, NULL, true);
	l->lives = true;
	l->id = id;
	l->slow = 1 + id % 3;
	(void)snprintf(line, sizeof(line), "{\"t\":0,\"ev\":\"peer\",\"id\":\"%016x\"}", id);
	say(l, line);
	return l;
}

static inline void bury(struct life *l)
{
	struct trainer_view v;

	trainer_view(l->k.t, &v);
	l->stale += v.stale;
	l->log = l->k.log;
	l->len = l->k.log_len;
	l->k.log = NULL;
	l->k.log_len = l->k.log_room = 0;
	l->lives = false;
	kit_close(&l->k);
}

static inline void copied(void *arg, struct snapshot *s, const struct err *e)
{
	assert_non_null(s);
	((struct life *)arg)->copy = s;
}

static inline bool has_copy(struct sim *s, void *arg) { return ((struct life *)arg)->copy; }
static inline bool is_quiet(struct sim *s, void *arg) { return ((struct life *)arg)->quiet; }
static inline void now_quiet(void *arg) { ((struct life *)arg)->quiet = true; }
static inline bool applied(struct sim *s, void *arg)
{
	struct kit *k = arg;

	return k->applied == k->epoch || k->broken;
}

static inline bool contributed(struct sim *s, void *arg)
{
	struct kit *k = arg;

	return k->contributed_epoch == k->epoch + 1;
}

static inline struct life *someone(struct swarm *w, const struct life *but)
{
	for (;;) {
		struct life *l = &w->m[any(w, w->n)];

		if (l->lives && l != but)
			return l;
	}
}

static inline unsigned alive(const struct swarm *w)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w->n; i++)
		n += w->m[i].lives;
	return n;
}

static inline json_t *live(const struct swarm *w)
{
	json_t *o = json_pack("{s:f}", "lr", w->lr);

	if (w->target)
		json_object_set_new(o, "target_batch", json_integer(w->target));
	return o;
}

static inline void catch_up(struct swarm *w, struct life *l)
{
	for (int k = 0; k < 2000 && l->k.applied != l->k.epoch; k++)
		work(w, l, 500);
	assert_true(applied(NULL, &l->k));
}

/* It goes on with a copy of what another has. */
static inline void adopt(struct swarm *w, struct life *l)
{
	struct life *donor = someone(w, l);
	json_t *values = live(w);
	struct err e;
	size_t bytes;

	catch_up(w, donor);
	trainer_snapshot(donor->k.t, copied, donor);
	assert_true(sim_run_until(donor->k.sim, has_copy, donor, 10000000));
	assert_int_equal(donor->copy->epoch, w->epoch);
	memcpy(trainer_state(l->k.t, &bytes), donor->copy->data, donor->copy->bytes);
	snapshot_unref(donor->copy);
	donor->copy = NULL;
	if (trainer_loaded(l->k.t, w->epoch, values, &e) < 0)
		fail_msg("%s", e.text);
	json_decref(values);
	l->k.epoch = l->k.applied = w->epoch;
	kit_grant(&l->k, w->next, w->next + 400);
	w->next += 400;
	trainer_start(l->k.t);
}

/* Who joins: somebody new, or one that has died and comes back. */
static inline unsigned who(struct swarm *w)
{
	unsigned id = w->m[any(w, w->n)].id;

	for (unsigned i = 0; i < w->n; i++)
		if (w->m[i].lives && w->m[i].id == id)
			return w->ids++;
	return id;
}

static inline void give(struct swarm *w, struct life *l)
{
	l->k.contributed_epoch = 0;
	trainer_begin(l->k.t, l->k.epoch);
	for (int k = 0; k < 400 && !contributed(NULL, &l->k); k++)
		work(w, l, 500);
	assert_true(contributed(NULL, &l->k));
}

/* It hears of nobody, and makes a history of its own, until it meets the others. */
static inline void stray(struct swarm *w, struct life *l)
{
	char line[200];
	struct err e;
	json_t *values = live(w);
	real *mean = calloc(w->len, sizeof(*mean));

	for (uint64_t k = 1 + any(w, 3); k; k--) {
		catch_up(w, l);
		work(w, l, 1000 + any(w, 1500));
		give(w, l);
		if (l->k.contributed) {
			memcpy(mean, l->k.x, w->len * sizeof(real));
			(void)snprintf(line, sizeof(line), "{\"t\":0,\"ev\":\"round\",\"epoch\":%llu,\"id\":\"stray %u\","
				"\"shares\":[[\"%016x\",%llu]]}", (unsigned long long)l->k.epoch + 1, w->strays, l->id,
				(unsigned long long)l->k.contributed);
			say(l, line);
			l->k.epoch++;
			w->strays++;
			if (trainer_commit(l->k.t, l->k.epoch, mean, NULL, l->k.contributed, l->k.contributed, values, &e) < 0)
				fail_msg("%s", e.text);
			catch_up(w, l);
		} else {
			trainer_failed(l->k.t, l->k.epoch);
		}
	}
	free(mean);
	json_decref(values);
}

/* Who joins, or has fallen behind. */
static inline void fate(struct swarm *w)
{
	if (w->n < LIVES && alive(w) < PEERS && any(w, 3) == 0)
		adopt(w, born(w, who(w)));
	if (any(w, 9) == 0) {
		struct life *l = someone(w, NULL);

		if (w->stray)
			stray(w, l);
		l->quiet = false;
		trainer_quiet(l->k.t, now_quiet, l);
		assert_true(sim_run_until(l->k.sim, is_quiet, l, 10000000));
		adopt(w, l);
	}
}

static inline void begin(struct swarm *w, bool again)
{
	for (unsigned i = 0; i < w->n; i++) {
		struct life *l = &w->m[i];

		if (!l->lives)
			continue;
		work(w, l, again ? 200 : 300 + any(w, 1500));
		give(w, l);
		l->samples = l->k.contributed;
		if (l->samples)
			memcpy(l->x, l->k.x, w->len * sizeof(real));
	}
}

static inline void failed(struct swarm *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->m[i].lives) {
			trainer_failed(w->m[i].k.t, w->epoch);
			work(w, &w->m[i], 100 + any(w, 300));
		}
}

/* Of what was given, in order; what was left out goes back. false: nothing was. */
static inline bool sum(struct swarm *w, real *mean, char line[2000])
{
	uint64_t total = 0;
	int first = 1;
	size_t n = (size_t)snprintf(line, 2000, "{\"t\":0,\"ev\":\"round\",\"epoch\":%llu,\"shares\":[",
		(unsigned long long)w->epoch + 1);

	for (unsigned i = 0; i < w->n; i++) {
		if (total && any(w, 7) == 0)
			w->m[i].samples = 0;
		total += w->m[i].samples;
	}
	for (unsigned i = 0; i < w->n; i++)
		if (w->m[i].samples) {
			vec_mean_add(&w->m[i].k.par, w->len, (double)w->m[i].samples / (double)total, w->m[i].x, mean, first);
			n += (size_t)snprintf(line + n, 2000 - n, "%s[\"%016x\",%llu]", first ? "" : ",", w->m[i].id,
				(unsigned long long)w->m[i].samples);
			first = 0;
		}
	(void)snprintf(line + n, 2000 - n, "]}");
	return total > 0;
}

/* Somebody wants to look, whatever is under way. */
static inline void looked(void *arg, struct snapshot *s, const struct err *e)
{
	if (s)
		snapshot_unref(s);
}

static inline void commit(struct swarm *w, const real *mean, const char *line)
{
	uint64_t total = 0;
	json_t *values;
	struct err e;

	if (any(w, 6) == 0)
		w->lr = 0.005 * (1 + (double)any(w, 4));
	if (w->target && any(w, 8) == 0)
		w->target = 64 + 8 * (int)any(w, 8);
	values = live(w);
	for (unsigned i = 0; i < w->n; i++)
		total += w->m[i].lives ? w->m[i].samples : 0;
	for (unsigned i = 0; i < w->n; i++) {
		struct life *l = &w->m[i];

		if (!l->lives)
			continue;
		work(w, l, any(w, 900));
		say(l, line);
		l->k.epoch++;
		if (trainer_commit(l->k.t, w->epoch + 1, mean, NULL, l->samples, total, values, &e) < 0)
			fail_msg("%s", e.text);
		if (any(w, 3) == 0) {
			sim_run_for(l->k.sim, any(w, 30));
			trainer_snapshot(l->k.t, looked, NULL);
		}
	}
	w->epoch++;
	json_decref(values);
	for (unsigned i = 0; i < w->n; i++)
		if (w->m[i].lives && any(w, 3))
			catch_up(w, &w->m[i]);
}

static inline void round_(struct swarm *w)
{
	real *mean = calloc(w->len, sizeof(*mean));
	char line[2000];

	begin(w, false);
	if (any(w, 5) == 0) {
		failed(w);
		begin(w, true);
	}
	if (alive(w) > 2 && any(w, 4) == 0)             /* what it gave may be counted, and it never hears of that */
		bury(someone(w, NULL));
	if (sum(w, mean, line))
		commit(w, mean, line);
	else
		failed(w);
	for (unsigned i = 0; i < w->n; i++)
		w->m[i].samples = 0;
	fate(w);
	free(mean);
}

static inline struct swarm *run_with(const char *spec, uint64_t seed, bool strays)
{
	struct swarm *w = calloc(1, sizeof(*w));

	w->spec = spec;
	w->stray = strays;
	w->lr = 0.01;
	w->target = strstr(spec, "\"strategy\":\"hivemind\"") ? 96 : 0;   /* others count steps */
	rng_seed(&w->rng, seed);
	while (w->n < PEERS) {
		struct life *l = born(w, w->ids++);

		kit_grant(&l->k, w->next, w->next + 400);
		w->next += 400;
		trainer_start(l->k.t);
	}
	w->len = trainer_contribution_len(w->m[0].k.t);
	for (unsigned i = 0; i < LIVES; i++)
		w->m[i].x = calloc(w->len, sizeof(real));
	for (int k = 0; k < 4 * EPOCHS && w->epoch < EPOCHS; k++)
		round_(w);
	assert_int_equal(w->epoch, EPOCHS);
	for (unsigned i = 0; i < w->n; i++)
		if (w->m[i].lives) {
			catch_up(w, &w->m[i]);
			bury(&w->m[i]);
		}
	return w;
}

static inline struct swarm *run(const char *spec, uint64_t seed) { return run_with(spec, seed, false); }

static inline void over(struct swarm *w)
{
	for (unsigned i = 0; i < LIVES; i++) {
		free(w->m[i].log);
		free(w->m[i].x);
	}
	free(w);
}

/* From the logs alone; of these only those of lives in that set. */
static inline int again_of(const struct swarm *w, unsigned lives, const struct replay_conf *how,
	struct replay_result *r, struct err *e)
{
	struct replay_log log[LIVES];
	struct replay_conf c = *how;
	struct spec *s = kit_spec(w->spec);
	struct data *d = data_open(NULL, "data", s, e);
	struct par par = par_serial(CPU_PLAIN, NULL);
	int rc;

	assert_non_null(d);
	c.spec = s;
	c.data = d;
	c.par = &par;
	c.log = log;
	for (unsigned i = 0; i < w->n; i++)
		if (lives & 1u << i)
			log[c.n++] = (struct replay_log){ w->m[i].log, w->m[i].len, NULL };
	rc = replay(&c, r, e);
	data_free(d);
	spec_free(s);
	return rc;
}

static inline int again(const struct swarm *w, struct replay_result *r, struct err *e)
{
	return again_of(w, UINT32_MAX, &(struct replay_conf){ 0 }, r, e);
}

static const struct mode { const char *name, *strategy, *averaging; bool stale; } modes[] = {
	{ "hivemind", "hivemind", "", false },
	{ "delay_grad", "hivemind", "\"delay_grad\":true", true },
	{ "delay_step", "hivemind", "\"delay_step\":true", true },
	{ "both delays", "hivemind", "\"delay_grad\":true,\"delay_step\":true", true },
	{ "allreduce", "allreduce", "", false },
	{ "async", "allreduce", "\"async\":true", true },
	{ "local_updates", "hivemind", "\"local_updates\":true", false },
	{ "every", "hivemind", "\"local_updates\":true,\"every\":3", false },
	{ "average_optimizer", "hivemind", "\"local_updates\":true,\"average_optimizer\":true", false },
	{ "sync_every", "allreduce", "\"sync_every\":3,\"average_optimizer\":true", false },
	{ "buckets", "allreduce", "\"bucket_bytes\":1", false },
	{ "delay_state", "hivemind", "\"local_updates\":true,\"delay_state\":true", true },
	{ "diloco", "diloco", "\"inner_steps\":4", false },
	{ "fragments", "diloco", "\"inner_steps\":4,\"fragments\":2", false },
	{ "streaming", "diloco", "\"inner_steps\":8,\"fragments\":2,\"overlap\":2", true },
};
#define MODES (sizeof(modes) / sizeof(*modes))

#endif

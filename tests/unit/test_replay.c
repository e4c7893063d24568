/* The run log is complete: a swarm of three, with rounds that fail and contributions that are left out, runs again in
 * one process from the logs alone and gives the same bytes. A log that lies is found. */
#include "train_kit.h"
#include "common/mem.h"
#include "train/replay.h"

static const char json[] =
	"{\"name\":\"r\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5},{\"type\":\"tanh\"},"
	"{\"type\":\"linear\",\"out\":3}],\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},"
	"\"clip_norm\":0.3,\"schedule\":{\"name\":\"cosine\",\"total\":60,\"min\":0.1},\"target_batch\":48,\"seed\":3,"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500},"
	"\"local\":{\"batch\":8,\"deterministic\":true}}";

#define PEERS 3
#define EPOCHS 25

struct swarm { struct kit k[PEERS]; uint64_t next; };

static bool contributed(struct sim *s, void *arg) { struct kit *k = arg; return k->contributed_epoch == k->epoch + 1; }
static bool applied(struct sim *s, void *arg) { struct kit *k = arg; return k->applied == k->epoch; }

/* What the averager does: every peer works for a while, the contributions of C are summed in order, all adopt. */
static void round_(struct swarm *w, uint64_t epoch, unsigned left_out)
{
	size_t len = trainer_contribution_len(w->k[0].t);
	real *mean = calloc(len, sizeof(*mean));
	double total = 0;
	int first = 1;
	struct err e;

	for (int i = 0; i < PEERS; i++) {
		kit_grant(&w->k[i], w->next, w->next + 200);
		w->next += 200;
		trainer_start(w->k[i].t);
		sim_run_for(w->k[i].sim, 300 + 170 * (uint64_t)i + 61 * (epoch % 7));
		trainer_begin(w->k[i].t, epoch);
		assert_true(sim_run_until(w->k[i].sim, contributed, &w->k[i], 10000000));
		if (epoch % 5 == 3) {                   /* the round fails once and is tried again, later */
			trainer_failed(w->k[i].t, epoch);
			w->k[i].contributed_epoch = 0;
			sim_run_for(w->k[i].sim, 200);
			trainer_begin(w->k[i].t, epoch);
			assert_true(sim_run_until(w->k[i].sim, contributed, &w->k[i], 10000000));
		}
		total += (left_out >> i & 1) ? 0 : (double)w->k[i].contributed;
	}
	for (int i = 0; i < PEERS; i++)
		if (!(left_out >> i & 1) && w->k[i].contributed) {
			vec_mean_add(&w->k[i].par, len, (double)w->k[i].contributed / total, w->k[i].x, mean, first);
			first = 0;
		}
	assert_false(first);
	for (int i = 0; i < PEERS; i++) {
		json_t *live = json_pack("{s:f}", "lr", epoch < 10 ? 0.01 : 0.02);

		w->k[i].epoch++;
		if (trainer_commit(w->k[i].t, epoch + 1, mean, NULL,
			(left_out >> i & 1) ? 0 : w->k[i].contributed, 0, live, &e) < 0)
			fail_msg("%s", e.text);
		json_decref(live);
		assert_true(sim_run_until(w->k[i].sim, applied, &w->k[i], 10000000));
	}
	for (int i = 1; i < PEERS; i++)
		assert_memory_equal(w->k[i].digest[epoch + 1], w->k[0].digest[epoch + 1], TRAINER_DIGEST);
	free(mean);
}

static int from_logs(const struct kit *k, const struct replay_log *log, size_t n, struct replay_result *ret,
	struct err *e)
{
	struct replay_conf c = { .spec = k->spec, .data = k->data, .par = &k->par, .log = log, .n = n };

	return replay(&c, ret, e);
}

static void test_replay(void **state)
{
	struct swarm *w = calloc(1, sizeof(*w));
	struct replay_log log[PEERS];
	struct replay_result r;
	struct err e;
	char *digit;

	for (int i = 0; i < PEERS; i++)
		kit_open(&w->k[i], json, NULL, true);
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
		round_(w, epoch, epoch % 6 == 4 ? 2u : 0);
	for (int i = 0; i < PEERS; i++)
		log[i] = (struct replay_log){ w->k[i].log, w->k[i].log_len };
	if (from_logs(&w->k[0], log, PEERS, &r, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(r.epochs, EPOCHS);
	assert_true(r.contributions < PEERS * EPOCHS && r.contributions > 2 * EPOCHS);
	/* one position of one micro-batch is another: the digest says so */
	digit = strstr(w->k[1].log + w->k[1].log_len / 2, "\"positions\":[[");
	assert_non_null(digit);
	digit += strlen("\"positions\":[[");
	*digit = *digit == '1' ? '2' : '1';
	assert_int_equal(from_logs(&w->k[0], log, PEERS, &r, &e), -1);
	log[0].len /= 2;
	/* the others are missing */
	assert_int_equal(from_logs(&w->k[0], log, 1, &r, &e), -1);
	for (int i = 0; i < PEERS; i++)
		kit_close(&w->k[i]);
	free(w);
}

/* Alone, by the strategy without a swarm. */
static void test_single(void **state)
{
	char text[1000];
	struct kit k;
	struct replay_log log;
	struct replay_result r;
	struct err e;

	(void)snprintf(text, sizeof(text), "%.*s,\"strategy\":\"single\"}", (int)sizeof(json) - 2, json);
	kit_open(&k, text, NULL, true);
	kit_grant(&k, 0, 5000);
	trainer_start(k.t);
	kit_run(&k, 30);
	log = (struct replay_log){ k.log, k.log_len };
	if (from_logs(&k, &log, 1, &r, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(r.epochs, 30);
	assert_int_equal(r.samples, 30 * 48);
	/* an instruction that began as another has no numbers of its own to step with */
	for (char *at = k.log; (at = strstr(at, "\"ev\":\"start\"")); at++)
		if (!strncmp(strchr(strstr(at, "\"kind\":"), ':'), ":\"VEC\"", 6))
			memcpy(strstr(at, "\"VEC\""), "\"FWD\"", 5);
	assert_int_equal(from_logs(&k, &log, 1, &r, &e), -1);
	assert_int_equal(e.code, ERR_CORRUPT);
	assert_non_null(strstr(e.text, "that had not begun"));
	kit_close(&k);
}

/* Allocations of a size that lets a model in: how many of one size there were, and one of the large ones fails. */
struct starve { size_t bytes; unsigned met, large, fails; };

static int starve(void *arg, size_t bytes, int big)
{
	struct starve *s = arg;

	s->met += bytes == s->bytes;
	return big && ++s->large == s->fails;
}

static int starved(const struct kit *k, const struct replay_log *log, struct starve *s, struct err *e)
{
	struct replay_result r;
	int rc;

	mem_set_fault(starve, s);
	rc = from_logs(k, log, 1, &r, e);
	mem_set_fault(NULL, NULL);
	return rc;
}

/* A swarm of one: it gives to rounds, takes means, and begins with a state that was copied, three times. */
static void test_memory(void **state)
{
	static const char copied[] = "{\"t\":0,\"ev\":\"copied\",\"epoch\":0}\n";
	struct kit k;
	struct replay_log log;
	struct starve s = { 0 };
	struct err e;
	char *text;
	size_t head, bytes, cap;

	kit_open(&k, json, NULL, true);
	k.alone = true;
	kit_grant(&k, 0, 5000);
	trainer_start(k.t);
	kit_run(&k, 5);
	head = (size_t)(strchr(strstr(k.log, "\"ev\":\"adopted\""), '\n') + 1 - k.log);
	cap = k.log_len + 3 * sizeof(copied) + 1;
	text = malloc(cap);
	log = (struct replay_log){ text, (size_t)snprintf(text, cap, "%.*s%s%s%s%s", (int)head, k.log, copied, copied,
		copied, k.log + head) };
	(void)trainer_state(k.t, &bytes);
	s.bytes = bytes;
	if (starved(&k, &log, &s, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(s.met, 2);             /* its own, and one that was kept */
	assert_true(s.large > 20 && s.large < 40);      /* not of each micro-batch anew */
	for (unsigned n = 1, all = s.large; n <= all; n++) {
		s = (struct starve){ .fails = n };
		if (!starved(&k, &log, &s, &e))
			fail_msg("%u of %u: nobody has missed it", n, all);
		assert_int_equal(e.code, ERR_NOMEM);
		assert_non_null(strstr(e.text, "no memory"));
	}
	free(text);
	kit_close(&k);
}

/* The same run twice, with another number of workers, is the same log but for the times. */
static void test_deterministic(void **state)
{
	char text[1000];
	struct kit a, b;

	(void)snprintf(text, sizeof(text), "%.*s,\"workers\":4}}", (int)sizeof(json) - 3, json);
	kit_open(&a, json, NULL, false);
	kit_open(&b, text, NULL, false);
	a.alone = b.alone = true;
	kit_grant(&a, 0, 5000);
	kit_grant(&b, 0, 5000);
	trainer_start(a.t);
	trainer_start(b.t);
	kit_run(&a, 40);
	kit_run(&b, 40);
	for (int i = 1; i <= 40; i++)
		assert_memory_equal(a.digest[i], b.digest[i], TRAINER_DIGEST);
	kit_close(&a);
	kit_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replay), cmocka_unit_test(test_single), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_deterministic),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

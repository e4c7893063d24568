/* Rematerialization in a trainer: with every policy and strategy the parameters of every epoch have the bits of a run
 * without one, and memory is what was predicted, to the byte; what does not fit is refused with what would, and then
 * that does. */
#include "train_kit.h"
#include <stdlib.h>
#include "train/memory.h"
#include "train/rehearse.h"

#define EPOCHS 6
#define BATCH 8
#define SINGLE "\"strategy\":\"single\""

/* Batch norm (statistics move once), dropout (drawn again as it was), a value that goes past, a pass over two. */
#define LAYERS "{\"type\":\"conv2d\",\"out\":4,\"kernel\":3,\"padding\":1,\"name\":\"c\"},{\"type\":\"batchnorm\"}," \
	"{\"type\":\"relu\",\"name\":\"r\"},{\"type\":\"dropout\",\"p\":0.2},{\"type\":\"conv2d\",\"out\":4,\"kernel\":3," \
	"\"padding\":1,\"name\":\"d\"},{\"type\":\"batchnorm\"},{\"type\":\"tanh\",\"name\":\"t\"},{\"type\":\"add\"," \
	"\"inputs\":[\"t\",\"r\"],\"name\":\"s\"},{\"type\":\"conv2d\",\"out\":6,\"kernel\":3,\"name\":\"e\"},{\"type\":" \
	"\"relu\",\"name\":\"u\"},{\"type\":\"flatten\"},{\"type\":\"linear\",\"out\":9,\"name\":\"l\"}," \
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":3}"

static char *text_of(const char *strategy, int batch, const char *local)
{
	char *text = NULL;

	assert_true(asprintf(&text, "{\"name\":\"t\",\"input\":[2,8,8],\"model\":[" LAYERS "],\"loss\":\"cross_entropy\","
		"\"optimizer\":{\"name\":\"adam\",\"lr\":0.01},\"target_batch\":%d,%s,\"data\":{\"name\":\"d\",\"kind\":"
		"\"synthetic\",\"count\":400},\"local\":{\"batch\":%d,\"deterministic\":true%s}}", 3 * BATCH, strategy, batch,
		local) > 0);
	return text;
}

static void train(struct kit *k, const char *strategy, uint64_t begin_at, int batch, const char *local)
{
	char *text = text_of(strategy, batch, local);

	kit_open(k, text, NULL, false);
	free(text);
	k->begin_at = begin_at;
	k->alone = trainer_needs_swarm(k->t);
	kit_grant(k, 0, (EPOCHS + 4) * 3 * BATCH);
	trainer_start(k->t);
	kit_run(k, EPOCHS);
}

/* less: micro-batches go on beside a round, and what lies there at once depends on when they meet; or there is one in a
 * step, and no sum beside it. */
struct way { const char *strategy; uint64_t begin_at; bool less; };
static const struct way row[] = { { SINGLE, 0, false },
	{ "\"strategy\":\"hivemind\"", 3 * BATCH, false },
	{ "\"strategy\":\"hivemind\",\"averaging\":{\"local_updates\":true}", 3 * BATCH, false },
	{ "\"strategy\":\"hivemind\",\"averaging\":{\"delay_grad\":true,\"delay_step\":true}", 3 * BATCH, true },
	{ "\"strategy\":\"allreduce\"", BATCH, true },
	{ "\"strategy\":\"allreduce\",\"averaging\":{\"sync_every\":2}", 2 * BATCH, false },
	{ "\"strategy\":\"diloco\",\"averaging\":{\"inner_steps\":2}", 2 * BATCH, false } };
#define ROWS (sizeof(row) / sizeof(*row))

static void measured(const struct trainer_view *v, const struct way *w, const char *policy)
{
	if (w->less ? v->arena_peak_bytes > v->arena_predicted_bytes : v->arena_peak_bytes != v->arena_predicted_bytes)
		fail_msg("%s, %s: %llu bytes, and %llu were predicted", w->strategy, policy,
			(unsigned long long)v->arena_peak_bytes, (unsigned long long)v->arena_predicted_bytes);
}

static json_int_t number(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }

/* run plan says the same bytes: of a run, and of its spec when it does not run. */
static void planned(const struct kit *k, const struct way *w, const char *policy, uint64_t bytes)
{
	struct rehearse_conf c = { .spec = k->spec, .parts = k->par.n, .members = 1 };
	struct err e;
	json_t *run = trainer_plan_json(k->t, false, &e), *spec = rehearse(&c, &e);
	json_int_t a = number(run, "peak_bytes"), b = number(json_array_get(json_object_get(spec, "members"), 0),
		"peak_bytes");
	char words[64];

	if (a != (json_int_t)bytes || b != (json_int_t)bytes)
		fail_msg("%s, %s: run plan says %lld of the run and %lld of its spec, and it is %llu", w->strategy, policy,
			(long long)a, (long long)b, (unsigned long long)bytes);
	(void)snprintf(words, sizeof(words), "(%llu bytes)", (unsigned long long)bytes);
	assert_non_null(strstr(json_string_value(json_object_get(run, "text")), words));
	json_decref(run);
	json_decref(spec);
}

static void test_bits_and_bytes(void **state)
{
	static const char *const policy[] = { "periodic", "periodic:2", "periodic:3", "periodic:9", "boundary",
		"user:r,s,u", "user:c" };

	for (size_t i = 0; i < ROWS; i++) {
		struct trainer_view plain, v;
		struct kit a;

		train(&a, row[i].strategy, row[i].begin_at, BATCH, "");
		trainer_view(a.t, &plain);
		measured(&plain, &row[i], "none");
		for (size_t p = 0; p < sizeof(policy) / sizeof(*policy); p++) {
			char local[100];
			struct kit b;

			(void)snprintf(local, sizeof(local), ",\"remat\":\"%s\"", policy[p]);
			train(&b, row[i].strategy, row[i].begin_at, BATCH, local);
			for (int e = 1; e <= EPOCHS; e++)
				if (memcmp(a.digest[e], b.digest[e], TRAINER_DIGEST))
					fail_msg("%s, %s: epoch %d has other bits", row[i].strategy, policy[p], e);
			trainer_view(b.t, &v);
			measured(&v, &row[i], policy[p]);
			planned(&b, &row[i], policy[p], row[i].less ? v.arena_predicted_bytes : v.arena_peak_bytes);
			if (!strcmp(policy[p], "periodic"))
				assert_true(v.arena_peak_bytes < plain.arena_peak_bytes);
			kit_close(&b);
		}
		kit_close(&a);
	}
}

/* Many micro-batches in a step: what is held is what a few of them hold. */
static void test_many(void **state)
{
	for (size_t i = 0; i < 3; i++) {        /* those whose steps end with the target batch */
		struct trainer_view v;
		struct kit k;

		train(&k, row[i].strategy, row[i].begin_at, 1, ",\"remat\":\"periodic:3\"");
		trainer_view(k.t, &v);
		assert_true(k.samples[1] >= 3 * BATCH);
		measured(&v, &row[i], "24 micro-batches");
		planned(&k, &row[i], "24 micro-batches", v.arena_peak_bytes);
		kit_close(&k);
	}
}

/* --- what fits */

/* A trainer that is not opened by the kit: it may be refused. */
static struct trainer *try(struct kit *k, const char *json, struct spec **ret, struct err *e)
{
	static const struct trainer_cb nobody;
	struct trainer_conf conf = { .env = k->env, .data = k->data, .par = &k->par };

	conf.spec = *ret = kit_spec(json);
	return trainer_new(&conf, &nobody, NULL, e);
}

static void away(struct kit *k, struct trainer *t, struct spec *s)
{
	if (t)
		trainer_free(t, NULL, NULL);
	sim_run_for(k->sim, 100000);
	spec_free(s);
}

/* Bytes that it takes in all: arena and batches ahead. */
static uint64_t takes_with(struct kit *k, const char *strategy, int batch, const char *remat)
{
	char *json = text_of(strategy, batch, remat);
	struct trainer_view v;
	struct spec *s;
	struct err e;
	struct trainer *t = try(k, json, &s, &e);

	if (!t)
		fail_msg("%s: %s", remat, e.text);
	trainer_view(t, &v);
	away(k, t, s);
	free(json);
	return v.arena_predicted_bytes + v.loader_bytes;
}

static uint64_t takes(struct kit *k, int batch, const char *remat)
{
	return takes_with(k, SINGLE, batch, remat);
}

static void open_idle(struct kit *k)
{
	char *json = text_of(SINGLE, BATCH, "");

	kit_open(k, json, NULL, false);
	free(json);
}

static void refused(struct kit *k, const char *strategy, const char *local, const char *words)
{
	char *json = text_of(strategy, BATCH, local);
	struct spec *s;
	struct err e;
	struct trainer *t = try(k, json, &s, &e);

	if (t)
		fail_msg("taken: %s", local);
	assert_err(e, ERR_LIMIT, words);
	away(k, t, s);
	free(json);
}

/* As many as run plan promises of a spec that does not run, without its data. */
static json_int_t promised(const char *strategy, const char *local)
{
	char *json = text_of(strategy, BATCH, local);
	struct rehearse_conf c = { .spec = kit_spec(json), .parts = 1, .members = 1 };
	struct err e;
	json_t *o = rehearse(&c, &e);
	json_int_t n;

	if (!o)
		fail_msg("%s: %s", local, e.text);
	n = json_integer_value(json_object_get(json_object_get(o, "remat"), "segments"));
	json_decref(o);
	spec_free((struct spec *)c.spec);
	free(json);
	return n;
}

/* The bytes of each number of segments as they are; memory takes the fewest that fit, and a byte less takes others, or
 * is refused with the least. */
static void memory_of(struct kit *k, const char *strategy, const char *policy, int most)
{
	uint64_t bytes[10] = { 0 }, lowest = UINT64_MAX;
	char local[120], words[200];

	for (int n = 1; n <= most; n++) {
		(void)snprintf(local, sizeof(local), ",\"remat\":\"%s:%d\"", policy, n);
		bytes[n] = takes_with(k, strategy, BATCH, local);
		lowest = bytes[n] < lowest ? bytes[n] : lowest;
	}
	assert_int_equal(bytes[1], takes_with(k, strategy, BATCH, ""));
	for (int n = 1; n <= most; n++) {
		int want = 1;

		while (bytes[want] > bytes[n])
			want++;
		(void)snprintf(local, sizeof(local), ",\"remat\":{\"policy\":\"%s\",\"memory\":%llu}", policy,
			(unsigned long long)bytes[n]);
		if (takes_with(k, strategy, BATCH, local) != bytes[want] || promised(strategy, local) != want)
			fail_msg("%s, %s: %llu bytes are %lld segments of %llu bytes, and %d take %llu", strategy, local,
				(unsigned long long)bytes[n], (long long)promised(strategy, local),
				(unsigned long long)takes_with(k, strategy, BATCH, local), want, (unsigned long long)bytes[want]);
	}
	(void)snprintf(local, sizeof(local), ",\"remat\":{\"policy\":\"%s\",\"memory\":%llu}", policy,
		(unsigned long long)lowest - 7);
	(void)snprintf(words, sizeof(words), "the least possible with policy %s and a micro-batch of %d is %llu, in",
		policy, BATCH, (unsigned long long)lowest);
	refused(k, strategy, local, words);
	(void)snprintf(words, sizeof(words), "which is 7 bytes more; --batch %d would fit", BATCH - 1);
	refused(k, strategy, local, words);
}

static void test_memory(void **state)
{
	struct kit k;

	open_idle(&k);
	for (size_t i = 0; i < ROWS; i++) {
		memory_of(&k, row[i].strategy, "periodic", 9);
		memory_of(&k, row[i].strategy, "boundary", 3);
	}
	kit_close(&k);
}

/* local.memory: without remat it is refused, and the answer is right: so it fits, and with one segment fewer it does
 * not. */
static void test_said(void **state)
{
	struct kit k;
	char local[200], words[100];
	uint64_t plain, two, least = UINT64_MAX;
	struct spec *s;
	struct err e;
	struct trainer *t;
	char *json;

	open_idle(&k);
	plain = takes(&k, BATCH, "");
	two = takes(&k, BATCH, ",\"remat\":\"periodic:2\"");
	assert_true(two < plain);
	(void)snprintf(local, sizeof(local), ",\"memory\":%llu", (unsigned long long)two);
	refused(&k, SINGLE, local, "or --remat periodic:2 would fit with this batch");
	(void)snprintf(local, sizeof(local), ",\"memory\":%llu,\"remat\":\"periodic:2\"", (unsigned long long)two);
	json = text_of(SINGLE, BATCH, local);
	t = try(&k, json, &s, &e);
	if (!t)
		fail_msg("%s", e.text);
	away(&k, t, s);
	free(json);
	(void)snprintf(local, sizeof(local), ",\"memory\":%llu,\"remat\":\"periodic:2\"", (unsigned long long)two - 1);
	refused(&k, SINGLE, local, "local.memory: ");
	/* Every layer its own segment takes more than two do: whoever has said so hears it. */
	(void)snprintf(local, sizeof(local), ",\"memory\":%llu,\"remat\":\"user:c\"", (unsigned long long)plain);
	if (takes(&k, BATCH, ",\"remat\":\"user:c\"") > plain)
		refused(&k, SINGLE, local, "without --remat it would fit");
	/* Not even one sample: the bytes that are missing are those of the best that there is. */
	for (int n = 1; n < 10; n++) {
		(void)snprintf(local, sizeof(local), ",\"remat\":\"periodic:%d\"", n);
		plain = takes(&k, 1, local);
		least = plain < least ? plain : least;
	}
	(void)snprintf(local, sizeof(local), ",\"memory\":%llu", (unsigned long long)least - 99);
	(void)snprintf(words, sizeof(words), "not even a batch of 1 would fit, with --remat either (99 bytes are missing)");
	refused(&k, SINGLE, local, words);
	(void)snprintf(local, sizeof(local), ",\"memory\":%llu", (unsigned long long)least);
	refused(&k, SINGLE, local, "--batch 1 with --remat periodic");
	kit_close(&k);
}

/* run plan: segments, what is kept, what runs twice. */
static void test_told(void **state)
{
	char *json = text_of(SINGLE, BATCH, ",\"remat\":\"user:r,s\"");
	struct kit k;
	struct err e;
	json_t *plan, *r, *list;

	kit_open(&k, json, NULL, false);
	plan = trainer_plan_json(k.t, true, &e);
	r = json_object_get(plan, "remat");
	list = json_object_get(r, "list");
	assert_string_equal(json_string_value(json_object_get(r, "policy")), "user");
	assert_int_equal(json_integer_value(json_object_get(r, "segments")), 3);
	assert_int_equal(json_integer_value(json_object_get(r, "layers")), 14);
	assert_int_equal(json_integer_value(json_object_get(r, "forward_layers")), 14 + 8);
	assert_int_equal(json_array_size(list), 3);
	assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "first_layer")), "3");
	assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "last_layer")), "s");
	assert_true(json_is_true(json_object_get(json_array_get(list, 1), "twice")));
	assert_true(json_is_false(json_object_get(json_array_get(list, 2), "twice")));
	assert_non_null(strstr(json_string_value(json_object_get(plan, "text")), "remat user: 3 segments of at most 3"));
	assert_int_equal(json_integer_value(json_object_get(r, "kept_bytes")), trainer_kept_bytes(k.t));
	json_decref(plan);
	kit_close(&k);
	free(json);
	json = text_of(SINGLE, BATCH, "");
	kit_open(&k, json, NULL, false);
	plan = trainer_plan_json(k.t, false, &e);
	assert_null(json_object_get(plan, "remat"));
	json_decref(plan);
	kit_close(&k);
	free(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bits_and_bytes), cmocka_unit_test(test_many), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_said), cmocka_unit_test(test_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

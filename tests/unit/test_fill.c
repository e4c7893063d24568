/* A state is made, filled and looked through beside the loop (trainer_fill): what comes out, what is refused, and what
 * happens when the trainer is made quiet or goes meanwhile. */
#include "train_kit.h"
#include "common/text.h"

static const char form[] = "{\"name\":\"fill\",\"input\":[4],\"model\":[{\"type\":\"linear\",\"name\":\"fc\","
	"\"out\":3}],\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\",\"lr\":0.1},\"target_batch\":4,"
	"\"strategy\":\"single\",\"data\":{\"name\":\"d\",\"kind\":\"synthetic\",\"count\":64},\"seed\":3,"
	"\"local\":{\"batch\":4}}";

struct seen { struct kit k; int done, dropped, quiet; struct err e; bool failed; real put;
	bool moves; uint8_t digest[STATE_DIGEST]; };

static void done(void *arg, const struct err *e)
{
	struct seen *s = arg;

	s->done++;
	s->failed = e != NULL;
	if (e)
		s->e = *e;
}

/* A value of 77: it cannot be had. */
static int fill(void *arg, struct shard *s, struct err *e)
{
	real put = ((struct seen *)arg)->put;

	((real *)shard_w(s))[5] = put;
	return put == 77 ? err_set(e, ERR_NOT_FOUND, "nobody has it") : 0;
}

static void drop(void *arg)
{
	struct seen *s = arg;
	const struct shard *h = trainer_shard(s->k.t);

	s->dropped++;
	digest_of(h->block, h->bytes / sizeof(real), sizeof(real), s->digest);
	if (s->moves)
		((real *)shard_w(h))[5]++;
}

static void quiet(void *arg) { ((struct seen *)arg)->quiet++; }
static bool is_done(struct sim *sim, void *arg) { return ((struct seen *)arg)->done; }
static bool is_quiet(struct sim *sim, void *arg) { return ((struct seen *)arg)->quiet; }

static void begin(struct seen *s, real put, uint64_t epoch)
{
	memset(s, 0, sizeof(*s));
	kit_open(&s->k, form, NULL, true);
	s->put = put;
	trainer_fill(s->k.t, &(struct trainer_fill){ .values = { .fresh = true, .fill = fill, .drop = drop, .arg = s },
		.epoch = epoch }, done, s);
	assert_int_equal(s->done + s->dropped, 0);      /* the loop goes on first */
}

static void fresh_and_filled(void **state)
{
	struct seen s;
	size_t bytes;
	real *want, *have;

	begin(&s, (real)0.25, 7);
	assert_true(sim_run_until(s.k.sim, is_done, &s, 10000000));
	assert_int_equal(s.done + s.dropped, 2);
	assert_false(s.failed);
	have = trainer_state(s.k.t, &bytes);
	want = malloc(bytes);
	assert_non_null(want);
	memcpy(want, have, bytes);
	trainer_init_params(s.k.t);
	assert_memory_not_equal(want, have, bytes);
	have[5] = (real)0.25;
	assert_memory_equal(want, have, bytes);
	free(want);
	kit_grant(&s.k, 0, 64);
	trainer_start(s.k.t);
	s.k.applied = 7;                        /* the kit counts from the epoch that the state has */
	kit_run(&s.k, 9);
	kit_close(&s.k);
}

/* The log names what was adopted by its bytes, which were read in the job: what the loop makes of them comes later. */
static void what_was_adopted_is_named(void **state)
{
	char line[80] = "\"ev\":\"adopted\",\"epoch\":7,\"state\":\"";
	struct seen s;
	size_t n = strlen(line);

	begin(&s, (real)0.25, 7);
	s.moves = true;
	assert_null(strstr(s.k.log, line));
	assert_true(sim_run_until(s.k.sim, is_done, &s, 10000000));
	(void)text_hex(s.digest, STATE_DIGEST, line + n);
	assert_non_null(strstr(s.k.log, line));
	kit_close(&s.k);
	begin(&s, 77, 7);                       /* of what was not adopted nothing is said */
	assert_true(sim_run_until(s.k.sim, is_done, &s, 10000000));
	assert_null(strstr(s.k.log, "\"epoch\":7"));
	kit_close(&s.k);
}

static void what_is_not_finite_is_named(void **state)
{
	struct seen s;

	begin(&s, (real)NAN, 0);
	assert_true(sim_run_until(s.k.sim, is_done, &s, 10000000));
	assert_true(s.failed && s.e.code == ERR_NONFINITE);
	assert_non_null(strstr(s.e.text, "fc.weight"));
	assert_non_null(strstr(s.e.text, "element 5"));
	kit_close(&s.k);
}

static void what_cannot_be_had_is_said(void **state)
{
	struct seen s;

	begin(&s, 77, 5);
	assert_true(sim_run_until(s.k.sim, is_done, &s, 10000000));
	assert_int_equal(s.done + s.dropped, 2);
	assert_true(s.failed && s.e.code == ERR_NOT_FOUND);
	assert_string_equal(s.e.text, "nobody has it");
	kit_close(&s.k);
}

/* Somebody else's state comes: what was being made is nobody's, and nobody touches it any more when quiet is told. */
static void made_quiet_meanwhile(void **state)
{
	struct seen s;

	begin(&s, 0, 0);
	trainer_quiet(s.k.t, quiet, &s);
	assert_int_equal(s.quiet, 0);
	assert_true(sim_run_until(s.k.sim, is_quiet, &s, 10000000));
	assert_int_equal(s.dropped, 1);
	assert_int_equal(s.done, 0);
	kit_close(&s.k);
}

static void gone_meanwhile(void **state)
{
	struct seen s;

	begin(&s, 0, 0);
	kit_close(&s.k);
	assert_int_equal(s.dropped, 1);
	assert_int_equal(s.done, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fresh_and_filled),
		cmocka_unit_test(what_was_adopted_is_named),
		cmocka_unit_test(what_is_not_finite_is_named),
		cmocka_unit_test(what_cannot_be_had_is_said),
		cmocka_unit_test(made_quiet_meanwhile),
		cmocka_unit_test(gone_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

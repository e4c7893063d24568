/* The end of a generation for one of its members: what was decided is applied, whole, and nothing else runs, however
 * the end and the COMMIT lie around each other while the program waits for it. The others are played: what is sent to
 * them arrives, and what they send is zeros. */
#include "train_kit.h"
#include "exec/vec.h"
#include "plan/planner.h"

static const char form[] = "{\"name\":\"seat\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5},"
	"{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":7},{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":4}],"
	"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\",\"lr\":0.1},\"target_batch\":16,"
	"\"strategy\":\"pipeline\",\"plan\":{\"stages\":[{\"layers\":2},{\"layers\":2},{\"layers\":1}]},"
	"\"data\":{\"name\":\"d\",\"kind\":\"synthetic\",\"count\":64},"
	"\"seed\":3,\"local\":{\"batch\":4}}";

enum order { COMMIT_ALONE, WAYS_COMMIT, WAYS_COMMIT_GRANT, COMMIT_WAYS, WAYS_COMMIT_QUIET, COMMIT_WAYS_QUIET,
	QUIET_COMMIT, QUIET_COMMIT_GRANT, ORDERS };

static void net(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	for (uint32_t k = 0; k < nout; k++)
		memset(out[k].p, 0, out[k].bytes);
	exec_done(w, NULL, NULL);
}

static void filled(void *arg, const struct err *e)
{
	if (e)
		fail_msg("%s", e->text);
	*(bool *)arg = true;
}

static void quiet(void *arg) { *(bool *)arg = true; }

/* Its round has three SUMs, of its own part and of both neighbours'. */
static void sit_down(struct kit *k)
{
	struct view_member member[3] = { 0 };
	struct trainer_fill fresh = { .values.fresh = true };
	struct view v = trainer_crew_view(k->t);
	struct state *was = NULL;
	bool anew, full = false;
	struct err e;

	for (uint32_t i = 0; i < 3; i++)
		member[i] = (struct view_member){ .id = { { (uint8_t)(i + 1) } }, .speed = 1 };
	v.nmembers = 3;
	v.member = member;
	v.me = 1;
	v.redundancy = 2;
	v.generation = 7;
	if (trainer_join(k->t, &v, &anew, &was, &e) < 0)
		fail_msg("%s", e.text);
	trainer_read_over(k->t);
	assert_true(anew);
	state_free(was, NULL, NULL);
	assert_int_equal(trainer_part(k->t)->nheld, 3);
	trainer_fill(k->t, &fresh, filled, &full);
	sim_run_for(k->sim, 1000000);
	assert_true(full);
	kit_grant(k, 0, 64);
	trainer_start(k->t);
	sim_run_for(k->sim, 1000000);
	trainer_begin(k->t, 0);
	sim_run_for(k->sim, 1000000);
	assert_int_equal(k->contributed, 16);   /* the SUMs wait for the COMMIT */
}

static void commit(struct kit *k)
{
	size_t n = trainer_round_len(k->t);
	float *mean = calloc(n, sizeof(*mean));
	struct err e;

	for (size_t i = 0; i < n; i++)
		mean[i] = 0.01f * (float)(i % 7);
	if (trainer_commit(k->t, 1, mean, NULL, k->contributed, 0, NULL, &e) < 0)
		fail_msg("%s", e.text);
	free(mean);
}

/* Nothing of the loop runs between them, as when one frame follows the other. */
static void play(enum order o, uint64_t *ret_applied, uint8_t ret_digest[TRAINER_DIGEST])
{
	bool commits_first = o == COMMIT_ALONE || o == COMMIT_WAYS || o == COMMIT_WAYS_QUIET;
	bool stops = o >= WAYS_COMMIT_QUIET, is_quiet = false;
	struct kit k;

	kit_open(&k, form, NULL, false);
	sit_down(&k);
	if (commits_first)
		commit(&k);
	if (o == QUIET_COMMIT || o == QUIET_COMMIT_GRANT)
		trainer_quiet(k.t, quiet, &is_quiet);
	else if (o != COMMIT_ALONE)
		trainer_part_ways(k.t);
	if (!commits_first)
		commit(&k);
	if (o == WAYS_COMMIT_GRANT || o == QUIET_COMMIT_GRANT)  /* it wakes the executor, which comes last then */
		kit_grant(&k, 16, 64);
	if (o == WAYS_COMMIT_QUIET || o == COMMIT_WAYS_QUIET)
		trainer_quiet(k.t, quiet, &is_quiet);
	if (o == COMMIT_ALONE)
		trainer_pause(k.t);
	sim_run_for(k.sim, 1000000);
	assert_int_equal(is_quiet, stops);
	assert_false(k.broken);
	*ret_applied = k.applied;
	memcpy(ret_digest, k.digest[1], TRAINER_DIGEST);
	kit_close(&k);
}

static void what_was_decided_is_applied(void **state)
{
	static const struct exec_ops ops = { .net = net };
	uint8_t want[TRAINER_DIGEST], got[TRAINER_DIGEST];
	uint64_t applied;

	kit_ops = &ops;
	play(COMMIT_ALONE, &applied, want);
	assert_int_equal(applied, 1);
	for (int o = COMMIT_ALONE + 1; o < ORDERS; o++) {
		play((enum order)o, &applied, got);
		if (applied > 1 || (applied && memcmp(got, want, TRAINER_DIGEST)))
			fail_msg("order %d: epoch %llu, and not what was decided", o, (unsigned long long)applied);
		if (o < WAYS_COMMIT_QUIET)      /* made quiet at once it has no time for it, and nothing of it is there */
			assert_int_equal(applied, 1);
	}
}

/* --- validation of the first stage, which reads; the last one is played */

static uint32_t sent;

static void tells(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
	const struct exec_span *out, uint32_t nout)
{
	static const double said[TALLY] = { 12, 5, 8 };

	for (uint32_t k = 0; k < nout; k++)
		memcpy(out[k].p, said, out[k].bytes);   /* told0 */
	sent += nin;
	exec_done(w, NULL, NULL);
}

static void sits(struct kit *k, uint64_t generation, bool *full)
{
	struct view_member member[3] = { 0 };
	struct trainer_fill fresh = { .values.fresh = true };
	struct view v = trainer_crew_view(k->t);
	struct state *was = NULL;
	bool anew;
	struct err e;

	for (uint32_t i = 0; i < 3; i++)
		member[i] = (struct view_member){ .id = { { (uint8_t)(i + 1) } }, .speed = 1 };
	v.nmembers = 3;
	v.member = member;
	v.redundancy = 2;
	v.generation = generation;
	if (trainer_join(k->t, &v, &anew, &was, &e) < 0)
		fail_msg("%s", e.text);
	trainer_read_over(k->t);
	state_free(was, NULL, NULL);
	*full = !anew;
	if (anew)
		trainer_fill(k->t, &fresh, filled, full);
}

static void nap(struct job *j) { }

/* Its LOADs wait behind others in their lane when a generation is over; the next one begins with a validation, too. */
static void read_for_nobody(void **state)
{
	static const struct exec_ops ops = { .net = tells };
	static struct job busy[64];
	struct kit k;
	bool full, still = false;
	int lane;

	kit_ops = &ops;
	sent = 0;
	kit_open(&k, form, NULL, false);
	sits(&k, 7, &full);
	sim_run_for(k.sim, 1000000);
	assert_true(full);
	lane = env_lane(k.env, "data");
	for (int i = 0; i < 64; i++) {
		busy[i] = (struct job){ .name = "nap", .lane = lane, .run = nap, .done = nap, .cost_us = 1000000 };
		env_work(k.env, &busy[i]);
	}
	trainer_validate(k.t, true);
	sim_run_for(k.sim, 1000);
	assert_int_equal(sent, 0);
	trainer_part_ways(k.t);
	trainer_quiet(k.t, quiet, &still);
	sim_run_for(k.sim, 1000);
	assert_true(still);
	sits(&k, 8, &full);
	trainer_validate(k.t, false);
	trainer_start(k.t);
	sim_run_for(k.sim, 100000000);
	assert_int_equal(sent, 2);              /* of eight samples, four by four */
	assert_int_equal(k.v.samples, 8);
	assert_true(fabs(k.v.loss - 1.5) < 1e-12 && fabs(k.v.accuracy - 0.625) < 1e-12);
	assert_false(k.broken);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_was_decided_is_applied),
		cmocka_unit_test(read_for_nobody) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A trainer on real lanes: the digits, alone, as the demo trains them; snapshots, validation, pause and end while
 * jobs run. */
#include "t.h"
#include <math.h>
#include <unistd.h>
#include "kernels/gemm.h"
#include "loop.h"
#include "train/trainer.h"
#include "work.h"

struct real {
	struct loop *loop; struct env *env; struct spec *spec; struct data *data; struct trainer *t;
	struct team *team; struct par par; struct blas *blas;
	struct timer answer;
	uint64_t epoch, applied, samples, contributed, contributed_epoch, validated;
	const real *x;
	double accuracy, first_loss, last_loss;
	struct snapshot *snap; bool gone, broken, quiet;
	uint64_t goal;
	struct ranges done;
};

static void progress(void *arg, const struct trainer_progress *p)
{
	struct real *r = arg;

	if (p->samples >= r->spec->target_batch)
		env_after(r->env, &r->answer, 0);
}

static void contribute(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed)
{
	struct real *r = arg;

	r->x = x;
	r->contributed = samples;
	r->contributed_epoch = epoch + 1;
	env_after(r->env, &r->answer, 0);
}

static void answer(struct timer *tm)
{
	struct real *r = container_of(tm, struct real, answer);
	struct err e;

	if (r->contributed_epoch != r->epoch + 1) {
		trainer_begin(r->t, r->epoch);
		return;
	}
	r->epoch++;
	if (trainer_commit(r->t, r->epoch, r->x, r->contributed, NULL, &e) < 0)
		fail_msg("commit: %s", e.text);
}

static void regrant(struct real *r)
{
	struct ranges g = { 0 };
	uint64_t end = r->done.n ? r->done.v[r->done.n - 1].hi : 0;

	ranges_add(&g, 0, end + 4096);
	ranges_sub_all(&g, &r->done);
	trainer_grant(r->t, &g);
	ranges_free(&g);
}

static void applied(void *arg, const struct trainer_applied *a)
{
	struct real *r = arg;

	r->applied = a->epoch;
	r->samples += a->samples;
	r->last_loss = a->loss;
	if (a->epoch == 1)
		r->first_loss = a->loss;
	for (size_t i = 0; i < a->claimed->n; i++)      /* nothing is processed twice */
		for (uint64_t p = a->claimed->v[i].lo; p < a->claimed->v[i].hi; p++)
			assert_false(ranges_has(&r->done, p));
	ranges_add_all(&r->done, a->claimed);
	regrant(r);
}

static void validated(void *arg, const struct trainer_validated *v)
{
	struct real *r = arg;

	r->validated++;
	r->accuracy = v->accuracy;
}

static void broken(void *arg, const struct err *e)
{
	print_error("broken: %s\n", e->text);
	((struct real *)arg)->broken = true;
}

static struct spec *read_spec(const char *path)
{
	FILE *f = fopen(path, "r");
	static char text[65536];
	struct spec *s;
	struct err e;
	size_t n;

	assert_non_null(f);
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	s = spec_parse(text, n, &e);
	if (!s)
		fail_msg("%s", e.text);
	return s;
}

static void open_real(struct real *r, struct spec *s, const char *path, int threads)
{
	const struct trainer_cb cb = { .progress = progress, .contribute = contribute, .applied = applied,
		.validated = validated, .broken = broken };
	struct loop_conf lc = { .train_threads = threads, .data_threads = 2 };
	struct trainer_conf conf;
	struct kerr why;
	struct err e;

	memset(r, 0, sizeof(*r));
	r->loop = loop_new(&lc, &e);
	assert_non_null(r->loop);
	r->env = loop_env(r->loop);
	r->spec = s;
	r->data = data_open(r->env->files, path, s, &e);
	if (!r->data)
		fail_msg("%s", e.text);
	r->blas = blas_open(&why);
	r->team = team_new(threads, 0);
	r->par = team_par(r->team, CPU_PLAIN, r->blas);
	r->answer = (struct timer){ .fire = answer };
	conf = (struct trainer_conf){ .env = r->env, .spec = s, .data = r->data, .par = &r->par };
	r->t = trainer_new(&conf, &cb, r, &e);
	if (!r->t)
		fail_msg("%s", e.text);
	trainer_init_params(r->t);
	assert_int_equal(trainer_loaded(r->t, 0, NULL, &e), 0);
	regrant(r);
}

static void gone(void *arg) { ((struct real *)arg)->gone = true; }
static bool is_gone(void *arg) { return ((struct real *)arg)->gone; }
static bool has_snap(void *arg) { return ((struct real *)arg)->snap; }
static bool is_quiet(void *arg) { return ((struct real *)arg)->quiet; }
static bool is_validated(void *arg) { return ((struct real *)arg)->validated > 0; }
static bool reached(void *arg) { struct real *r = arg; return r->broken || r->applied >= r->goal; }
static void now_quiet(void *arg) { ((struct real *)arg)->quiet = true; }
static void snapped(void *arg, struct snapshot *s, const struct err *e) { ((struct real *)arg)->snap = s; }

static void close_real(struct real *r)
{
	env_timer(r->env, &r->answer, 0);
	trainer_free(r->t, gone, r);
	assert_true(loop_run_until(r->loop, is_gone, r, 10000000));
	loop_free(r->loop);
	data_free(r->data);
	spec_free(r->spec);
	team_free(r->team);
	blas_close(r->blas);
	ranges_free(&r->done);
	snapshot_unref(r->snap);
}

static void run_to(struct real *r, uint64_t epoch)
{
	r->goal = epoch;
	if (!loop_run_until(r->loop, reached, r, 60000000) || r->broken)
		fail_msg("stands at epoch %llu of %llu", (unsigned long long)r->applied, (unsigned long long)epoch);
}

static void test_digits(void **state)
{
	struct trainer_view v;
	struct real r;

	open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 1);
	trainer_start(r.t);
	run_to(&r, 30);
	trainer_validate(r.t);
	assert_true(loop_run_until(r.loop, is_validated, &r, 20000000));
	trainer_view(r.t, &v);
	print_message("30 epochs: loss %.3f to %.3f, held out %.1f %%, %.0f samples/s, arena %zu of %zu predicted\n",
		r.first_loss,
		r.last_loss, 100 * r.accuracy, v.rate, (size_t)v.arena_peak_bytes, (size_t)v.arena_predicted_bytes);
	assert_true(r.accuracy > 0.85);
	assert_int_equal(r.samples, 256 * r.applied);
	assert_int_equal(v.arena_peak_bytes, v.arena_predicted_bytes);          /* T5 */
	close_real(&r);
}

/* A snapshot while training goes on is the state at one epoch; training can go back to it. What is not finite is
 * refused. */
static void test_snapshot(void **state)
{
	struct real r;
	size_t bytes;
	void *block;
	struct err e;

	open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 2);
	trainer_start(r.t);
	run_to(&r, 3);
	trainer_snapshot(r.t, snapped, &r);
	assert_true(loop_run_until(r.loop, has_snap, &r, 20000000));
	assert_true(r.snap->epoch >= 3);
	run_to(&r, r.snap->epoch + 2);
	trainer_quiet(r.t, now_quiet, &r);
	assert_true(loop_run_until(r.loop, is_quiet, &r, 20000000));
	block = trainer_state(r.t, &bytes);
	assert_int_equal(bytes, r.snap->bytes);
	assert_memory_not_equal(block, r.snap->data, bytes);
	memcpy(block, r.snap->data, bytes);
	assert_int_equal(trainer_loaded(r.t, r.snap->epoch, NULL, &e), 0);
	r.epoch = r.applied = r.snap->epoch;
	r.contributed_epoch = 0;
	regrant(&r);
	trainer_start(r.t);
	run_to(&r, r.snap->epoch + 3);
	r.quiet = false;
	trainer_quiet(r.t, now_quiet, &r);
	assert_true(loop_run_until(r.loop, is_quiet, &r, 20000000));
	((real *)block)[3] = NAN;
	assert_int_equal(trainer_loaded(r.t, 1, NULL, &e), -1);
	assert_err(e, ERR_NONFINITE, "conv1.weight");
	close_real(&r);
}

/* The end may come at any moment: in a load, a pass, a step, a copy. */
static void test_end(void **state)
{
	for (int i = 0; i < 12; i++) {
		struct real r;

		open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 2);
		trainer_start(r.t);
		trainer_validate(r.t);
		if (i % 3)
			trainer_snapshot(r.t, snapped, &r);
		r.goal = 1000;
		(void)loop_run_until(r.loop, reached, &r, 1 + (uint64_t)i * 1500);
		close_real(&r);
	}
}

/* The loop goes first, as when a daemon ends at once: nothing may run on or be lost. */
static void test_detach(void **state)
{
	struct real r;

	open_real(&r, read_spec(SOURCE_ROOT "/tests/data/digits.json"), SOURCE_ROOT "/tests/data/digits", 1);
	trainer_start(r.t);
	run_to(&r, 2);
	r.env->ops->detach(r.env);
	trainer_free(r.t, gone, &r);
	assert_true(r.gone);
	loop_free(r.loop);
	data_free(r.data);
	spec_free(r.spec);
	team_free(r.team);
	blas_close(r.blas);
	ranges_free(&r.done);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_digits), cmocka_unit_test(test_snapshot), cmocka_unit_test(test_end),
		cmocka_unit_test(test_detach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

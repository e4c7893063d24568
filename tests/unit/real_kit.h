/* For tests of a trainer on real lanes: loop, team, OpenBLAS when it is there, and an averager that is alone. */
#ifndef TESTS_REAL_KIT_H
#define TESTS_REAL_KIT_H
#include "t.h"
#include <math.h>
#include "kernels/gemm.h"
#include "loop/loop.h"
#include "train/trainer.h"
#include "loop/work.h"

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

static inline void progress(void *arg, const struct trainer_progress *p)
{
	struct real *r = arg;

	if (p->samples >= r->spec->target_batch)
		env_after(r->env, &r->answer, 0);
}

static inline void contribute(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed)
{
	struct real *r = arg;

	r->x = x;
	r->contributed = samples;
	r->contributed_epoch = epoch + 1;
	env_after(r->env, &r->answer, 0);
}

static inline void answer(struct timer *tm)
{
	struct real *r = container_of(tm, struct real, answer);
	struct err e;

	if (r->contributed_epoch != r->epoch + 1) {
		trainer_begin(r->t, r->epoch);
		return;
	}
	r->epoch++;
	if (trainer_commit(r->t, r->epoch, r->x, NULL, r->contributed, 0, NULL, &e) < 0)
		fail_msg("commit: %s", e.text);
}

static inline void regrant(struct real *r)
{
	struct ranges g = { 0 };
	uint64_t end = r->done.n ? r->done.v[r->done.n - 1].hi : 0;

	ranges_add(&g, 0, end + 4096);
	ranges_sub_all(&g, &r->done);
	trainer_grant(r->t, &g);
	ranges_free(&g);
}

static inline void applied(void *arg, const struct trainer_applied *a)
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

static inline void validated(void *arg, const struct trainer_validated *v)
{
	struct real *r = arg;

	r->validated++;
	r->accuracy = v->accuracy;
}

static inline void broken(void *arg, const struct err *e)
{
	print_error("broken: %s\n", e->text);
	((struct real *)arg)->broken = true;
}

static inline struct spec *read_spec(const char *path)
{
	FILE *f = fopen(path, "r");
	char text[65536];
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

static inline void open_real(struct real *r, struct spec *s, const char *path, int threads)
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

static inline void gone(void *arg) { ((struct real *)arg)->gone = true; }
static inline bool is_gone(void *arg) { return ((struct real *)arg)->gone; }
static inline bool has_snap(void *arg) { return ((struct real *)arg)->snap; }
static inline bool is_quiet(void *arg) { return ((struct real *)arg)->quiet; }
static inline bool is_validated(void *arg) { return ((struct real *)arg)->validated > 0; }
static inline bool reached(void *arg) { struct real *r = arg; return r->broken || r->applied >= r->goal; }
static inline void now_quiet(void *arg) { ((struct real *)arg)->quiet = true; }
static inline void snapped(void *arg, struct snapshot *s, const struct err *e) { ((struct real *)arg)->snap = s; }

static inline void close_real(struct real *r)
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

static inline void run_to(struct real *r, uint64_t epoch)
{
	r->goal = epoch;
	if (!loop_run_until(r->loop, reached, r, 240000000) || r->broken)
		fail_msg("stands at epoch %llu of %llu", (unsigned long long)r->applied, (unsigned long long)epoch);
}

#endif

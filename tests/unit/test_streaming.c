/* Streaming DiLoCo at the trainer (arXiv 2501.18512): fragments in turn, steps beside a round, against the paper's
 * algorithm in double; in the double build to 1e-12. */
#include "b01_kit.h"

struct stream { int parts, overlap, inner; double mix; };

/* What a peer of the paper's algorithm 2 has, in double: anchor and momentum are everybody's. */
struct outer { double *anchor, *m; size_t n, len; };

static void outer_open(struct outer *o, const struct bare *b, int parts)
{
	o->n = b->n;
	o->len = (b->n + (size_t)parts - 1) / (size_t)parts;
	o->anchor = calloc(b->n, sizeof(*o->anchor));
	o->m = calloc(b->n, sizeof(*o->m));
	for (size_t p = 0; p < b->n; p++)
		o->anchor[p] = b->w[p];
}

static void inner_steps(struct bare *b, struct kit *k, int steps, uint64_t epoch)
{
	for (int s = 0; s < steps; s++) {
		bare_gradient(b, k, trainer_model(k->t), 8);
		bare_step(b, k, b->g, epoch);
	}
}

/* The outer step of fragment f with the mean of d, then every peer takes it. */
static void outer_step(struct outer *o, const struct stream *c, size_t f, const double *d, struct bare *b, int peers)
{
	double mix = c->overlap ? c->mix : 0;

	for (size_t p = f * o->len; p < (f + 1) * o->len && p < o->n; p++) {
		double g = d[p - f * o->len];

		o->m[p] = 0.8 * o->m[p] + g;
		o->anchor[p] -= 0.6 * (g + 0.8 * o->m[p]);
		for (int i = 0; i < peers; i++)
			b[i].w[p] = (real)(mix * (double)b[i].w[p] + (1 - mix) * o->anchor[p]);
	}
}

static void give(struct kit *k, struct bare *b, int peers, struct outer *o, size_t f, double *d, uint64_t epoch)
{
	memset(d, 0, o->len * sizeof(*d));
	for (int i = 0; i < peers; i++) {
		begin(&k[i], epoch);
		for (size_t p = f * o->len; p < (f + 1) * o->len && p < o->n; p++)
			d[p - f * o->len] += (o->anchor[p] - (double)b[i].w[p]) / peers;
	}
}

struct streams { const struct stream *c; struct kit *k; struct bare b[3]; struct outer o; double *d; int each; };

static void streams_open(struct streams *s, const struct stream *c)
{
	char text[200];

	*s = (struct streams){ .c = c, .k = calloc(PEERS, sizeof(*s->k)), .each = c->inner / c->parts };
	(void)snprintf(text, sizeof(text), "\"inner_steps\":%d,\"fragments\":%d,\"overlap\":%d,\"mix\":%g,\"outer_lr\":0.6,"
		"\"outer_momentum\":0.8", c->inner, c->parts, c->overlap, c->mix);
	for (int i = 0; i < 3; i++) {
		open_peer(&s->k[i], ADAMW, "diloco", text, 8);
		bare_open(&s->b[i], &s->k[i], trainer_model(s->k[i].t));
		s->b[i].next = (uint64_t)i * 100000;
		kit_grant(&s->k[i], s->b[i].next, s->b[i].next + 100000);
		trainer_start(s->k[i].t);
	}
	outer_open(&s->o, &s->b[0], c->parts);
	assert_int_equal(trainer_contribution_len(s->k[0].t), s->o.len);
	s->d = calloc(s->o.len, sizeof(*s->d));
}

static void streams_close(struct streams *s)
{
	free(s->d);
	free(s->o.anchor);
	free(s->o.m);
	for (int i = 0; i < 3; i++) {
		bare_close(&s->b[i]);
		kit_close(&s->k[i]);
	}
	free(s->k);
}

/* Steps up to the round; those of the overlap are made already. */
static void up_to_round(struct streams *s, int i, uint64_t e)
{
	int n = s->each - (e ? s->c->overlap : 0);
	struct kit *k = &s->k[i];

	k->granted += (uint64_t)n;
	assert_true(sim_run_until(k->sim, worked, k, 10000000));
	sim_run_for(k->sim, 5000);
	assert_int_equal(k->progress, k->granted);
	inner_steps(&s->b[i], k, n, e);
}

/* The commit comes `early` steps before it is due. */
static void through_round(struct streams *s, int i, uint64_t e, const real *mean, int early)
{
	struct kit *k = &s->k[i];
	struct err err;

	k->granted += (uint64_t)(s->c->overlap - early);
	assert_true(sim_run_until(k->sim, worked, k, 10000000));
	if (trainer_commit(k->t, ++k->epoch, (const void *)mean, NULL, k->contributed, 0, NULL, &err) < 0)
		fail_msg("%s", err.text);
	kit_grant(k, s->b[i].next, s->b[i].next + 1000);        /* what is committed is promised no more */
	k->granted += (uint64_t)early;
	assert_true(sim_run_until(k->sim, worked, k, 10000000));
	assert_int_equal(k->progress, k->granted);
	inner_steps(&s->b[i], k, s->c->overlap, e);
	assert_true(sim_run_until(k->sim, applied, k, 10000000));
	assert_false(k->broken);
	assert_memory_equal(k->digest[e + 1], s->k[0].digest[e + 1], TRAINER_DIGEST);
}

static double off(const real *v, const double *want, size_t n)
{
	double worst = 0;

	for (size_t p = 0; p < n; p++)
		worst = fmax(worst, fabs((double)v[p] - want[p]));
	return worst;
}

/* Commits come `early` micro-batches before they are due: the same vectors whenever they come. */
static void streaming(const struct stream *c, int early)
{
	struct streams s;
	double worst = 0;
	size_t bytes;

	streams_open(&s, c);
	for (uint64_t e = 0; e < 12; e++) {
		size_t f = (size_t)e % (size_t)c->parts;
		real *mean;

		for (int i = 0; i < 3; i++)
			up_to_round(&s, i, e);
		give(s.k, s.b, 3, &s.o, f, s.d, e);
		mean = mean_of(s.k, 3, s.o.len);
		for (int i = 0; i < 3; i++)
			through_round(&s, i, e, mean, early);
		outer_step(&s.o, c, f, s.d, s.b, 3);
		for (int i = 0; i < 3 && !c->overlap; i++) {
			const real *w = trainer_state(s.k[i].t, &bytes);

			for (size_t p = 0; p < s.o.n; p++)
				worst = fmax(worst, fabs((double)w[p] - (double)s.b[i].w[p]));
		}
		free(mean);
	}
	for (int i = 0; i < 3; i++) {                   /* anchor and momentum lie behind the optimizer's state */
		const real *w = trainer_state(s.k[i].t, &bytes), *anchor = w + bytes / sizeof(real) - 2 * s.o.n;

		worst = fmax(worst, fmax(off(anchor, s.o.anchor, s.o.n), off(anchor + s.o.n, s.o.m, s.o.n)));
	}
	print_message("%d fragments, overlap %d, %d early: %.2g from the reference\n", c->parts, c->overlap, early, worst);
	assert_true(worst < (sizeof(real) == sizeof(double) ? 1e-12 : 2e-5));
	streams_close(&s);
}

static void test_streaming(void **state)
{
	streaming(&(struct stream){ 1, 0, 4, 0.5 }, 0);
	streaming(&(struct stream){ 2, 0, 6, 0.5 }, 0);
	streaming(&(struct stream){ 3, 0, 6, 0.5 }, 0);
	streaming(&(struct stream){ 7, 0, 7, 0.5 }, 0);
}

static void test_overlap(void **state)
{
	for (int early = 0; early <= 2; early++) {
		streaming(&(struct stream){ 1, 2, 4, 0.25 }, early);
		streaming(&(struct stream){ 3, 2, 12, 0.5 }, early);
		streaming(&(struct stream){ 2, 2, 6, 0 }, early);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_streaming), cmocka_unit_test(test_overlap) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

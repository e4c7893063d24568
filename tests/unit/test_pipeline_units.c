/* Several pipelines side by side (train/strategy/parts/units.h): for any model, stages, speeds and target batch, shares
 * are an epoch, cuts are the same, the state has its holders, and nothing passes between pipelines but the round. */
#include "pipe_any.h"

struct drawn { struct any a; uint32_t units, widest, spares; struct planner_unit of[PIPE_MAX]; };

static void units_of(struct drawn *d)
{
	struct err e;

	for (uint32_t r = 0; r < d->a.k.n; r++)
		assert_int_equal(d->a.x.strategy->unit(&d->a.x.v, r, &d->of[r], &e), 0);
}

static uint64_t epoch_of(const struct drawn *d)
{
	return (d->a.x.v.target_batch + d->a.k.profile.batch - 1) / d->a.k.profile.batch;
}

static void draw(struct drawn *d, uint64_t seed)
{
	struct any *a = &d->a;
	char stages[200] = "";

	*d = (struct drawn){ .widest = 1 };
	rng_seed(&a->r, seed);
	a->stages = 1 + (uint32_t)up_to(&a->r, 3);
	for (uint32_t s = 0; s < a->stages; s++) {
		a->replicas[s] = up_to(&a->r, 2) ? 1 : 2;
		a->members += a->replicas[s];
		d->widest = a->replicas[s] > d->widest ? a->replicas[s] : d->widest;
		(void)snprintf(stages + strlen(stages), sizeof(stages) - strlen(stages), "%s{'replicas':%u}", s ? "," : "",
			a->replicas[s]);
	}
	d->units = 1 + (uint32_t)up_to(&a->r, PIPE_MAX / a->members > 4 ? 3 : PIPE_MAX / a->members - 1);
	d->spares = (uint32_t)up_to(&a->r, a->members - 1);
	if (d->units * a->members + d->spares > PIPE_MAX)
		d->spares = 0;
	kit_open(&a->k, d->units * a->members + d->spares);
	any_model(a, a->stages + (uint32_t)up_to(&a->r, 9));
	pipe_open(&a->x, &a->k.profile, a->k.n, (uint64_t)a->k.profile.batch * d->units * d->widest +
		up_to(&a->r, 100));
	for (uint32_t r = 0; r < a->k.n; r++)
		a->x.member[r].speed = (double)(1 + up_to(&a->r, 7)) / 4;
	a->x.v.redundancy = 1 + (uint32_t)up_to(&a->r, d->units - 1);
	a->x.v.first = up_to(&a->r, 50);
	pipe_values(&a->x, "{'stages':[%s],'micro_batches':%u}", stages, d->widest + (uint32_t)up_to(&a->r, 6));
	all_plans(&a->k, &a->x);
	units_of(d);
}

static double speed_of(const struct drawn *d, uint32_t unit)
{
	double least = 1e9;

	for (uint32_t r = unit * d->a.members; r < (unit + 1) * d->a.members; r++)
		least = d->a.x.member[r].speed < least ? d->a.x.member[r].speed : least;
	return least;
}

/* One behind the other, together the epoch, in proportion to speed as far as whole micro-batches can be. */
static void shares_are_an_epoch(const struct drawn *d)
{
	uint64_t next = 0;
	double all = 0;
	double most = d->widest == 1 ? 1 : 2 * d->widest;       /* whole turns, and the rest is the last one's */
	bool bound = false;

	for (uint32_t u = 0; u < d->units; u++)
		all += speed_of(d, u);
	for (uint32_t u = 0; u < d->units; u++)
		bound = bound || speed_of(d, u) / all * (double)epoch_of(d) < 2 * d->widest;
	for (uint32_t u = 0; u < d->units; u++) {
		const struct planner_unit *o = &d->of[u * d->a.members];

		assert_int_equal(o->unit, u);
		assert_int_equal(o->first, next);
		assert_true(o->n >= d->widest);
		assert_true(u + 1 == d->units || o->n % d->widest == 0);
		assert_true(bound || fabs((double)o->n - speed_of(d, u) / all * (double)epoch_of(d)) < most);
		for (uint32_t r = 0; r < d->a.members; r++)
			assert_memory_equal(&d->of[u * d->a.members + r], o, sizeof(*o));
		next += o->n;
	}
	assert_int_equal(next, epoch_of(d));
	for (uint32_t r = d->units * d->a.members; r < d->a.k.n; r++) {
		assert_int_equal(d->of[r].unit, PLAN_NO_UNIT);
		assert_int_equal(d->a.k.plan[r].ninstrs, 0);
	}
}

static uint32_t unit_at(const struct drawn *d, uint32_t rank) { return rank / d->a.members; }

static const struct plan_instr *some(const struct plan *p, enum plan_kind kind)
{
	for (uint32_t k = 0; k < p->ninstrs; k++)
		if (p->instr[k].kind == kind)
			return &p->instr[k];
	return NULL;
}

static void cuts_are_the_same(const struct drawn *d)
{
	for (uint32_t r = d->a.members; r < d->units * d->a.members; r++) {
		const struct plan_instr *x = some(&d->a.k.plan[r], PLAN_FWD);
		const struct plan_instr *y = some(&d->a.k.plan[r % d->a.members], PLAN_FWD);

		assert_true(x && y && x->piece[0].a == y->piece[0].a && x->piece[0].b == y->piece[0].b);
	}
}

static void nothing_between(const struct drawn *d)
{
	for (uint32_t r = 0; r < d->units * d->a.members; r++) {
		const struct plan *p = &d->a.k.plan[r];

		for (uint32_t k = 0; k < p->ninstrs; k++)
			if (p->instr[k].kind == PLAN_SEND || p->instr[k].kind == PLAN_RECV)
				assert_int_equal(unit_at(d, p->instr[k].peer), unit_at(d, r));
		for (uint32_t g = 0; g < p->ngroups; g++)
			for (uint32_t m = 0; m < p->group[g].n; m++)
				assert_int_equal(unit_at(d, p->group[g].member[m].peer), unit_at(d, r));
	}
}

/* A stage has its members in all pipelines as holders, and no others where these are enough. */
static void holders(const struct drawn *d)
{
	for (uint32_t r = 0; r < d->units * d->a.members; r++) {
		const struct plan *p = &d->a.k.plan[r];

		for (uint32_t k = 0; k < p->nbufs; k++)
			if (plan_is_state(&p->buf[k])) {
				assert_true(p->buf[k].nholders >= d->a.x.v.redundancy);
				assert_int_equal(p->buf[k].nholders % d->units, 0);
				for (uint32_t h = 0; h < p->buf[k].nholders; h++)
					assert_true(plan_find(&d->a.k.plan[p->buf[k].holder[h]], p->buf[k].name) != PLAN_NONE);
			}
	}
}

static void any_units(void **state)
{
	uint64_t from = any_seed();

	for (uint64_t seed = from; seed < from + 300; seed++) {
		struct drawn d;

		draw(&d, seed);
		shares_are_an_epoch(&d);
		cuts_are_the_same(&d);
		nothing_between(&d);
		holders(&d);
		kit_check(&d.a.k);
		kit_predict(&d.a.k);
		d.a.x.v.begun = true;           /* the round */
		d.a.x.v.samples = 1;
		all_plans(&d.a.k, &d.a.x);
		nothing_between(&d);
		any_close(&d.a);
	}
}

/* Two pipelines of two stages; target batches in micro-batches of one sample. */
static void two(struct kit *k, struct pipe_kit *x, uint64_t target, const char *values)
{
	kit_open(k, 5);
	kit_chain(k, 2, 30, 60, ACT, PARAM);
	pipe_open(x, &k->profile, 5, target);
	pipe_values(x, values);
}

static uint32_t count(const struct pipe_kit *x)
{
	struct planner_unit of;
	struct err e;
	uint32_t most = 0;

	for (uint32_t r = 0; r < x->v.nmembers; r++) {
		assert_int_equal(x->strategy->unit(&x->v, r, &of, &e), 0);
		most = of.unit != PLAN_NO_UNIT && of.unit + 1 > most ? of.unit + 1 : most;
	}
	return most;
}

static void how_many(void **state)
{
	struct pipe_kit x;
	struct kit k;
	struct err e;
	json_t *found;

	two(&k, &x, 8, "{'stages':2}");
	assert_int_equal(count(&x), 2);
	pipe_values(&x, "{'stages':2,'replicas':1}");
	assert_int_equal(count(&x), 1);
	pipe_values(&x, "{'stages':2,'replicas':7}");
	assert_int_equal(count(&x), 2);
	x.v.target_batch = 1;                   /* a second one would have nothing to do */
	assert_int_equal(count(&x), 1);
	x.v.target_batch = 8;
	assert_int_equal(x.strategy->settle(&x.v, &found, &e), 0);
	x.v.values = found;
	x.v.target_batch = 1;                   /* changed while two are there: each makes one, as long as they are */
	assert_int_equal(count(&x), 2);
	json_decref(found);
	kit_close(&k);
	pipe_close(&x);
}

/* A second pipeline with a member that cannot hold its stage: then there is one. */
static void too_small_for_two(void **state)
{
	struct pipe_kit x;
	struct kit k;
	struct err e;
	json_t *found;

	two(&k, &x, 8, "{'stages':2}");
	for (uint32_t r = 0; r < 5; r++)
		x.member[r].memory_bytes = r < 3 ? 1 << 20 : 100;
	assert_int_equal(x.strategy->settle(&x.v, &found, &e), 0);
	x.v.values = found;
	assert_int_equal(count(&x), 1);
	json_decref(found);
	kit_close(&k);
	pipe_close(&x);
}

static void bad_replicas(void **state)
{
	static const char *const bad[] = { "0", "-1", "1.5", "'two'", "100000" };
	struct pipe_kit x;
	struct kit k;
	struct err e;

	two(&k, &x, 8, "{'stages':2}");
	for (int i = 0; i < 5; i++) {
		pipe_values(&x, "{'stages':2,'replicas':%s}", bad[i]);
		assert_int_equal(x.strategy->check(x.values, &e), -1);
		assert_non_null(strstr(e.text, "replicas must be a whole number"));
	}
	kit_close(&k);
	pipe_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_units),
		cmocka_unit_test(how_many),
		cmocka_unit_test(too_small_for_two),
		cmocka_unit_test(bad_replicas),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The planner of row D09 (train/strategy/parts/ways.c): what it chooses is the best of all ways there are, found here
 * by planning and predicting every one of them through the strategy's door alone; it fits, and no member takes more
 * than was said; when none fits, so many bytes are missing as it says. */
#include "pipe_any.h"
#include "train/strategy/parts/seats.h"
#include "train/strategy/parts/ways_int.h"

static const char *const schedules[] = { "1f1b", "gpipe", "naive", "2bw" };

/* Written anew: all that a sample has, so many times. */
static uint64_t scaled(uint64_t x, uint32_t from, uint32_t to) { return (uint64_t)((double)x * to / from + 0.5); }

static struct profile profile_of(const struct profile *m, uint32_t batch)
{
	struct profile p = *m;

	p.batch = batch;
	p.batch_bytes = scaled(m->batch_bytes, m->batch, batch);
	p.label_bytes = scaled(m->label_bytes, m->batch, batch);
	p.op = xmemdup(m->op, m->nops * sizeof(*m->op));
	for (uint32_t o = 0; o < m->nops; o++) {
		p.op[o].out_bytes = scaled(m->op[o].out_bytes, m->batch, batch);
		p.op[o].saved_bytes = scaled(m->op[o].saved_bytes, m->batch, batch);
		p.op[o].variant[0].fwd_us = scaled(m->op[o].variant[0].fwd_us, m->batch, batch);
		p.op[o].variant[0].bwd_us = scaled(m->op[o].variant[0].bwd_us, m->batch, batch);
	}
	return p;
}

/* --- one way, planned and predicted */

struct one { struct any *a; struct view v; struct plan plan[PIPE_MAX]; const struct plan *list[PIPE_MAX]; uint32_t n; };

static void one_plan(struct one *o, uint32_t from, uint32_t n)
{
	const struct plan_results none = { 0, NULL };
	struct err e;

	o->n = n;
	for (uint32_t k = 0; k < n; k++) {
		o->v.me = from + k;
		if (o->a->x.strategy->plan(&o->v, &none, &o->plan[k], &e) < 0)
			fail_msg("%s", e.text);
		o->list[k] = &o->plan[k];
		for (uint32_t b = 0; b < o->plan[k].nbufs; b++)         /* programs before have left it */
			if (!strncmp(o->plan[k].buf[b].name, "acc", 3) && (o->v.samples || o->v.begun))
				o->plan[k].buf[b].initial = true;
	}
}

static void one_free(struct one *o)
{
	for (uint32_t k = 0; k < o->n; k++)
		plan_free(&o->plan[k]);
}

static uint64_t one_us(const struct one *o)
{
	double speed[PIPE_MAX];
	struct predict_conf c = { .profile = o->v.profile, .speed = speed, .link = { o->v.latency_us, o->v.us_per_byte } };
	struct prediction out;
	struct err e;
	uint64_t us;

	for (uint32_t k = 0; k < o->v.nmembers; k++)
		speed[k] = o->v.member[k].speed;
	if (predict(o->list, o->n, &c, &out, &e) < 0 || out.stuck)
		fail_msg("stuck");
	us = out.us;
	prediction_free(&out);
	return us;
}

/* All flushes of one pipeline. */
static uint64_t bodies_us(struct one *o, uint32_t first, uint32_t members)
{
	struct planner_unit share;
	uint64_t us = 0, made = 0, n;
	struct err e;

	assert_int_equal(o->a->x.strategy->unit(&o->v, first, &share, &e), 0);
	for (; made < share.n; made += n) {
		o->v.samples = made * o->v.profile->batch;
		o->v.begun = false;
		o->v.granted = true;
		one_plan(o, first, members);
		n = o->plan[0].step;
		us += one_us(o);
		one_free(o);
	}
	return us;
}

/* What gives to a group is in it. */
static uint64_t round_us(struct one *o, uint32_t members)
{
	uint64_t us;

	o->v.samples = o->v.target_batch;
	o->v.begun = true;
	o->v.granted = false;
	one_plan(o, 0, members);
	for (uint32_t k = 0; k < members; k++) {
		struct plan *p = &o->plan[k];

		for (uint32_t i = 0; i < p->ninstrs; i++) {
			struct plan_instr *x = &p->instr[i];

			if (x->kind != PLAN_SUM || !x->nin || !p->group[x->group].elastic)
				continue;
			p->group[x->group].n = 0;
			for (uint32_t q = 0; q < members; q++)
				for (uint32_t j = 0; j < o->plan[q].ninstrs; j++) {
					const struct plan_instr *y = &o->plan[q].instr[j];

					if (y->kind == PLAN_SUM && y->nin && !strcmp(o->plan[q].group[y->group].name,
							p->group[x->group].name))
						plan_join(p, x->group, q, 0);
				}
		}
	}
	us = one_us(o);
	one_free(o);
	return us;
}

static uint32_t units_of(const json_t *settled)
{
	return (uint32_t)json_integer_value(json_object_get(settled, "units"));
}

/* Of values in which nothing is open. */
static int epoch_us(const struct view *v, double *ret, struct err *e)
{
	const struct view begins = ways_begins(v);
	struct pipe x = { .v = &begins };

	if (seats_find(&x, &begins, e) < 0 || seats_cut(&x, x.units, e) < 0)
		return -1;
	*ret = ways_epoch(&x, e);
	return *ret < 0 ? -1 : 0;
}

/* Time of an epoch; INFINITY: it cannot be. */
static double way_us(struct any *a, const struct way *w, const char *schedule)
{
	struct profile m = profile_of(&a->k.profile, w->batch);
	json_t *values = json_pack("{s:s,s:i,s:i,s:i,s:s}", "schedule", schedule, "stages", (int)w->stages, "replicas",
		(int)w->units, "micro_batch_size", (int)w->batch, "remat", w->remat ? "boundary" : "none"), *settled = NULL;
	struct one o = { .a = a, .v = a->x.v };
	double most = 0;
	struct err e;

	o.v.profile = &m;
	o.v.values = values;
	if (a->x.strategy->settle(&o.v, &settled, &e) < 0 || units_of(settled) != w->units)
		most = INFINITY;
	else if (!strcmp(schedule, "2bw"))
		assert_int_equal(epoch_us(&o.v, &most, &e), 0);
	o.v.values = settled;
	for (uint32_t u = 0; most < INFINITY && strcmp(schedule, "2bw") && u < w->units; u++) {
		double us = (double)bodies_us(&o, u * w->stages, w->stages);

		most = us > most ? us : most;
	}
	if (most < INFINITY && strcmp(schedule, "2bw"))
		most += (double)round_us(&o, w->units * w->stages);
	json_decref(values);
	json_decref(settled);
	profile_free(&m);
	return most;
}

/* Of equally fast ones: fewer stages, fewer pipelines, greater micro-batches, no remat. */
static struct way best_of(struct any *a, const char *schedule, uint32_t most_units, double *ret)
{
	struct way best = { 0 };

	*ret = INFINITY;
	for (uint32_t d = 1; d <= a->members && d <= a->k.profile.nops; d++)
		for (uint32_t w = 1; w * d <= a->members && w <= most_units; w++)
			for (uint32_t b = 1u << 10; b; b /= 2)
				for (int r = 0; r < 2; r++) {
					struct way way = { w, d, b, r };
					double us = b <= a->x.v.target_batch ? way_us(a, &way, schedule) : INFINITY;

					if (us < *ret) {
						*ret = us;
						best = way;
					}
				}
	return best;
}

/* --- any chain, any members */

static void any_open(struct any *a, uint64_t seed)
{
	*a = (struct any){ .members = 0 };
	rng_seed(&a->r, seed);
	a->members = 1 + (uint32_t)up_to(&a->r, 4);
	kit_open(&a->k, a->members);
	any_model(a, 1 + (uint32_t)up_to(&a->r, 6));
	pipe_open(&a->x, &a->k.profile, a->members, 1 + up_to(&a->r, 30));
	a->x.v.us_per_byte = up_to(&a->r, 1) ? (double)up_to(&a->r, 100) / 1000 : 0;
	a->x.v.latency_us = up_to(&a->r, 1) ? up_to(&a->r, 300) : 0;
	a->x.v.redundancy = 1 + (uint32_t)up_to(&a->r, 1);
	a->x.v.fresh = true;
	for (uint32_t k = 0; k < a->members; k++) {
		a->x.member[k].speed = (double)(1 + up_to(&a->r, 3)) / 2;
		a->x.member[k].memory_bytes = up_to(&a->r, 2) ? 10000 + up_to(&a->r, 60000) : 0;
	}
}

static json_int_t chosen(const json_t *settled, const char *key)
{
	return json_integer_value(json_object_get(json_object_get(settled, "chosen"), key));
}

/* Within what each member has, checked and predicted as it would run, and never more than was said of the fullest. */
static void it_fits(struct any *a, const json_t *settled)
{
	struct profile m = profile_of(&a->k.profile, (uint32_t)json_integer_value(json_object_get(settled,
		"micro_batch_size"))), was = a->k.profile;
	uint32_t n = (uint32_t)(chosen(settled, "replicas") * chosen(settled, "stages"));
	struct check_conf c = { .predict.profile = &m };
	const struct plan_results none = { 0, NULL };
	struct prediction out;
	struct view v = a->x.v;
	struct err e;

	v.values = settled;
	v.profile = &m;
	for (v.me = 0; v.me < n; v.me++)
		assert_int_equal(a->x.strategy->plan(&v, &none, &a->k.plan[v.me], &e), 0);
	if (plan_check(a->k.list, n, &c, NULL, &e) < 0 || predict(a->k.list, n, &c.predict, &out, &e) < 0)
		fail_msg("%s", e.text);
	for (uint32_t k = 0; k < n; k++) {
		uint64_t has = a->x.member[k].memory_bytes;

		assert_true(!has || out.peer[k].peak[0] <= has);
		assert_true(!chosen(settled, "memory_bytes") || !has ||
			has - out.peer[k].peak[0] >= (uint64_t)(chosen(settled, "memory_bytes") - chosen(settled, "bytes")));
	}
	prediction_free(&out);
	profile_free(&m);
	a->k.profile = was;
	a->k.conf.profile = &a->k.profile;
}

/* Each member plans by itself from what the spec says, or from what was settled: the same. */
static void same_plans(struct any *a, const json_t *settled)
{
	const struct plan_results none = { 0, NULL };
	struct err e;

	for (uint32_t k = 0; k < a->members; k++) {
		struct view v = a->x.v, w = a->x.v;
		struct plan p, q;

		v.me = w.me = k;
		w.values = settled;
		assert_int_equal(a->x.strategy->plan(&v, &none, &p, &e), 0);
		assert_int_equal(a->x.strategy->plan(&w, &none, &q, &e), 0);
		assert_true(plan_equal(&p, &q));
		plan_free(&p);
		plan_free(&q);
	}
}

static void the_best_of_all(void **state)
{
	uint64_t from = any_seed(), seeds = 60;
	uint32_t none = 0, remat = 0, deep = 0, wide = 0, large = 0;

	for (uint64_t seed = from; seed < from + seeds; seed++) {
		struct any a;
		json_t *settled = NULL;
		struct way best, got;
		struct err e;
		double us;

		any_open(&a, seed);
		const char *schedule = schedules[up_to(&a.r, 3)];
		uint32_t most = up_to(&a.r, 3) ? 1000 : 1 + (uint32_t)up_to(&a.r, 1);
		best = best_of(&a, schedule, most, &us);
		pipe_values(&a.x, "{'schedule':'%s','stages':'auto','micro_batch_size':'auto','remat':'auto','replicas':%u}",
			schedule, most);
		if (a.x.strategy->settle(&a.x.v, &settled, &e) < 0) {
			none++;
			if (us < INFINITY)
				fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
			any_close(&a);
			continue;
		}
		got = (struct way){ (uint32_t)chosen(settled, "replicas"), (uint32_t)chosen(settled, "stages"),
			(uint32_t)chosen(settled, "micro_batch_size"), !strcmp(json_string_value(json_object_get(json_object_get(
			settled, "chosen"), "remat")), "boundary") };
		if (got.units != best.units || got.stages != best.stages || got.batch != best.batch || got.remat != best.remat)
			fail_msg("seed %llu, %s: %u pipelines of %u stages, %u, %d (%g us); best: %u of %u, %u, %d (%g us)",
				(unsigned long long)seed, schedule, got.units, got.stages, got.batch, got.remat,
				way_us(&a, &got, schedule), best.units, best.stages, best.batch, best.remat, us);
		kit_near(json_real_value(json_object_get(json_object_get(settled, "chosen"), "samples_per_s")),
			(double)a.x.v.target_batch * 1e6 / us, 1e-6 * 1e6 / us);
		it_fits(&a, settled);
		same_plans(&a, settled);
		remat += got.remat;
		deep += got.stages > 1;
		wide += got.units > 1;
		large += got.batch > 1;
		json_decref(settled);
		any_close(&a);
	}
	print_message("of %d: none %u, recomputing %u, stages %u, pipelines %u, batches %u\n", (int)seeds, none, remat,
		deep, wide, large);
	assert_true(none < seeds && deep && wide && large);
}

/* --- time of what runs on: no bubble in the middle of an epoch */

static void steady(void **state)
{
	for (uint32_t p = 1; p <= 4; p++) {
		struct kit k;
		struct pipe_kit x;
		struct err e;
		double us;

		kit_open(&k, p);
		kit_chain(&k, p, 30, 60, ACT, PARAM);
		pipe_open(&x, &k.profile, p, 8 * p);
		pipe_values(&x, "{'schedule':'2bw','stages':%u}", p);
		assert_int_equal(epoch_us(&x.v, &us, &e), 0);
		kit_near(us, 8 * p * 90, 1e-9);
		pipe_values(&x, "{'schedule':'1f1b','stages':%u,'micro_batches':%u}", p, 4 * p);
		assert_int_equal(epoch_us(&x.v, &us, &e), 0);
		kit_near(us, 2 * (4 * p + p - 1) * 90, 1e-9);
		kit_close(&k);
		pipe_close(&x);
	}
}

/* --- memory: what helps is taken, and what is missing is missing */

static int auto_settle(struct pipe_kit *x, json_t **settled, struct err *e)
{
	*settled = NULL;
	return x->strategy->settle(&x->v, settled, e);
}

/* Stages of gpipe that keep 8 micro-batches, or their inputs: with the memory of the second alone it recomputes. */
static void recomputes_when_it_must(void **state)
{
	struct kit k;
	struct pipe_kit x;
	struct err e;
	json_t *settled;
	uint64_t plain, again;

	kit_open(&k, 2);
	kit_chain(&k, 8, 30, 60, ACT, PARAM);
	pipe_open(&x, &k.profile, 2, 8);
	pipe_values(&x, "{'schedule':'gpipe','stages':2,'micro_batches':8,'remat':'auto'}");
	assert_int_equal(auto_settle(&x, &settled, &e), 0);
	assert_string_equal(json_string_value(json_object_get(settled, "remat")), "none");
	plain = (uint64_t)chosen(settled, "bytes");
	json_decref(settled);
	for (int r = 0; r < 2; r++)
		x.member[r].memory_bytes = plain - 1;
	assert_int_equal(auto_settle(&x, &settled, &e), 0);
	assert_string_equal(json_string_value(json_object_get(settled, "remat")), "boundary");
	again = (uint64_t)chosen(settled, "bytes");
	assert_true(again < plain && strstr(json_string_value(json_object_get(json_object_get(settled, "chosen"), "text")),
		"1 pipeline of 2 stages, micro-batches of 1, with recomputing: predicted "));
	json_decref(settled);
	kit_close(&k);
	pipe_close(&x);
}

static void says_what_is_missing(void **state)
{
	struct kit k;
	struct pipe_kit x;
	struct err e;
	json_t *settled;
	const char *text;
	unsigned long long lacks;

	kit_open(&k, 4);
	kit_chain(&k, 8, 30, 60, ACT, PARAM);
	pipe_open(&x, &k.profile, 4, 16);
	for (int r = 0; r < 4; r++)
		x.member[r].memory_bytes = 5000;
	pipe_values(&x, "{'stages':'auto','micro_batch_size':'auto','remat':'auto'}");
	assert_int_equal(auto_settle(&x, &settled, &e), -1);
	text = strstr(e.text, "lacks ");
	if (!text || sscanf(text, "lacks %llu bytes", &lacks) != 1 || !strstr(e.text, "none fits"))
		fail_msg("%s", e.text);
	for (int r = 0; r < 4; r++)
		x.member[r].memory_bytes = 5000 + lacks - lacks / 40;
	assert_int_equal(auto_settle(&x, &settled, &e), -1);
	for (int r = 0; r < 4; r++)
		x.member[r].memory_bytes = 5000 + lacks;
	if (auto_settle(&x, &settled, &e) < 0)
		fail_msg("%s", e.text);
	json_decref(settled);
	kit_close(&k);
	pipe_close(&x);
}

/* --- bad input */

static void no(const char *values, uint64_t target, const char *why)
{
	struct kit k;
	struct pipe_kit x;
	struct err e;
	json_t *settled;

	kit_open(&k, 2);
	kit_chain(&k, 2, 30, 60, ACT, PARAM);
	pipe_open(&x, &k.profile, 2, target);
	pipe_values(&x, "%s", values);
	if (x.strategy->check(x.values, &e) == 0 && auto_settle(&x, &settled, &e) == 0)
		fail_msg("taken: %s", values);
	if (!strstr(e.text, why))
		fail_msg("%s: %s", values, e.text);
	kit_close(&k);
	pipe_close(&x);
}

static void refused(void **state)
{
	no("{'stages':'automatic'}", 8, "stages must be a number, or a list of 1 to 256 stages, or \"auto\"");
	no("{'stages':2,'micro_batch_size':'many'}", 8, "micro_batch_size must be a whole number from 1 to 1048576, or");
	no("{'stages':2,'micro_batch_size':0}", 8, "micro_batch_size must be a whole number");
	no("{'stages':2,'remat':'periodic'}", 8, "remat must be one of: none boundary auto");
	no("{'stages':2,'remat':3}", 8, "remat must be one of");
	no("{'stages':2,'replicas':'auto'}", 8, "replicas must be a whole number");
	no("{'stages':3,'remat':'auto'}", 8, "no way to lay a pipeline over them");
	no("{'stages':2,'schedule':'2bw','remat':'auto'}", 1, "2 members and 1 micro-batches");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_best_of_all),
		cmocka_unit_test(steady),
		cmocka_unit_test(recomputes_when_it_must),
		cmocka_unit_test(says_what_is_missing),
		cmocka_unit_test(refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Schedules that run on (row D09): programs of all members, one after the other, on sleep layers. No bubble once the
 * pipeline is full, two versions of the weights, every gradient exactly one step late and of one version on its way
 * there and back; no deadlock for any model, depth, replicas and number of micro-batches, over the borders of programs
 * too. */
#include "pipe_meet.h"

#define ROUNDS 5                        /* epochs; more are under way at no time than one and the next */

/* Of the program of epoch e, when all before went as planned. */
static void plans_of(struct any *a, uint64_t e)
{
	a->x.v.first = e * a->m;
	a->x.v.fresh = e == 0;
	a->x.v.samples = e ? (uint64_t)a->m * a->k.profile.batch : 0;
	all_plans(&a->k, &a->x);
}

static void left_free(struct any *a, struct tokens **left)
{
	for (uint32_t k = 0; k < a->members; k++)
		tokens_free(left[k]);
}

/* --- what a program leaves, it leaves in a plan: plans live as long as what is before the next one */

struct history { struct any *a; struct plan was[PIPE_MAX]; struct tokens *left[PIPE_MAX]; };

static void run_epoch(struct history *h, uint64_t e)
{
	struct any *a = h->a;

	memcpy(h->was, a->k.plan, sizeof(h->was));
	memset(a->k.plan, 0, sizeof(h->was));
	plans_of(a, e);
	meet(a, h->left);
	for (uint32_t k = 0; k < a->members; k++)
		plan_free(&h->was[k]);
}

/* --- figures: equal stages */

static void open_equal(struct any *a, uint32_t p, uint32_t m, uint64_t back)
{
	*a = (struct any){ .stages = p, .members = p, .m = m };
	rng_seed(&a->r, p * 100 + m);
	kit_open(&a->k, p);
	kit_chain(&a->k, p, 30, back, ACT, PARAM);
	pipe_open(&a->x, &a->k.profile, p, m);
	pipe_values(&a->x, "{'schedule':'2bw','stages':%u}", p);
}

/* From the first pass backward of a stage to its last pass it never waits, over the end of the epoch too. Before the
 * first one it does, in front of the last stage, for here all begin at once. */
static void works_throughout(const struct kit *k, uint32_t s, uint64_t us)
{
	uint64_t from = UINT64_MAX, to = 0;

	for (uint32_t i = 0; i < k->out.nspans; i++) {
		const struct predict_span *x = &k->out.span[i];

		if (x->peer != s || (x->kind != PLAN_FWD && x->kind != PLAN_BWD))
			continue;
		if (x->kind == PLAN_BWD)
			from = x->start_us < from ? x->start_us : from;
		to = x->end_us > to ? x->end_us : to;
	}
	if (to - from != us)
		fail_msg("%u stages, stage %u: %llu us for %llu us of passes", k->n, s, (unsigned long long)(to - from),
			(unsigned long long)us);
}

/* In the middle of training: epochs follow each other without a wait. What the round takes is nothing here. */
static void steady(uint32_t p, uint32_t m, uint64_t back)
{
	struct any a;
	struct history h = { .a = &a };

	open_equal(&a, p, m, back);
	for (uint64_t e = 0; e < 2; e++)
		run_epoch(&h, e);
	memcpy(h.was, a.k.plan, sizeof(h.was));
	memset(a.k.plan, 0, sizeof(h.was));
	plans_of(&a, 2);
	a.k.conf.before = (const struct tokens *const *)h.left;
	kit_predict(&a.k);
	for (uint32_t s = 0; s < p; s++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "kept%u", s);
		assert_int_equal(a.k.out.peer[s].ran[PLAN_FWD], m);
		assert_int_equal(a.k.out.peer[s].ran[PLAN_BWD], m);
		assert_int_equal(kit_values(&a.k, s, name), p - s);
		assert_int_equal(a.k.out.peer[s].sent[PLAN_ACTIVATION], s + 1 < p ? (uint64_t)m * ACT : 0);
		assert_int_equal(a.k.out.peer[s].sent[PLAN_ACTIVATION_GRAD], s ? (uint64_t)m * ACT : 0);
	}
	for (uint32_t s = 0; s < p; s++)
		works_throughout(&a.k, s, (uint64_t)m * (30 + back) - 30);
	for (uint32_t s = 0; s < p; s++)
		plan_free(&h.was[s]);
	left_free(&a, h.left);
	any_close(&a);
}

static void no_bubble(void **state)
{
	static const uint64_t back[] = { 30, 60, 50 };

	for (uint32_t p = 1; p <= 6; p++)
		for (uint32_t m = p; m <= 4 * p; m += p)
			for (int k = 0; k < 3; k++)
				steady(p, m, back[k]);
}

/* --- the predictor, of one program behind the other */

#define FOLLOW 4

/* The third of four: as long as its passes, with what it alone has run and sent; and the whole of the first. */
static void one_of(struct any *a, struct plan *was, uint32_t m, uint64_t back)
{
	uint32_t p = a->members;
	struct prediction *of = &a->k.out, one;
	uint64_t first = 0;

	assert_false(prediction_of(of, a->k.list, 0, &one) || prediction_of(of, a->k.list, FOLLOW - 1, &one));
	assert_true(prediction_of(of, a->k.list, 2, &one));
	assert_int_equal(one.us, m * (30 + back));
	for (uint32_t s = 0; s < p; s++) {
		const struct predict_peer *x = &one.peer[s];
		double idle = prediction_idle(&one, s, plan_find_lane(&was[s], "train"), 0, one.us);

		first = of->peer[s].ended[0].finish_us > first ? of->peer[s].ended[0].finish_us : first;
		assert_int_equal(x->ran[PLAN_FWD], m);
		assert_int_equal(x->ran[PLAN_BWD], m);
		assert_int_equal(x->sent[PLAN_ACTIVATION], s + 1 < p ? (uint64_t)m * ACT : 0);
		assert_true(x->bubble == idle && idle == 0);
	}
	assert_int_equal(first, (m + p - 1) * (30 + back));
	prediction_free(&one);
}

static void follow(uint32_t p, uint32_t m, uint64_t back)
{
	struct any a;
	struct plan was[FOLLOW * PIPE_MAX] = { 0 };
	const struct plan *list[FOLLOW * PIPE_MAX];
	struct err e;

	open_equal(&a, p, m, back);
	for (uint64_t r = FOLLOW; r-- > 0; ) {
		plans_of(&a, r);
		for (uint32_t s = 0; s < p && r; s++) {
			was[r * p + s] = a.k.plan[s];
			list[(r - 1) * p + s] = &was[r * p + s];
			a.k.plan[s] = (struct plan){ 0 };
		}
	}
	a.k.conf.nthen = FOLLOW - 1;
	a.k.conf.then = list;
	a.k.conf.spans = true;
	kit_predict(&a.k);
	one_of(&a, a.k.plan, m, back);
	was[p].me++;                            /* another's program */
	prediction_free(&a.k.out);
	assert_int_equal(predict(a.k.list, p, &a.k.conf, &a.k.out, &e), -1);
	assert_non_null(strstr(e.text, "plan of peer 0: program 1, which follows"));
	for (uint32_t k = p; k < FOLLOW * p; k++)
		plan_free(&was[k]);
	any_close(&a);
}

static void one_behind_the_other(void **state)
{
	static const uint64_t back[] = { 30, 60, 50 };

	for (uint32_t p = 1; p <= 6; p++)
		for (uint32_t m = p; m <= 4 * p; m += p)
			for (int k = 0; k < 3; k++)
				follow(p, m, back[k]);
}

/* --- any model, any depth */

static void open_any(struct any *a, uint64_t seed)
{
	char stages[200] = "";
	uint32_t nops;

	*a = (struct any){ .members = 0 };
	rng_seed(&a->r, seed);
	a->stages = 1 + (uint32_t)up_to(&a->r, 4);
	nops = a->stages + (uint32_t)up_to(&a->r, 8);
	for (uint32_t s = 0; s < a->stages; s++) {
		a->replicas[s] = up_to(&a->r, 1) ? 1 : 1 + (uint32_t)up_to(&a->r, 2);
		a->members += a->replicas[s];
		(void)snprintf(stages + strlen(stages), sizeof(stages) - strlen(stages), "%s{'replicas':%u}", s ? "," : "",
			a->replicas[s]);
	}
	a->m = a->members + (uint32_t)up_to(&a->r, 12);
	kit_open(&a->k, a->members);
	any_model(a, nops);
	pipe_open(&a->x, &a->k.profile, a->members, (uint64_t)a->m * a->k.profile.batch);
	a->x.v.redundancy = a->stages > 1 ? 1 + (uint32_t)up_to(&a->r, 1) : 1;
	pipe_values(&a->x, "{'schedule':'2bw','stages':[%s]}", stages);
}

/* The versions of the weights of one member, and which one each micro-batch went forward with. */
struct versions { uint64_t w, before, of[1024]; bool forward[1024], back[1024]; };

static bool reads(const struct plan *p, const struct plan_instr *i, const char *name)
{
	for (uint32_t k = 0; k < i->nin; k++)
		if (p->buf[i->in[k].buf].class == PLAN_WEIGHT && !strncmp(p->buf[i->in[k].buf].name, name, strlen(name)))
			return true;
	return false;
}

static void look(const struct any *a, const struct plan *p, struct versions *v)
{
	for (const struct plan_instr *i = p->instr; i < p->instr + p->ninstrs; i++) {
		uint64_t j = p->first + (uint64_t)i->mb, late = j / a->m ? j / a->m - 1 : 0;
		bool old = reads(p, i, "before"), any = old || reads(p, i, "w");

		if (i->kind == PLAN_VEC && !strcmp(i->fn, "copy") && old + any == 1)
			v->before = v->w;
		if (i->kind == PLAN_VEC && !strcmp(i->fn, "opt") && !strcmp(p->buf[i->out[2].buf].name, "skipped"))
			v->w++;
		if (i->kind == PLAN_FWD) {
			assert_false(v->forward[j]);
			v->forward[j] = true;
			v->of[j] = old ? v->before : v->w;
			if (any)
				assert_int_equal(v->of[j], late);
		} else if (i->kind == PLAN_BWD) {
			assert_true(v->forward[j] && !v->back[j]);
			v->back[j] = true;
			if (any)
				assert_int_equal(old ? v->before : v->w, v->of[j]);
		}
		assert_true(v->w - v->before <= 1);
	}
}

static void all_in_time(void **state)
{
	uint64_t from = any_seed();

	for (uint64_t seed = from; seed < from + 60; seed++) {
		struct any a;
		struct history h = { .a = &a };
		struct versions *v = xcalloc(PIPE_MAX, sizeof(*v));

		open_any(&a, seed);
		for (uint64_t e = 0; e < ROUNDS; e++) {
			run_epoch(&h, e);
			for (uint32_t r = 0; r < a.members; r++)
				look(&a, &a.k.plan[r], &v[r]);
			if (!e)
				kit_check(&a.k);
		}
		for (uint32_t r = 0, s = 0, q = 0; r < a.members; r++, q++) {
			if (q == a.replicas[s]) {
				q = 0;
				s++;
			}
			for (uint64_t j = 0; j < (uint64_t)ROUNDS * a.m; j++)
				assert_int_equal(v[r].back[j], j % a.replicas[s] == q);
		}
		free(v);
		left_free(&a, h.left);
		any_close(&a);
	}
}

/* --- what cannot be */

static void refused(uint32_t members, uint64_t target, const char *values, const char *why)
{
	struct any a;
	struct plan p;
	struct err e;

	a = (struct any){ .stages = members, .members = members };
	kit_open(&a.k, members);
	kit_chain(&a.k, members, 30, 60, ACT, PARAM);
	pipe_open(&a.x, &a.k.profile, members, target);
	pipe_values(&a.x, "%s", values);
	assert_int_equal(pipe_plan(&a.x, 0, &p, &e), -1);
	if (!strstr(e.text, why))
		fail_msg("%s", e.text);
	any_close(&a);
}

static void cannot_be(void **state)
{
	refused(4, 3, "{'schedule':'2bw','stages':4}", "there are 4 members and 3 micro-batches");
	refused(2, 8, "{'schedule':'2bw','stages':2,'micro_batches':4}", "all 8 micro-batches");
	refused(2, 1025, "{'schedule':'2bw','stages':2}", "of 1024 at most");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_bubble),
		cmocka_unit_test(one_behind_the_other),
		cmocka_unit_test(all_in_time),
		cmocka_unit_test(cannot_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

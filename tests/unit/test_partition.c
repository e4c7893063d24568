/* The cuts of a pipeline (train/strategy/parts/partition.c) against all that there are, who holds which stage beside
 * those who train it (parts/keep.c), and what cannot be, refused by name. */
#include "keep_kit.h"

static struct plan_range piece_of(const struct plan *p)
{
	for (uint32_t k = 0; k < p->ninstrs; k++)
		if (p->instr[k].kind == PLAN_FWD)
			return p->instr[k].piece[0];
	fail_msg("member %u has no FWD", p->me);
	return (struct plan_range){ 0, 0 };
}

/* Bytes of the gradient that the last stage, which begins with this op, makes for the first one. */
static double tied_bytes(const struct profile *m, uint32_t from)
{
	uint64_t n = 0;

	for (uint32_t o = from; o < m->nops; o++)
		for (uint32_t k = 0; k < from; k++)
			if (m->op[o].shares == k + 1 && m->op[k].param_lo + m->op[k].param_bytes / sizeof(float) > n)
				n = m->op[k].param_lo + m->op[k].param_bytes / sizeof(float);
	return (double)(n * sizeof(float));
}

/* Written anew from planner and page: the slowest stage, or what it sends, and once an epoch what both ends share. */
static double slowest(const struct any *a, const uint32_t *end)
{
	const struct profile *m = &a->k.profile;
	double most = 0, tied = a->stages > 1 ? tied_bytes(m, end[a->stages - 2]) * a->x.v.us_per_byte / a->m : 0;

	for (uint32_t s = 0, o = 0; s < a->stages; s++) {
		double us = 0, more = s && s + 1 < a->stages ? 0 : tied;
		double sends = (o ? (double)m->op[o - 1].out_bytes : 0) + (end[s] < m->nops ?
			(double)m->op[end[s] - 1].out_bytes : 0);

		for (; o < end[s]; o++)
			us += (double)(m->op[o].variant[0].fwd_us + m->op[o].variant[0].bwd_us);
		us /= a->x.member[s].speed;
		sends *= a->x.v.us_per_byte;
		most = us + more > most ? us + more : most;
		most = sends + more > most ? sends + more : most;
	}
	return most;
}

/* With these cuts given: does the planner take them? */
static bool may_be(struct any *a, const uint32_t *end)
{
	char list[300] = "";
	struct plan p;
	struct err e;
	int rc;

	for (uint32_t s = 0; s < a->stages; s++)
		(void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s{'layers':%u}", s ? "," : "",
			end[s] - (s ? end[s - 1] : 0));
	pipe_values(&a->x, "{'stages':[%s],'micro_batches':%u}", list, a->m);
	rc = pipe_plan(&a->x, 0, &p, &e);
	if (rc == 0)
		plan_free(&p);
	return rc == 0;
}

/* The best of all cuts; INFINITY: none may be. */
static double best_of_all(struct any *a)
{
	uint32_t end[8], n = a->k.profile.nops;
	double best = INFINITY;

	end[a->stages - 1] = n;
	for (uint64_t code = 0; code < 1ull << (n - 1); code++) {
		uint32_t s = 0;

		for (uint32_t o = 1; o < n; o++)
			if (code >> (o - 1) & 1 && s < a->stages - 1)
				end[s++] = o;
		if (s != a->stages - 1 || (uint32_t)__builtin_popcountll(code) != s)
			continue;
		if (slowest(a, end) < best && may_be(a, end))
			best = slowest(a, end);
	}
	return best;
}

static void cut_model(struct any *a, uint64_t seed, bool copies)
{
	*a = (struct any){ .m = 4 };
	rng_seed(&a->r, seed);
	a->stages = a->members = 1 + copies + (uint32_t)up_to(&a->r, 3 - copies);
	kit_open(&a->k, a->members);
	any_model(a, a->stages + (uint32_t)up_to(&a->r, 9 - a->stages));
	pipe_open(&a->x, &a->k.profile, a->members, (uint64_t)a->m * a->k.profile.batch);
	a->x.v.us_per_byte = up_to(&a->r, 1) ? (double)up_to(&a->r, 100) / 1000 : 0;
	for (uint32_t r = 0; r < a->members; r++) {
		a->x.member[r].speed = (double)(1 + up_to(&a->r, 3)) / 2;
		a->x.member[r].memory_bytes = up_to(&a->r, 1 + copies) == 1 ? 0 : (8000 + up_to(&a->r, 40000)) << copies;
	}
	if (copies)     /* all hold for each other, or pairs, or the middle one of three for both */
		a->x.v.redundancy = up_to(&a->r, 1) ? 2 : a->stages;
	for (uint32_t o = 2; o < a->k.profile.nops; o++)
		if (!up_to(&a->r, 9) && !a->k.profile.op[o].param_bytes)
			a->k.profile.op[o].shares = 1 + (uint32_t)up_to(&a->r, o - 1);
}

static bool is_the_best(uint64_t seed, bool copies)
{
	struct any a;
	struct plan p;
	struct err e;
	uint32_t end[8];
	double best;
	bool can;

	cut_model(&a, seed, copies);
	best = best_of_all(&a);
	pipe_values(&a.x, "{'stages':%u,'micro_batches':%u}", a.stages, a.m);
	can = pipe_plan(&a.x, 0, &p, &e) == 0;
	if (can) {
		plan_free(&p);
		all_plans(&a.k, &a.x);
		for (uint32_t s = 0; s < a.stages; s++)
			end[s] = piece_of(&a.k.plan[s]).b + 1;
		if (slowest(&a, end) != best)
			fail_msg("seed %llu: %g us, and %g can be had", (unsigned long long)seed, slowest(&a, end), best);
		kit_check(&a.k);        /* and within the budgets, which stand in the plans */
	} else {
		if (isfinite(best))
			fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
		assert_true(strstr(e.text, "missing") || strstr(e.text, "share parameters"));
	}
	any_close(&a);
	return can;
}

/* Against all cuts there are, with what may not be cut, what does not fit, members and links of all speeds. */
static void cuts_are_the_best(void **state)
{
	uint64_t from = any_seed();
	uint32_t none = 0;

	for (uint64_t seed = from; seed < from + 200; seed++)
		none += !is_the_best(seed, false);
	assert_true(none > 5 && none < 150);
	/* the first stage, or the last one, needs less with all layers that share parameters than with some */
	(void)is_the_best(11733391, false);
	(void)is_the_best(37155562, false);
}

/* The same where members hold each other's state: what one needs depends on where the others are cut. */
static void cuts_with_copies_are_the_best(void **state)
{
	uint64_t from = any_seed();
	uint32_t none = 0;

	for (uint64_t seed = from; seed < from + 200; seed++)
		none += !is_the_best(seed, true);
	assert_true(none > 5 && none < 150);
}

/* Of equally fast ones, that which sends the fewest bytes. */
static void narrow_cuts(void **state)
{
	struct kit k;
	struct pipe_kit x;

	kit_open(&k, 2);
	kit_chain(&k, 7, 10, 20, ACT, PARAM);
	pipe_open(&x, &k.profile, 2, 4);
	k.profile.op[3].variant[0].fwd_us = 200;
	k.profile.op[2].out_bytes = ACT / 2;
	pipe_values(&x, "{'stages':2,'micro_batches':4}");
	all_plans(&k, &x);
	assert_int_equal(piece_of(&k.plan[0]).b, 2);
	k.profile.op[2].out_bytes = 2 * ACT;
	all_plans(&k, &x);
	assert_int_equal(piece_of(&k.plan[0]).b, 3);
	kit_close(&k);
	pipe_close(&x);
}

/* --- refused by name */

static void no(const char *values, struct pipe_kit *x, const char *words)
{
	struct plan p;
	struct err e = { 0 };

	pipe_values(x, "%s", values);
	if (pipe_plan(x, 0, &p, &e) == 0)
		fail_msg("%s was taken", values);
	if (!strstr(e.text, words))
		fail_msg("%s: \"%s\" does not say \"%s\"", values, e.text, words);
}

static void refused(void **state)
{
	struct kit k;
	struct pipe_kit x;

	kit_open(&k, 8);
	kit_chain(&k, 6, 30, 60, ACT, PARAM);
	for (uint32_t o = 0; o < 6; o++)
		(void)snprintf(k.profile.op[o].name, sizeof(k.profile.op[o].name), "layer-%u", o);
	pipe_open(&x, &k.profile, 8, 8);
	no("{}", &x, "stages is missing");
	no("{'stages':0}", &x, "from 1 to 256");
	no("{'stages':'4'}", &x, "a number, or a list");
	no("{'stages':[]}", &x, "a number, or a list");
	no("{'stages':[3]}", &x, "stages[0] must be an object");
	no("{'stages':[{'layer':3}]}", &x, "unknown key \"layer\"");
	no("{'stages':[{'replicas':0}]}", &x, "stages[0].replicas");
	no("{'stages':[{},{'layers':0}]}", &x, "stages[1].layers");
	no("{'stages':[{'layers':3},{}]}", &x, "1 of 2 say their layers");
	no("{'stages':2,'schedule':'zigzag'}", &x, "known: naive gpipe 1f1b");
	no("{'stages':2,'schedule':3}", &x, "must be one of: naive gpipe 1f1b");
	no("{'stages':2,'micro_batches':0}", &x, "from 1 to 1024");
	no("{'stages':9}", &x, "9 stages need 9 members, and there are 8");
	no("{'stages':[{'replicas':8},{}]}", &x, "9 members, and there are 8: more peers, or fewer stages or replicas");
	no("{'stages':7}", &x, "7 stages, and the model has 6 layers");
	no("{'stages':[{'layers':3},{'layers':4}]}", &x, "the model has 6");
	no("{'stages':[{'layers':3},{'layers':2}]}", &x, "goes on with layer-5");
	no("{'stages':[{'layers':'layer-0-layer-9'},{'layers':2}]}", &x, "no layers of this model (layer-0 to layer-5)");
	no("{'stages':[{'layers':'layer-1'},{'layers':2}]}", &x, "begins with layer-1, and layer-0 is the next layer");
	no("{'stages':[{'replicas':4}],'micro_batches':3}", &x, "4 replicas, and a flush 3 micro-batches");
	k.profile.op[5].shares = 2;
	no("{'stages':6}", &x, "6 stages, and the model cannot be cut into so many: layer-1 and layer-5 share parameters, "
		"which are in one stage, or in the first and the last one");
	no("{'stages':[{'layers':1},{'layers':4},{'layers':1}]}", &x, "stage 1 begins or ends between layer-1 and layer-5, "
		"which share parameters");
	k.profile.op[3].shares = 2;
	no("{'stages':4}", &x, "layer-1 and layer-5 share parameters");
	k.profile.op[3].shares = 0;
	x.member[0].memory_bytes = 100000;
	x.member[1].memory_bytes = 20000;
	no("{'stages':2}", &x, "are missing; more stages");
	kit_close(&k);
	pipe_close(&x);
}

/* The least memory of all three members with which six layers can be cut for them: with one byte less they cannot. */
static uint64_t least_memory(struct pipe_kit *x)
{
	uint64_t lo = 1, hi = 1000000;
	struct plan p;
	struct err e;

	while (hi - lo > 1) {
		uint64_t mid = (lo + hi) / 2;

		for (uint32_t r = 0; r < 3; r++)
			x->member[r].memory_bytes = mid;
		if (pipe_plan(x, 0, &p, &e) < 0) {
			lo = mid;
		} else {
			hi = mid;
			plan_free(&p);
		}
	}
	for (uint32_t r = 0; r < 3; r++)
		x->member[r].memory_bytes = hi;
	return hi;
}

/* How many bytes are missing. */
static void missing_bytes(void **state)
{
	struct kit k;
	struct pipe_kit x;
	uint64_t least;

	kit_open(&k, 3);
	kit_chain(&k, 6, 30, 60, ACT, PARAM);
	k.profile.state_vectors = 2;
	pipe_open(&x, &k.profile, 3, 8);
	pipe_values(&x, "{'stages':3,'micro_batches':8}");
	least = least_memory(&x);
	/* two layers: parameters, two vectors of state, their gradient and its sum, what is kept and passed on */
	assert_true(least > 2 * 5 * PARAM && least < 2 * 5 * PARAM + 24 * ACT);
	all_plans(&k, &x);
	kit_check(&k);
	kit_predict(&k);
	for (uint32_t r = 0; r < 3; r++)
		assert_true(k.out.peer[r].peak[0] <= least && k.out.peer[r].peak[0] > least / 2);
	/* in two copies the middle one holds those of both neighbours, too, and takes the sums of their gradients: it has
	 * one layer of its own */
	x.v.redundancy = 2;
	least = least_memory(&x);
	assert_true(least > (6 * 4 + 1) * PARAM && least < (6 * 4 + 1) * PARAM + 24 * ACT);
	all_plans(&k, &x);
	kit_check(&k);
	kit_predict(&k);
	assert_true(k.out.peer[1].peak[0] <= least && k.out.peer[1].peak[0] > least * 3 / 4);
	kit_close(&k);
	pipe_close(&x);
}

/* --- copies */

static void digest_at(struct any *a, uint32_t redundancy, uint8_t ret[32])
{
	a->x.v.redundancy = redundancy;
	all_plans(&a->k, &a->x);
	plan_digest_all(a->k.list, a->members, ret);
}

static bool has_all(struct any *a, uint32_t k)
{
	struct copies c;
	struct plan p;
	struct err e = { 0 };
	char words[80];
	uint64_t bytes = 0;

	a->x.v.redundancy = k;
	copies_of(&c, a);
	if (!hold(&c, a)) {
		(void)snprintf(words, sizeof(words), "redundancy %u needs %u members that hold each stage", k, k);
		assert_int_equal(pipe_plan(&a->x, 0, &p, &e), -1);
		assert_non_null(strstr(e.text, words));
		assert_non_null(strstr(e.text, "more stages or replicas"));
		return false;
	}
	all_plans(&a->k, &a->x);
	kit_check(&a->k);
	for (uint32_t r = 0; r < a->members; r++)
		bytes += has_its_stages(&c, a, r);
	bytes_are(&c, a, bytes);
	begin_round(a);
	kit_check(&a->k);
	kit_predict(&a->k);
	for (uint32_t r = 0; r < a->members; r++) {
		(void)has_its_stages(&c, a, r);
		round_of(&c, a, r);
	}
	a->x.v.begun = false;
	a->x.v.samples = 0;
	return true;
}

static void copies(void **state)
{
	uint64_t from = any_seed();
	uint32_t refused_ones = 0;

	for (uint64_t seed = from; seed < from + 150; seed++) {
		uint8_t none[32], one[32];
		struct any a;

		keep_open(&a, seed, false);
		for (uint32_t k = 1; k <= 4; k++) {
			digest_at(&a, 0, none);
			digest_at(&a, 1, one);
			assert_memory_equal(none, one, 32);
			refused_ones += !has_all(&a, k);
		}
		any_close(&a);
	}
	assert_true(refused_ones > 20 && refused_ones < 400);
}

/* Memory is stated: what is planned fits, with all that is held for others, in flush and round. */
static void copies_fit(void **state)
{
	uint64_t from = any_seed();
	uint32_t none = 0;

	for (uint64_t seed = from; seed < from + 200; seed++) {
		struct any a;
		struct plan p;
		struct err e;

		keep_open(&a, seed, true);
		a.x.v.redundancy = 2 + (uint32_t)up_to(&a.r, 1);
		if (pipe_plan(&a.x, 0, &p, &e) < 0) {
			none++;
			assert_true(strstr(e.text, "are missing; more stages") || strstr(e.text, "more stages or replicas"));
		} else {
			plan_free(&p);
			all_plans(&a.k, &a.x);
			kit_check(&a.k);
			begin_round(&a);
			kit_check(&a.k);
		}
		any_close(&a);
	}
	assert_true(none > 5 && none < 195);
}

/* A neighbour's stage is larger than one's own: found out when the cuts are there, whoever has made them. */
static void larger_neighbour(void **state)
{
	struct kit k;
	struct pipe_kit x;

	kit_open(&k, 2);
	kit_chain(&k, 2, 30, 60, ACT, PARAM);
	k.profile.op[1].param_bytes = 20 * PARAM;
	k.profile.params = 21 * PARAM / 4;
	pipe_open(&x, &k.profile, 2, 4);
	x.v.redundancy = 2;
	x.member[0].memory_bytes = 20 * PARAM;
	no("{'stages':2,'micro_batches':4}", &x, "stage 0 of 2");
	no("{'stages':[{'layers':1},{'layers':1}],'micro_batches':4}", &x, "stage 0 of 2");
	x.member[0].memory_bytes = 60 * PARAM;
	all_plans(&k, &x);
	kit_check(&k);
	kit_close(&k);
	pipe_close(&x);
}

/* A holder that is none: its plan has no such state, or nobody says any more that it has. */
static void a_holder_is_dropped(void **state)
{
	struct kit k;
	struct pipe_kit x;

	kit_open(&k, 3);
	kit_chain(&k, 3, 30, 60, ACT, PARAM);
	pipe_open(&x, &k.profile, 3, 4);
	x.v.redundancy = 2;
	pipe_values(&x, "{'stages':3,'micro_batches':4}");
	all_plans(&k, &x);
	kit_check(&k);
	k.plan[1].buf[plan_find(&k.plan[1], "w2")].initial = false;
	kit_refused(&k, RULE_HOLDERS);
	k.plan[2].buf[plan_find(&k.plan[2], "w2")].holder[0] = 2;
	k.plan[2].buf[plan_find(&k.plan[2], "w2")].nholders = 1;
	kit_refused(&k, RULE_HOLDERS);
	kit_close(&k);
	pipe_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts_are_the_best), cmocka_unit_test(cuts_with_copies_are_the_best),
		cmocka_unit_test(narrow_cuts),
		cmocka_unit_test(refused),
		cmocka_unit_test(missing_bytes),
		cmocka_unit_test(copies),
		cmocka_unit_test(copies_fit),
		cmocka_unit_test(larger_neighbour),
		cmocka_unit_test(a_holder_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

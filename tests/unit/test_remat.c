/* Rows F01 to F03: any valid schedule of passes gives the gradient of the plain one, bit for bit, with running
 * statistics moved once and dropout replayed, in the bytes that were predicted; a schedule that is not valid is refused
 * before it runs, whatever is wrong with it. */
#include "remat_kit.h"

#define MODELS 20
#define EACH 50                         /* schedules of a model: 1000 in all */
#define INVALID 1000

struct result { real *g, *stats; double loss; };

static struct result result_of(const struct bed *b)
{
	return (struct result){ xmemdup(b->g, (b->model->nparam + 1) * sizeof(real)),
		xmemdup(b->stats, (b->model->nbuffer + 1) * sizeof(real)), b->loss };
}

static void result_free(struct result *r)
{
	free(r->g);
	free(r->stats);
}

static void same(const struct bed *b, const struct result *r, const char *what)
{
	if (b->loss != r->loss)
		fail_msg("%s: loss %a and %a", what, b->loss, r->loss);
	for (size_t i = 0; i < b->model->nparam; i++)
		if (memcmp(&b->g[i], &r->g[i], sizeof(real)))
			fail_msg("%s: gradient %zu is %a and %a", what, i, (double)b->g[i], (double)r->g[i]);
	assert_memory_equal(b->stats, r->stats, b->model->nbuffer * sizeof(real));
}

static void plain(struct bed *b, struct result *r)
{
	struct passes s;
	struct plan p;

	memory_passes(&b->profile, 0, (uint32_t)b->model->nops - 1, NULL, &s);
	bed_program(b, &s, &p);
	bed_run(b, &p);
	if (b->broken)
		fail_msg("plain: %s", b->error.text);
	*r = result_of(b);
	plan_free(&p);
	passes_free(&s);
}

/* What is there beside the passes' own bytes all along; from the first BWD on there are g, loss and correct, too. */
static uint64_t beside(const struct bed *b)
{
	return b->model->nparam * sizeof(real) + SAMPLES * b->x_bytes;
}

static bool run_one(struct bed *b, const struct passes *s, const struct result *want, const char *what)
{
	uint64_t kept, peak = passes_peak(s, b->model->nparam * sizeof(real) + 16, &kept);
	struct plan p;

	bed_program(b, s, &p);
	bed_run(b, &p);
	if (b->broken)
		fail_msg("%s: %s", what, b->error.text);
	same(b, want, what);
	assert_int_equal(b->peak, bed_predicted(b, &p));
	if (b->peak != peak + beside(b))
		fail_msg("%s: %llu bytes, and %llu were predicted", what, (unsigned long long)b->peak,
			(unsigned long long)(peak + beside(b)));
	plan_free(&p);
	return passes_forward_ops(s) > (uint32_t)b->model->nops;
}

static void test_random(void **state)
{
	struct rng r;
	int again = 0, drops = 0, moves = 0, sums = 0;
	char what[64];

	rng_seed(&r, 11);
	for (int m = 0; m < MODELS; m++) {
		uint32_t first[BLOCKS + 1];
		struct result want;
		struct bed b;

		bed_random(&b, &r, first);
		plain(&b, &want);
		for (int o = 0; o < b.model->nops; o++) {
			const char *type = b.model->op[o].ops->name;

			drops += !strcmp(type, "dropout") || !strcmp(type, "attention");
			moves += !strcmp(type, "batchnorm");
			sums += !strcmp(type, "add");
		}
		for (int k = 0; k < EACH; k++) {
			struct passes s;

			(void)snprintf(what, sizeof(what), "model %d, schedule %d", m, k);
			draw_schedule(&b, &r, first, &s);
			again += run_one(&b, &s, &want, what);
			passes_free(&s);
		}
		result_free(&want);
		bed_close(&b);
	}
	print_message("%d of %d schedules compute something twice\n", again, MODELS * EACH);
	assert_true(again > 800 && drops > 10 && moves > 5 && sums > 10);
}

/* --- schedules that are not valid */

/* What a schedule may do, written down without a plan: values by the op that they go into. */
struct judge { bool *x, *d, *ran, *back; int *kept; };

static bool judge_fwd(struct judge *j, const struct passes *s, const struct pass *p)
{
	for (uint32_t o = p->a; o <= p->b; o++)
		if (j->ran[o] != p->replay)
			return false;
	if (p->a > 0 && !j->x[p->a])
		return false;
	for (uint32_t o = p->a; o <= p->b; o++)
		j->ran[o] = true;
	if (p->keep == PLAN_KEEP_ALL)
		j->kept[p->a] = (int)p->b;
	j->x[p->b + 1] = true;
	if (p->keep == PLAN_KEEP_NONE && p->a > 0)
		j->x[p->a] = false;
	return true;
}

static bool judge_bwd(struct judge *j, const struct passes *s, const struct pass *p)
{
	if ((p->a > 0 && !j->x[p->a]) || !j->d[p->b + 1] || j->kept[p->a] != (int)p->b)
		return false;
	for (uint32_t o = p->a; o <= p->b; o++) {
		if (j->back[o])
			return false;
		j->back[o] = true;
	}
	j->d[p->b + 1] = false;
	j->d[p->a] = true;
	j->kept[p->a] = -1;
	j->x[p->a] = false;
	return true;
}

static bool judged(const struct passes *s, uint32_t nops)
{
	bool *flags = xcalloc(4 * (size_t)(nops + 2), sizeof(bool));
	struct judge j = { flags, flags + nops + 2, flags + 2 * (nops + 2), flags + 3 * (nops + 2),
		xcalloc(nops + 2, sizeof(int)) };
	bool good = true, turned = false;

	for (uint32_t o = 0; o < nops; o++)
		j.kept[o] = -1;
	for (uint32_t k = 0; k < s->n && good; k++) {
		if (s->v[k].kind == PLAN_BWD && !turned) {
			turned = true;
			good = j.x[nops];
			j.d[nops] = true;
		}
		good = good && (s->v[k].kind == PLAN_FWD ? judge_fwd : judge_bwd)(&j, s, &s->v[k]);
	}
	for (uint32_t o = 0; o < nops; o++)
		good = good && j.back[o];
	free(flags);
	free(j.kept);
	return good;
}

/* One thing is changed. Returns its name. */
static const char *mutate(struct rng *r, struct passes *s, uint32_t nops)
{
	uint32_t k = (uint32_t)rng_below(r, s->n), q = (uint32_t)rng_below(r, s->n);
	struct pass *p = &s->v[k], copy = *p;

	switch (rng_below(r, 7)) {
	case 0:
		memmove(p, p + 1, (--s->n - k) * sizeof(*p));
		return "left out";
	case 1:
		passes_add(s, PLAN_FWD, 0, 0, PLAN_KEEP_NONE, false);
		memmove(&s->v[q + 1], &s->v[q], (s->n - 1 - q) * sizeof(*p));
		s->v[q] = copy;
		return "twice";
	case 2:
		*p = s->v[q];
		s->v[q] = copy;
		return "exchanged";
	case 3:
		p->a = rng_below(r, 2) && p->a < p->b ? p->a + 1 : p->a > 0 ? p->a - 1 : p->a;
		return "another first op";
	case 4:
		p->b = rng_below(r, 2) && p->b > p->a ? p->b - 1 : p->b + 1 < nops ? p->b + 1 : p->b;
		return "another last op";
	case 5:
		p->replay = p->kind == PLAN_FWD && !p->replay;
		return "replay";
	default:
		if (p->kind == PLAN_FWD)
			p->keep = (enum plan_keep)(((int)p->keep + 1 + (int)rng_below(r, 2)) % 3);
		return "keep";
	}
}

static void test_invalid(void **state)
{
	int invalid = 0, valid = 0, seen[PLAN_RULES_COUNT] = { 0 };
	struct rng r;

	rng_seed(&r, 12);
	while (invalid < INVALID) {
		uint32_t first[BLOCKS + 1];
		struct result want;
		struct bed b;

		bed_random(&b, &r, first);
		plain(&b, &want);
		for (int k = 0; k < 100; k++) {
			uint32_t nops = (uint32_t)b.model->nops;
			struct passes s;
			struct plan p;
			const char *how;

			draw_schedule(&b, &r, first, &s);
			how = mutate(&r, &s, nops);
			passes_size(&b.profile, &s);
			bed_program(&b, &s, &p);
			bed_run(&b, &p);
			if (!judged(&s, nops)) {
				enum plan_rule rule;
				const struct plan *one = &p;

				if (!b.broken || b.instructions)
					fail_msg("%s: %llu instructions ran, %s", how, (unsigned long long)b.instructions,
						b.broken ? b.error.text : "to the end");
				assert_err(b.error, b.error.code, "plan refused, ");
				(void)plan_check(&one, 1, NULL, &rule, &b.error);
				seen[rule]++;
				invalid++;
			} else {
				if (b.broken)
					fail_msg("%s is refused: %s", how, b.error.text);
				same(&b, &want, how);
				valid++;
			}
			plan_free(&p);
			passes_free(&s);
		}
		result_free(&want);
		bed_close(&b);
	}
	print_message("%d refused: %d by VALUE, %d by PASSES; %d changed and valid\n", invalid, seen[RULE_VALUE],
		seen[RULE_PASSES], valid);
	assert_true(seen[RULE_VALUE] > 100 && seen[RULE_PASSES] > 100 && valid > 20);
}

/* A byte less than predicted is refused, too. */
static void test_budget(void **state)
{
	struct rng r;

	rng_seed(&r, 13);
	for (int m = 0; m < 10; m++) {
		uint32_t first[BLOCKS + 1];
		struct passes s;
		struct plan p;
		struct bed b;

		bed_random(&b, &r, first);
		draw_schedule(&b, &r, first, &s);
		bed_program(&b, &s, &p);
		plan_tier(&p, "arena", bed_predicted(&b, &p));
		bed_run(&b, &p);
		assert_int_equal(b.broken, 0);
		plan_tier(&p, "arena", b.peak - 1);
		bed_run(&b, &p);
		assert_true(b.broken && !b.instructions);
		assert_err(b.error, ERR_LIMIT, "plan refused, PEAK");
		plan_free(&p);
		passes_free(&s);
		bed_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random), cmocka_unit_test(test_invalid), cmocka_unit_test(test_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Paper plan 6: Rotor. The optimal persistent schedule of a heterogeneous chain under a memory limit, by its dynamic
 * program; F-none, F-c and F-e are a FWD's `keep`, its drop and its saved output. The predicted time must be the
 * program's optimum and the predicted peak must stay within the limit. */
#include "common/rng.h"
#include "plan_kit.h"

#define LMAX 6
#define MMAX 80
#define UNIT 1000       /* bytes of one slot of memory */
#define NEVER 1000000000

/* Ops 0..L, the last is the loss (costs nothing). x[i] enters op i; e[i+1] is what F-e of op i keeps, x[i+1] inside. */
struct chain { int L, M, fwd[LMAX + 2], bwd[LMAX + 2], x[LMAX + 2], e[LMAX + 3]; };
struct table { int cost[MMAX + 1][LMAX + 1][LMAX + 1], cut[MMAX + 1][LMAX + 1][LMAX + 1]; };

static int most(int a, int b)
{
	return a > b ? a : b;
}

/* cost[m][i][j]: forward and backward of ops i..j with m slots, x[i] there and not counted. cut: -1 F-e, k F-c up to
 * k. */
static void solve(const struct chain *c, struct table *t)
{
	for (int m = 0; m <= c->M; m++)
		for (int d = 0; d <= c->L; d++)
			for (int i = 0; i + d <= c->L; i++) {
				int j = i + d, best = NEVER, cut = 0, fwd = 0;
				if (d == 0) {
					int need = c->x[i] + c->x[i + 1] + c->e[i + 1];
					t->cost[m][i][i] = m >= need ? c->fwd[i] + c->bwd[i] : NEVER;
					continue;
				}
				int need = c->x[j + 1] + c->x[i + 1];
				for (int k = i + 1; k < j; k++)
					need = most(need, c->x[j + 1] + c->x[k] + c->x[k + 1]);
				for (int k = i + 1; k <= j && m >= need; k++) {
					fwd += c->fwd[k - 1];
					if (m < c->x[k])
						continue;
					int v = fwd + t->cost[m - c->x[k]][k][j] + t->cost[m][i][k - 1];
					if (v < best) {
						best = v;
						cut = k;
					}
				}
				if (m >= need && m >= c->e[i + 1]) {
					int v = t->cost[m][i][i] + t->cost[m - c->e[i + 1]][i + 1][j];
					if (v < best) {
						best = v;
						cut = -1;
					}
				}
				t->cost[m][i][j] = best < NEVER ? best : NEVER;
				t->cut[m][i][j] = cut;
			}
}

/* x[i] is either its own value or inside e[i]. */
static const char *input(const bool *inside, int i, char *name)
{
	snprintf(name, 16, inside[i] ? "e%d" : "x%d", i);
	return name;
}

static void forward(struct plan *p, const bool *inside, int i, bool drop, bool keep_all, const bool *done)
{
	char name[16];
	struct plan_instr *f = plan_do(p, PLAN_FWD, 0, keep_all ? "%s%s -> save:e%d" : "%s%s -> x%d", input(inside, i,
		name),
		drop ? "!" : "", i + 1);
	plan_piece(f, (uint32_t)i, (uint32_t)i);
	f->keep = keep_all ? PLAN_KEEP_ALL : drop ? PLAN_KEEP_NONE : PLAN_KEEP_INPUT;
	f->replay = done[i];
}

static void emit(struct plan *p, const struct chain *c, const struct table *t, int m, int i, int j, bool *inside,
	bool *done)
{
	char name[16];
	if (i == j || t->cut[m][i][j] < 0) {
		forward(p, inside, i, false, true, done);
		done[i] = true;
		inside[i + 1] = true;
		if (i < j)
			emit(p, c, t, m - c->e[i + 1], i + 1, j, inside, done);
		plan_piece(plan_do(p, PLAN_BWD, 0, "save:e%d! %s d%d! -> d%d", i + 1, input(inside, i, name), i + 1, i),
			(uint32_t)i, (uint32_t)i);
		inside[i + 1] = false;
		return;
	}
	int k = t->cut[m][i][j];
	for (int q = i; q < k; q++) {
		forward(p, inside, q, q > i, false, done);
		done[q] = true;
	}
	emit(p, c, t, m - c->x[k], k, j, inside, done);
	plan_do(p, PLAN_DROP, 0, "x%d", k);
	emit(p, c, t, m, i, k - 1, inside, done);
}

static void plan_rotor(struct plan *p, const struct chain *c, const struct table *t)
{
	bool inside[LMAX + 3] = {false}, done[LMAX + 2] = {false};
	p->tier[0].budget = (uint64_t)c->M * UNIT;
	for (int i = 0; i <= c->L + 1; i++) {
		struct plan_buf b = { .class = i > 0 ? PLAN_ACTIVATION : PLAN_BATCH, .bytes = (uint64_t)c->x[i] * UNIT };
		b.initial = i == 0;
		plan_buf(p, &b, "x%d", i);
		b.initial = i == c->L + 1;
		b.class = PLAN_ACTIVATION_GRAD;
		plan_buf(p, &b, "d%d", i);
		b.initial = false;
		b.class = PLAN_ACTIVATION;
		b.bytes = (uint64_t)c->e[i] * UNIT;
		if (i > 0)
			plan_buf(p, &b, "e%d", i);
	}
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	emit(p, c, t, c->M - c->x[0], 0, c->L, inside, done);
}

static void chain_of(struct rng *r, struct chain *c)
{
	int full = 0, widest = 0;
	*c = (struct chain){ .L = 2 + (int)rng_below(r, 4) };
	for (int i = 0; i < c->L; i++) {
		c->fwd[i] = 1 + (int)rng_below(r, 5);
		c->bwd[i] = 2 * c->fwd[i];
	}
	for (int i = 0; i <= c->L; i++)
		c->x[i] = 1 + (int)rng_below(r, 3);
	for (int i = 1; i <= c->L; i++) {
		c->e[i] = c->x[i] + (int)rng_below(r, 5);
		full += c->e[i];
		widest = most(widest, c->x[i]);
	}
	full += c->x[0] + 2 * most(widest, c->x[0]);
	int least = most(4, full / 3);
	c->M = least + (int)rng_below(r, (uint64_t)(full - least + 1));
}

static void kit_rotor(struct kit *k, const struct chain *c, const struct table *t)
{
	kit_open(k, 1);
	kit_chain(k, (uint32_t)c->L + 1, 0, 0, 0, 0);
	for (int i = 0; i <= c->L; i++)
		k->profile.op[i].variant[0] = (struct profile_variant){ "", (uint64_t)c->fwd[i], (uint64_t)c->bwd[i], 0 };
	plan_init(&k->plan[0], "rotor", 0, 1, k->member);
	plan_rotor(&k->plan[0], c, t);
}

static void time_is_the_optimum_and_memory_holds(void **state)
{
	struct rng r;
	struct table *t = xcalloc(1, sizeof *t);
	int solved = 0, tight = 0;
	rng_seed(&r, 3);
	for (int n = 0; n < 330; n++) {
		struct chain c;
		struct kit k;
		chain_of(&r, &c);
		solve(&c, t);
		if (c.M < c.x[0] || t->cost[c.M - c.x[0]][0][c.L] >= NEVER)
			continue;
		int want = t->cost[c.M - c.x[0]][0][c.L];
		kit_rotor(&k, &c, t);
		kit_check(&k);
		kit_predict(&k);
		assert_int_equal(k.out.us, want);
		assert_true(k.out.peer[0].peak[0] <= (uint64_t)c.M * UNIT);
		solved++;
		/* the same list does not run in less than its own peak */
		tight += k.out.peer[0].peak[0] == (uint64_t)c.M * UNIT;
		k.plan[0].tier[0].budget = k.out.peer[0].peak[0] - 1;
		kit_refused(&k, RULE_PEAK);
		kit_close(&k);
	}
	assert_true(solved > 150);
	assert_true(tight > 30);
	free(t);
}

static void time_falls_with_memory(void **state)
{
	struct table *t = xcalloc(1, sizeof *t);
	struct chain c = { .L = 5, .fwd = { 3, 1, 4, 1, 5 }, .bwd = { 6, 2, 8, 2, 10 }, .x = { 2, 1, 3, 2, 1, 1 },
		.e = { 0, 3, 5, 4, 2, 3 } };
	int last = NEVER, different = 0;
	for (c.M = 6; c.M <= 30; c.M++) {
		solve(&c, t);
		int now = t->cost[c.M - c.x[0]][0][c.L];
		assert_true(now <= last);
		different += now != last;
		last = now;
	}
	assert_int_equal(last, 14 + 28);        /* enough memory: every op once each way */
	assert_true(different > 3);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_is_the_optimum_and_memory_holds),
		cmocka_unit_test(time_falls_with_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

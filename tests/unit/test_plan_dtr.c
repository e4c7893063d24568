/* Paper plan 7: dynamic tensor rematerialization. The list knows nothing of memory; the hooks `pressure` (evict the
 * value with the smallest cost / staleness) and `miss` (compute it again) insert instructions before the one that
 * waits. */
#include "plan_kit.h"

#define NMAX 1024

struct dtr { uint32_t n; bool lru; const struct plan *plan; uint64_t evictions, replays; };

static bool resident(const struct tokens *t, uint32_t a, enum slot_state s)
{
	return tokens_slot(t, 0, a, 0)->state == s;
}

/* Neighbours that would have to be computed again with it: the evicted runs on both sides. */
static uint32_t neighbourhood(const struct tokens *t, uint32_t n, uint32_t i)
{
	uint32_t c = 0;
	for (uint32_t j = i - 1; j > 0 && resident(t, j, SLOT_EVICTED); j--)
		c++;
	for (uint32_t j = i + 1; j <= n && resident(t, j, SLOT_EVICTED); j++)
		c++;
	return c;
}

static void pressure(void *arg, struct tokens *t, struct token_run *waits, uint32_t tier, uint64_t bytes)
{
	struct dtr *d = arg;
	uint32_t best = 0;
	double least = 0;
	uint64_t now = 0;
	for (uint32_t i = 0; i <= d->n; i++)
		now = tokens_slot(t, 0, i, 0)->used > now ? tokens_slot(t, 0, i, 0)->used : now;
	for (uint32_t i = 1; i <= d->n; i++) {
		bool locked = !resident(t, i, SLOT_FULL);
		for (uint32_t k = 0; k < waits->instr->nin; k++)
			locked = locked || waits->instr->in[k].buf == i;
		if (locked)
			continue;
		uint64_t stale = now - tokens_slot(t, 0, i, 0)->used;
		double h = (d->lru ? 1.0 : 1.0 + neighbourhood(t, d->n, i)) / (double)(stale > 0 ? stale : 1);
		if (best == 0 || h < least) {
			best = i;
			least = h;
		}
	}
	if (best == 0)
		return;
	struct plan_ref in = { .buf = best };
	struct plan_instr x = { .kind = PLAN_DROP, .fn = "evict", .lane = plan_find_lane(d->plan, "loop"), .nin = 1,
		.in = &in };
	assert_int_equal(tokens_insert(t, waits, &x, 0), 0);
	d->evictions++;
}

static void miss(void *arg, struct tokens *t, struct token_run *waits, uint32_t input)
{
	struct dtr *d = arg;
	uint32_t i = waits->instr->in[input].buf;
	struct plan_ref in = { .buf = i - 1 }, out = { .buf = i };
	struct plan_range ops = { i - 1, i - 1 };
	struct plan_instr x = { .kind = PLAN_FWD, .lane = plan_find_lane(d->plan, "train"), .nin = 1, .in = &in, .nout = 1,
		.out = &out, .npiece = 1, .piece = &ops, .replay = true };
	assert_int_equal(tokens_insert(t, waits, &x, 0), 0);
	d->replays++;
}

/* N unit operations forward and backward; each backward reads its input and the gradient that came. */
static void plan_chain(struct plan *p, uint32_t n, uint64_t budget)
{
	p->tier[0].budget = budget;
	for (uint32_t i = 0; i <= n; i++)
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 1, .initial = i == 0 }, "a%u", i);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = 1, .depth = 2 }, "g");
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	p->step = n + 1;
	for (uint32_t i = 1; i <= n; i++)
		plan_piece(plan_do(p, PLAN_FWD, 0, "a%u -> a%u", i - 1, i), i - 1, i - 1);
	for (uint32_t i = n; i > 0; i--) {
		plan_piece(plan_do(p, PLAN_BWD, n - i, "a%u%s -> g", i - 1, i < n ? " g=1!" : ""), i - 1, i - 1);
		plan_do(p, PLAN_DROP, 0, "a%u", i);
	}
	for (uint32_t b = 0; b <= n; b++)
		p->buf[b].per = n + 1;
}

static void setup(struct kit *k, struct dtr *d, struct token_hooks *hooks, uint32_t n, uint64_t budget, bool lru)
{
	kit_open(k, 1);
	kit_chain(k, n, 1, 1, 1, 0);
	plan_init(&k->plan[0], "dtr", 0, 1, k->member);
	plan_chain(&k->plan[0], n, budget);
	*d = (struct dtr){ .n = n, .lru = lru, .plan = &k->plan[0] };
	*hooks = (struct token_hooks){ .arg = d, .miss = miss, .pressure = pressure };
	k->conf.hooks = hooks;
}

/* Operations over 2N at a budget of 2 sqrt(N): 1.41, 1.46, 1.49 with the neighbourhood; LRU grows: 1.95, 2.95, 4.94. */
static void operations_at_the_square_root_budget(void **state)
{
	static const struct { uint32_t n, root; bool lru; double want; } row[] = {
		{ 64, 8, false, 1.41 }, { 256, 16, false, 1.46 }, { 1024, 32, false, 1.49 },
		{ 64, 8, true, 1.95 }, { 256, 16, true, 2.95 }, { 1024, 32, true, 4.94 },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct kit k;
		struct dtr d;
		struct token_hooks hooks;
		setup(&k, &d, &hooks, row[i].n, 2 * row[i].root, row[i].lru);
		k.conf.spans = false;
		kit_predict(&k);
		double ops = (double)(k.out.peer[0].ran[PLAN_FWD] + k.out.peer[0].ran[PLAN_BWD]) / (2.0 * row[i].n);
		if (getenv("KIT_SHOW"))
			print_message("N %u %s: %.3f\n", row[i].n, row[i].lru ? "lru" : "e*", ops);
		kit_near(ops, row[i].want, 0.03);
		assert_true(k.out.peer[0].peak[0] <= 2 * row[i].root);
		assert_int_equal(k.out.peer[0].ran[PLAN_FWD], row[i].n + d.replays);
		assert_int_equal(k.out.us, k.out.peer[0].ran[PLAN_FWD] + row[i].n);
		assert_true(d.evictions > 0);
		kit_close(&k);
	}
}

static void enough_memory_needs_no_hooks(void **state)
{
	struct kit k;
	struct dtr d;
	struct token_hooks hooks;
	setup(&k, &d, &hooks, 64, 67, false);
	kit_predict(&k);
	assert_int_equal(d.evictions + d.replays, 0);
	assert_int_equal(k.out.us, 128);
	kit_close(&k);
}

/* A run of evicted values longer than any window is computed again from its beginning. */
static void a_long_run_of_misses(void **state)
{
	struct kit k;
	struct dtr d = { .n = 1500 };
	struct token_hooks hooks = { .arg = &d, .miss = miss };
	struct plan *p = &k.plan[0];
	kit_open(&k, 1);
	plan_init(p, "dtr", 0, 1, k.member);
	d.plan = p;
	for (uint32_t i = 0; i <= d.n; i++)
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 1, .initial = i == 0 }, "a%u", i);
	for (uint32_t i = 1; i <= d.n; i++)
		plan_do(p, PLAN_FWD, 0, "a%u -> a%u", i - 1, i);
	plan_vec(p, 0, "pause", "->");
	plan_vec(p, 0, "use", "a%u", d.n);
	struct tokens *t = tokens_new(p, &hooks, NULL);
	struct token_run *r, *pause;
	while ((pause = tokens_start(t))->number != d.n)
		tokens_end(t, pause, NULL);
	for (uint32_t b = 1; b <= d.n; b++) {
		struct plan_ref in = { .buf = b };
		struct plan_instr x = { .kind = PLAN_DROP, .fn = "evict", .lane = plan_find_lane(p, "loop"), .nin = 1,
			.in = &in };
		assert_int_equal(tokens_insert(t, pause, &x, 0), 0);
	}
	while ((r = tokens_start(t)))
		tokens_end(t, r, NULL);
	assert_int_equal(tokens_used(t, 0), 1);
	tokens_end(t, pause, NULL);
	uint64_t replays = 0;
	while ((r = tokens_start(t))) {
		replays += r->inserted;
		tokens_end(t, r, NULL);
	}
	assert_true(tokens_finished(t));
	assert_int_equal(replays, d.n);
	assert_int_equal(d.replays, d.n);
	tokens_free(t);
	kit_close(&k);
}

/* Too little for any schedule is a clean refusal, not a hang; without hooks the same budget is refused as a peak. */
static void impossible_budgets_are_refused(void **state)
{
	struct kit k;
	struct dtr d;
	struct token_hooks hooks;
	setup(&k, &d, &hooks, 64, 2, false);
	kit_refused(&k, RULE_PEAK);
	kit_close(&k);
	setup(&k, &d, &hooks, 64, 16, false);
	k.conf.hooks = NULL;
	kit_refused(&k, RULE_PEAK);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_at_the_square_root_budget),
		cmocka_unit_test(enough_memory_needs_no_hooks),
		cmocka_unit_test(a_long_run_of_misses),
		cmocka_unit_test(impossible_budgets_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

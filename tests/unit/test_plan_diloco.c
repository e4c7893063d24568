/* Paper plan 14: streaming DiLoCo. H inner steps; each of P fragments is averaged once per H at its own offset, several
 * rounds of disjoint extents under way together, the result mixed in tau steps later, so that no step waits. */
#include "plan_kit.h"

#define H 20
#define PARTS 4
#define PART 40000
#define STEP 3000       /* us of one inner step */

static void fragment(struct plan *p, uint32_t f, uint32_t depth)
{
	char name[32];
	struct plan_buf b = { .class = PLAN_WEIGHT, .bytes = PART, .initial = true };
	uint32_t w = plan_buf(p, &b, "w%u", f);
	plan_extent(p, w, PLAN_FLAT, "", f * PART / 4, (f + 1) * PART / 4);
	b.per = H;
	plan_buf(p, &b, "anchor%u", f);
	b.class = PLAN_OPTIMIZER;
	plan_buf(p, &b, "outer%u", f);
	b.per = 1;
	plan_buf(p, &b, "inner%u", f);
	uint32_t d = plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = PART, .per = H, .depth = depth },
		"delta%u", f);
	plan_extent(p, d, PLAN_FLAT, "", f * PART / 4, (f + 1) * PART / 4);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT_GRAD, .bytes = PART }, "g%u", f);
	snprintf(name, sizeof name, "fragment%u", f);
	uint32_t g = plan_group(p, name, PLAN_OP_MEAN, false, true);
	for (uint32_t k = 0; k < p->nmembers; k++)
		plan_join(p, g, k, 0);
}

/* tau: steps between sending and mixing in. The first H steps run without, so that every mix finds its delta. */
static void inner(struct plan *p, int64_t mb, uint32_t tau, bool mix)
{
	char w[64] = "", g[64] = "", done[64] = "";
	for (uint32_t f = 0; f < PARTS; f++) {
		snprintf(w + strlen(w), sizeof w - strlen(w), " w%u", f);
		snprintf(g + strlen(g), sizeof g - strlen(g), " g%u", f);
		snprintf(done + strlen(done), sizeof done - strlen(done), " w%u' inner%u'", f, f);
	}
	plan_do(p, PLAN_LOAD, mb, "-> x");
	plan_piece(plan_do(p, PLAN_FWD, mb, "x!%s -> save:kept", w), 0, 0);
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept!%s ->%s", w, g), 0, 0);
	for (uint32_t f = 0; f < PARTS; f++)
		plan_vec(p, mb, "opt", "g%u! w%u inner%u -> w%u' inner%u'", f, f, f, f, f);
	for (uint32_t f = 0; f < PARTS; f++) {
		uint32_t at = f * H / PARTS, due = at + tau;
		plan_when(plan_vec(p, mb, "axpy", "w%u' anchor%u -> delta%u", f, f, f), H, at);
		plan_when(plan_coll(p, PLAN_SUM, mb, f, "delta%u -> delta%u", f, f), H, at);
		if (!mix && due >= H)
			continue;
		/* across the period's end everything of the round is one period old */
		uint32_t old = due / H;
		const char *next = old ? "" : "'";
		plan_when(plan_vec(p, mb, "outer", "delta%u=%u! w%u' anchor%u=%u outer%u=%u -> w%u' anchor%u%s outer%u%s",
			f, old, f, f, old, f, old, f, f, next, f, next), H, due % H);
		plan_when(plan_do(p, PLAN_COMMIT, mb, "anchor%u%s outer%u%s", f, next, f, next), H,
			due % H)->scope = PLAN_GROUP;
	}
	plan_do(p, PLAN_COMMIT, mb, "%s", done + 1);
}

static void plan_diloco(struct plan *p, uint32_t tau, uint32_t periods)
{
	plan_buf(p, &(struct plan_buf){ .class = PLAN_BATCH, .bytes = 1000, .depth = 2 }, "x");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = 1000 }, "kept");
	for (uint32_t f = 0; f < PARTS; f++)
		fragment(p, f, 2);
	for (int64_t j = 0; j < H; j++)
		inner(p, j, tau, false);
	plan_section(p, PLAN_BODY);
	p->iterations = (periods - 1) * H;
	inner(p, H, tau, true);
}

static void run(struct kit *k, uint32_t tau, uint32_t periods, double us_per_byte)
{
	kit_open(k, 3);
	kit_chain(k, 1, 1000, 2000, 1000, PARTS * PART);
	k->conf.link = (struct predict_link){ 0, us_per_byte };
	for (uint32_t r = 0; r < k->n; r++) {
		plan_init(&k->plan[r], "diloco", r, k->n, k->member);
		plan_diloco(&k->plan[r], tau, periods);
	}
	kit_check(k);
	kit_predict(k);
	kit_show(k);
}

static void bytes_fall_by_h(void **state)
{
	struct kit k;
	uint32_t periods = 4;
	run(&k, 3, periods, 0);
	/* every fragment once per H steps: 2 (n-1)/n of the model, not H times that; at most one fragment in one round */
	kit_near((double)k.out.peer[0].sent[PLAN_WEIGHT_GRAD], periods * PARTS * (4.0 * PART / 3), 2 * periods * PARTS);
	assert_int_equal(k.out.peer[0].ran[PLAN_SUM], periods * PARTS);
	assert_int_equal(k.out.peer[0].ran[PLAN_FWD], periods * H);
	kit_close(&k);
}

/* A round of 2.5 steps: mixing at once waits, mixing 3 steps later does not. */
static void delay_hides_the_rounds(void **state)
{
	uint32_t periods = 4;
	double us_per_byte = 2.5 * STEP / (4.0 * PART / 3);
	uint64_t pure = (uint64_t)periods * H * STEP;
	struct kit k;
	run(&k, 0, periods, us_per_byte);
	assert_true(k.out.us >= pure + periods * PARTS * 2 * STEP);
	kit_close(&k);
	run(&k, 3, periods, us_per_byte);
	assert_int_equal(k.out.us, pure);
	kit_close(&k);
}

/* Pairs of rounds of one peer that overlap in time; they must be of different fragments. */
static uint32_t overlaps(const struct kit *k)
{
	uint32_t together = 0;
	for (size_t i = 0; i < k->out.nspans; i++)
		for (size_t j = 0; j < k->out.nspans; j++) {
			const struct predict_span *a = &k->out.span[i], *b = &k->out.span[j];
			if (i == j || a->kind != PLAN_SUM || b->kind != PLAN_SUM || a->peer != b->peer ||
				a->start_us > b->start_us || b->start_us >= a->end_us)
				continue;
			assert_int_not_equal(k->plan[0].instr[a->number].group, k->plan[0].instr[b->number].group);
			together++;
		}
	return together;
}

/* Rounds longer than the distance of two offsets are under way together, on disjoint extents, across the period's
 * end. */
static void several_rounds_at_once(void **state)
{
	uint32_t periods = 4;
	uint64_t pure = (uint64_t)periods * H * STEP;
	struct kit k;
	run(&k, 9, periods, 4.5 * STEP / (4.0 * PART / 3));
	assert_int_equal(overlaps(&k), 0);
	kit_near(prediction_idle(&k.out, 0, plan_find_lane(&k.plan[0], "train"), 0, pure), 0, 1e-9);
	kit_close(&k);
	run(&k, 14, periods, 5.5 * STEP / (4.0 * PART / 3));
	assert_true(overlaps(&k) > 10);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_fall_by_h),
		cmocka_unit_test(delay_hides_the_rounds),
		cmocka_unit_test(several_rounds_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

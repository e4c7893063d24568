/* Moshpit's grid on numbers: whatever members, gaps and roles, all hold the exact mean after the last phase; full grids
 * as in the paper; what is refused. */
#include <math.h>
#include <string.h>
#include "t.h"
#include "avg/grid.h"
#include "avg/wire.h"
#include "common/mem.h"
#include "common/rng.h"

#define MOST 200

struct trial { struct grid g; uint64_t w[MOST]; double x[MOST], at[MOST], total, mean; };

/* One phase: every line's players bring what they hold, its natives get the mean. */
static void phase(struct trial *t, const struct grid_plan *p, unsigned k)
{
	double next[MOST];
	struct grid_line l;
	memcpy(next, t->at, sizeof next);
	for (size_t line = 0; line < grid_lines(&t->g, k); line++) {
		double sum = 0;
		if (!grid_line(p, k, line, &l))
			continue;
		assert_true(l.players <= t->g.size[k] && l.natives <= t->g.size[k] && l.owners);
		for (size_t i = 0; i < l.players; i++) {
			assert_true(t->g.stand[l.player[i]] >= GRID_PLAYS);
			sum += (double)l.weight[i] * t->at[l.player[i]];
		}
		for (size_t i = 0; i < l.owners; i++)
			assert_int_equal(t->g.stand[l.owner[i]], GRID_SUMS);
		for (size_t i = 0; i < l.natives; i++) {
			assert_int_equal(grid_line_of(p, k, l.native[i]), line);
			next[l.native[i]] = sum / (double)l.total;
		}
	}
	memcpy(t->at, next, sizeof next);
}

static void fill(struct trial *t, struct rng *rng, size_t n, size_t group)
{
	memset(t, 0, sizeof *t);
	grid_make(n, group, &t->g);
	for (size_t i = 0; i < n; i++) {
		t->w[i] = 1;
		t->x[i] = t->at[i] = rng_unit(rng) - 0.5;
	}
}

static void sum_up(struct trial *t)
{
	t->total = t->mean = 0;
	for (size_t i = 0; i < t->g.n; i++) {
		t->total += (double)t->w[i];
		t->mean += (double)t->w[i] * t->x[i];
	}
	t->mean /= t->total;
}

static double spread(const struct trial *t, double *ret_mean)
{
	double sum = 0, far = 0;
	for (size_t i = 0; i < t->g.n; i++)
		sum += t->at[i] / (double)t->g.n;
	for (size_t i = 0; i < t->g.n; i++)
		far += (t->at[i] - sum) * (t->at[i] - sum) / (double)t->g.n;
	*ret_mean = sum;
	return sqrt(far);
}

/* Eight in groups of two, and M^d for others: the mean is kept in every phase, they come nearer to each other, and in
 * as many phases as there are dimensions, and not before, they are there. */
static void test_full(void **state)
{
	static const struct { size_t n, m, dims; } full[] = { { 8, 2, 3 }, { 27, 3, 3 }, { 16, 4, 2 }, { 64, 4, 3 },
		{ 128, 2, 7 }, { 81, 9, 2 } };
	struct rng rng;
	rng_seed(&rng, 40);
	for (size_t c = 0; c < sizeof full / sizeof *full; c++) {
		struct trial t;
		struct grid_plan p;
		double mean, before;
		fill(&t, &rng, full[c].n, full[c].m);
		sum_up(&t);
		assert_int_equal(t.g.dims, full[c].dims);
		assert_int_equal(grid_cells(&t.g), full[c].n);
		grid_plan_make(&p, &t.g, t.w);
		before = spread(&t, &mean);
		for (unsigned k = 0; k < t.g.dims; k++) {
			phase(&t, &p, k);
			double now = spread(&t, &mean);
			assert_true(fabs(mean - t.mean) < 1e-12);
			assert_true(now <= before + 1e-12);
			assert_true(k + 1 == t.g.dims ? now < 1e-12 : now > 1e-6);
			before = now;
		}
		grid_plan_free(&p);
		grid_free(&t.g);
	}
}

/* Any number of members, with dead, late, clients, helpers without samples. */
static void test_any(void **state)
{
	struct rng rng;
	rng_seed(&rng, 41);
	for (int round = 0; round < 3000; round++) {
		struct trial t;
		struct grid_plan p;
		struct err e;
		size_t n = 2 + rng_below(&rng, MOST - 2), able = rng_below(&rng, n), took = 0;
		fill(&t, &rng, n, 2 + rng_below(&rng, 12));
		uint64_t bad = rng_below(&rng, 100);
		for (size_t i = 0; i < n; i++) {
			t.g.stand[i] = rng_below(&rng, 100) < bad ? (uint8_t)rng_below(&rng, 4) : GRID_SUMS;
			t.g.stand[i] = i == able ? GRID_SUMS : t.g.stand[i];
			t.w[i] = i == able ? 1 + rng_below(&rng, 50) : t.g.stand[i] < GRID_PLAYS ? 0 : rng_below(&rng, 50);
		}
		sum_up(&t);
		if (grid_check(&t.g, t.w, &e))
			fail_msg("%s", e.text);
		grid_plan_make(&p, &t.g, t.w);
		for (unsigned k = 0; k < t.g.dims; k++)
			phase(&t, &p, k);
		for (size_t i = 0; i < n; i++) {
			took += t.g.stand[i] != GRID_GONE;
			if (t.g.stand[i] != GRID_GONE && !(fabs(t.at[i] - t.mean) < 1e-12))
				fail_msg("round %d: member %zu of %zu (stand %u) holds %.9g, the mean is %.9g", round, i, n,
					t.g.stand[i], t.at[i], t.mean);
		}
		assert_true(took);
		grid_plan_free(&p);
		grid_free(&t.g);
	}
}

/* Never longer lines than asked for, never more dimensions than needed, few gaps. */
static void test_sizes(void **state)
{
	for (size_t n = 2; n <= 1024; n++)
		for (size_t group = 2; group <= 256; group += group < 20 ? 1 : 59) {
			struct grid g;
			struct err e;
			size_t fits = 1, dims = 0;
			grid_make(n, group, &g);
			if (grid_check(&g, NULL, &e))
				fail_msg("%zu in groups of %zu: %s", n, group, e.text);
			for (; fits < n; dims++)
				fits *= group;
			assert_int_equal(g.dims, dims);
			for (size_t k = 0; k < g.dims; k++)
				assert_true(g.size[k] <= group && grid_cells(&g) < 2 * n);
			grid_free(&g);
		}
}

static void test_refused(void **state)
{
	struct grid g;
	struct err e;
	uint64_t w[6] = { 1, 1, 1, 1, 1, 1 };
	grid_make(6, 3, &g);
	assert_int_equal(grid_check(&g, w, &e), 0);
	g.cell[2] = g.cell[1];
	assert_int_equal(grid_check(&g, w, &e), -1);
	assert_non_null(strstr(e.text, "member 2 has cell"));
	g.cell[2] = 6;
	assert_int_equal(grid_check(&g, w, &e), -1);
	grid_free(&g);
	grid_make(6, 3, &g);
	g.stand[4] = GRID_TAKES;
	assert_int_equal(grid_check(&g, w, &e), -1);
	assert_non_null(strstr(e.text, "member 4 counts"));
	w[4] = 0;
	assert_int_equal(grid_check(&g, w, &e), 0);
	memset(g.stand, GRID_PLAYS, 6);
	assert_int_equal(grid_check(&g, w, &e), -1);
	assert_non_null(strstr(e.text, "nobody in the grid sums"));
	g.size[0] = 1;
	assert_int_equal(grid_check(&g, w, &e), -1);
	g.size[0] = 256;
	g.size[1] = 255;
	assert_int_equal(grid_check(&g, w, &e), -1);
	assert_non_null(strstr(e.text, "4096 cells"));
	g.dims = 11;
	assert_int_equal(grid_check(&g, w, &e), -1);
	g.dims = 2;
	grid_free(&g);
}

/* ---- bytes ---- */

static void random_bytes(struct rng *rng, uint8_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)rng_u64(rng);
}

static void grid_body(struct body *b, struct rng *rng)
{
	size_t n = 2 + rng_below(rng, 20);
	*b = (struct body){ .what = rng_below(rng, 2) ? BODY_COMMIT : BODY_BEGIN, .len = 100, .n = n, .parts = 1,
		.params = json_object(), .m = xcalloc(n, sizeof *b->m), .part = xcalloc(1, sizeof *b->part) };
	b->part[0].len = 100;
	grid_make(n - (b->what == BODY_COMMIT && n > 2 ? rng_below(rng, 2) : 0), 2 + rng_below(rng, 5), &b->grid);
	for (size_t i = 0; i < n; i++) {
		random_bytes(rng, b->m[i].id.b, 32);
		if (b->what == BODY_COMMIT && i < b->grid.n && rng_below(rng, 2)) {
			b->m[i].samples = 1 + rng_below(rng, 9);
			b->m[i].flags = MATE_IN;
			b->weight += b->m[i].samples;
		} else if (i && i < b->grid.n) {
			b->grid.stand[i] = (uint8_t)rng_below(rng, 4);
		}
	}
	b->lines = b->what == BODY_COMMIT ? grid_lines(&b->grid, (unsigned)b->grid.dims - 1) : 0;
	b->line_hash = xcalloc(b->lines + 1, TREE256);
	random_bytes(rng, b->line_hash, b->lines * TREE256);
}

static void refuse(struct body *b, const char *why)
{
	struct buf p = { 0 };
	struct body c;
	struct err e;
	body_encode(b, &p);
	assert_int_equal(body_decode(&c, p.p, p.len, &e), -1);
	if (!strstr(e.text, why))
		fail_msg("%s, expected: %s", e.text, why);
	buf_free(&p);
}

static void test_bodies(void **state)
{
	struct rng rng;
	size_t valid = 0;
	rng_seed(&rng, 42);
	for (int round = 0; round < 60; round++) {
		struct body b, c;
		struct buf p = { 0 }, q = { 0 };
		struct err e;
		grid_body(&b, &rng);
		body_encode(&b, &p);
		assert_int_equal(p.p[0], 6);
		if (body_decode(&c, p.p, p.len, &e))
			fail_msg("%s", e.text);
		assert_true(grid_same(&c.grid, &b.grid) && c.rows == 1 && c.lines == b.lines);
		assert_memory_equal(c.grid.stand, b.grid.stand, b.grid.n);
		assert_memory_equal(c.line_hash, b.line_hash, b.lines * TREE256);
		body_encode(&c, &q);
		assert_true(p.len == q.len && !memcmp(p.p, q.p, p.len));
		body_free(&c);
		for (size_t n = p.len; n-- > p.len - 3 * b.grid.n - TREE256 * b.lines - 7 - 2 * b.grid.dims;)
			assert_int_equal(body_decode(&c, p.p, n, &e), -1);
		for (int k = 0; k < 300; k++) {
			size_t at = rng_below(&rng, p.len);
			uint8_t was = p.p[at];
			p.p[at] ^= (uint8_t)(1 + rng_below(&rng, 255));
			if (!body_decode(&c, p.p, p.len, &e)) {
				valid++;
				body_free(&c);
			}
			p.p[at] = was;
		}
		b.lines += b.what == BODY_BEGIN;
		if (b.what == BODY_BEGIN)
			refuse(&b, "hashes of 1 lines");
		b.lines -= b.what == BODY_BEGIN;
		b.grid.cell[0] = b.grid.cell[1];
		refuse(&b, "is not there or another's");
		body_free(&b);
		buf_free(&p);
		buf_free(&q);
	}
	assert_true(valid > 1000);
}

static void test_attempt(void **state)
{
	uint64_t samples[4] = { 5, 0, 7, 1 };
	uint16_t owner[2] = { 2, 0 };
	uint8_t stand[4] = { 3, 1, 2, 3 };
	struct attempt a = { .term = 1, .no = 4, .samples = samples, .owner = owner, .n = 4, .parts = 2, .rows = 1,
		.stand = stand }, c;
	struct buf p = { 0 };
	struct err e;
	attempt_encode(&a, &p);
	assert_int_equal(attempt_decode(&c, p.p, p.len, &e), 0);
	assert_true(c.rows == 1 && !c.sub && c.stand && !memcmp(c.stand, stand, 4));
	attempt_free(&c);
	for (size_t n = 0; n < p.len; n++) {
		int rc = attempt_decode(&c, p.p, n, &e);
		assert_int_equal(rc, n == p.len - 6 ? 0 : -1);      /* without its stands it is one of no grid */
		if (!rc) {
			assert_null(c.stand);
			attempt_free(&c);
		}
	}
	buf_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_full), cmocka_unit_test(test_any),
		cmocka_unit_test(test_sizes), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bodies), cmocka_unit_test(test_attempt) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The shapes of rounds: whatever members, links and rows, every element is summed exactly once from every member and
 * comes back to everybody once; mended trees too; neighbours stand in one row; bodies carry rows. */
#include <string.h>
#include "t.h"
#include "avg/rows.h"
#include "avg/topo.h"
#include "avg/tree.h"
#include "avg/wire.h"
#include "common/mem.h"
#include "common/rng.h"

#define MOST 80

struct trial { size_t n, group; double bw[MOST]; uint16_t hint[MOST]; struct topo_view v; };

static void make(struct trial *t, struct rng *rng)
{
	t->n = 1 + rng_below(rng, MOST);
	t->group = 2 + rng_below(rng, 12);
	for (size_t i = 0; i < t->n; i++) {
		uint64_t kind = rng_below(rng, 4);
		t->bw[i] = kind == 0 ? 0 : kind == 1 ? -1 : 1e6 * (1 + (double)rng_below(rng, 1000));
		t->hint[i] = rng_below(rng, 5) ? (uint16_t)rng_below(rng, 1 + t->n / t->group) : NO_ROW;
	}
	t->v = (struct topo_view){ .n = t->n, .bw = t->bw, .len = 1 + rng_below(rng, 100000),
		.min = 1 + rng_below(rng, 500), .group = t->group, .row = rng_below(rng, 2) ? t->hint : NULL };
}

static void to_tree(const struct trial *t, const struct topo_plan *p, struct tree *ret)
{
	*ret = (struct tree){ .n = t->n, .rows = p->rows, .owner = xcalloc(p->cols, sizeof *p->owner) };
	if (p->rows > 1) {
		ret->row = xmemdup(p->row, t->n * sizeof *p->row);
		ret->sub = xcalloc(p->cols * p->rows, sizeof *p->sub);
	}
	for (size_t c = 0; c < p->cols; c++) {
		if (!p->size[c])
			continue;
		if (ret->sub)
			memcpy(ret->sub + ret->parts * p->rows, p->sub + c * p->rows, p->rows * sizeof *p->sub);
		ret->owner[ret->parts++] = p->owner[c];
	}
}

/* Weights w walk up the tree of every part: each arrives at the owner once, and the owner's word at everybody. */
static void holds(const struct tree *t, const uint64_t *w)
{
	uint64_t total = 0;
	struct err e;
	if (tree_check(t, &e))
		fail_msg("%s", e.text);
	for (size_t i = 0; i < t->n; i++)
		total += w[i];
	for (size_t p = 0; p < t->parts; p++) {
		uint64_t at[MOST] = { 0 };
		size_t sent = 0;
		for (unsigned depth = 2; depth > 0; depth--)
			for (size_t i = 0; i < t->n; i++) {
				if (tree_depth(t, p, i) != depth)
					continue;
				assert_int_equal(at[i] + w[i], tree_weight(t, p, i, w));
				assert_true(at[i] == 0 || tree_sums(t, p, i));
				at[tree_up(t, p, i)] += at[i] + w[i];
				sent++;
			}
		assert_int_equal(sent, t->n - 1);
		assert_int_equal(at[t->owner[p]] + w[t->owner[p]], total);
		assert_int_equal(tree_weight(t, p, t->owner[p], w), total);
		assert_true(tree_depth(t, p, t->owner[p]) == 0 && tree_sums(t, p, t->owner[p]));
	}
}

static void weights(struct rng *rng, size_t n, uint64_t *w)
{
	for (size_t i = 0; i < n; i++)
		w[i] = rng_below(rng, 3) ? rng_below(rng, 1000) : 0;
}

static void test_plans(void **state)
{
	static const char *const names[] = { "flat", "two_level" };
	struct rng rng;
	size_t planned = 0;
	rng_seed(&rng, 11);
	for (int round = 0; round < 4000; round++) {
		struct trial t;
		struct topo_plan p;
		struct tree tree;
		uint64_t w[MOST], sum = 0;
		size_t rows[MOST] = { 0 };
		make(&t, &rng);
		if (topo_find(names[round % 2])->plan(&t.v, &p)) {
			for (size_t i = 0; i < t.n; i++)
				assert_true(t.bw[i] == 0);
			continue;
		}
		planned++;
		to_tree(&t, &p, &tree);
		weights(&rng, t.n, w);
		holds(&tree, w);
		for (size_t c = 0; c < p.cols; c++) {
			sum += p.size[c];
			assert_true(!p.size[c] || p.size[c] >= t.v.min || p.size[c] == t.v.len);
			assert_true(!p.size[c] || t.bw[p.owner[c]] != 0);
			for (size_t r = 0; p.size[c] && p.sub && r < p.rows; r++)
				assert_true(t.bw[p.sub[c * p.rows + r]] != 0);
		}
		assert_int_equal(sum, t.v.len);
		for (size_t i = 0; p.row && i < t.n; i++)
			assert_true(++rows[p.row[i]] <= t.group);
		for (size_t r = 0; p.row && r < p.rows; r++)
			assert_true(rows[r] > 0);
		topo_plan_free(&p);
		tree_free(&tree);
	}
	assert_true(planned > 3000);
}

/* Whoever goes, one after the other: no tree has a summer who is gone, or one who cannot. */
static void test_mend(void **state)
{
	struct rng rng;
	rng_seed(&rng, 12);
	for (int round = 0; round < 1500; round++) {
		struct trial t;
		struct topo_plan p;
		struct tree tree, old = { 0 };
		uint64_t w[MOST];
		bool gone[MOST] = { 0 }, able[MOST];
		uint64_t len[MOST];
		make(&t, &rng);
		for (size_t i = 0; i < MOST; i++)
			len[i] = 1 + rng_below(&rng, 1000);
		if (topo_find(round % 4 ? "two_level" : "flat")->plan(&t.v, &p))
			continue;
		to_tree(&t, &p, &tree);
		size_t left = 0, last = rng_below(&rng, t.n);
		for (size_t i = 0; i < t.n; i++)
			left += able[i] = t.bw[i] != 0;
		while (left > 1) {
			bool lost[MOST] = { 0 };
			size_t die = rng_below(&rng, t.n);
			if (gone[die] || die == last)
				break;
			gone[die] = true;
			left -= able[die];
			tree_copy(&old, &tree);
			tree_mend(&tree, len, gone, able, last, lost);
			weights(&rng, t.n, w);
			holds(&tree, w);
			assert_int_equal(lost[die], tree_reduces(&old, die));
			for (size_t i = 0; i < t.n; i++)
				if (tree_reduces(&tree, i))
					assert_true(!gone[i] && able[i]);
		}
		tree_free(&old);
		tree_free(&tree);
		topo_plan_free(&p);
	}
}

/* ---- rows of neighbours ---- */

static size_t far_pairs(const uint16_t *row, const int *place, size_t n)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			k += row[i] == row[j] && place[i] != place[j];
	return k;
}

/* Places of members 100 ms from each other, 1 ms inside, in any order, many of the distances unknown: no row spans two
 * places. */
static void test_neighbours(void **state)
{
	static const size_t sizes[][3] = { { 8, 8, 0 }, { 6, 10, 0 }, { 5, 5, 5 }, { 3, 12, 0 }, { 4, 9, 7 } };
	struct rng rng;
	rng_seed(&rng, 13);
	for (int round = 0; round < 300; round++) {
		const size_t *size = sizes[round % 5];
		size_t n = size[0] + size[1] + size[2];
		int place[24];
		uint32_t *rtt = xcalloc(n * n, sizeof *rtt);
		uint16_t row[24];
		for (size_t i = 0; i < n; i++)
			place[i] = i < size[0] ? 0 : i < size[0] + size[1] ? 1 : 2;
		for (size_t i = n; i-- > 1;) {
			size_t k = rng_below(&rng, i + 1);
			int x = place[i];
			place[i] = place[k];
			place[k] = x;
		}
		for (size_t i = 0; i < n; i++)
			for (size_t j = 0; j < n; j++)
				if (rng_below(&rng, 4) || i == 0)
					rtt[i * n + j] = (place[i] == place[j] ? 900 : 98000) + (uint32_t)rng_below(&rng, 400);
		size_t rows = rows_of(n, 8, rtt, row);
		assert_true(rows >= (n + 7) / 8 && rows <= 2 * ((n + 7) / 8));
		assert_int_equal(far_pairs(row, place, n), 0);
		for (size_t r = 0; r < rows; r++) {
			size_t k = 0;
			for (size_t i = 0; i < n; i++)
				k += row[i] == r;
			assert_true(k > 0 && k <= 8);
		}
		free(rtt);
	}
}

/* Everybody alone somewhere, or nothing known: rows of equal length all the same. */
static void test_no_neighbours(void **state)
{
	uint32_t rtt[20 * 20] = { 0 };
	uint16_t row[20];
	assert_int_equal(rows_of(20, 6, rtt, row), 4);
	for (size_t i = 0; i < 20; i++)
		assert_int_equal(row[i], i * 4 / 20);
	for (size_t i = 0; i < 400; i++)
		rtt[i] = (uint32_t)(3000u << (i % 20 + i / 20) % 9);
	size_t rows = rows_of(20, 6, rtt, row);
	assert_true(rows >= 4 && rows <= 8);
}

/* Who was in a row stays there; newcomers fill up; rows that have grown too long are made anew. */
static void test_kept(void **state)
{
	uint16_t hint[7] = { 1, NO_ROW, 0, 1, NO_ROW, 0, 1 }, row[7];
	assert_int_equal(rows_kept(7, 4, hint, row), 2);
	assert_true(row[0] == row[3] && row[3] == row[6] && row[2] == row[5] && row[0] != row[2]);
	size_t first = 0;
	for (size_t i = 0; i < 7; i++)
		first += row[i] == row[0];
	assert_true(first == 3 || first == 4);
	for (size_t i = 0; i < 7; i++)
		hint[i] = (uint16_t)(40000 + i);        /* nonsense from elsewhere */
	assert_int_equal(rows_kept(7, 4, hint, row), 2);
}

/* ---- bytes ---- */

static void rows_body(struct body *b, struct rng *rng)
{
	struct trial t;
	struct topo_plan p;
	do {
		make(&t, rng);
		t.v.min = 1;
	} while (t.n <= t.group || topo_find("two_level")->plan(&t.v, &p));
	*b = (struct body){ .what = rng_below(rng, 2) ? BODY_COMMIT : BODY_BEGIN, .epoch = 8, .len = t.v.len,
		.params = json_object(), .n = t.n, .rows = p.rows, .row = p.row };
	b->m = xcalloc(b->n, sizeof *b->m);
	for (size_t i = 0; i < b->n; i++)
		b->m[i].id.b[0] = (uint8_t)(i + 1);
	b->part = xcalloc(p.cols + 1, sizeof *b->part);
	b->sub = xcalloc(p.cols * p.rows + 1, sizeof *b->sub);
	uint64_t at = 0;
	for (size_t c = 0; c < p.cols; c++) {
		if (!p.size[c])
			continue;
		memcpy(b->sub + b->parts * p.rows, p.sub + c * p.rows, p.rows * sizeof *b->sub);
		b->part[b->parts++] = (struct wire_part){ .owner = p.owner[c], .off = at, .len = p.size[c] };
		at += p.size[c];
	}
	p.row = NULL;
	topo_plan_free(&p);
}

static void test_bodies(void **state)
{
	struct rng rng;
	size_t valid = 0;
	rng_seed(&rng, 14);
	for (int round = 0; round < 60; round++) {
		struct body b, c;
		struct buf p = { 0 }, q = { 0 };
		struct err e;
		rows_body(&b, &rng);
		body_encode(&b, &p);
		assert_int_equal(p.p[0], 5);
		assert_int_equal(body_decode(&c, p.p, p.len, &e), 0);
		assert_int_equal(c.rows, b.rows);
		assert_memory_equal(c.row, b.row, b.n * sizeof *b.row);
		assert_memory_equal(c.sub, b.sub, b.parts * b.rows * sizeof *b.sub);
		body_encode(&c, &q);
		assert_true(p.len == q.len && !memcmp(p.p, q.p, p.len));
		body_free(&c);
		for (size_t n = p.len; n-- > p.len - 2 * (2 * b.n + b.parts * b.rows) - 3;)
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
		for (size_t i = 0; i < b.n; i++)        /* a sub of another row */
			if (b.row[i] != b.row[b.sub[0]] && i != b.part[0].owner && b.sub[0] != b.part[0].owner) {
				b.sub[0] = (uint16_t)i;
				buf_clear(&p);
				body_encode(&b, &p);
				assert_int_equal(body_decode(&c, p.p, p.len, &e), -1);
				assert_non_null(strstr(e.text, "neither in that row"));
				break;
			}
		body_free(&b);
		buf_free(&p);
		buf_free(&q);
	}
	assert_true(valid > 1000);
}

static void test_attempt(void **state)
{
	uint64_t samples[4] = { 5, 0, 7, 1 };
	uint16_t owner[2] = { 2, 0 }, sub[4] = { 0, 2, 0, 3 };
	struct attempt a = { .term = 1, .no = 4, .samples = samples, .owner = owner, .n = 4, .parts = 2, .rows = 2,
		.sub = sub }, c;
	struct buf p = { 0 };
	struct err e;
	attempt_encode(&a, &p);
	assert_int_equal(attempt_decode(&c, p.p, p.len, &e), 0);
	assert_true(c.rows == 2 && c.sub[1] == 2 && c.sub[3] == 3);
	attempt_free(&c);
	for (size_t n = 0; n < p.len; n++) {
		int rc = attempt_decode(&c, p.p, n, &e);
		assert_int_equal(rc, n == p.len - 10 ? 0 : -1);     /* without its rows it is a flat one */
		if (!rc) {
			assert_true(c.rows == 1 && !c.sub);
			attempt_free(&c);
		}
	}
	sub[0] = 4;
	buf_clear(&p);
	attempt_encode(&a, &p);
	assert_int_equal(attempt_decode(&c, p.p, p.len, &e), -1);
	buf_free(&p);
}

static void test_names(void **state)
{
	char names[80];
	assert_string_equal(topo_names(names, sizeof names), "auto flat two_level moshpit");
	assert_null(topo_find("ring"));
	assert_null(topo_find(NULL));
	assert_ptr_equal(topo_auto(64, 64, false), topo_find("flat"));
	assert_ptr_equal(topo_auto(65, 64, false), topo_find("two_level"));
	assert_ptr_equal(topo_auto(65, 64, true), topo_find("flat"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plans), cmocka_unit_test(test_mend), cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_no_neighbours), cmocka_unit_test(test_kept), cmocka_unit_test(test_bodies),
		cmocka_unit_test(test_attempt), cmocka_unit_test(test_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Where values of a piece lie: pool_place gives each block what the rule says, however they come; the lowest tensor of
 * a cut is the lowest there is. */
#include "t.h"
#include <stdlib.h>
#include "common/rng.h"
#include "kernels/piece.h"

#define MOST 80

/* The rule as it is written down: the largest that is left, at the lowest place where nothing lives meanwhile. */
static size_t by_the_rule(struct block *v, int n)
{
	bool placed[MOST] = { false };
	size_t peak = 0;

	for (;;) {
		int big = -1;
		bool again = true;

		for (int i = 0; i < n; i++)
			if (!placed[i] && v[i].bytes && (big < 0 || v[i].bytes > v[big].bytes))
				big = i;
		if (big < 0)
			return peak;
		for (v[big].offset = 0; again; ) {
			again = false;
			for (int k = 0; k < n; k++)
				if (placed[k] && v[k].begin <= v[big].end && v[big].begin <= v[k].end &&
				    v[k].offset < v[big].offset + v[big].bytes && v[big].offset < v[k].offset + v[k].bytes) {
					v[big].offset = v[k].offset + v[k].bytes;
					again = true;
				}
		}
		placed[big] = true;
		peak = v[big].offset + v[big].bytes > peak ? v[big].offset + v[big].bytes : peak;
	}
}

/* Forward (0), backward (1), or in no order; some that are nowhere between them, some that live long. */
static int draw(struct rng *r, uint64_t order, struct block *v)
{
	int n = (int)rng_below(r, MOST), at = order == 1 ? MOST : 0;

	for (int i = 0; i < n; i++) {
		int op = order > 1 ? (int)rng_below(r, MOST) : at, life = (int)rng_below(r, rng_below(r, 10) ? 4 : MOST);

		v[i] = (struct block){ .bytes = 64 * rng_below(r, 6), .begin = order == 1 ? op - life : op, .end = order == 1 ?
			op : op + life };
		if (!v[i].bytes)
			v[i].begin = v[i].end = 0;
		at += order == 1 ? -(int)rng_below(r, 2) : (int)rng_below(r, 2);
	}
	return n;
}

static void test_places(void **state)
{
	struct rng r;

	rng_seed(&r, 5);
	for (int k = 0; k < 30000; k++) {
		struct block a[MOST], b[MOST];
		int n = draw(&r, (uint64_t)k % 3, a);
		size_t want;

		memcpy(b, a, sizeof(a));
		want = by_the_rule(a, n);
		if (pool_place(b, n) != want)
			fail_msg("pool %d has another size than %zu", k, want);
		for (int i = 0; i < n; i++)
			if (a[i].offset != b[i].offset)
				fail_msg("pool %d: block %d lies at %zu, and not at %zu", k, i, b[i].offset, a[i].offset);
	}
}

/* A chain with values that go past: add reads a drawn one of those before. */
static void test_cuts(void **state)
{
	struct rng r;

	rng_seed(&r, 6);
	for (int k = 0; k < 300; k++) {
		const struct shape in = { .nd = 1, .d = { 4 } };
		struct layer_desc desc[40] = { { 0 } };
		char name[40][8];
		const char *input[40][2];
		int n = 1 + (int)rng_below(&r, 40);
		struct kerr e;
		struct model *m;

		for (int i = 0; i < n; i++) {
			bool add = i && rng_below(&r, 3) == 0;

			(void)snprintf(name[i], sizeof(name[i]), "l%d", i);
			desc[i] = (struct layer_desc){ .type = add ? "add" : "tanh", .name = name[i], .ninputs = add ? 2 : 0,
				.input = input[i] };
			input[i][0] = i ? name[i - 1] : NULL;
			input[i][1] = i ? name[rng_below(&r, (uint64_t)i)] : NULL;
		}
		m = model_new(&in, desc, n, NULL, &e);
		if (!m)
			fail_msg("%s", e.text);
		for (int cut = 0; cut <= n; cut++) {
			int low = 0, values = 0;

			while (!cut_has(m, cut, low))
				low++;
			assert_int_equal(cut_low(m, cut), low);
			for (int t = 0; t <= cut; t++)
				values += cut_has(m, cut, t);
			assert_int_equal(model_cut_values(m, cut), values);
			assert_int_equal(cut_bytes(m, cut, 16), (size_t)values * 64 * sizeof(real));
			assert_int_equal(cut_offset(m, cut, cut, 16), (size_t)(values - 1) * 64 * sizeof(real));
		}
		(void)model_free(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_places), cmocka_unit_test(test_cuts) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

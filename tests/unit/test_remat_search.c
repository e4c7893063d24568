/* The search for segments against everything there is: on drawn models, stated ones and real ones, each number of
 * segments is laid out and walked through as a schedule, and the search must find exactly those that are worth it; what
 * it makes of stated bytes is what a look at all of them makes of them. How much it looks at is counted. */
#include "remat_kit.h"
#include <math.h>
#include <time.h>

/* --- stated models: a chain whose pieces need what is drawn here, and count who asks */

struct made {
	struct profile p;
	uint64_t *flow, *saved;         /* before each op and behind the last; saved: of all ops before */
	uint64_t salt, asked;
	bool wild;                      /* a piece needs anything, and not what its ops do together */
	uint64_t work;
};

static uint64_t drawn(const struct made *d, uint32_t a, uint32_t b, uint64_t what, uint64_t below)
{
	struct rng r;

	rng_seed(&r, d->salt + ((uint64_t)a << 40) + ((uint64_t)b << 20) + what);
	return rng_below(&r, below);
}

static void made_need(void *arg, uint32_t batch, uint32_t a, uint32_t b, struct piece_need *ret)
{
	struct made *d = arg;

	d->asked++;
	*ret = (struct piece_need){ .x = d->flow[a], .y = d->flow[b + 1], .saved = d->saved[b + 1] - d->saved[a] };
	for (uint32_t i = a; i < b; i++)
		ret->saved += d->flow[i + 1];
	ret->work_fwd = ret->work_eval = ret->work_bwd = d->work * (b - a + 1);
	if (!d->wild)
		return;
	ret->saved = drawn(d, a, b, 1, 5000);
	ret->work_fwd = drawn(d, a, b, 2, 3000);
	ret->work_bwd = drawn(d, a, b, 3, 3000);
	ret->work_eval = drawn(d, a, b, 4, 3000);
}

static void made_open(struct made *d, uint32_t nops, uint64_t salt)
{
	*d = (struct made){ .salt = salt, .p = { .nops = nops, .batch = 1, .need = made_need } };
	d->p.need_arg = d;
	d->p.op = xcalloc(nops, sizeof(*d->p.op));
	d->flow = xcalloc((size_t)nops + 1, sizeof(*d->flow));
	d->saved = xcalloc((size_t)nops + 1, sizeof(*d->saved));
}

static void made_close(struct made *d)
{
	profile_free(&d->p);
	free(d->flow);
	free(d->saved);
}

/* Sizes of every kind, places where nothing may be cut, blocks with several ways, an op that is larger than all. */
static void made_small(struct made *d, struct rng *r, uint64_t salt)
{
	uint32_t nops = 1 + (uint32_t)rng_below(r, 30), kind = (uint32_t)rng_below(r, 4);
	uint32_t big = (uint32_t)rng_below(r, nops);
	bool ways = rng_below(r, 2);

	made_open(d, nops, salt);
	d->wild = kind == 3;
	d->work = rng_below(r, 3) * 100;
	d->p.params = rng_below(r, 2) * rng_below(r, 2000);
	d->p.stats_bytes = rng_below(r, 2) * 12;
	for (uint32_t i = 0; i <= nops; i++)
		d->flow[i] = kind == 0 ? 256 : 1 + rng_below(r, 2000);
	for (uint32_t i = 0; i < nops; i++) {
		struct profile_op *o = &d->p.op[i];

		d->saved[i + 1] = d->saved[i] + (kind == 0 ? 64 : rng_below(r, kind == 2 && i == big ? 50000 : 1500));
		o->param_bytes = rng_below(r, 3) ? 4 : 0;
		o->flows = ways && rng_below(r, 3) == 0 ? 2 : 1;
		o->goes_on = i && rng_below(r, 5) == 0;
	}
}

/* --- everything there is */

static uint64_t walked(const struct profile *p, const struct memory_pass *how, uint32_t k)
{
	struct memory_pass so = *how;
	struct passes s;
	uint64_t peak, kept;

	so.segments = k;
	memory_passes(p, 0, p->nops - 1, &so, &s);
	peak = passes_peak(&s, memory_beside(p), &kept);
	passes_free(&s);
	return peak;
}

/* Returns how many choices there were. */
static uint32_t compare(const struct profile *p, const char *policy, const char *what)
{
	const struct memory_pass how = { .ops = memory_find(policy) };
	uint32_t units = memory_units(p, 0, p->nops - 1, &how), at = 0;
	uint64_t lowest = UINT64_MAX;
	struct memory_front f;

	memory_search(p, &how, &f);
	for (uint32_t k = 1; k <= units; k++) {
		uint64_t peak = walked(p, &how, k);

		if (peak >= lowest)
			continue;
		if (at == f.n || f.v[at].segments != k || f.v[at].peak != peak)
			fail_msg("%s, %s: %u segments take %llu bytes, and the search has %u with %llu", what, policy, k,
				(unsigned long long)peak, at < f.n ? f.v[at].segments : 0,
				(unsigned long long)(at < f.n ? f.v[at].peak : 0));
		lowest = peak;
		at++;
	}
	if (at != f.n)
		fail_msg("%s, %s: %u choices, and there are %u", what, policy, f.n, at);
	free(f.v);
	return at;
}

static void test_stated(void **state)
{
	uint32_t choices = 0, one = 0;
	struct rng r;

	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct made d;
		char what[40];
		uint32_t n;

		rng_seed(&r, seed);
		made_small(&d, &r, seed << 8);
		(void)snprintf(what, sizeof(what), "seed %llu", (unsigned long long)seed);
		n = compare(&d.p, "periodic", what);
		choices += n;
		one += n == 1;
		choices += compare(&d.p, "boundary", what);
		made_close(&d);
	}
	print_message("%u choices, in %u models one alone\n", choices, one);
	assert_true(choices > 4000 && one > 10 && one < 500);
}

/* The kernels' own needs: linear layers of drawn widths, dropout, norms, values that go past. */
static void test_real(void **state)
{
	uint32_t choices = 0;
	struct rng r;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct buf t = { 0 };
		int n, last = -1;
		char what[40];
		struct bed b;

		rng_seed(&r, seed);
		n = 4 + (int)rng_below(&r, 20);
		buf_printf(&t, "[{\"type\":\"linear\",\"out\":8,\"name\":\"l0\"}");
		for (int i = 1; i < n; i++)
			switch (rng_below(&r, 5)) {
			case 0: buf_printf(&t, ",{\"type\":\"tanh\"}"); break;
			case 1: buf_printf(&t, ",{\"type\":\"dropout\",\"p\":0.5}"); break;
			case 2: buf_printf(&t, ",{\"type\":\"layernorm\"},{\"type\":\"relu\"}"); break;
			case 3:
				buf_printf(&t, ",{\"type\":\"linear\",\"out\":%d},{\"type\":\"linear\",\"out\":8,\"name\":\"l%d\"}",
					1 + (int)rng_below(&r, 90), i);
				last = i;
				break;
			default:
				buf_printf(&t, last < 0 ? ",{\"type\":\"sigmoid\"}" : ",{\"type\":\"linear\",\"out\":8,\"name\":"
					"\"s%d\"},{\"type\":\"add\",\"inputs\":[\"s%d\",\"l%d\"]}", i, i, last);
			}
		buf_printf(&t, ",{\"type\":\"linear\",\"out\":3}]");
		buf_u8(&t, 0);
		bed_open(&b, "[5]", (const char *)t.p);
		(void)snprintf(what, sizeof(what), "seed %llu", (unsigned long long)seed);
		choices += compare(&b.profile, "periodic", what);
		choices += compare(&b.profile, "boundary", what);
		bed_close(&b);
		buf_free(&t);
	}
	print_message("%u choices\n", choices);
	assert_true(choices > 800);
}

/* --- stated bytes */

struct takes { const struct profile *p; struct memory_pass how; uint64_t rest, least; uint32_t asked; };

static uint64_t takes(void *arg)
{
	struct takes *t = arg;
	uint64_t n = walked(t->p, &t->how, t->how.segments) + t->rest;

	t->asked++;
	return n > t->least ? n : t->least;     /* a round, say, that takes more than passes do */
}

static void settle_all(struct takes *t, uint64_t seed)
{
	uint32_t units = memory_units(t->p, 0, t->p->nops - 1, &t->how), n = 0;
	uint64_t *all = xcalloc((size_t)units + 1, sizeof(*all));

	for (t->how.segments = 1; t->how.segments <= units; t->how.segments++)
		all[t->how.segments] = takes(t);
	t->how.segments = 7;
	for (uint32_t k = 1; k <= 2 * units; k++) {     /* as many bytes as each takes, and one fewer */
		uint64_t most = all[(k + 1) / 2] - (k % 2 == 0);
		uint32_t want = 1, least = 1;
		struct memory_found f;
		bool fit;

		while (want <= units && all[want] > most)
			want++;
		for (uint32_t i = 2; i <= units; i++)
			least = all[i] < all[least] ? i : least;
		t->asked = 0;
		fit = memory_fewest(t->p, &t->how, most, takes, t, &f);
		if (fit != (want <= units) || f.bytes != all[fit ? want : least] || (fit && f.segments != want))
			fail_msg("seed %llu: %llu bytes are allowed, %u segments take %llu, and %u take %llu",
				(unsigned long long)seed, (unsigned long long)most, f.segments, (unsigned long long)f.bytes,
				fit ? want : least, (unsigned long long)all[fit ? want : least]);
		assert_int_equal(all[f.segments], f.bytes);
		assert_int_equal(t->how.segments, 7);
		n = t->asked > n ? t->asked : n;
	}
	assert_in_range(n, 1, 4 + (uint32_t)log2(units));
	free(all);
}

static void test_settled(void **state)
{
	struct rng r;

	for (uint64_t seed = 1; seed <= 500; seed++) {
		struct made d;
		struct takes t = { .p = &d.p, .how = { .ops = memory_find(seed % 2 ? "periodic" : "boundary") } };

		rng_seed(&r, seed + 5000);
		made_small(&d, &r, seed << 8);
		t.rest = rng_below(&r, 100000);
		t.least = rng_below(&r, 3) ? 0 : t.rest + rng_below(&r, 20000);
		settle_all(&t, seed);
		made_close(&d);
	}
}

/* --- a thousand layers */

#define DEEP 1024
enum form { EQUAL, PYRAMID, FIRST_BIG, LAST_BIG, MIDDLE_BIG, SAW, DRAWN, SHAPES };

static uint64_t deep_flow(enum form shape, uint32_t i, struct rng *r)
{
	switch (shape) {
	case PYRAMID: return 64 * (1 + (DEEP - i) * (DEEP - i) / DEEP);
	case SAW: return 64 * (1 + i * 37 % 97);
	case DRAWN: return 64 * (1 + rng_below(r, 500));
	default: return 1024;
	}
}

static void deep_open(struct made *d, enum form shape)
{
	struct rng r;

	rng_seed(&r, 77);
	made_open(d, DEEP, 1);
	d->work = 64;
	for (uint32_t i = 0; i <= DEEP; i++)
		d->flow[i] = deep_flow(shape, i, &r);
	for (uint32_t i = 0; i < DEEP; i++) {
		uint32_t big = shape == FIRST_BIG ? 0 : shape == LAST_BIG ? DEEP - 1 : shape == MIDDLE_BIG ? 400 : DEEP;

		d->saved[i + 1] = d->saved[i] + (i == big ? 1024 * 2000 : d->flow[i]);
		d->p.op[i].param_bytes = 4;
	}
}

static double milliseconds(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* All numbers of segments have half a million pieces; the search asks for those of some. */
static void test_work(void **state)
{
	static const char *const name[] = { "equal", "pyramid", "first big", "last big", "middle big", "saw", "drawn" };

	for (int shape = 0; shape < SHAPES; shape++) {
		const struct memory_pass how = { .ops = memory_find("periodic") };
		struct memory_front f;
		struct made d;
		uint64_t asked;
		double begun, took;

		deep_open(&d, (enum form)shape);
		begun = milliseconds();
		memory_search(&d.p, &how, &f);
		took = milliseconds() - begun;
		asked = d.asked;
		print_message("%-10s %llu pieces asked for, %u choices, at last %u segments, %.2f ms\n", name[shape],
			(unsigned long long)asked, f.n, f.v[f.n - 1].segments, took);
		free(f.v);
		assert_true(asked <= 16 * DEEP);
		begun = milliseconds();
		d.asked = 0;
		(void)compare(&d.p, "periodic", name[shape]);
		print_message("%-10s %llu with every number of segments, %.0f ms\n", "", (unsigned long long)(d.asked - asked),
			milliseconds() - begun - took);
		made_close(&d);
	}
}

/* Real layers: how long a thousand take, and every number of segments of some hundred. */
static void deep_layers(int n, bool all)
{
	const struct memory_pass how = { .ops = memory_find("boundary") };
	struct buf t = { 0 };
	struct memory_front f;
	struct bed b;
	double begun;

	for (int i = 0; i < n; i++)
		buf_printf(&t, "%s{\"type\":\"linear\",\"out\":16}", i ? "," : "[");
	buf_printf(&t, "]");
	buf_u8(&t, 0);
	bed_open(&b, "[16]", (const char *)t.p);
	begun = milliseconds();
	memory_search(&b.profile, &how, &f);
	print_message("%d linear layers: %u choices, at last %u segments, %.2f ms\n", n, f.n, f.v[f.n - 1].segments,
		milliseconds() - begun);
	free(f.v);
	begun = milliseconds();
	if (all) {
		(void)compare(&b.profile, "boundary", "real layers");
		print_message("every number of segments: %.0f ms\n", milliseconds() - begun);
	}
	bed_close(&b);
	buf_free(&t);
}

static void test_deep(void **state)
{
	deep_layers(1000, false);
	deep_layers(200, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stated), cmocka_unit_test(test_real), cmocka_unit_test(test_settled),
		cmocka_unit_test(test_work), cmocka_unit_test(test_deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

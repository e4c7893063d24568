/* The averager's arithmetic without a network: sets of positions, the ledger, part sizes, the weighted mean, bytes of
 * bodies, points of the history. Mostly properties against plain models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "avg/ledger.h"
#include "avg/part.h"
#include "avg/reduce.h"
#include "avg/wire.h"
#include "common/mem.h"
#include "common/rng.h"

#define UNIVERSE 200

/* ---- ranges against a bit map ---- */

static void same_as(const struct ranges *r, const bool *bit)
{
	uint64_t count = 0;
	for (uint64_t x = 0; x < UNIVERSE; x++) {
		assert_int_equal(ranges_has(r, x), bit[x]);
		count += bit[x];
	}
	assert_int_equal(ranges_count(r), count);
	for (size_t i = 0; i < r->n; i++) {
		assert_true(r->v[i].lo < r->v[i].hi);
		assert_true(!i || r->v[i - 1].hi < r->v[i].lo);
	}
}

static void test_ranges_model(void **state)
{
	struct rng rng;
	rng_seed(&rng, 1);
	for (int round = 0; round < 300; round++) {
		struct ranges r = { 0 }, taken = { 0 };
		bool bit[UNIVERSE] = { false };
		for (int step = 0; step < 60; step++) {
			uint64_t lo = rng_below(&rng, UNIVERSE), hi = lo + rng_below(&rng, UNIVERSE - lo + 1),
				what = rng_below(&rng, 5);
			if (what < 2)
				ranges_add(&r, lo, hi);
			else if (what < 4)
				ranges_sub(&r, lo, hi);
			for (uint64_t x = lo; x < hi && what < 4; x++)
				bit[x] = what < 2;
			if (what == 4) {
				uint64_t n = rng_below(&rng, 20), left = n;
				ranges_clear(&taken);
				ranges_take(&r, n, &taken);
				for (uint64_t x = 0; x < UNIVERSE && left; x++)
					if (bit[x]) {
						assert_true(ranges_has(&taken, x));
						bit[x] = false;
						left--;
					}
				assert_int_equal(ranges_count(&taken), n - left);
			}
			same_as(&r, bit);
		}
		ranges_free(&r);
		ranges_free(&taken);
	}
}

static void test_ranges_two(void **state)
{
	struct rng rng;
	rng_seed(&rng, 2);
	for (int round = 0; round < 1000; round++) {
		struct ranges a = { 0 }, b = { 0 }, c = { 0 };
		bool x[UNIVERSE] = { 0 }, y[UNIVERSE] = { 0 }, overlap = false, inside = true;
		for (int k = 0; k < 6; k++) {
			uint64_t lo = rng_below(&rng, UNIVERSE), hi = lo + rng_below(&rng, 30);
			hi = hi > UNIVERSE ? UNIVERSE : hi;
			struct ranges *to = k % 2 ? &a : &b;
			ranges_add(to, lo, hi);
			for (uint64_t i = lo; i < hi; i++)
				*(k % 2 ? &x[i] : &y[i]) = true;
		}
		for (int i = 0; i < UNIVERSE; i++) {
			overlap |= x[i] && y[i];
			inside &= !x[i] || y[i];
		}
		assert_int_equal(ranges_overlap(&a, &b), overlap);
		assert_int_equal(ranges_inside(&a, &b), inside);
		ranges_copy(&c, &a);
		ranges_add_all(&c, &b);
		assert_true(ranges_inside(&a, &c) && ranges_inside(&b, &c));
		ranges_sub_all(&c, &b);
		assert_false(ranges_overlap(&c, &b));
		assert_true(ranges_inside(&c, &a));
		json_t *j = ranges_json(&a);
		assert_int_equal(ranges_parse(&c, j, NULL), 0);
		assert_true(ranges_inside(&c, &a) && ranges_inside(&a, &c));
		json_decref(j);
		ranges_free(&a);
		ranges_free(&b);
		ranges_free(&c);
	}
}

static void test_ranges_bad(void **state)
{
	static const char *const bad[] = { "{}", "[[1]]", "[[2,1]]", "[[1,1]]", "[[-1,3]]", "[[5,6],[1,2]]",
		"[[1,3],[2,4]]", "[[\"1\",2]]", "[[1,2,3]]" };
	struct ranges r = { 0 };
	struct err e;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		json_t *j = json_loads(bad[i], 0, NULL);
		assert_int_equal(ranges_parse(&r, j, &e), -1);
		assert_true(e.text[0]);
		json_decref(j);
	}
	ranges_free(&r);
}

/* ---- what commits prove ---- */

static json_int_t of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void test_proof(void **state)
{
	struct ranges done = { 0 };
	json_t *o, *d, *open;
	ranges_add(&done, 0, 250);              /* data epochs 0 and 1 of 100, half of 2, a hole in 4, none of 3 */
	ranges_add(&done, 400, 460);
	ranges_add(&done, 470, 500);
	o = ledger_proof(&done, 340, 100);
	d = json_object_get(o, "data_epochs");
	open = json_object_get(d, "open");
	assert_true(json_is_true(json_object_get(o, "exactly_once")));
	assert_int_equal(of(o, "positions"), 340);
	assert_int_equal(of(d, "complete"), 2);
	assert_int_equal(json_array_size(open), 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(of(json_array_get(open, (size_t)i), "data_epoch"), 2 + i);
	assert_int_equal(of(json_array_get(open, 0), "committed"), 50);
	assert_int_equal(of(json_array_get(open, 1), "committed"), 0);
	assert_int_equal(of(json_array_get(open, 2), "committed"), 90);
	char *text = json_dumps(json_object_get(json_array_get(open, 2), "missing"), JSON_COMPACT);
	assert_string_equal(text, "[[60,70]]");
	free(text);
	json_decref(o);
	o = ledger_proof(&done, 341, 0);        /* one sample counted twice */
	assert_true(json_is_false(json_object_get(o, "exactly_once")) && !json_object_get(o, "data_epochs"));
	json_decref(o);
	ranges_clear(&done);
	o = ledger_proof(&done, 0, 100);
	assert_int_equal(of(json_object_get(o, "data_epochs"), "complete"), 0);
	json_decref(o);
	ranges_add(&done, 0, 1);                /* many epochs behind one hole */
	ranges_add(&done, 100000000000, 100000000001);
	o = ledger_proof(&done, 2, 100);
	d = json_object_get(o, "data_epochs");
	assert_int_equal(json_array_size(json_object_get(d, "open")), OPEN_SHOWN);
	assert_int_equal(of(d, "complete"), 0);
	json_decref(o);
	ranges_free(&done);
}

/* ---- ledger: under any order of cuts, claims and deaths every position is committed once ---- */

static void test_ledger(void **state)
{
	struct rng rng;
	rng_seed(&rng, 3);
	for (int round = 0; round < 50; round++) {
		enum { N = 6, LIMIT = 5000 };
		struct ranges done = { 0 }, grant[N] = { { 0 } };
		for (int step = 0; step < 400 && ranges_count(&done) < LIMIT; step++) {
			int i = (int)rng_below(&rng, N);
			if (rng_below(&rng, 10) == 0) {
				ranges_clear(&grant[i]);        /* died: what it held is free again */
				continue;
			}
			struct ranges taken = { 0 }, claim = { 0 }, claimed = { 0 };
			ranges_copy(&taken, &done);
			for (int k = 0; k < N; k++)
				ranges_add_all(&taken, &grant[k]);
			uint64_t before = ranges_count(&taken), want = ledger_want((double)rng_below(&rng, 100), 16);
			assert_true(want % 16 == 0 && want >= 64);
			uint64_t got = ledger_cut(&taken, LIMIT, want, SIZE_MAX, &grant[i]);
			assert_int_equal(ranges_count(&taken), before + got);
			assert_true(got == want || ranges_count(&taken) == LIMIT);
			ranges_take(&grant[i], rng_below(&rng, 80), &claim);
			uint64_t n = ranges_count(&claim);
			assert_false(ledger_claim(&done, &claimed, &claim, n + 1, LIMIT));
			if (n && ledger_claim(&done, &claimed, &claim, n, LIMIT)) {
				assert_false(ledger_claim(&done, &claimed, &claim, n, LIMIT));
				ranges_add_all(&done, &claimed);
				assert_false(ledger_claim(&done, &claimed, &claim, n, LIMIT));
			} else {
				assert_int_equal(n, 0);
			}
			ranges_free(&taken);
			ranges_free(&claim);
			ranges_free(&claimed);
		}
		for (int k = 0; k < N; k++)
			ranges_free(&grant[k]);
		ranges_free(&done);
	}
}

/* ---- parts: hivemind's vectors S50, S51 ---- */

static void test_part_vectors(void **state)
{
	double w[8];
	uint64_t p[8];
	assert_int_equal(part_shares((double[]){ .55, .44, .40 }, 3, w), 0);
	part_sizes(w, 3, 60, 10, p);
	assert_true(p[0] == 41 && p[1] == 19 && p[2] == 0);
	part_shares((double[]){ .32, .55, .44 }, 3, w);
	part_sizes(w, 3, 60, 10, p);
	assert_true(p[0] == 0 && p[1] == 40 && p[2] == 20);
	part_shares((double[]){ -1, -1 }, 2, w);
	part_sizes(w, 2, 100, 1, p);
	assert_true(p[0] == 50 && p[1] == 50);
	part_shares((double[]){ 0, 0, 0, -1, -1 }, 5, w);
	part_sizes(w, 5, 100, 1, p);
	assert_true(!p[0] && !p[1] && !p[2] && p[3] == 50 && p[4] == 50);
	assert_int_equal(part_shares((double[]){ 0, 0 }, 2, w), -1);
	static const struct { double b[4]; size_t n; uint64_t len, ref[4]; } cost[] = {
		{ { .25, .25, .25, .25 }, 4, 60, { 15, 15, 15, 15 } }, { { .3, .5, .9 }, 3, 1024, { 0, 255, 769 } },
		{ { .44, .33, .22 }, 3, 60, { 42, 18, 0 } }, { { .55, .44, .40 }, 3, 60, { 35, 16, 9 } },
		{ { .3, .5, .9, .6 }, 4, 1048576, { 0, 169327, 602629, 276620 } }, { { 0, .5, 0, .6 }, 4, 1048576, { 0, 428963,
		0, 619613 } } };
	for (size_t i = 0; i < sizeof cost / sizeof *cost; i++) {
		assert_int_equal(part_shares(cost[i].b, cost[i].n, w), 0);
		part_sizes(w, cost[i].n, cost[i].len, 0, p);
		assert_true(part_cost(cost[i].b, p, cost[i].n, cost[i].len) <= part_cost(cost[i].b, cost[i].ref, cost[i].n,
			cost[i].len));
	}
}

static void test_part_random(void **state)
{
	struct rng rng;
	rng_seed(&rng, 4);
	for (int round = 0; round < 2000; round++) {
		size_t n = 1 + rng_below(&rng, 12);
		double b[12], w[12], sum = 0;
		uint64_t p[12], q[12], len = 1 + rng_below(&rng, 100000), min = rng_below(&rng, 2000), total = 0;
		for (size_t i = 0; i < n; i++)
			b[i] = rng_below(&rng, 5) ? rng_unit(&rng) * 100 + 0.1 : rng_below(&rng, 2) ? 0 : -1;
		if (part_shares(b, n, w))
			continue;
		part_sizes(w, n, len, min, p);
		for (size_t i = 0; i < n; i++) {
			sum += w[i];
			total += p[i];
			assert_true(w[i] >= 0 && (b[i] != 0 || !p[i]));
		}
		assert_true(fabs(sum - 1) < 1e-9);
		assert_int_equal(total, len);
		part_sizes(w, n, len, 0, p);            /* no neighbour is better by moving a hundredth to another */
		for (size_t i = 0; i < n; i++)
			for (size_t k = 0; k < n; k++) {
				uint64_t d = p[i] / 100;
				if (i == k || b[k] == 0 || d < 50)
					continue;
				memcpy(q, p, sizeof p);
				q[i] -= d;
				q[k] += d;
				assert_true(part_cost(b, q, n, len) >= part_cost(b, p, n, len) * 0.999);
			}
	}
}

/* ---- the mean ---- */

static void mean_of(float *out, size_t n, struct reduce_term *t, size_t terms, uint64_t total)
{
	struct coding c;
	assert_int_equal(coding_make(&c, NULL, NULL, 0, n, NULL), 0);
	assert_int_equal(reduce_part(&c, 0, n, t, terms, total, ROBUST_NONE, out), 0);
	coding_free(&c);
}

static void test_reduce(void **state)
{
	enum { N = 40000, M = 5 };
	float *x[M], *out = xmalloc(N * sizeof *out);
	struct reduce_term t[M];
	uint64_t total = 0;
	struct rng rng;
	rng_seed(&rng, 5);
	for (int i = 0; i < M; i++) {
		x[i] = xmalloc(N * sizeof **x);
		for (size_t k = 0; k < N; k++)
			x[i][k] = (float)(rng_unit(&rng) - 0.5);
		t[i] = (struct reduce_term){ .x = x[i], .weight = 1 + rng_below(&rng, 1000) };
		total += t[i].weight;
	}
	mean_of(out, N, t, M, total);
	for (size_t k = 0; k < N; k++) {        /* fp32, member order, alpha in double: to the bit */
		float acc = 0;
		for (int i = 0; i < M; i++) {
			float v = (float)((double)t[i].weight / (double)total * (double)x[i][k]);
			acc = i ? acc + v : v;
		}
		assert_memory_equal(&acc, &out[k], sizeof acc);
	}
	struct reduce_term split[M];                    /* a part of a part gives the same bytes */
	for (int i = 0; i < M; i++)
		split[i] = (struct reduce_term){ .x = x[i] + 777, .weight = t[i].weight };
	float *piece = xmalloc(1000 * sizeof *piece);
	mean_of(piece, 1000, split, M, total);
	assert_memory_equal(piece, out + 777, 1000 * sizeof *piece);
	mean_of(out, N, t, 1, t[0].weight);   /* a lone member keeps its bits */
	assert_memory_equal(out, x[0], N * sizeof *out);
	free(piece);
	for (int i = 0; i < M; i++)
		free(x[i]);
	free(out);
}

/* ---- bytes ---- */

static void make_body(struct body *b, struct rng *rng)
{
	*b = (struct body){ .what = BODY_COMMIT, .epoch = 8, .term = 2, .attempt = 1, .len = 1000, .params_version = 3,
		.params = json_pack("{s:f}", "lr", 0.5) };
	b->n = 1 + rng_below(rng, 5);
	b->m = xcalloc(b->n, sizeof *b->m);
	for (size_t i = 0; i < b->n; i++) {
		b->m[i].id.b[0] = (uint8_t)(i + 1);
		b->m[i].flags = MATE_IN;
		b->m[i].samples = rng_below(rng, 100);
		b->m[i].rate = rng_unit(rng);
		b->weight += b->m[i].samples;
		ranges_add(&b->m[i].claimed, 100 * i, 100 * i + b->m[i].samples);
		ranges_add(&b->m[i].grant, 1000, 1010 + i);
	}
	b->parts = 2;
	b->part = xcalloc(2, sizeof *b->part);
	b->part[0] = (struct wire_part){ .owner = 0, .off = 0, .len = 600 };
	b->part[1] = (struct wire_part){ .owner = (uint16_t)(b->n - 1), .off = 600, .len = 400 };
	b->props = 1;
	b->prop = xcalloc(1, sizeof *b->prop);
	b->prop[0] = (struct wire_proposal){ .nonce = 5, .epoch = 9, .counter = 1, .patch = json_pack("{s:i}", "x", 1) };
}

static void test_body(void **state)
{
	struct rng rng;
	rng_seed(&rng, 6);
	for (int round = 0; round < 200; round++) {
		struct body b, c;
		struct buf p = { 0 }, q = { 0 };
		struct err e;
		make_body(&b, &rng);
		b.what = round % 4 < 2 ? BODY_COMMIT : BODY_BEGIN;
		b.hashes = (enum hashes)(HASHES_SHA256 + round % HASHES_NEWEST);
		b.data_us = b.what == BODY_BEGIN ? rng_below(&rng, WIRE_DEADLINE_US + 1) : 0;
		body_encode(&b, &p);
		assert_int_equal(body_decode(&c, p.p, p.len, &e), 0);
		assert_int_equal(b.hashes, c.hashes);
		assert_int_equal(b.data_us, c.data_us);
		body_encode(&c, &q);
		assert_int_equal(p.len, q.len);
		assert_memory_equal(p.p, q.p, p.len);   /* canonical */
		body_free(&c);
		for (size_t n = 0; n < p.len; n += 7)   /* cut short anywhere: an error, never a crash */
			assert_int_equal(body_decode(&c, p.p, n, &e), -1);
		for (int k = 0; k < 200; k++) {         /* one changed byte: an error or another valid body */
			size_t at = rng_below(&rng, p.len);
			uint8_t was = p.p[at];
			p.p[at] ^= (uint8_t)(1 + rng_below(&rng, 255));
			if (!body_decode(&c, p.p, p.len, &e))
				body_free(&c);
			p.p[at] = was;
		}
		b.what = BODY_COMMIT;
		b.data_us = 0;
		b.m[0].samples++;                       /* a weight that its members do not add up to */
		buf_clear(&p);
		body_encode(&b, &p);
		assert_int_equal(body_decode(&c, p.p, p.len, &e), -1);
		assert_non_null(strstr(e.text, "weight"));
		b.m[0].samples--;
		b.part[1].off = 601;                    /* a hole between parts */
		buf_clear(&p);
		body_encode(&b, &p);
		assert_int_equal(body_decode(&c, p.p, p.len, &e), -1);
		body_free(&b);
		buf_free(&p);
		buf_free(&q);
	}
}

static void test_attempt_ready(void **state)
{
	struct rng rng;
	rng_seed(&rng, 7);
	uint64_t samples[3] = { 5, 0, 7 };
	uint16_t owner[2] = { 2, 0 };
	struct attempt a = { .term = 1, .no = 4, .data_us = 9, .samples = samples, .owner = owner, .n = 3, .parts = 2 }, c;
	struct ready r = { .samples = 12, .rate = 3.5, .bandwidth = 77 }, s;
	struct buf p = { 0 }, q = { 0 };
	struct err e;
	attempt_encode(&a, &p);
	assert_int_equal(attempt_decode(&c, p.p, p.len, &e), 0);
	assert_true(c.no == 4 && c.n == 3 && c.samples[2] == 7 && c.owner[0] == 2);
	attempt_free(&c);
	owner[0] = 3;
	buf_clear(&p);
	attempt_encode(&a, &p);
	assert_int_equal(attempt_decode(&c, p.p, p.len, &e), -1);
	ranges_add(&r.claimed, 4, 16);
	ready_encode(&r, &q);
	assert_int_equal(ready_decode(&s, q.p, q.len, &e), 0);
	assert_true(s.samples == 12 && s.rate == 3.5 && ranges_count(&s.claimed) == 12);
	ranges_free(&s.claimed);
	for (int k = 0; k < 5000; k++) {
		struct buf *b = k % 2 ? &p : &q;
		size_t at = rng_below(&rng, b->len), n = rng_below(&rng, 4) ? b->len : at;
		uint8_t was = b->p[at];
		b->p[at] = (uint8_t)rng_u64(&rng);
		if (k % 2 && !attempt_decode(&c, b->p, n, &e))
			attempt_free(&c);
		if (!(k % 2) && !ready_decode(&s, b->p, n, &e))
			ranges_free(&s.claimed);
		b->p[at] = was;
	}
	ranges_free(&r.claimed);
	buf_free(&p);
	buf_free(&q);
}

static void test_point(void **state)
{
	struct avg_point p, q, r;
	struct err e;
	struct buf b = { 0 };
	avg_point_init(&p);
	avg_point_init(&q);
	avg_point_init(&r);
	p.epoch = 7;
	p.samples = 300;
	p.prev[3] = 9;
	p.params_version = 2;
	p.params = json_pack("{s:f}", "lr", 0.125);
	ranges_add(&p.done, 0, 290);
	ranges_add(&p.done, 300, 310);
	json_t *j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), 0);
	assert_true(q.epoch == 7 && q.samples == 300 && !memcmp(q.prev, p.prev, DIGEST) && json_equal(q.params,
		p.params) && ranges_count(&q.done) == 300);
	wire_put_point(&b, &p);
	struct rd rd = rd_of(b.p, b.len);
	assert_int_equal(wire_get_point(&rd, &r, &e), 0);
	assert_true(r.epoch == 7 && json_equal(r.params, p.params) && ranges_inside(&r.done, &p.done));
	json_object_del(j, "prev");
	assert_int_equal(avg_point_parse(&q, j, &e), -1);
	assert_non_null(strstr(e.text, "prev"));
	assert_int_equal(q.epoch, 7);           /* a failing parse changes nothing */
	json_decref(j);
	avg_point_copy(&q, &p);
	json_object_set_new(p.params, "lr", json_real(1));
	assert_true(json_real_value(json_object_get(q.params, "lr")) == 0.125);
	avg_point_done(&p);
	avg_point_done(&q);
	avg_point_done(&r);
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges_model), cmocka_unit_test(test_ranges_two), cmocka_unit_test(test_ranges_bad),
		cmocka_unit_test(test_ledger), cmocka_unit_test(test_proof),
		cmocka_unit_test(test_part_vectors), cmocka_unit_test(test_part_random),
		cmocka_unit_test(test_reduce), cmocka_unit_test(test_body), cmocka_unit_test(test_attempt_ready),
		cmocka_unit_test(test_point),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

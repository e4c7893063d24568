/* What may be written may be read: one limit for both, whichever way a set of positions or a point travels. And of
 * signed bodies, whatever their last bytes say of how many signatures there are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "avg/int.h"
#include "avg/seen.h"
#include "avg/ledger.h"

static void pieces(struct ranges *r, size_t n, uint64_t last)
{
	ranges_clear(r);
	for (size_t i = 0; i + 1 < n; i++)
		ranges_add(r, 2 * i, 2 * i + 1);
	ranges_add(r, last - 1, last);
}

static void both_ways(const struct ranges *r, bool good)
{
	struct buf b = { 0 };
	struct ranges back = { 0 };
	struct err e;
	wire_put_ranges(&b, r);
	struct rd rd = rd_of(b.p, b.len);
	assert_int_equal(wire_get_ranges(&rd, &back, &e), good ? 0 : -1);
	assert_true(!good || (ranges_inside(r, &back) && ranges_inside(&back, r)));
	json_t *j = ranges_json(r);
	assert_int_equal(ranges_parse(&back, j, &e), good ? 0 : -1);
	assert_true(!good || (ranges_inside(r, &back) && ranges_inside(&back, r)));
	json_decref(j);
	ranges_free(&back);
	buf_free(&b);
}

static void written_is_read(void **state)
{
	struct ranges r = { 0 };
	pieces(&r, RANGES_MAX, RANGES_END);
	both_ways(&r, true);
	pieces(&r, RANGES_MAX + 1, RANGES_END);
	both_ways(&r, false);
	pieces(&r, 3, RANGES_END + 1);
	both_ways(&r, false);
	pieces(&r, 3, INT64_MAX);
	both_ways(&r, false);
	ranges_free(&r);
}

/* Of a pool in which every second position is taken, so many pieces and no more; of an endless one, no position that
 * cannot be written. */
static void cut_in_few_pieces(void **state)
{
	struct ranges taken = { 0 }, got = { 0 };
	for (uint64_t i = 0; i < 1000; i++)
		ranges_add(&taken, 2 * i, 2 * i + 1);
	assert_int_equal(ledger_cut(&taken, 0, 64, 8, &got), 8);
	assert_int_equal(got.n, 8);
	ranges_clear(&got);
	ranges_clear(&taken);
	ranges_add(&taken, 0, RANGES_END - 5);
	assert_int_equal(ledger_cut(&taken, 0, 64, 8, &got), 5);
	both_ways(&taken, true);
	ranges_free(&taken);
	ranges_free(&got);
}

static void point_with_changes(void **state)
{
	struct avg_point p, q, w;
	struct buf b = { 0 };
	struct err e;
	avg_point_init(&p);
	avg_point_init(&q);
	avg_point_init(&w);
	p.epoch = 7;
	p.params = json_pack("{s:f}", "lr", 0.25);
	p.recent = json_pack("{s:i}", "ab:01", 6);
	json_t *j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), 0);
	assert_true(json_equal(q.recent, p.recent));
	wire_put_point(&b, &p);
	struct rd rd = rd_of(b.p, b.len);
	assert_int_equal(wire_get_point(&rd, &w, &e), 0);
	assert_true(json_equal(w.recent, p.recent));
	avg_point_copy(&q, &w);
	assert_true(json_equal(q.recent, p.recent));
	json_decref(j);
	buf_free(&b);
	avg_point_done(&p);
	avg_point_done(&q);
	avg_point_done(&w);
}

static void same_book(const struct avg_point *p, const struct avg_point *q)
{
	assert_int_equal(p->nseen, q->nseen);
	assert_memory_equal(p->seen, q->seen, p->nseen * sizeof *p->seen);
}

/* Who was away for long was not here meanwhile, whatever comes after; who was away for a little was. */
static void away(void **state)
{
	struct avg_point p, q;
	struct wire_member m[3] = { { .id.b = { 1 } }, { .id.b = { 2 } }, { .id.b = { 3 } } };
	struct body c = { .m = m, .n = 3 };
	struct buf b = { 0 };
	struct err e;
	avg_point_init(&p);
	avg_point_init(&q);
	p.params = json_object();
	for (uint64_t epoch = 1; epoch <= 100; epoch++) {
		p.epoch = c.epoch = epoch;
		m[0].flags = MATE_IN;
		m[1].flags = epoch > 40 && epoch <= 40 + SEEN_LATELY ? MATE_GONE : MATE_IN;     /* back with 57: 16 missed */
		m[2].flags = epoch > 40 && epoch <= 41 + SEEN_LATELY ? MATE_GONE : MATE_IN;
		seen_commit(&p, &c);
		if (epoch == 50)
			avg_point_copy(&q, &p);
	}
	const struct avg_seen *s[3] = { seen_find(&p, &m[0].id), seen_find(&p, &m[1].id), seen_find(&p, &m[2].id) };
	assert_int_equal(s[1]->was, 40);
	assert_int_equal(s[2]->was, 40);
	assert_int_equal(s[2]->back, 58);
	for (uint64_t epoch = 0; epoch <= 100; epoch++) {
		assert_true(seen_lately(s[0], epoch));
		assert_true(seen_lately(s[1], epoch));
		assert_int_equal(seen_lately(s[2], epoch), epoch != 57);
	}
	for (int i = 0; i < 3; i++)             /* as seen from the other side of a fork at 50 */
		for (uint64_t epoch = 0; epoch <= 50; epoch++)
			assert_int_equal(seen_lately(s[i], epoch), seen_lately(seen_find(&q, &m[i].id), epoch));
	json_t *j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), 0);
	same_book(&p, &q);
	wire_put_point(&b, &p);
	struct rd rd = rd_of(b.p, b.len);
	assert_int_equal(wire_get_point(&rd, &q, &e), 0);
	same_book(&p, &q);
	rd = rd_of(b.p, b.len - 8);
	assert_int_equal(wire_get_point(&rd, &q, &e), -1);
	json_decref(j);
	buf_free(&b);
	avg_point_done(&p);
	avg_point_done(&q);
}

/* The book of members: who is in a COMMIT, who is gone in it, and of more than it holds those that were here last. */
static void point_with_members(void **state)
{
	struct avg_point p, q;
	struct wire_member m[SEEN_MAX + 40] = { 0 };
	struct body c = { .m = m };
	struct buf b = { 0 };
	struct err e;
	avg_point_init(&p);
	avg_point_init(&q);
	p.params = json_object();
	for (size_t i = 0; i < SEEN_MAX + 40; i++) {
		m[i].id.b[0] = (uint8_t)(i * 7);
		m[i].id.b[1] = (uint8_t)(i >> 8);
		m[i].id.b[2] = (uint8_t)i;
	}
	for (size_t i = 0; i < SEEN_MAX + 40; i++)
		m[i].flags = i % 2 ? MATE_IN : MATE_READY;
	m[1].flags = MATE_GONE;
	m[3].flags = 0;                         /* here, but it has not answered BEGIN */
	m[2].flags = MATE_FOLLOWER;
	c.n = 60;
	p.epoch = c.epoch = 5;
	seen_commit(&p, &c);
	assert_int_equal(p.nseen, 59);
	assert_null(seen_find(&p, &m[2].id));
	assert_int_equal(seen_find(&p, &m[1].id)->last, 4);
	assert_int_equal(seen_find(&p, &m[3].id)->last, 4);
	assert_int_equal(seen_find(&p, &m[0].id)->last, 5);
	assert_int_equal(seen_find(&p, &m[0].id)->first, 4);
	p.epoch = c.epoch = 6;
	c.m = m + 1;
	c.n = SEEN_MAX + 39;
	for (size_t i = 1; i < 4; i++)
		m[i].flags = MATE_READY;
	seen_commit(&p, &c);
	assert_int_equal(p.nseen, SEEN_MAX);
	assert_null(seen_find(&p, &m[0].id));           /* the only one that was not here now */
	json_t *j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), 0);
	same_book(&p, &q);
	wire_put_point(&b, &p);
	struct rd rd = rd_of(b.p, b.len);
	assert_int_equal(wire_get_point(&rd, &q, &e), 0);
	same_book(&p, &q);
	struct avg_seen was = p.seen[3];
	p.seen[3].was = p.seen[3].last;         /* it was away, and was back before it had gone */
	p.seen[3].back = p.seen[3].last;
	json_decref(j);
	j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), -1);
	p.seen[3] = was;
	p.seen[3].last = 7;                     /* later than the point */
	json_decref(j);
	j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), -1);
	p.seen[3].last = 6;
	p.seen[3].id = p.seen[2].id;            /* twice */
	json_decref(j);
	j = avg_point_json(&p);
	assert_int_equal(avg_point_parse(&q, j, &e), -1);
	buf_clear(&b);
	wire_put_point(&b, &p);
	rd = rd_of(b.p, b.len);
	assert_int_equal(wire_get_point(&rd, &q, &e), -1);
	json_decref(j);
	buf_free(&b);
	avg_point_done(&p);
	avg_point_done(&q);
}

static void any_bytes_for_a_body(void **state)
{
	uint8_t v[300] = { 0 };
	struct body b;
	for (size_t n = 0; n < sizeof v; n++)
		for (unsigned acks = 0; acks < 70000; acks += acks < 4 ? 1 : 8191) {
			if (n >= 2) {
				v[n - 2] = (uint8_t)acks;
				v[n - 1] = (uint8_t)(acks >> 8);
			}
			size_t size = body_size(v, n), behind = SIG_BYTES + (acks & 0xffff) * (2 + SIG_BYTES) + 2;
			assert_int_equal(size, n > behind ? n - behind : 0);
			assert_int_equal(body_read(&b, v, n, NULL), -1);
			if (n >= 2)
				v[n - 2] = v[n - 1] = 0;
		}
	assert_int_equal(body_size(NULL, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(written_is_read), cmocka_unit_test(cut_in_few_pieces),
		cmocka_unit_test(point_with_changes), cmocka_unit_test(away), cmocka_unit_test(point_with_members),
		cmocka_unit_test(any_bytes_for_a_body) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

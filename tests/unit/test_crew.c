/* Crews without a network: offers, cards and gos as bytes, the order of members, numbers; what plans of all hold and
 * take; and whom a leader chooses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "common/mem.h"
#include "common/rng.h"
#include "crew/choose.h"
#include "crew_plan.h"
#include "net/net.h"

#define LAYER (1u << 20)

/* ---- bytes ---- */

static int by_order(const void *a, const void *b)
{
	return crew_before(a, b) ? -1 : crew_before(b, a);
}

static void offer_random(struct offer *o, struct rng *r, uint32_t n)
{
	*o = (struct offer){ .life = rng_u64(r), .epoch = rng_u64(r), .term = (uint32_t)rng_u64(r), .n = n,
		.redundancy = 1 + (uint32_t)rng_below(r, CREW_REDUNDANCY_MAX), .m = xcalloc(n, sizeof *o->m),
		.link = xcalloc((size_t)n * n, sizeof *o->link) };
	for (int i = 0; i < 32; i++)
		o->run.b[i] = o->leader.b[i] = (uint8_t)rng_u64(r);
	o->generation = crew_number(1 + rng_below(r, 1 << 20), &o->run, &o->leader, o->life);
	o->base = rng_below(r, o->generation);
	for (uint32_t i = 0; i < n; i++) {
		o->m[i] = (struct crew_member){ .life = rng_u64(r), .speed = 0.01 + (double)rng_below(r, 1000) / 100,
			.memory_bytes = rng_below(r, 4) ? rng_u64(r) >> 20 : 0 };
		for (int k = 0; k < 32; k++)
			o->m[i].id.b[k] = (uint8_t)rng_u64(r);
	}
	qsort(o->m, n, sizeof *o->m, by_order);
	for (uint32_t i = 0; i < n * n; i++)
		if (i % (n + 1))
			o->link[i] = (struct crew_link){ (uint8_t)rng_below(r, SCALE_CODES + 1),
				(uint8_t)rng_below(r, SCALE_CODES + 1) };
}

static void offers_are_exact(void **state)
{
	struct rng r;
	rng_seed(&r, 7);
	for (uint32_t n = 1; n <= CREW_MEMBERS_MAX; n += n < 8 ? 1 : 31) {
		struct offer o, back;
		struct buf b = { 0 }, again = { 0 };
		struct err e;
		offer_random(&o, &r, n);
		offer_encode(&o, &b);
		assert_int_equal(offer_decode(&back, b.p, b.len, &e), 0);
		offer_encode(&back, &again);
		assert_int_equal(again.len, b.len);
		assert_memory_equal(again.p, b.p, b.len);
		assert_true(b.len + 4 + CREW_DIGEST + (n + 1) * SIG_BYTES <= NET_BLOB_MAX);
		offer_free(&back);
		for (size_t cut = 0; cut < b.len; cut += 1 + b.len / 97)
			assert_int_equal(offer_decode(&back, b.p, cut, &e), -1);
		buf_u8(&b, 0);
		assert_int_equal(offer_decode(&back, b.p, b.len, &e), -1);
		buf_free(&b);
		buf_free(&again);
		offer_free(&o);
	}
}

static void refused(const struct offer *o, const char *text)
{
	struct offer back;
	struct buf b = { 0 };
	struct err e = { 0 };
	offer_encode(o, &b);
	if (!offer_decode(&back, b.p, b.len, &e))
		fail_msg("taken, though %s", text);
	if (!strstr(e.text, text))
		fail_msg("refused because of %s, not %s", e.text, text);
	assert_null(back.m);
	buf_free(&b);
}

static void what_cannot_be_is_refused(void **state)
{
	static const double speeds[] = { 0, -1, 1e7, 1e-7, __builtin_nan(""), __builtin_inf() };
	struct rng r;
	struct offer o;
	rng_seed(&r, 8);
	offer_random(&o, &r, 5);
#define BREAK(field, value, text) \
	do { \
		struct offer x = o; \
		x.field = value; \
		refused(&x, text); \
	} while (0)
	BREAK(redundancy, 0, "redundancy");
	BREAK(redundancy, CREW_REDUNDANCY_MAX + 1, "redundancy");
	BREAK(generation, 5, "number");
	BREAK(generation, 1ull << 63, "number");
	BREAK(base, o.generation, "number");
	BREAK(n, 0, "members");
#undef BREAK
	for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
		double was = o.m[2].speed;
		o.m[2].speed = speeds[i];
		refused(&o, "speed");
		o.m[2].speed = was;
	}
	struct crew_member m = o.m[1];
	o.m[1] = o.m[2];
	o.m[2] = m;
	refused(&o, "place");
	o.m[2] = o.m[1];
	o.m[1] = m;
	struct id id = o.m[3].id;
	o.m[3].id = o.m[1].id;
	o.m[1].speed = 64;
	o.m[0].speed = 128;
	o.m[2].speed = o.m[3].speed = o.m[4].speed = 1;
	o.m[2].memory_bytes = 0;
	o.m[3].memory_bytes = 1 << 20;
	o.m[4].memory_bytes = 1 << 10;
	refused(&o, "same peer");
	o.m[3].id = id;
	o.link[0].rate = 1;
	refused(&o, "link");
	o.link[0].rate = 0;
	o.link[1].delay = SCALE_CODES + 1;
	refused(&o, "link");
	offer_free(&o);
}

static void cards_and_gos(void **state)
{
	struct card c = { .life = 5, .speed = 0.5, .memory_bytes = 77, .n = 2, .v = xcalloc(2, sizeof *c.v) }, back;
	struct buf b = { 0 }, go = { 0 }, offer = { 0 };
	struct err e;
	struct rng r;
	struct offer o;
	struct go g;
	c.v[1] = (struct card_link){ { { 9 } }, { 40, 50 } };
	card_encode(&c, &b);
	assert_int_equal(card_decode(&back, b.p, b.len, &e), 0);
	assert_true(back.life == 5 && back.memory_bytes == 77 && back.n == 2 && back.v[1].link.delay == 50);
	card_free(&back);
	for (size_t cut = 0; cut < b.len; cut++)
		assert_int_equal(card_decode(&back, b.p, cut, &e), -1);
	b.p[b.len - 1] = 255;
	assert_int_equal(card_decode(&back, b.p, b.len, &e), -1);
	rng_seed(&r, 9);
	offer_random(&o, &r, 3);
	offer_encode(&o, &offer);
	buf_grow(&offer, SIG_BYTES);
	memset(offer.p + offer.len - SIG_BYTES, 1, SIG_BYTES);
	uint8_t digest[CREW_DIGEST] = { 3 }, sig[3 * SIG_BYTES] = { 4 };
	go_encode(offer.p, offer.len, digest, sig, 3, &go);
	assert_int_equal(go_decode(&g, go.p, go.len, &e), 0);
	assert_true(g.offer_len == offer.len && g.digest[0] == 3 && g.sig[0] == 4 && g.o.n == 3);
	offer_free(&g.o);
	for (size_t cut = 0; cut < go.len; cut++)
		assert_int_equal(go_decode(&g, go.p, cut, &e), -1);
	buf_free(&b);
	buf_free(&go);
	buf_free(&offer);
	offer_free(&o);
	card_free(&c);
}

static void figures_in_a_byte(void **state)
{
	assert_int_equal(scale_code(0), 0);
	assert_int_equal(scale_value(0), 0);
	assert_int_equal(scale_value(SCALE_CODES + 1), 0);
	for (unsigned c = 2; c <= SCALE_CODES; c++) {
		uint64_t v = scale_value((uint8_t)c), next = c < SCALE_CODES ? scale_value((uint8_t)(c + 1)) : UINT64_MAX;
		assert_true(v >= scale_value((uint8_t)(c - 1)) && next >= v);
		if (v < 16)
			continue;
		assert_int_equal(scale_code(v), c);
		assert_int_equal(scale_code(next - 1), c);
		assert_true(c == SCALE_CODES || (double)next / (double)v < 1.26);
	}
}

static void numbers_grow_and_differ(void **state)
{
	struct id run = { { 1 } }, a = { { 2 } }, b = { { 3 } };
	for (uint64_t n = 1; n < 100; n++) {
		assert_int_equal(CREW_COUNT(crew_number(n, &run, &a, 5)), n);
		assert_true(crew_number(n + 1, &run, &b, 5) > crew_number(n, &run, &a, 5));
		assert_true(crew_number(n, &run, &a, 5) != crew_number(n, &run, &b, 5));
		assert_true(crew_number(n, &run, &a, 5) != crew_number(n, &run, &a, 6));
	}
}

/* ---- choosing ---- */

struct bed { struct choice c; struct profile m; };

/* One letter a peer: w in the generation before and in a unit that lives as a whole, k in another of its units, n not
 * in it; speeds and memory by peer. */
static void bed(struct bed *x, const char *who, const double *speed, const uint64_t *memory)
{
	uint32_t n = (uint32_t)strlen(who);
	struct offer *o = &x->c.all;
	memset(x, 0, sizeof *x);
	cut_profile(&x->m, 8, 20000, 4096, LAYER);
	x->c = (struct choice){ .strategy = &cut_ops, .redundancy = 2, .usual = { .profile = &x->m, .target_batch = 8 },
		.kept = xcalloc(n, sizeof(bool)), .whole = xcalloc(n, sizeof(bool)) };
	*o = (struct offer){ .leader = { { 1 } }, .redundancy = 2, .n = n, .m = xcalloc(n, sizeof *o->m),
		.link = xcalloc((size_t)n * n, sizeof *o->link) };
	o->generation = crew_number(3, &o->run, &o->leader, 0);
	for (uint32_t i = 0; i < n; i++)
		o->m[i] = (struct crew_member){ .id = { { (uint8_t)(i + 1) } }, .life = 1, .speed = speed ? speed[i] : 1,
			.memory_bytes = memory ? memory[i] : 0 };
	qsort(o->m, n, sizeof *o->m, by_order);
	for (uint32_t i = 0; i < n; i++) {
		x->c.whole[i] = who[o->m[i].id.b[0] - 1] == 'w';
		x->c.kept[i] = x->c.whole[i] || who[o->m[i].id.b[0] - 1] == 'k';
		x->c.running = x->c.kept[i] ? 2 : x->c.running;
	}
}

static void rate(struct bed *x, uint64_t bytes_per_s)
{
	for (uint32_t i = 0; i < x->c.all.n * x->c.all.n; i++)
		if (i % (x->c.all.n + 1))
			x->c.all.link[i].rate = scale_code(bytes_per_s);
}

/* Chosen are those peers, one digit each; "-": nothing changes; "!": there can be none. */
static void chosen(struct bed *x, const char *want)
{
	char got[32] = "";
	size_t n = 0;
	crew_choose(&x->c);
	for (uint8_t id = 1; id < 20; id++)
		for (uint32_t i = 0; i < x->c.best.n; i++)
			if (x->c.best.m[i].id.b[0] == id)
				got[n++] = (char)('0' + id);
	assert_string_equal(x->c.rc ? "!" : x->c.stays ? "-" : got, want);
}

static void done(struct bed *x)
{
	choice_free(&x->c);
	profile_free(&x->m);
}

static void at_first_all_are_in(void **state)
{
	struct bed x;
	bed(&x, "nnn", NULL, NULL);
	chosen(&x, "123");
	assert_int_equal(x.c.best.redundancy, 2);
	assert_int_equal(x.c.fewer.code, ERR_NONE);
	done(&x);
	bed(&x, "n", NULL, NULL);
	chosen(&x, "1");
	assert_int_equal(x.c.best.redundancy, 1);        /* degraded: nobody else has a copy */
	assert_int_not_equal(x.c.fewer.code, ERR_NONE);
	done(&x);
	bed(&x, "nnnnnnnnn", NULL, NULL);
	chosen(&x, "12345678");                          /* one has nothing to do */
	done(&x);
}

static void a_tenth_faster_and_paid(void **state)
{
	struct bed x;
	bed(&x, "kkn", NULL, NULL);
	rate(&x, 1u << 30);
	chosen(&x, "123");
	done(&x);
	bed(&x, "kkn", NULL, NULL);                     /* a hundred steps save some 40 s; 12 MiB at 64 KiB/s take 190 s */
	rate(&x, 1u << 16);
	chosen(&x, "-");
	done(&x);
	bed(&x, "kkn", (double[]){ 1, 1, 0.02 }, NULL);
	rate(&x, 1u << 30);
	chosen(&x, "-");
	done(&x);
	bed(&x, "kknn", (double[]){ 1, 1, 0.02, 1 }, NULL);
	rate(&x, 1u << 30);
	chosen(&x, "124");                              /* not with both: with the stronger one */
	done(&x);
	bed(&x, "kkkkn", NULL, NULL);                   /* eight layers: two each, and two are the most still */
	rate(&x, 1u << 30);
	chosen(&x, "-");
	done(&x);
}

/* A unit of which somebody has died: who is left of it is in the next one only when that is better. */
static void those_who_can_go_on(void **state)
{
	struct bed x;
	bed(&x, "kkww", (double[]){ 0.02, 0.02, 1, 1 }, NULL);
	x.c.running = 0;
	chosen(&x, "34");
	done(&x);
	bed(&x, "kkww", NULL, NULL);
	x.c.running = 0;
	rate(&x, 1u << 30);
	chosen(&x, "1234");                             /* four are faster than two */
	done(&x);
	bed(&x, "wwww", NULL, NULL);
	chosen(&x, "-");
	done(&x);
	bed(&x, "kkw", NULL, (uint64_t[]){ 8 * LAYER, 8 * LAYER, 4 * LAYER });
	x.c.running = 0;
	chosen(&x, "123");                              /* it has no room for all by itself */
	done(&x);
}

static void copies_that_are_short(void **state)
{
	struct bed x;
	bed(&x, "kn", (double[]){ 1, 0.02 }, NULL);
	x.c.running = 1;
	chosen(&x, "12");                               /* slower by far, but safe */
	assert_int_equal(x.c.best.redundancy, 2);
	done(&x);
	bed(&x, "kkk", NULL, (uint64_t[]){ 4 * LAYER, 4 * LAYER, 4 * LAYER });
	x.c.running = 0;
	chosen(&x, "123");                              /* two copies do not fit */
	assert_int_equal(x.c.best.redundancy, 1);
	done(&x);
}

static void room_for_the_model(void **state)
{
	struct bed x;
	bed(&x, "nn", NULL, (uint64_t[]){ 3 * LAYER, 3 * LAYER });
	chosen(&x, "!");
	assert_non_null(strstr(x.c.why.text, "2097152 bytes are missing"));
	done(&x);
	bed(&x, "kkn", NULL, (uint64_t[]){ 3 * LAYER, 3 * LAYER, 3 * LAYER });
	x.c.running = 0;                                /* a death: only with the one that was spare */
	chosen(&x, "123");
	done(&x);
}

/* Whose death costs what. */
static void shards_and_holders(void **state)
{
	struct bed x;
	bool there[CREW_MEMBERS_MAX] = { true, true, true, true };
	bed(&x, "nnnn", NULL, NULL);
	chosen(&x, "1234");
	assert_int_equal(x.c.found.shards.n, 4);
	assert_int_equal(shards_missing(&x.c.found.shards, there), 0);
	there[1] = false;
	assert_int_equal(shards_missing(&x.c.found.shards, there), 0);
	there[3] = false;
	assert_int_equal(shards_missing(&x.c.found.shards, there), 0);
	there[2] = false;                               /* now neighbours are gone: cuts 1, 2 and 3 of two layers */
	assert_int_equal(shards_missing(&x.c.found.shards, there), 4 * LAYER);
	there[0] = false;
	assert_int_equal(shards_missing(&x.c.found.shards, there), 8 * LAYER);
	done(&x);
}

/* ---- what a planner is told ---- */

static void the_slowest_link_is_told(void **state)
{
	struct bed x;
	bed(&x, "nnn", NULL, NULL);
	struct offer *o = &x.c.all;
	struct view_member *m = view_members(o);
	x.c.usual.us_per_byte = 7;                       /* only what members have measured counts */
	assert_true(view_of(&x.c.usual, o, m, 0).us_per_byte == 0);
	rate(&x, 1 << 20);
	o->link[5].rate = scale_code(1 << 17);
	o->link[7].rate = 0;                             /* not measured: nobody knows how slow */
	for (uint32_t me = 0; me < 3; me++)
		assert_true(view_of(&x.c.usual, o, m, me).us_per_byte == 1e6 / (1 << 17));
	o->link[5].rate = 1;                             /* a byte a second: nobody is taken at that word */
	assert_true(view_of(&x.c.usual, o, m, 0).us_per_byte == 1e3);
	free(m);
	done(&x);
}

/* Whatever members say of their links, what a program takes is a time: not 2^62 us, nor a sum that has gone around. */
static void links_that_cannot_be(void **state)
{
	struct bed x;
	struct plans p;
	struct pace pace;
	struct err e;
	bed(&x, "nnn", NULL, NULL);
	for (uint32_t i = 0; i < 9; i++)
		if (i % 4)
			x.c.all.link[i] = (struct crew_link){ 1, SCALE_CODES };
	assert_int_equal(plans_make(&p, &cut_ops, &x.c.usual, &x.c.all, &e), 0);
	assert_int_equal(plans_pace(&p, &x.c.usual, &x.c.all, &pace, &e), 0);
	assert_true(pace.us > 60e6 && pace.us < 1e12);
	plans_free(&p);
	done(&x);
}

static unsigned settled, planned;

static int settle_once(const struct view *v, json_t **ret, struct err *e)
{
	*ret = json_pack("{s:i}", "members", (int)v->nmembers);
	settled++;
	return 0;
}

static int plan_settled(const struct view *v, const struct plan_results *results, struct plan *ret, struct err *e)
{
	planned++;
	assert_int_equal(json_integer_value(json_object_get(v->values, "members")), v->nmembers);
	return cut_ops.plan(v, results, ret, e);
}

/* What takes long is found once for all members. */
static void what_is_open_is_settled_once(void **state)
{
	struct planner_ops ops = cut_ops;
	struct bed x;
	struct plans p;
	struct err e;
	ops.settle = settle_once;
	ops.plan = plan_settled;
	bed(&x, "nnnn", NULL, NULL);
	assert_int_equal(plans_make(&p, &ops, &x.c.usual, &x.c.all, &e), 0);
	assert_true(settled == 1 && planned == 4);
	plans_free(&p);
	done(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offers_are_exact),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(cards_and_gos),
		cmocka_unit_test(figures_in_a_byte),
		cmocka_unit_test(numbers_grow_and_differ),
		cmocka_unit_test(at_first_all_are_in),
		cmocka_unit_test(a_tenth_faster_and_paid), cmocka_unit_test(those_who_can_go_on),
		cmocka_unit_test(copies_that_are_short),
		cmocka_unit_test(room_for_the_model),
		cmocka_unit_test(shards_and_holders),
		cmocka_unit_test(the_slowest_link_is_told),
		cmocka_unit_test(links_that_cannot_be),
		cmocka_unit_test(what_is_open_is_settled_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

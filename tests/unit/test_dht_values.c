/* Record rules S1-S10 of Hivemind's storage, without its defect X1, and the wire form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/rng.h"
#include "dht/values.h"

#define WALL 1800000000000ull
#define S 1000000ull

static struct rec *rec(const char *key, const char *sub, const char *value, uint64_t rank, uint64_t life_ms,
	uint64_t now)
{
	struct rec *r = xcalloc(1, sizeof *r);
	list_init(&r->link);
	id_of(&r->key, key, strlen(key));
	snprintf(r->subkey, sizeof r->subkey, "%s", sub);
	r->value = xstrdup(value);
	r->vlen = (uint32_t)strlen(value);
	r->rank = WALL + rank;
	r->life_ms = life_ms;
	r->ends_us = now + life_ms * 1000;
	return r;
}

static struct values fresh(size_t records, size_t per_peer)
{
	struct values v;
	values_init(&v, &(struct values_conf){ .records_max = records, .per_peer_max = per_peer, .bytes_max = 1 << 20 }, 7);
	return v;
}

static const char *value_of(struct values *v, const char *key, const char *sub, uint64_t now)
{
	struct id id;
	id_of(&id, key, strlen(key));
	struct entry *en = values_get(v, &id, now);
	if (en)
		list_each(it, &en->recs)
			if (!strcmp(list_entry(it, struct rec, link)->subkey, sub))
				return list_entry(it, struct rec, link)->value;
	return NULL;
}

static void test_strictly_later_wins(void **state)
{
	struct values v = fresh(100, 100);
	struct err e;
	assert_int_equal(values_put(&v, rec("a", "", "1", 10, 100000, 0), 1, WALL, &e), PUT_NEW);
	assert_int_equal(values_put(&v, rec("a", "", "2", 10, 100000, 0), 1, WALL, &e), PUT_REFUSED);
	assert_int_equal(values_put(&v, rec("a", "", "1", 10, 900000, 0), 1, WALL, &e), PUT_SAME);
	assert_int_equal(values_put(&v, rec("a", "", "3", 9, 100000, 0), 1, WALL, &e), PUT_REFUSED);
	assert_string_equal(value_of(&v, "a", "", 1), "1");
	assert_int_equal(values_put(&v, rec("a", "", "4", 11, 100000, 0), 1, WALL, &e), PUT_NEW);
	assert_string_equal(value_of(&v, "a", "", 1), "4");
	values_done(&v);
}

/* X1: a rejected store must not shorten, a repeated one must not lengthen, the life of what is kept. */
static void test_refused_store_changes_nothing(void **state)
{
	struct values v = fresh(100, 100);
	struct err e;
	values_put(&v, rec("a", "", "1", 10, 100000, 0), 1, WALL, &e);
	values_put(&v, rec("a", "", "1", 5, 200, 0), 1, WALL, &e);
	assert_string_equal(value_of(&v, "a", "", 400000), "1");
	values_put(&v, rec("a", "", "1", 10, 900000, 0), 1, WALL, &e);
	assert_null(value_of(&v, "a", "", 100 * S));
	values_done(&v);
}

static void test_ended_is_gone(void **state)
{
	struct values v = fresh(100, 100);
	struct err e;
	values_put(&v, rec("a", "", "1", 1, 100, 0), 1, WALL, &e);
	assert_non_null(value_of(&v, "a", "", 99999));
	assert_null(value_of(&v, "a", "", 100000));
	assert_int_equal(v.records, 0);
	assert_int_equal(values_put(&v, rec("a", "", "1", 1, 100, 0), 100000, WALL, &e), PUT_REFUSED);
	/* too old a rank */
	assert_int_equal(values_put(&v, rec("a", "", "1", 0, 100, 0), 1, WALL + 700001, &e), PUT_REFUSED);
	/* from the future */
	assert_int_equal(values_put(&v, rec("a", "", "1", 7200000, 100, 0), 1, WALL, &e), PUT_REFUSED);
	values_done(&v);
}

static void test_dictionaries(void **state)
{
	struct values v = fresh(100, 100);
	struct err e;
	values_put(&v, rec("d", "x", "1", 10, 100000, 0), 1, WALL, &e);
	values_put(&v, rec("d", "y", "2", 5, 100000, 0), 1, WALL, &e);
	assert_string_equal(value_of(&v, "d", "x", 1), "1");
	assert_string_equal(value_of(&v, "d", "y", 1), "2");
	assert_int_equal(values_put(&v, rec("d", "x", "0", 9, 100000, 0), 1, WALL, &e), PUT_REFUSED);
	assert_int_equal(values_put(&v, rec("d", "y", "3", 6, 100000, 0), 1, WALL, &e), PUT_NEW);
	assert_string_equal(value_of(&v, "d", "x", 1), "1");
	/* a plain value needs a rank above all of the dictionary */
	assert_int_equal(values_put(&v, rec("d", "", "9", 10, 100000, 0), 1, WALL, &e), PUT_REFUSED);
	assert_int_equal(values_put(&v, rec("d", "", "9", 11, 100000, 0), 1, WALL, &e), PUT_NEW);
	assert_null(value_of(&v, "d", "x", 1));
	assert_int_equal(v.records, 1);
	/* and a subkey one above the plain value's */
	assert_int_equal(values_put(&v, rec("d", "x", "1", 11, 100000, 0), 1, WALL, &e), PUT_REFUSED);
	assert_int_equal(values_put(&v, rec("d", "x", "1", 12, 100000, 0), 1, WALL, &e), PUT_NEW);
	assert_null(value_of(&v, "d", "", 1));
	values_done(&v);
}

static void test_bounds(void **state)
{
	struct values v = fresh(2, 2);
	struct err e;
	values_put(&v, rec("a", "", "1", 1, 1000, 0), 1, WALL, &e);
	values_put(&v, rec("b", "", "1", 1, 5000, 0), 1, WALL, &e);
	assert_int_equal(values_put(&v, rec("c", "", "1", 1, 9000, 0), 1, WALL, &e), PUT_REFUSED);    /* its quota */
	struct rec *c = rec("c", "", "1", 1, 9000, 0);
	c->from.b[0] = 1;
	assert_int_equal(values_put(&v, c, 1, WALL, &e), PUT_NEW);       /* the one that ends first goes (S10) */
	assert_null(value_of(&v, "a", "", 1));
	assert_non_null(value_of(&v, "b", "", 1));
	struct rec *d = rec("d", "", "1", 1, 10, 0);
	d->from.b[0] = 1;
	assert_int_equal(values_put(&v, d, 1, WALL, &e), PUT_REFUSED);   /* it would be the first to go itself */
	assert_int_equal(v.records, 2);
	values_sweep(&v, 100 * S);
	assert_int_equal(v.records, 0);
	assert_int_equal(v.bytes, 0);
	assert_int_equal(map_len(v.keys), 0);
	assert_int_equal(map_len(v.quota), 0);
	values_done(&v);
}

static struct rec *large(const char *key, size_t bytes, uint64_t life_ms, uint8_t from)
{
	char *text = xcalloc(bytes + 1, 1);
	memset(text, 'x', bytes);
	struct rec *r = rec(key, "", text, 1, life_ms, 0);
	r->from.b[0] = from;
	free(text);
	return r;
}

/* A store that is refused takes nobody's place: all that would have to go is counted before anything goes. */
static void test_refused_takes_nothing(void **state)
{
	struct values v;
	struct err e;
	char key[8];
	values_init(&v, &(struct values_conf){ .records_max = 1000, .per_peer_max = 1000, .bytes_max = 16000 }, 7);
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof key, "k%d", i);
		assert_int_equal(values_put(&v, large(key, 100, 1000, 1), 1, WALL, &e), PUT_NEW);
	}
	assert_int_equal(values_put(&v, large("long", 9000, 90000, 2), 1, WALL, &e), PUT_NEW);
	assert_int_equal(values_put(&v, large("big", 8000, 5000, 3), 1, WALL, &e), PUT_REFUSED);
	assert_int_equal(e.code, ERR_FULL);
	assert_int_equal(v.records, 21);
	assert_int_equal(values_put(&v, large("fits", 5000, 5000, 3), 1, WALL, &e), PUT_NEW);
	assert_true(v.records < 22 && v.records > 2);
	assert_true(v.bytes <= 16000);
	assert_non_null(value_of(&v, "long", "", 1));
	values_done(&v);
}

/* Nobody fills more than its share of the bytes, however long its records live. */
static void test_share_of_bytes(void **state)
{
	struct values v;
	struct err e;
	char key[8];
	int mine = 0;
	values_init(&v, &(struct values_conf){ .records_max = 1000, .per_peer_max = 1000, .bytes_max = 100000,
		.per_peer_bytes = 25000 }, 7);
	assert_int_equal(values_put(&v, large("other", 1000, 1000, 2), 1, WALL, &e), PUT_NEW);
	for (int i = 0; i < 100; i++) {
		snprintf(key, sizeof key, "k%d", i);
		mine += values_put(&v, large(key, 1000, 900000, 1), 1, WALL, &e) == PUT_NEW;
	}
	assert_int_equal(e.code, ERR_LIMIT);
	assert_in_range(mine, 15, 25);
	assert_non_null(value_of(&v, "other", "", 1));
	struct rec *again = large("k0", 1200, 900000, 1);       /* instead of its own: the difference counts */
	again->rank++;
	assert_int_equal(values_put(&v, again, 1, WALL, &e), PUT_NEW);
	values_sweep(&v, 1000000 * S);
	assert_int_equal(map_len(v.quota), 0);
	values_done(&v);
}

/* ---- against a plain list of what should be there ---- */

struct held { char sub[8]; uint64_t rank, ends_us; };
struct shadow { struct held v[64]; size_t n; };

static void shadow_end(struct shadow *w, uint64_t now)
{
	size_t k = 0;
	for (size_t i = 0; i < w->n; i++)
		if (w->v[i].ends_us > now)
			w->v[k++] = w->v[i];
	w->n = k;
}

/* True when it enters. No subkey is a peer's here. */
static bool shadow_put(struct shadow *w, const struct held *x)
{
	size_t k = 0;
	for (size_t i = 0; i < w->n; i++) {
		const struct held *c = &w->v[i];
		bool rival = !c->sub[0] || !x->sub[0] || !strcmp(c->sub, x->sub);
		if (rival && c->rank >= x->rank)
			return false;
	}
	for (size_t i = 0; i < w->n; i++)
		if (w->v[i].sub[0] && x->sub[0] && strcmp(w->v[i].sub, x->sub))
			w->v[k++] = w->v[i];
	w->v[k] = *x;
	w->n = k + 1;
	return true;
}

static void same_as_shadow(struct values *v, const struct shadow *w, uint64_t now)
{
	struct id id;
	size_t i = 0;
	id_of(&id, "k", 1);
	struct entry *en = values_get(v, &id, now);
	assert_int_equal(en ? en->n : 0, w->n);
	assert_int_equal(v->records, w->n);
	if (en)
		list_each(it, &en->recs) {
			assert_string_equal(list_entry(it, struct rec, link)->subkey, w->v[i].sub);
			assert_int_equal(list_entry(it, struct rec, link)->rank, WALL + w->v[i++].rank);
		}
}

/* Dictionaries small and large, by turns replaced by a plain value and back, while records end. */
static void test_like_a_list(void **state)
{
	struct values v = fresh(1000, 1000);
	struct shadow w = { .n = 0 };
	struct rng r;
	size_t most = 0, plain = 0, refused = 0;
	rng_seed(&r, 1);
	for (uint64_t step = 1; step <= 20000; step++) {
		struct held x = { .rank = step / 2 + rng_below(&r, 60) };
		struct err e;
		uint64_t now = step * 1000, life_ms = 1 + rng_below(&r, 400);
		x.ends_us = now + life_ms * 1000;
		if (rng_below(&r, 300))
			snprintf(x.sub, sizeof x.sub, "s%u", (unsigned)rng_below(&r, step % 8000 < 4000 ? 50 : 5));
		else
			x.rank += 30;           /* mostly greater than all of the others */
		shadow_end(&w, now);
		bool in = shadow_put(&w, &x);
		char value[24];                 /* never the same record twice */
		snprintf(value, sizeof value, "%llu", (unsigned long long)step);
		assert_int_equal(values_put(&v, rec("k", x.sub, value, x.rank, life_ms, now), now, WALL, &e),
			in ? PUT_NEW : PUT_REFUSED);
		same_as_shadow(&v, &w, now);
		most = w.n > most ? w.n : most;
		plain += in && !x.sub[0];
		refused += !in;
	}
	assert_true(most > 40 && plain > 20 && refused > 100);
	values_sweep(&v, UINT64_MAX);
	assert_int_equal(v.records, 0);
	assert_int_equal(v.bytes, 0);
	assert_int_equal(map_len(v.keys), 0);
	assert_int_equal(map_len(v.quota), 0);
	values_done(&v);
}

static void test_wire_form(void **state)
{
	struct buf b = { 0 };
	struct rec *r = rec("k", "sub", "{\"a\":1}", 3, 60000, 0);
	r->is_signed = true;
	memset(r->sig, 5, 64);
	rec_write(&b, r, 10 * S);
	struct rd rd = rd_of(b.p, b.len);
	struct rec *c = rec_read(&rd, &r->key, 500 * S);
	assert_non_null(c);
	assert_int_equal(rd_left(&rd), 0);
	assert_string_equal(c->subkey, "sub");
	assert_memory_equal(c->value, r->value, r->vlen + 1);
	assert_int_equal(c->ends_us, 550 * S);  /* what remained */
	assert_memory_equal(c->sig, r->sig, 64);
	rec_free(c);
	for (size_t n = 0; n < b.len; n++) {    /* every truncation is refused, none reads past the end */
		uint8_t *part = xmemdup(b.p, n ? n : 1);
		rd = rd_of(part, n);
		assert_null(rec_read(&rd, &r->key, 0));
		assert_true(rd.bad);
		free(part);
	}
	rec_free(r);
	buf_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strictly_later_wins), cmocka_unit_test(test_refused_store_changes_nothing),
		cmocka_unit_test(test_ended_is_gone), cmocka_unit_test(test_dictionaries),
		cmocka_unit_test(test_bounds), cmocka_unit_test(test_refused_takes_nothing),
		cmocka_unit_test(test_share_of_bytes), cmocka_unit_test(test_wire_form),
		cmocka_unit_test(test_like_a_list),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

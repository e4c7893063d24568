/* A state in shards is the whole state, cut: names, bytes, fresh values and the digest of w are those of the whole
 * however it is cut; what is missing, there twice, torn or changed is seen. */
#include <math.h>
#include "shard_kit.h"

static const struct ckpt_tensor *find(const struct shard *s, const char *name)
{
	for (size_t i = 0; i < s->ntensors; i++)
		if (!strcmp(s->tensor[i].name, name))
			return &s->tensor[i];
	fail_msg("no tensor %s", name);
	return NULL;
}

/* Each tensor of a shard is the piece of the whole's that its name says; returns bytes of them but the clock's. */
static size_t pieces(const struct shard *whole, const struct shard *s)
{
	size_t bytes = 0;

	for (size_t i = 0; i < s->ntensors; i++) {
		const struct ckpt_tensor *t = &s->tensor[i], *w;
		char name[CKPT_NAME];
		uint64_t at = 0;

		memcpy(name, t->name, sizeof(name));
		if (strchr(name, '@')) {
			at = strtoull(strchr(name, '@') + 1, NULL, 10);
			*strchr(name, '@') = 0;
		}
		w = find(whole, name);
		assert_true(at * sizeof(real) + t->bytes <= w->bytes);
		assert_memory_equal(t->data, (char *)w->data + at * sizeof(real), t->bytes);
		assert_true(strchr(t->name, '@') || (t->ndim == w->ndim && !memcmp(t->shape, w->shape, sizeof(t->shape))));
		bytes += strcmp(t->name, "optimizer.clock") ? t->bytes : 0;
	}
	return bytes;
}

static void test_shards(void **state)
{
	struct model *m = any_model();
	struct layout l = layout_of(m);
	struct shard whole, s[PARTS];
	struct extent param[PARTS], stat[PARTS];
	struct rng g;
	struct err e;
	uint8_t want[STATE_DIGEST], have[STATE_DIGEST];
	real *all = xcalloc(m->nparam, sizeof(*all));

	rng_seed(&g, any_seed());
	assert_int_equal(shard_new(&whole, &l, (struct extent){ 0, l.params }, (struct extent){ 0, l.stats }, &e), 0);
	fresh(m, &whole);
	model_init(m, 7, all);
	assert_memory_equal(shard_w(&whole), all, m->nparam * sizeof(real));
	assert_true(shard_is_whole(&whole));
	digest_of(whole.block, l.params + l.stats, sizeof(real), want);
	for (int k = 0; k < 200; k++) {
		size_t n = cuts(&g, &l, param, stat), bytes = 0;
		struct buf b[2 * PARTS] = { 0 };
		struct digest_bytes part[2 * PARTS];

		for (size_t i = 0; i < n; i++) {
			assert_int_equal(shard_new(&s[i], &l, param[i], stat[i], &e), 0);
			assert_int_equal(s[i].bytes, shard_bytes(&l, param[i], stat[i]));
			fresh(m, &s[i]);
			bytes += pieces(&whole, &s[i]);
			shard_digest_parts(&s[i], &b[2 * i], &b[2 * i + 1]);
		}
		assert_int_equal(bytes, (3 * l.params + l.stats + 2 * (l.params + l.stats)) * sizeof(real));
		for (size_t i = 0; i < 2 * n; i++) {            /* in any order */
			size_t j = rng_u64(&g) % (i + 1);

			part[i] = part[j];
			part[j] = (struct digest_bytes){ b[i].p, b[i].len };
		}
		if (digest_join(part, 2 * n, l.params + l.stats, sizeof(real), have, &e) < 0)
			fail_msg("%s", e.text);
		assert_memory_equal(have, want, sizeof(want));
		for (size_t i = 0; i < n; i++) {
			shard_free(&s[i]);
			buf_free(&b[2 * i]);
			buf_free(&b[2 * i + 1]);
		}
	}
	shard_free(&whole);
	layout_free(&l);
	model_free(m);
	free(all);
}

/* ---- the digest ---- */

#define MANY 200000
static float values[MANY];

static void any_values(struct rng *g)
{
	for (size_t i = 0; i < MANY; i++)
		values[i] = (float)(rng_u64(g) >> 40);
}

static size_t part_of(struct buf *b, struct digest_bytes *v, uint64_t lo, uint64_t hi, uint64_t all)
{
	*b = (struct buf){ 0 };
	digest_part(values + lo, lo, hi - lo, all, sizeof(float), b);
	*v = (struct digest_bytes){ b->p, b->len };
	return b->len;
}

static void test_any_cut(void **state)
{
	struct rng g;
	struct err e;

	rng_seed(&g, any_seed());
	any_values(&g);
	for (int k = 0; k < 60; k++) {
		uint64_t all = k < 4 ? (uint64_t)k * 512 : rng_u64(&g) % MANY, x = all ? rng_u64(&g) % (all + 1) : 0;
		uint64_t y = x + (all > x ? rng_u64(&g) % (all - x + 1) : 0);
		struct buf b[3];
		struct digest_bytes v[3];
		uint8_t want[STATE_DIGEST], have[STATE_DIGEST];

		digest_of(values, all, sizeof(float), want);
		part_of(&b[0], &v[2], 0, x, all);
		part_of(&b[1], &v[0], x, y, all);
		part_of(&b[2], &v[1], y, all, all);
		if (digest_join(v, 3, all, sizeof(float), have, &e) < 0)
			fail_msg("%" PRIu64 " cut at %" PRIu64 " and %" PRIu64 ": %s", all, x, y, e.text);
		assert_memory_equal(have, want, sizeof(want));
		for (int i = 0; i < 3; i++)
			buf_free(&b[i]);
	}
}

/* One bit of one element, anywhere, is another digest. */
static void test_one_bit(void **state)
{
	uint8_t was[STATE_DIGEST], is[STATE_DIGEST];
	struct rng g;

	rng_seed(&g, any_seed());
	any_values(&g);
	digest_of(values, MANY, sizeof(float), was);
	for (int k = 0; k < 50; k++) {
		uint64_t at = rng_u64(&g) % sizeof(values), bit = rng_u64(&g) % 8;

		((uint8_t *)values)[at] ^= (uint8_t)(1 << bit);
		digest_of(values, MANY, sizeof(float), is);
		assert_memory_not_equal(was, is, sizeof(is));
		((uint8_t *)values)[at] ^= (uint8_t)(1 << bit);
	}
	digest_of(values, MANY - 1, sizeof(float), is);
	assert_memory_not_equal(was, is, sizeof(is));
}

static void want_error(const struct digest_bytes *v, size_t n, const char *what)
{
	uint8_t ret[STATE_DIGEST];
	struct err e;

	assert_int_equal(digest_join(v, n, 5000, sizeof(float), ret, &e), -1);
	assert_int_equal(e.code, ERR_PROTOCOL);
	if (!strstr(e.text, what))
		fail_msg("\"%s\" does not say \"%s\"", e.text, what);
}

static void test_bad_parts(void **state)
{
	struct buf b[4];
	struct digest_bytes v[4];

	part_of(&b[0], &v[0], 0, 1500, 5000);
	part_of(&b[1], &v[1], 1500, 3000, 5000);
	part_of(&b[2], &v[2], 3000, 5000, 5000);
	part_of(&b[3], &v[3], 1400, 3000, 5000);
	want_error(v, 2, "no part has the elements from 3000 on");
	want_error(v + 1, 2, "no part has the elements before 1500");
	want_error((struct digest_bytes[]){ v[0], v[3], v[2] }, 3, "two parts have element 1400");
	want_error((struct digest_bytes[]){ v[0], v[1], v[1], v[2] }, 4, "two parts have element 1500");
	want_error((struct digest_bytes[]){ v[0], { b[1].p, b[1].len - 1 }, v[2] }, 3, "ends before its element 2048");
	buf_u8(&b[2], 0);
	want_error((struct digest_bytes[]){ v[0], v[1], { b[2].p, b[2].len } }, 3, "1 bytes too many");
	want_error((struct digest_bytes[]){ v[0], { b[1].p, 9 }, v[2] }, 3, "a part of elements");
	memset(b[1].p + 8, 0xff, 8);
	want_error((struct digest_bytes[]){ v[0], { b[1].p, b[1].len }, v[2] }, 3, "a part of elements 1500");
	for (int i = 0; i < 4; i++)
		buf_free(&b[i]);
}

/* ---- looking ---- */

static size_t bad(void *arg, size_t n, const void *p)
{
	const real *x = p;
	size_t i = 0;

	while (i < n && x[i] - x[i] == 0)
		i++;
	return i;
}

static const void *by_hundred(void *arg, size_t off, size_t *ret_len)
{
	const struct shard *s = arg;

	*ret_len = s->bytes - off < 100 ? s->bytes - off : 100;
	return (char *)s->block + off;
}

static void want_bad(struct shard *s, const char *what)
{
	for (int k = 0; k < 2; k++) {
		struct err e;

		assert_int_equal(shard_look(s, bad, NULL, k ? by_hundred : NULL, s, &e), -1);
		if (!strstr(e.text, what))
			fail_msg("\"%s\" does not say \"%s\"", e.text, what);
	}
}

static void test_look(void **state)
{
	struct model *m = any_model();
	struct layout l = layout_of(m);
	struct shard s;
	struct err e;
	double *clock;

	assert_int_equal(shard_new(&s, &l, (struct extent){ 1024, 8192 }, (struct extent){ 3, l.stats }, &e), 0);
	fresh(m, &s);
	assert_int_equal(shard_look(&s, bad, NULL, NULL, NULL, &e), 0);
	assert_int_equal(shard_look(&s, bad, NULL, by_hundred, &s, &e), 0);
	for (size_t i = 0; i + 1 < s.ntensors; i++) {
		real *x = s.tensor[i].data, was = x[s.tensor[i].bytes / sizeof(real) - 1];
		char what[CKPT_NAME + 80];

		x[s.tensor[i].bytes / sizeof(real) - 1] = NAN;
		(void)snprintf(what, sizeof(what), "%s has a value that is not finite (element %zu)", s.tensor[i].name,
			(size_t)s.tensor[i].bytes / sizeof(real) - 1);
		want_bad(&s, what);
		x[s.tensor[i].bytes / sizeof(real) - 1] = was;
	}
	clock = shard_clock(&s);
	clock[0] = 0.5;
	want_bad(&s, "is no clock");
	assert_int_equal(shard_clock_look(&s, &e), -1);
	shard_free(&s);
	layout_free(&l);
	model_free(m);
}

/* The clock of a run whose loss is scaled: the scale to begin with, which is copied, looked at and reset like
 * the rest. */
static void test_scaled(void **state)
{
	static const double bad_scale[] = { 0, 3, -2, 0.5, NAN, INFINITY };
	struct model *m = any_model();
	struct layout plain = layout_of(m), l = layout_of(m);
	const struct extent all = { 0, l.params }, none = { 0, 0 };
	struct shard s, t;
	struct err e;
	double *clock;

	l.scale = 1024;
	assert_int_equal(shard_bytes(&l, all, none), shard_bytes(&plain, all, none) + 2 * sizeof(double));
	assert_int_equal(shard_new(&s, &l, all, none, &e), 0);
	assert_int_equal(shard_new(&t, &l, (struct extent){ 1024, 2048 }, none, &e), 0);
	fresh(m, &s);
	clock = shard_clock(&s);
	assert_true(clock[3] == 1024 && clock[4] == 0 && shard_scale(&s) == 1024);
	for (size_t i = 0; i < sizeof(bad_scale) / sizeof(*bad_scale); i++) {
		clock[3] = bad_scale[i];
		want_bad(&s, "has no scale of a loss");
		assert_int_equal(shard_clock_look(&s, &e), -1);
	}
	clock[3] = 2;
	clock[4] = 1.5;
	want_bad(&s, "has no scale of a loss");
	clock[4] = 7;
	assert_int_equal(shard_look(&s, bad, NULL, NULL, NULL, &e), 0);
	assert_int_equal(shard_look(&s, bad, NULL, by_hundred, &s, &e), 0);
	assert_true(shard_copy(&t, &s));
	assert_memory_equal(shard_clock(&t), shard_clock(&s), 5 * sizeof(double));
	shard_clock_reset(&s);
	assert_true(clock[0] == 0 && clock[1] == 1 && clock[2] == 1 && clock[3] == 1024 && clock[4] == 0);
	shard_free(&s);
	shard_free(&t);
	layout_free(&l);
	layout_free(&plain);
	model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_shards), cmocka_unit_test(test_any_cut),
		cmocka_unit_test(test_one_bit), cmocka_unit_test(test_bad_parts), cmocka_unit_test(test_look),
		cmocka_unit_test(test_scaled) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

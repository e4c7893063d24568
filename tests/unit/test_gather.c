/* Checkpoints of shards come back under any other cut, bit for bit; what is missing, damaged, of another epoch or of
 * another model is an error that names it, and nothing is touched. */
#include <math.h>
#include "shard_kit.h"
#include "state/gather.h"
#include "state_env.h"

struct bed { struct world *w; struct model *m; struct layout l; struct shard whole; char path[PARTS][200];
	const char *paths[PARTS]; size_t n; };

/* The whole with values that are all different. */
static void begin_scaled(struct bed *b, double scale)
{
	struct err e;

	b->w = world_new();
	b->m = any_model();
	b->l = layout_of(b->m);
	b->l.scale = scale;
	if (shard_new(&b->whole, &b->l, (struct extent){ 0, b->l.params }, (struct extent){ 0, b->l.stats }, &e) < 0)
		fail_msg("%s", e.text);
	for (size_t i = 0, k = 0; i < b->whole.ntensors; i++)
		for (size_t j = 0; b->whole.of[i] && j < b->whole.tensor[i].bytes / sizeof(real); j++)
			((real *)b->whole.tensor[i].data)[j] = (real)++k;
	((double *)shard_clock(&b->whole))[0] = 41;
	b->n = 0;
}

static void begin(struct bed *b) { begin_scaled(b, 0); }

static void end(struct bed *b)
{
	shard_free(&b->whole);
	layout_free(&b->l);
	model_free(b->m);
	world_free_all(b->w);
}

/* What the whole has of it. */
static void fill(const struct bed *b, struct shard *s)
{
	for (size_t i = 0; i < s->ntensors; i++)
		for (size_t k = 0; k < b->whole.ntensors; k++) {
			const struct ckpt_tensor *t = &s->tensor[i], *w = &b->whole.tensor[k];
			size_t n = strcspn(t->name, "@");
			uint64_t lo = t->name[n] ? strtoull(t->name + n + 1, NULL, 10) : 0;

			if (strlen(w->name) == n && !memcmp(w->name, t->name, n))
				memcpy(t->data, (char *)w->data + lo * sizeof(real), t->bytes);
		}
}

static void put(struct bed *b, struct extent param, struct extent stat)
{
	struct shard s;
	struct err e;

	assert_int_equal(shard_new(&s, &b->l, param, stat, &e), 0);
	fill(b, &s);
	(void)snprintf(b->path[b->n], sizeof(b->path[0]), "%s/shard-%zu.safetensors", b->w->dir, b->n);
	if (ckpt_write(&b->w->files, b->path[b->n], s.tensor, s.ntensors, NULL, NULL, NULL, &e) < 0)
		fail_msg("%s", e.text);
	b->paths[b->n] = b->path[b->n];
	b->n++;
	shard_free(&s);
}

static void blank(struct bed *b, struct shard *s, struct extent param, struct extent stat)
{
	struct err e;

	assert_int_equal(shard_new(s, &b->l, param, stat, &e), 0);
	memset(s->block, 0x5a, s->bytes);
}

static void test_any_cuts(void **state)
{
	struct rng g;
	uint64_t from = any_seed();

	rng_seed(&g, from);
	for (int k = 0; k < 40; k++) {
		struct extent param[PARTS], stat[PARTS];
		struct bed b;
		struct err e;

		begin_scaled(&b, k % 2 ? 512 : 0);
		for (size_t i = 0, n = cuts(&g, &b.l, param, stat); i < n; i++)
			put(&b, param[i], stat[i]);
		for (size_t i = 0, n = cuts(&g, &b.l, param, stat); i < n; i++) {
			struct shard s, want;

			blank(&b, &s, param[i], stat[i]);
			blank(&b, &want, param[i], stat[i]);
			fill(&b, &want);
			if (shard_gather(&s, 1, &b.w->files, b.paths, b.n, &e) < 0)
				fail_msg("%s", e.text);
			for (size_t t = 0; t < s.ntensors; t++)
				assert_memory_equal(s.tensor[t].data, want.tensor[t].data, s.tensor[t].bytes);
			shard_free(&s);
			shard_free(&want);
		}
		end(&b);
	}
}

/* The same from memory, from shards of any cut to those of any other. */
static void test_copied(void **state)
{
	struct rng g;

	rng_seed(&g, any_seed());
	for (int k = 0; k < 60; k++) {
		struct extent from_param[PARTS], from_stat[PARTS], param[PARTS], stat[PARTS];
		struct shard from[PARTS];
		struct bed b;
		struct err e;
		size_t n, got;

		begin(&b);
		n = cuts(&g, &b.l, from_param, from_stat);
		for (size_t i = 0; i < n; i++) {
			assert_int_equal(shard_new(&from[i], &b.l, from_param[i], from_stat[i], &e), 0);
			fill(&b, &from[i]);
		}
		for (size_t i = 0, m = cuts(&g, &b.l, param, stat); i < m; i++) {
			struct shard s, want;

			blank(&b, &s, param[i], stat[i]);
			blank(&b, &want, param[i], stat[i]);
			fill(&b, &want);
			got = 0;
			for (size_t j = 0; j < n; j++)
				got += shard_copy(&s, &from[j]);
			assert_true(got > 0 || extent_len(param[i]) + extent_len(stat[i]) == 0);
			for (size_t t = 0; t < s.ntensors; t++)
				if (s.of[t] || extent_len(s.param))
					assert_memory_equal(s.tensor[t].data, want.tensor[t].data, s.tensor[t].bytes);
			shard_free(&s);
			shard_free(&want);
		}
		for (size_t i = 0; i < n; i++)
			shard_free(&from[i]);
		end(&b);
	}
}

/* Of everything from these files: the error, and that nothing was touched. */
static void refused(struct bed *b, size_t n, enum err_code code, const char *part)
{
	struct shard s;
	struct err e;

	blank(b, &s, (struct extent){ 0, b->l.params }, (struct extent){ 0, b->l.stats });
	assert_int_equal(shard_gather(&s, 1, &b->w->files, b->paths, n, &e), -1);
	assert_err(e, code, part);
	for (size_t i = 0; i < s.bytes; i++)
		assert_int_equal(((uint8_t *)s.block)[i], 0x5a);
	shard_free(&s);
}

static void two_halves(struct bed *b)
{
	begin(b);
	put(b, (struct extent){ 0, 2048 }, (struct extent){ 0, 10 });
	put(b, (struct extent){ 2048, b->l.params }, (struct extent){ 10, b->l.stats });
}

static void test_missing(void **state)
{
	struct bed b;

	two_halves(&b);
	refused(&b, 1, ERR_NOT_FOUND, "tensor a.weight: of 1 checkpoints none has its element 2048 (all from 0 to 7000 is");
	refused(&b, 0, ERR_NOT_FOUND, "no checkpoint");
	assert_int_equal(unlink(b.path[1]), 0);
	refused(&b, 2, ERR_NOT_FOUND, b.path[1]);
	end(&b);
}

static void test_damaged(void **state)
{
	struct bed b;
	FILE *f;

	two_halves(&b);
	f = fopen(b.path[1], "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, -9, SEEK_END), 0);
	assert_int_equal(fputc(1, f), 1);
	assert_int_equal(fclose(f), 0);
	refused(&b, 2, ERR_CORRUPT, b.path[1]);
	end(&b);
}

static void test_other_epoch(void **state)
{
	struct bed b;

	begin(&b);
	put(&b, (struct extent){ 0, 2048 }, (struct extent){ 0, 10 });
	((double *)shard_clock(&b.whole))[0] = 42;
	put(&b, (struct extent){ 2048, b.l.params }, (struct extent){ 10, b.l.stats });
	refused(&b, 2, ERR_MISMATCH, "is of step 42, and ");
	end(&b);
}

/* One that was written without the scale of a loss is none of a run that has one, nor the other way round. */
static void test_other_scale(void **state)
{
	for (int k = 0; k < 2; k++) {
		struct bed b;

		begin_scaled(&b, k ? 512 : 0);
		put(&b, (struct extent){ 0, b.l.params }, (struct extent){ 0, b.l.stats });
		b.l.scale = k ? 0 : 512;
		refused(&b, 1, ERR_MISMATCH, k ? "has no clock of an optimizer" : "of an optimizer with the scale of");
		b.l.scale = k ? 512 : 0;
		end(&b);
	}
}

/* It has made no steps, whoever asks for it or for all. */
static void test_no_parameters(void **state)
{
	const struct extent none = { 0, 0 };
	struct shard s;
	struct err e;
	struct bed b;

	begin(&b);
	((double *)shard_clock(&b.whole))[0] = 0;
	put(&b, none, none);
	assert_int_equal(shard_new(&s, &b.l, none, none, &e), 0);
	assert_int_equal(shard_gather(&s, 1, &b.w->files, b.paths, b.n, &e), 0);
	shard_free(&s);
	((double *)shard_clock(&b.whole))[0] = 41;
	put(&b, (struct extent){ 0, b.l.params }, (struct extent){ 0, b.l.stats });
	blank(&b, &s, (struct extent){ 0, 2048 }, (struct extent){ 0, 10 });
	assert_int_equal(shard_gather(&s, 1, &b.w->files, b.paths, b.n, &e), 0);
	assert_true(((double *)shard_clock(&s))[0] == 41);
	shard_free(&s);
	end(&b);
}

/* Several shards of one file: it is looked at once, whole, and each element is read once. */
static void test_once(void **state)
{
	struct shard s[4], want;
	struct err e;
	struct bed b;
	int64_t bytes;

	begin(&b);
	put(&b, (struct extent){ 0, b.l.params }, (struct extent){ 0, b.l.stats });
	bytes = b.w->files.size(&b.w->files, b.path[0], &e);
	assert_true(b.l.params > 4096);
	for (uint64_t i = 0; i < 4; i++)
		blank(&b, &s[i], (struct extent){ i * 1024, i < 3 ? (i + 1) * 1024 : b.l.params },
			(struct extent){ 0, i ? 0 : b.l.stats });
	b.w->read_bytes = 0;
	assert_int_equal(shard_gather(s, 4, &b.w->files, b.paths, b.n, &e), 0);
	if (b.w->read_bytes > (uint64_t)bytes * 5 / 2)
		fail_msg("%llu bytes were read of a file of %lld", (unsigned long long)b.w->read_bytes, (long long)bytes);
	for (uint64_t i = 0; i < 4; i++) {
		blank(&b, &want, s[i].param, s[i].stat);
		fill(&b, &want);
		for (size_t t = 0; t < want.ntensors; t++)
			assert_memory_equal(s[i].tensor[t].data, want.tensor[t].data, want.tensor[t].bytes);
		shard_free(&want);
		shard_free(&s[i]);
	}
	end(&b);
}

static void test_other_model(void **state)
{
	struct bed b;

	two_halves(&b);
	for (size_t i = 0; i < b.l.ntensors; i++)
		if (!strcmp(b.l.tensor[i].name, "b.bias")) {
			b.l.tensor[i].nd = 2;
			b.l.tensor[i].shape[1] = 1;
		}
	refused(&b, 2, ERR_MISMATCH, "tensor b.bias has another type or shape than the model's");
	end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_any_cuts), cmocka_unit_test(test_copied),
		cmocka_unit_test(test_missing), cmocka_unit_test(test_once),
		cmocka_unit_test(test_damaged), cmocka_unit_test(test_other_epoch), cmocka_unit_test(test_other_scale),
		cmocka_unit_test(test_no_parameters),
		cmocka_unit_test(test_other_model) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

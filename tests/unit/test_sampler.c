/* Texts continued by a model: the same tokens as the whole model run anew, whatever the window; chance that is the
 * seed's alone; and models that continue nothing say why. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "data_kit.h"
#include "train/serve/sampler.h"

#define CONTEXT 40

struct bed { struct world w; struct spec *s; struct data *d; struct par par; struct model *m;
	struct snapshot *weights; };

static void nothing(void *arg, uint64_t us, bool backward) { (void)arg; (void)us; (void)backward; }

static void bed_open(struct bed *b, const char *model, const char *more)
{
	static const struct layer_host host = { .wait = nothing };
	char text[1500], letters[600];
	struct err e;

	world_open(&b->w);
	for (size_t i = 0; i < sizeof letters; i++)
		letters[i] = (char)('a' + i % 26);
	put(&b->w, "t.txt", letters, sizeof letters);
	(void)snprintf(text, sizeof text, "{\"name\":\"t\",\"model\":%s,\"optimizer\":{\"name\":\"sgd\"},"
		"\"target_batch\":8,\"data\":{\"name\":\"d\",\"kind\":\"text\"},%s}", model, more);
	b->s = spec_parse(text, strlen(text), &e);
	if (!b->s)
		fail_msg("%s", e.text);
	b->d = data_open(b->w.env->files, "d/t.txt", b->s, &e);
	if (!b->d)
		fail_msg("%s", e.text);
	b->m = spec_model(b->s, &host, &e);
	assert_non_null(b->m);
	b->par = par_serial(CPU_PLAIN, NULL);
	b->weights = xcalloc(1, sizeof *b->weights);
	b->weights->refs = 1;
	b->weights->bytes = (b->m->nparam + b->m->nbuffer + 1) * sizeof(real);
	b->weights->data = big_alloc(b->weights->bytes);
	model_init(b->m, 7, b->weights->data);
	for (size_t i = 0; i < b->m->nparam; i++)               /* opinions, so that tokens differ clearly */
		((real *)b->weights->data)[i] *= 8;
}

static void bed_close(struct bed *b)
{
	snapshot_unref(b->weights);
	model_free(b->m);
	data_free(b->d);
	spec_free(b->s);
	sim_free(b->w.sim);
}

#define GPT "{\"zoo\":\"gpt2\",\"layers\":2,\"width\":16,\"heads\":2,\"vocab\":256,\"positions\":64,\"context\":40," \
	"\"dropout\":0.1}"

static struct sampler *sampler(struct bed *b, const char *prompt, struct sampler_opts o)
{
	struct ids ids = { 0 };
	struct err e;
	struct sampler *x;

	alphabet_encode(data_source(b->d)->alphabet, prompt, strlen(prompt), &ids);
	x = sampler_new(b->s, data_source(b->d), &b->par, b->weights, &ids, &o, &e);
	if (!x)
		fail_msg("%s", e.text);
	free(ids.v);
	return x;
}

/* The likeliest token behind the last CONTEXT of n, by the whole model. */
static int32_t reference(struct bed *b, const int32_t *id, size_t n)
{
	size_t use = n < CONTEXT ? n : CONTEXT, best = 0;
	struct model_need need;
	struct model_call c = { .batch = 1, .param = b->weights->data };
	real x[CONTEXT] = { 0 }, *y, *row;

	model_need(b->m, 0, b->m->nops, 1, 1, &need);
	c.work = big_alloc(need.work_eval + 64);
	y = big_alloc(need.y);
	for (size_t i = 0; i < use; i++)
		x[i] = (real)id[n - use + i];
	model_forward(&b->par, b->m, 0, b->m->nops, &c, x, y);
	row = y + (use - 1) * 256;
	for (size_t i = 0; i < 256; i++)
		best = row[i] > row[best] ? i : best;
	big_free(c.work, need.work_eval + 64);
	big_free(y, need.y);
	return (int32_t)best;
}

static void windows_change_nothing(void **state)
{
	static const char prompt[] = "abcdefghijk";
	struct bed b;
	struct sampler *x;
	int32_t id[100];
	size_t n = 0;
	struct err e;

	bed_open(&b, GPT, "\"loss\":\"cross_entropy\"");
	x = sampler(&b, prompt, (struct sampler_opts){ .temperature = 0 });
	for (; n < sizeof prompt - 1; n++)
		id[n] = prompt[n];
	for (; n < 70; n++) {                                   /* past 16, 32, and past the context */
		assert_int_equal(sampler_next(x, &id[n], &e), 0);
		if (id[n] != reference(&b, id, n))
			fail_msg("token %zu is %d, the whole model says %d", n, id[n], reference(&b, id, n));
	}
	assert_int_equal(b.weights->refs, 2);
	sampler_free(x);
	bed_close(&b);
}

static void the_seed_decides(void **state)
{
	struct sampler_opts o = { .temperature = 1, .seed = 3 };
	struct bed b;
	int32_t got[4][30];
	struct err e;
	int greedy = 0;

	bed_open(&b, GPT, "\"loss\":\"cross_entropy\"");
	for (int i = 0; i < 4; i++) {
		struct sampler *x;

		o.seed = i == 2 ? 4 : 3;
		o.top_k = i == 3 ? 1 : 0;
		x = sampler(&b, "x", o);
		for (int k = 0; k < 30; k++)
			assert_int_equal(sampler_next(x, &got[i][k], &e), 0);
		sampler_free(x);
	}
	assert_memory_equal(got[0], got[1], sizeof got[0]);
	assert_memory_not_equal(got[0], got[2], sizeof got[0]);
	for (int k = 0; k < 30; k++) {
		int32_t id[31] = { 'x' };

		memcpy(id + 1, got[3], sizeof got[3]);
		greedy += got[3][k] == reference(&b, id, (size_t)k + 1);
	}
	assert_int_equal(greedy, 30);
	bed_close(&b);
}

static void draws_follow_the_scores(void **state)
{
	enum { N = 6, DRAWS = 40000 };
	static const real score[N] = { 1, 3, -2, 3, 0, (real)2.5 };
	static const struct { double heat; uint32_t top; } row[] = { { 1, 0 }, { 0.5, 0 }, { 2, 3 }, { 1, 6 }, { 1, 99 } };
	real room[N];

	for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
		struct sampler_opts o = { .temperature = row[r].heat, .top_k = row[r].top, .seed = 5 };
		uint64_t seen[N] = { 0 };
		double total = 0, p[N];

		for (int i = 0; i < N; i++) {
			p[i] = row[r].top == 3 && score[i] < 2.5 ? 0 : exp((double)score[i] / row[r].heat);
			total += p[i];
		}
		for (uint64_t k = 0; k < DRAWS; k++)
			seen[sampler_draw(score, N, &o, k, room)]++;
		for (int i = 0; i < N; i++) {
			double want = p[i] / total, got = (double)seen[i] / DRAWS;

			if (!(fabs(got - want) < 4 * sqrt(want * (1 - want) / DRAWS) + 1e-9))
				fail_msg("row %zu: %d was drawn %.4f of the time, %.4f is right", r, i, got, want);
		}
	}
	assert_int_equal(sampler_draw(score, N, &(struct sampler_opts){ .temperature = 0 }, 1, room), 1);
	assert_int_equal(sampler_draw((real[]){ 1, NAN, 2 }, 3, &(struct sampler_opts){ .temperature = 1 }, 1, room), -1);
	assert_int_equal(sampler_draw((real[]){ -1000, 1000 }, 2, &(struct sampler_opts){ .temperature = 1e-3 }, 1,
		room), 1);
}

static void broken_weights_are_said(void **state)
{
	struct bed b;
	struct sampler *x;
	int32_t id;
	struct err e;

	bed_open(&b, GPT, "\"loss\":\"cross_entropy\"");
	((real *)b.weights->data)[256 * 16 + 3] = (real)NAN;
	x = sampler(&b, "abc", (struct sampler_opts){ .temperature = 1 });
	assert_int_equal(sampler_next(x, &id, &e), -1);
	assert_err(e, ERR_NONFINITE, "not finite");
	sampler_free(x);
	bed_close(&b);
}

static void refused(const char *model, const char *more, const char *say)
{
	struct bed b;
	struct err e;

	bed_open(&b, model, more);
	assert_int_equal(sampler_can(b.s, data_source(b.d), &e), -1);
	if (!strstr(e.text, say))
		fail_msg("\"%s\" instead of \"%s\"", e.text, say);
	bed_close(&b);
}

static void what_continues_nothing_says_why(void **state)
{
	refused("{\"zoo\":\"bert\",\"layers\":1,\"width\":8,\"heads\":2,\"inner\":8,\"vocab\":257,"
		"\"positions\":8,\"context\":8}",
		"\"loss\":{\"type\":\"cross_entropy\",\"ignore\":-100}", "hidden tokens");
	refused("[{\"type\":\"embedding\",\"vocab\":256,\"dim\":4},{\"type\":\"linear\",\"out\":12},"
		"{\"type\":\"attention\",\"heads\":1,\"name\":\"all\"},{\"type\":\"linear\",\"out\":256}]",
		"\"loss\":\"cross_entropy\",\"input\":[8]", "layer all sees what comes later");
	refused("[{\"type\":\"embedding\",\"vocab\":256,\"dim\":4},{\"type\":\"flatten\"},"
		"{\"type\":\"linear\",\"out\":256}]",
		"\"loss\":\"cross_entropy\",\"input\":[8]", "a score for every token at every position");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows_change_nothing),
		cmocka_unit_test(the_seed_decides),
		cmocka_unit_test(draws_follow_the_scores),
		cmocka_unit_test(broken_weights_are_said),
		cmocka_unit_test(what_continues_nothing_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

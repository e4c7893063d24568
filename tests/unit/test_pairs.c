/* Pairs of texts: rows and labels of a sample exactly, lines that are none, answers drawn as the whole model says. */
#include <stdio.h>
#include <stdlib.h>
#include "data_kit.h"
#include "train/data/pairs.h"
#include "train/serve/sampler.h"

#define T 6
#define FORM "{\"name\":\"t\",\"model\":%s,\"loss\":%s,\"optimizer\":{\"name\":\"sgd\"},\"target_batch\":8," \
	"\"seed\":3,\"data\":{\"name\":\"d\",\"kind\":\"pairs\"%s}}"
#define MODEL(vocab) "{\"zoo\":\"transformer\",\"layers\":1,\"width\":8,\"heads\":2,\"inner\":8,\"vocab\":" vocab \
	",\"context\":6,\"dropout\":0}"
#define IGNORES "{\"type\":\"cross_entropy\",\"ignore\":-100}"
enum { BEGIN = 256, END, PAD };                 /* behind the bytes */

static struct data *open_(struct world *w, const char *path, const char *model, const char *loss,
	struct spec **ret_spec, struct err *e)
{
	char text[1000];

	(void)snprintf(text, sizeof text, FORM, model, loss, "");
	*ret_spec = spec_parse(text, strlen(text), e);
	if (!*ret_spec)
		fail_msg("%s", e->text);
	return data_open(w->env->files, path, *ret_spec, e);
}

static struct data *good(struct world *w, const char *path, const char *model, struct spec **ret_spec)
{
	struct err e;
	struct data *d = open_(w, path, model, IGNORES, ret_spec, &e);

	if (!d)
		fail_msg("%s", e.text);
	return d;
}

static void bad(struct world *w, const char *text, const char *model, const char *loss, const char *say)
{
	struct spec *s;
	struct err e;
	struct data *d;

	put(w, "bad.tsv", text, strlen(text));
	d = open_(w, "d/bad.tsv", model, loss, &s, &e);
	if (d || !strstr(e.text, say))
		fail_msg("\"%s\" instead of \"%s\"", d ? "accepted" : e.text, say);
	spec_free(s);
}

static void rows_and_labels(void **state)
{
	static const char lines[] = "abc\tde\r\n\nsixsix\tfives\n\xff\t\nlast\tx";
	static const struct { const char *source, *answer; } want[] = { { "abc", "de" }, { "sixsix", "fives" },
		{ "\xff", "" }, { "last", "x" } };
	struct world w;
	struct spec *s;
	struct data *d;

	world_open(&w);
	put(&w, "p.tsv", lines, sizeof lines - 1);
	d = good(&w, "d/p.tsv", MODEL("259"), &s);
	assert_int_equal(data_source(d)->classes, 259);
	assert_int_equal(data_count(d, DATA_TRAIN), 4);
	assert_int_equal(data_count(d, DATA_VALIDATION), 0);
	for (uint64_t p = 0; p < 8; p++) {
		size_t i = (size_t)data_index(d, p), n = strlen(want[i].source), m = strlen(want[i].answer);
		real x[3 * T];
		int32_t y[T];
		struct err e;

		assert_int_equal(data_read(d, DATA_TRAIN, &p, 1, x, y, &e), 0);
		for (size_t k = 0; k < T; k++) {
			assert_true(x[k] == (k < n ? (real)(uint8_t)want[i].source[k] : PAD));
			assert_true(x[T + k] == (!k ? BEGIN : k <= m ? (real)want[i].answer[k - 1] : PAD));
			assert_true(x[2 * T + k] == (real)(k < n));
			assert_int_equal(y[k], k < m ? want[i].answer[k] : k == m ? END : -100);
		}
	}
	assert_true(alphabet_special(data_source(d)->alphabet, END) && !alphabet_special(data_source(d)->alphabet, 255));
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

static size_t put_vocab(struct world *w, const char *was, const char *is)
{
	static char vocab[1 << 16], other[1 << 16];
	FILE *f = fopen(SOURCE_ROOT "/tests/data/bpe/tokenizer.json", "re");
	size_t n;
	char *at;

	assert_non_null(f);
	n = fread(vocab, 1, sizeof vocab - 1, f);
	(void)fclose(f);
	vocab[n] = 0;
	at = was ? strstr(vocab, was) : NULL;
	assert_true(!was || at);
	n = (size_t)snprintf(other, sizeof other, "%.*s%s%s", (int)(at ? at - vocab : n), vocab, at ? is : "",
		at ? at + strlen(was) : "");
	put(w, "t/tokenizer.json", other, n);
	return n;
}

/* In a folder, with a vocabulary that has none of them: they come behind its last token. */
static void signs_of_a_vocabulary(void **state)
{
	struct ids ids = { 0 };
	struct world w;
	struct spec *s;
	struct data *d;
	struct err e;
	real x[3 * T];
	int32_t y[T];
	size_t n;

	world_open(&w);
	assert_int_equal(w.env->files->mkdir(w.env->files, "d/t", 0755, &e), 0);
	(void)put_vocab(&w, NULL, NULL);
	put(&w, "t/train.tsv", "speak\tall", 9);
	put(&w, "t/test.tsv", "a\tb\nc\td\n", 8);
	d = good(&w, "d/t", MODEL("1000"), &s);
	assert_int_equal(data_count(d, DATA_VALIDATION), 2);
	alphabet_encode(data_source(d)->alphabet, "speak", 5, &ids);
	assert_int_equal(data_read(d, DATA_TRAIN, &(uint64_t){ 0 }, 1, x, y, &e), 0);
	for (size_t k = 0; k < ids.n; k++)
		assert_true(x[k] == (real)ids.v[k] && x[2 * T + k] == 1);
	assert_true(x[2 * T + ids.n] == 0);
	assert_int_equal(data_source(d)->classes, 999);
	assert_true(x[T] == 996 && x[2 * T - 1] == 998);
	n = 0;
	while (n + 1 < T && y[n + 1] != -100)
		n++;
	assert_true(y[n] == 997 && pairs_end(data_source(d)) == 997);
	assert_true(alphabet_special(data_source(d)->alphabet, 997) && !alphabet_special(data_source(d)->alphabet, 5));
	free(ids.v);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

/* A vocabulary with a sign for where an answer ends, which it does not call special, and none for the others. */
static void a_sign_that_it_has(void **state)
{
	struct world w;
	struct spec *s;
	struct data *d;
	struct err e;

	world_open(&w);
	assert_int_equal(w.env->files->mkdir(w.env->files, "d/t", 0755, &e), 0);
	(void)put_vocab(&w, "\"oft\"", "\"</s>\"");
	put(&w, "t/train.tsv", "speak\tall", 9);
	d = good(&w, "d/t", MODEL("1000"), &s);
	assert_int_equal(pairs_end(data_source(d)), 995);
	assert_int_equal(data_source(d)->classes, 998);
	assert_true(alphabet_special(data_source(d)->alphabet, 995) && !alphabet_special(data_source(d)->alphabet, 994));
	data_free(d);
	spec_free(s);
	put(&w, "t/train.tsv", "speak\tall</s>!", 14);
	d = open_(&w, "d/t", MODEL("1000"), IGNORES, &s, &e);
	assert_true(!d && strstr(e.text, "line 1: a text has one of the vocabulary's special tokens in it"));
	spec_free(s);
	sim_free(w.sim);
}

/* They are not kept prepared, and the operator is told so. */
static void nothing_is_kept_prepared(void **state)
{
	struct world w;
	struct spec *s;
	struct data *d;
	char text[1000];
	struct err e;

	world_open(&w);
	put(&w, "p.tsv", "abc\tde\n", 7);
	(void)snprintf(text, sizeof text, FORM, MODEL("259"), IGNORES, ",\"materialize_after\":0");
	s = spec_parse(text, strlen(text), &e);
	if (!s)
		fail_msg("%s", e.text);
	d = data_open(w.env->files, "d/p.tsv", s, &e);
	assert_non_null(d);
	assert_false(data_cache_wanted(d));
	assert_true(data_cache_news(d, text, sizeof text) && strstr(text, "pairs data are not kept prepared"));
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

static void lines_that_are_none(void **state)
{
	static const char one_row[] = "{\"zoo\":\"gpt2\",\"layers\":1,\"width\":8,\"heads\":2,\"vocab\":259,"
		"\"positions\":8,\"context\":6,\"dropout\":0}";
	struct world w;

	world_open(&w);
	bad(&w, "a\tb\nno tab\n", MODEL("259"), IGNORES, "d/bad.tsv (training): line 2: a source, one TAB and an answer");
	bad(&w, "a\tb\tc\n", MODEL("259"), IGNORES, "line 1: a source, one TAB");
	bad(&w, "a\tb\n\n\tb\n", MODEL("259"), IGNORES, "line 3: nothing stands before the TAB");
	bad(&w, "seven77\tb\n", MODEL("259"), IGNORES, "line 1: 7 tokens and 2 with its end, of 6 places each");
	bad(&w, "a\tsixsix\n", MODEL("259"), IGNORES, "1 tokens and 7 with its end, of 6 places");
	bad(&w, "\n\n", MODEL("259"), IGNORES, "no pairs to train on");
	bad(&w, "a\tb\n", MODEL("259"), "\"cross_entropy\"", "\"ignore\":-100");
	bad(&w, "a\tb\n", MODEL("200"), IGNORES, "the model has 200 outputs");
	bad(&w, "a\tb\n", one_row, "\"cross_entropy\"", "read three rows");
	sim_free(w.sim);
}

static struct sampler *sampler(struct spec *s, struct data *d, struct snapshot *weights, const char *prompt,
	struct err *e)
{
	struct sampler_opts o = { .temperature = 0 };
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct ids ids = { 0 };
	struct sampler *x;

	alphabet_encode(data_source(d)->alphabet, prompt, strlen(prompt), &ids);
	x = sampler_new(s, data_source(d), &par, weights, &ids, &o, e);
	free(ids.v);
	return x;
}

/* The likeliest token behind an answer of n, by the whole model and a sample made by hand. */
static int32_t reference(const struct model *m, const struct snapshot *weights, const char *source,
	const int32_t *answer, size_t n)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	struct model_need need;
	struct model_call c = { .batch = 1, .param = weights->data };
	real x[3 * T], *y;
	size_t best = 0;

	model_need(m, 0, m->nops, 1, 1, &need);
	c.work = big_alloc(need.work_eval + 64);
	y = big_alloc(need.y);
	for (size_t k = 0; k < T; k++) {
		x[k] = k < strlen(source) ? (real)source[k] : PAD;
		x[T + k] = !k ? BEGIN : k <= n ? (real)answer[k - 1] : 7;       /* what comes later is not seen */
		x[2 * T + k] = k < strlen(source);
	}
	model_forward(&par, m, 0, m->nops, &c, x, y);
	for (size_t i = 0; i < 259; i++)
		best = y[n * 259 + i] > y[n * 259 + best] ? i : best;
	big_free(c.work, need.work_eval + 64);
	big_free(y, need.y);
	return (int32_t)best;
}

static void answers_are_the_model_s(void **state)
{
	static const struct layer_host host = { 0 };
	struct world w;
	struct spec *s;
	struct data *d;
	struct err e;
	struct snapshot *weights = xcalloc(1, sizeof *weights);
	struct model *m;

	world_open(&w);
	put(&w, "p.tsv", "abc\tde\n", 7);
	d = good(&w, "d/p.tsv", MODEL("259"), &s);
	m = spec_model(s, &host, &e);
	assert_non_null(m);
	weights->refs = 1;
	weights->bytes = (m->nparam + 1) * sizeof(real);
	weights->data = big_alloc(weights->bytes);
	for (uint64_t seed = 1; seed < 6; seed++) {
		struct sampler *x;
		int32_t id[T + 1];

		model_init(m, seed, weights->data);
		for (size_t i = 0; i < m->nparam; i++)          /* opinions, so that tokens differ clearly */
			((real *)weights->data)[i] *= 4;
		x = sampler(s, d, weights, "abcdef", &e);
		assert_non_null(x);
		for (size_t n = 0; n < T; n++) {
			assert_int_equal(sampler_next(x, &id[n], &e), 0);
			assert_int_equal(id[n], reference(m, weights, "abcdef", id, n));
		}
		assert_int_equal(sampler_next(x, &id[T], &e), 0);
		assert_int_equal(id[T], END);                   /* there is no place for more */
		sampler_free(x);
		x = sampler(s, d, weights, "abc", &e);          /* places without a token */
		assert_non_null(x);
		for (size_t n = 0; n < T; n++) {
			assert_int_equal(sampler_next(x, &id[n], &e), 0);
			assert_int_equal(id[n], reference(m, weights, "abc", id, n));
		}
		sampler_free(x);
	}
	assert_null(sampler(s, d, weights, "abcdefg", &e));
	assert_non_null(strstr(e.text, "the prompt has 7 tokens, and the model reads 6"));
	snapshot_unref(weights);
	model_free(m);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_and_labels),
		cmocka_unit_test(signs_of_a_vocabulary),
		cmocka_unit_test(a_sign_that_it_has),
		cmocka_unit_test(nothing_is_kept_prepared),
		cmocka_unit_test(lines_that_are_none),
		cmocka_unit_test(answers_are_the_model_s),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Text as training sees it: every token is a label once a data epoch, whoever reads it; what is held out stays out; a
 * vocabulary is part of the manifest; hidden tokens are chosen by position alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "data_kit.h"
#include "train/data/text.h"

#define T 8

/* What a test wants of a text: the model's input and outputs, the loss, and more of the spec. */
struct want { const char *input, *model, *loss, *more, *vocab; };

static const struct want next_each = { "[8]", "{\"type\":\"embedding\",\"vocab\":256,\"dim\":2},"
	"{\"type\":\"linear\",\"out\":256}", "\"cross_entropy\"", "", "" };
static const struct want masked = { "[2,8]", "{\"type\":\"select\",\"index\":0,\"inputs\":[\"input\"]},"
	"{\"type\":\"embedding\",\"vocab\":257,\"dim\":2},{\"type\":\"linear\",\"out\":257}",
	"{\"type\":\"cross_entropy\",\"ignore\":-100}", "", "" };

static struct data *open_(struct world *w, const char *path, const struct want *t, struct spec **ret_spec,
	struct err *e)
{
	char text[1500];

	(void)snprintf(text, sizeof text, "{\"name\":\"t\",\"input\":%s,\"model\":[%s],\"loss\":%s,\"optimizer\":{\"name\":"
		"\"sgd\"},\"target_batch\":8,\"seed\":3,\"data\":{\"name\":\"d\",\"kind\":\"text\"}%s%s%s%s}", t->input,
		t->model, t->loss, t->more, *t->vocab ? ",\"local\":{\"vocab\":\"" : "", t->vocab, *t->vocab ? "\"}" : "");
	*ret_spec = spec_parse(text, strlen(text), e);
	if (!*ret_spec)
		fail_msg("%s", e->text);
	return data_open(w->env->files, path, *ret_spec, e);
}

static struct data *good(struct world *w, const char *path, const struct want *t, struct spec **ret_spec)
{
	struct err e;
	struct data *d = open_(w, path, t, ret_spec, &e);

	if (!d)
		fail_msg("%s", e.text);
	return d;
}

static void bad(struct world *w, const char *path, const struct want *t, const char *say)
{
	struct spec *s;
	struct err e;
	struct data *d = open_(w, path, t, &s, &e);

	if (d || !strstr(e.text, say))
		fail_msg("\"%s\" instead of \"%s\"", d ? "accepted" : e.text, say);
	spec_free(s);
}

static void put_text(struct world *w, const char *name, size_t n)
{
	uint8_t *p = xmalloc(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i % 251);
	put(w, name, p, n);
	free(p);
}

/* Position by position, in an order of its own for each data epoch: all labels but the tail's, once. */
static void every_token_is_a_label_once_an_epoch(void **state)
{
	enum { BYTES = 1000, HELD = 100, N = (BYTES - HELD - 1) / T };
	struct world w;
	struct spec *s;
	struct data *d;
	uint64_t first[N], order = 0;

	world_open(&w);
	put_text(&w, "t.txt", BYTES);
	d = good(&w, "d/t.txt", &next_each, &s);
	assert_int_equal(data_count(d, DATA_TRAIN), N);
	assert_int_equal(data_count(d, DATA_VALIDATION), (HELD - 1) / T);
	assert_int_equal(data_y_bytes(d), T * sizeof(int32_t));
	for (uint64_t epoch = 0; epoch < 3; epoch++) {
		int seen[BYTES] = { 0 };

		for (uint64_t i = 0; i < N; i++) {
			uint64_t p = epoch * N + i;
			size_t at = (size_t)data_index(d, p) * T;
			real x[T];
			int32_t y[T];
			struct err e;

			assert_int_equal(data_read(d, DATA_TRAIN, &p, 1, x, y, &e), 0);
			for (size_t k = 0; k < T; k++) {
				assert_true(x[k] == (real)((at + k) % 251) && y[k] == (int32_t)((at + k + 1) % 251));
				seen[at + k + 1]++;
			}
			order += epoch && first[i] == at;
			first[i] = epoch ? first[i] : at;
		}
		for (size_t i = 1; i <= N * T; i++)
			assert_int_equal(seen[i], 1);
		for (size_t i = N * T + 1; i < BYTES; i++)      /* the tail, and what is held out */
			assert_int_equal(seen[i], 0);
	}
	assert_true(order < N);                                 /* of 2 N places few are the same */
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

static void what_is_held_out_is_the_end(void **state)
{
	struct want half = next_each;
	struct world w;
	struct spec *s;
	struct data *d;
	real x[T];
	int32_t y[T];
	struct err e;

	half.more = ",\"validation\":{\"split\":0.5}";
	world_open(&w);
	put_text(&w, "t.txt", 250);
	d = good(&w, "d/t.txt", &half, &s);
	assert_int_equal(data_count(d, DATA_TRAIN), 124 / T);
	assert_int_equal(data_count(d, DATA_VALIDATION), 124 / T);
	for (uint64_t i = 0; i < 124 / T; i++) {
		assert_int_equal(data_read(d, DATA_VALIDATION, &i, 1, x, y, &e), 0);
		assert_true(x[0] == (real)(125 + i * T) && y[T - 1] == (int32_t)(125 + i * T + T));
	}
	data_free(d);
	spec_free(s);
	assert_int_equal(w.env->files->mkdir(w.env->files, "d/two", 0755, &e), 0);
	put_text(&w, "two/train.txt", 90);
	put_text(&w, "two/val.txt", 50);
	d = good(&w, "d/two", &next_each, &s);                  /* files of its own: nothing is cut off */
	assert_int_equal(data_count(d, DATA_TRAIN), 89 / T);
	assert_int_equal(data_count(d, DATA_VALIDATION), 49 / T);
	data_free(d);
	spec_free(s);
	d = good(&w, "d/two", &half, &s);
	assert_int_equal(data_count(d, DATA_VALIDATION), 44 / T);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

static void put_vocab(struct world *w, const char *name, bool less)
{
	static char text[1 << 16];
	FILE *f = fopen(SOURCE_ROOT "/tests/data/bpe/tokenizer.json", "re");
	size_t n;

	assert_non_null(f);
	n = fread(text, 1, sizeof text, f);
	(void)fclose(f);
	if (less) {                                             /* one merge less: the last */
		char *at = strstr(text, ",[\"i\",\"an\"]]}}");

		assert_non_null(at);
		n = (size_t)(at - text) + (size_t)snprintf(at, 5, "]}}");
	}
	put(w, name, text, n);
}

static void a_vocabulary_makes_tokens(void **state)
{
	static const char text[] = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, "
		"speak.\n\n";
	struct want bpe = { "[8]", "{\"type\":\"embedding\",\"vocab\":996,\"dim\":2},{\"type\":\"linear\",\"out\":996}",
		"\"cross_entropy\"", ",\"validation\":{\"split\":0.01}", "" }, small = next_each, gone = bpe, near = bpe;
	struct world w;
	struct spec *s;
	struct data *d;
	struct ids ids = { 0 };
	uint8_t before[32];
	size_t at = 0, n;
	struct err e;

	world_open(&w);
	assert_int_equal(w.env->files->mkdir(w.env->files, "d/t", 0755, &e), 0);
	put(&w, "t/train.txt", text, sizeof text - 1);
	put_vocab(&w, "t/tokenizer.json", false);
	d = good(&w, "d/t", &bpe, &s);
	assert_int_equal(data_source(d)->classes, 996);
	alphabet_encode(data_source(d)->alphabet, text, sizeof text - 1, &ids);
	assert_true(ids.n > 16 && ids.n < 60);
	assert_int_equal(data_count(d, DATA_TRAIN), (ids.n - 1) / T);
	for (uint64_t p = 0; p < data_count(d, DATA_TRAIN); p++) {
		size_t from = (size_t)data_index(d, p) * T;
		real x[T];
		int32_t y[T];

		assert_int_equal(data_read(d, DATA_TRAIN, &p, 1, x, y, &e), 0);
		for (size_t k = 0; k < T; k++)
			assert_true(x[k] == (real)ids.v[from + k] && y[k] == ids.v[from + k + 1]);
	}
	for (size_t i = 0; i < ids.n; i++, at += n) {
		const char *p = alphabet_piece(data_source(d)->alphabet, ids.v[i], &n);

		assert_true(p && !memcmp(p, text + at, n));
	}
	assert_int_equal(at, sizeof text - 1);
	assert_true(alphabet_special(data_source(d)->alphabet, 990) && !alphabet_special(data_source(d)->alphabet, 5));
	memcpy(before, data_digest(d), 32);
	data_free(d);
	spec_free(s);
	put_vocab(&w, "t/tokenizer.json", true);
	d = good(&w, "d/t", &bpe, &s);
	assert_memory_not_equal(before, data_digest(d), 32);    /* another vocabulary is another data set */
	data_free(d);
	spec_free(s);
	bad(&w, "d/t", &small, "label 995 occurs, and the model has 256 outputs");
	put(&w, "t/tokenizer.json", "{\"model\":{\"type\":\"WordPiece\"}}", 30);
	bad(&w, "d/t", &bpe, "vocabulary d/t/tokenizer.json: ");
	gone.vocab = "/nowhere.json";
	bad(&w, "d/t", &gone, "local.vocab: /nowhere.json: no such file");
	near.vocab = "here.json";
	bad(&w, "d/t", &near, "must be an absolute path");
	free(ids.v);
	sim_free(w.sim);
}

static void hidden_tokens_are_chosen_by_position(void **state)
{
	enum { BYTES = 8 * 2000 };
	struct world w;
	struct spec *s;
	struct data *d;
	uint64_t place[T] = { 0 }, hidden = 0, replaced = 0, kept = 0, n, epochs = 0;
	struct err e;

	world_open(&w);
	put_text(&w, "t.txt", BYTES);
	d = good(&w, "d/t.txt", &masked, &s);
	assert_true(text_masked(data_source(d)));
	n = data_count(d, DATA_TRAIN);
	assert_int_equal(n, BYTES * 9 / 10 / T);
	for (uint64_t p = 0; p < n; p++) {
		uint64_t both[2] = { p, 2 * n - 1 - p }, at = data_index(d, p) * T, mine = 0;
		real x[4 * T], again[2 * T];
		int32_t y[2 * T], y2[T];

		assert_int_equal(data_read(d, DATA_TRAIN, both, 2, x, y, &e), 0);
		assert_int_equal(data_read(d, DATA_TRAIN, &p, 1, again, y2, &e), 0);
		assert_memory_equal(x, again, sizeof again);            /* alone or in a batch */
		assert_memory_equal(y, y2, sizeof y2);
		for (size_t k = 0; k < T; k++) {
			assert_true(x[T + k] == 0);
			if (y[k] == -100) {
				assert_true(x[k] == (real)((at + k) % 251));
				continue;
			}
			assert_int_equal(y[k], (at + k) % 251);
			mine++;
			place[k]++;
			replaced += x[k] == 256;
			kept += x[k] == (real)y[k];
		}
		assert_int_equal(mine, 1);                              /* 15 % of eight, rounded: of every sample */
		hidden += mine;
		for (uint64_t q = n; p < 20 && q < 2 * n; q++)          /* the same window in the next data epoch */
			if (data_index(d, q) == data_index(d, p)) {
				assert_int_equal(data_read(d, DATA_TRAIN, &q, 1, again, y2, &e), 0);
				epochs += memcmp(y, y2, sizeof y2) != 0;
			}
	}
	assert_true(epochs > 10);
	for (size_t k = 0; k < T; k++)
		assert_true(fabs((double)place[k] / (double)n - 0.125) < 0.04);
	assert_true(fabs((double)replaced / (double)hidden - 0.8) < 0.04);
	assert_true(fabs((double)kept / (double)hidden - 0.1) < 0.04);
	data_free(d);
	spec_free(s);
	sim_free(w.sim);
}

static void what_does_not_fit_is_said(void **state)
{
	struct want count = masked, once = next_each;
	struct world w;

	world_open(&w);
	put_text(&w, "short.txt", 8);
	bad(&w, "d/short.txt", &next_each, "8 bytes to train on; a sample is 8 and the byte after");
	bad(&w, "d/none.txt", &next_each, "no such file");
	put_text(&w, "t.txt", 100);
	count.loss = "\"cross_entropy\"";
	bad(&w, "d/t.txt", &count, "\"ignore\":-100");
	once.input = "[4]";                                     /* the model flattens nothing: 4 answers for 4 labels */
	once.model = "{\"type\":\"embedding\",\"vocab\":256,\"dim\":2},{\"type\":\"linear\",\"out\":99}";
	bad(&w, "d/t.txt", &once, "label 255 occurs, and the model has 99 outputs");
	once.input = "[2,4]";
	once.model = "{\"type\":\"linear\",\"out\":256}";       /* [2, 256]: two answers for eight tokens */
	bad(&w, "d/t.txt", &once, "a sample has 8 labels, and the model answers 2 times");
	sim_free(w.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_token_is_a_label_once_an_epoch),
		cmocka_unit_test(what_is_held_out_is_the_end),
		cmocka_unit_test(a_vocabulary_makes_tokens),
		cmocka_unit_test(hidden_tokens_are_chosen_by_position),
		cmocka_unit_test(what_does_not_fit_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Byte-pair encoding against Hugging Face's tokenizers: the same ids for nasty strings, and back; what a vocabulary may
 * not ask for is refused by name. The golden files are tests/data/make-golden-bpe.py's. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/mem.h"
#include "common/rng.h"
#include "tests/unit/t.h"
#include "train/data/bpe_int.h"

static char *slurp(const char *name, size_t *ret_n)
{
	char path[512];
	FILE *f;
	char *p = xmalloc(1 << 20);

	(void)snprintf(path, sizeof path, "%s/tests/data/bpe/%s", SOURCE_ROOT, name);
	f = fopen(path, "re");
	if (!f)
		fail_msg("%s is not there", path);
	*ret_n = fread(p, 1, (1 << 20) - 1, f);
	p[*ret_n] = 0;
	(void)fclose(f);
	return p;
}

static struct bpe *vocabulary(void)
{
	struct err e;
	size_t n;
	char *text = slurp("tokenizer.json", &n);
	struct bpe *b = bpe_read(text, n, &e);

	if (!b)
		fail_msg("%s", e.text);
	free(text);
	return b;
}

static char *unhex(const char *hex, size_t *ret_n)
{
	char *p = xmalloc(strlen(hex) / 2 + 1), two[3] = "";

	*ret_n = strlen(hex) / 2;
	for (size_t i = 0; i < *ret_n; i++) {
		memcpy(two, hex + 2 * i, 2);
		p[i] = (char)strtoul(two, NULL, 16);
	}
	return p;
}

static void compare(const struct bpe *b, const json_t *c, size_t number)
{
	json_t *want = json_object_get(c, "ids");
	size_t n, nback, at = 0;
	char *text = unhex(json_string_value(json_object_get(c, "text")), &n);
	char *back = unhex(json_string_value(json_object_get(c, "back")), &nback);
	struct ids got = { 0 };

	bpe_encode(b, text, n, &got);
	for (size_t i = 0; i < got.n || i < json_array_size(want); i++)
		if (i >= got.n || i >= json_array_size(want) || got.v[i] != json_integer_value(json_array_get(want, i)))
			fail_msg("case %zu \"%.*s\": id %zu is %d, the library says %d", number, (int)n, text, i,
				i < got.n ? got.v[i] : -1, (int)json_integer_value(json_array_get(want, i)));
	for (size_t i = 0; i < got.n; i++) {
		size_t k;
		const char *p = bpe_piece(b, got.v[i], &k);

		if (at + k > nback || memcmp(back + at, p, k))
			fail_msg("case %zu \"%.*s\": decodes to something else at byte %zu", number, (int)n, text, at);
		at += k;
	}
	assert_int_equal(at, nback);
	free(text);
	free(back);
	free(got.v);
}

static void the_same_ids_as_the_library(void **state)
{
	struct bpe *b = vocabulary();
	size_t n, i;
	char *text = slurp("golden.json", &n);
	json_t *golden = json_loadb(text, n, 0, NULL), *c;

	assert_non_null(golden);
	assert_int_equal(bpe_size(b), json_integer_value(json_object_get(golden, "size")));
	assert_true(json_array_size(json_object_get(golden, "cases")) > 400);
	json_array_foreach(json_object_get(golden, "cases"), i, c)
		compare(b, c, i);
	assert_true(bpe_special(b, bpe_find(b, "<|endoftext|>")) && !bpe_special(b, bpe_find(b, "oft")));
	assert_int_equal(bpe_find(b, "nobody"), -1);
	json_decref(golden);
	free(text);
	bpe_free(b);
}

/* Words that are remembered are those that are merged anew; bytes that are no UTF-8 come back as they were. */
static void any_bytes_come_back(void **state)
{
	struct bpe *b = vocabulary();
	struct rng r;
	char text[4096];

	rng_seed(&r, 5);
	for (int round = 0; round < 200; round++) {
		size_t n = (size_t)(rng_u64(&r) % sizeof text), at = 0, k;
		uint64_t wide = round % 3 ? 256 : 4;
		struct ids ids = { 0 };

		for (size_t i = 0; i < n; i++) {
			text[i] = (char)(rng_u64(&r) % wide + (wide == 4 ? 'a' : 0));
			if (wide == 4 && text[i] == 'd')
				text[i] = ' ';
		}
		bpe_encode(b, text, n, &ids);
		for (size_t i = 0; i < ids.n; i++) {
			const char *p = bpe_piece(b, ids.v[i], &k);

			assert_true(at + k <= n && !memcmp(text + at, p, k));
			at += k;
		}
		assert_int_equal(at, n);
		free(ids.v);
	}
	bpe_free(b);
}

/* A megabyte of one letter is one word: its merges must not take time by the square. */
static void a_long_word_is_merged_in_time(void **state)
{
	struct bpe *b = vocabulary();
	size_t n = 1 << 20, k;
	char *text = xmalloc(n);
	struct ids ids = { 0 };

	memset(text, 'e', n);
	bpe_encode(b, text, n, &ids);
	for (size_t i = 0, at = 0; i < ids.n; i++, at += k)
		(void)bpe_piece(b, ids.v[i], &k);
	assert_true(ids.n <= n && ids.n > 0);
	free(ids.v);
	free(text);
	bpe_free(b);
}

/* One place of the good file is put wrong. */
static void bad_vocabularies_are_refused_by_name(void **state)
{
	static const struct { const char *from, *to, *say; } bad[] = {
		{ "{\"version\"", "[\"version\"", "line 1" },
		{ "\"model\":{", "\"modell\":{", "there is no \"model\"" },
		{ "\"type\":\"BPE\"", "\"type\":\"Unigram\"", "model.type \"Unigram\": only byte-level BPE" },
		{ "\"dropout\":null", "\"dropout\":0.1", "model.dropout: only byte-level BPE" },
		{ "\"byte_fallback\":false", "\"byte_fallback\":true", "model.byte_fallback" },
		{ "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "model.end_of_word_suffix" },
		{ "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", "normalizer \"NFC\"" },
		{ "\"pre_tokenizer\":{\"type\":\"ByteLevel\"", "\"pre_tokenizer\":{\"type\":\"Whitespace\"",
			"pre_tokenizer \"Whitespace\"" },
		{ "\"merges\":[", "\"merges\":\"\",\"x\":[", "\"merges\", an array" },
		{ "\"!\":0", "\"!\":-1", "the id of \"!\" must be a whole number" },
		{ "\"!\":0", "\"!\":1", "id 1 is given to two tokens" },
		{ "\"!\":0", "\"!\":4194304", "the id of \"!\" must be" },
		{ "\"!\":0,", "", "lacks \"!\", the token of byte 33" },
		{ "\"single_word\":false", "\"single_word\":true", "added_tokens[0] \"single_word\"" },
		{ "\"content\":\"<|end|>\"", "\"content\":\"\"", "added_tokens[1] has no \"content\"" },
		{ "\"merges\":[", "\"merges\":[3,", "model.merges[0]: must be" },
		{ "\"merges\":[", "\"merges\":[\"a b c\",", "model.merges[0]: must be" },
		{ "\"merges\":[", "\"merges\":[\"q zz\",", "model.merges[0]: \"zz\" is not in model.vocab" },
		{ "\"merges\":[", "\"merges\":[[\"q\",\"q\"],", "model.merges[0]: \"qq\" is not in model.vocab" },
	};
	size_t n;
	char *good = slurp("tokenizer.json", &n), *text = xmalloc(n + 200);
	struct err e;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		const char *at = strstr(good, bad[i].from);
		struct bpe *b;

		assert_non_null(at);
		(void)snprintf(text, n + 200, "%.*s%s%s", (int)(at - good), good, bad[i].to, at + strlen(bad[i].from));
		b = bpe_read(text, strlen(text), &e);
		if (b || !strstr(e.text, bad[i].say))
			fail_msg("%s: \"%s\" instead of \"%s\"", bad[i].to, b ? "accepted" : e.text, bad[i].say);
	}
	assert_null(bpe_read(good, n / 2, &e));         /* cut off */
	assert_null(bpe_read("", 0, &e));
	free(good);
	free(text);
}

/* Merges as texts, as older files have them, give the same. */
static void both_forms_of_merges_are_read(void **state)
{
	struct bpe *b = vocabulary(), *old;
	size_t n, i;
	char *text = slurp("tokenizer.json", &n), *dump;
	json_t *root = json_loadb(text, n, 0, NULL), *v, *texts = json_array();
	static const char say[] = "First Citizen:\nBefore we proceed any further, hear me speak.";
	struct ids x = { 0 }, y = { 0 };
	struct err e;

	json_array_foreach(json_object_get(json_object_get(root, "model"), "merges"), i, v)
		json_array_append_new(texts, json_sprintf("%s %s", json_string_value(json_array_get(v, 0)),
			json_string_value(json_array_get(v, 1))));
	json_object_set_new(json_object_get(root, "model"), "merges", texts);
	json_object_del(json_object_get(root, "model"), "type");
	dump = json_dumps(root, JSON_COMPACT);
	old = bpe_read(dump, strlen(dump), &e);
	assert_non_null(old);
	bpe_encode(b, say, sizeof say - 1, &x);
	bpe_encode(old, say, sizeof say - 1, &y);
	assert_int_equal(x.n, y.n);
	assert_memory_equal(x.v, y.v, x.n * sizeof *x.v);
	free(x.v);
	free(y.v);
	free(dump);
	free(text);
	json_decref(root);
	bpe_free(b);
	bpe_free(old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_ids_as_the_library),
		cmocka_unit_test(any_bytes_come_back),
		cmocka_unit_test(a_long_word_is_merged_in_time),
		cmocka_unit_test(bad_vocabularies_are_refused_by_name),
		cmocka_unit_test(both_forms_of_merges_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

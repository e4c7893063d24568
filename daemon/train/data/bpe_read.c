/* Reads tokenizer.json: checks that it asks for nothing but byte-level byte-pair encoding, then makes tables of it. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"
#include "train/data/bpe_int.h"

#define ADDED_MAX 65536
#define TOKEN_MAX 4096

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static bool given(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return v && !json_is_null(v) && !json_is_false(v) && !(json_is_string(v) && !json_string_length(v));
}

static int refuse(struct err *e, const char *what, const char *value)
{
	char shown[64];

	(void)snprintf(shown, sizeof(shown), "%s", value);
	text_clean(shown);
	return err_set(e, ERR_INVALID, "%s%s%s%s: only byte-level BPE as GPT-2's is known (gpt2 and roberta need no more)",
		what, *shown ? " \"" : "", shown, *shown ? "\"" : "");
}

/* --- what is asked for */

static int check_model(const json_t *model, struct err *e)
{
	static const char *const none[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
		"ignore_merges", NULL };

	if (!json_is_object(model))
		return err_set(e, ERR_INVALID, "there is no \"model\": this is no tokenizer.json of Hugging Face's");
	if (*str(model, "type") && strcmp(str(model, "type"), "BPE"))
		return refuse(e, "model.type", str(model, "type"));
	for (int i = 0; none[i]; i++)
		if (given(model, none[i])) {
			char what[64];

			(void)snprintf(what, sizeof(what), "model.%s", none[i]);
			return refuse(e, what, "");
		}
	if (!json_is_object(json_object_get(model, "vocab")) || !json_is_array(json_object_get(model, "merges")))
		return err_set(e, ERR_INVALID, "model needs \"vocab\", an object, and \"merges\", an array");
	return 0;
}

static int check_words(struct bpe *b, const json_t *root, struct err *e)
{
	const json_t *pre = json_object_get(root, "pre_tokenizer"), *regex = json_object_get(pre, "use_regex");

	if (given(root, "normalizer"))
		return refuse(e, "normalizer", str(json_object_get(root, "normalizer"), "type"));
	if (strcmp(str(pre, "type"), "ByteLevel"))
		return refuse(e, "pre_tokenizer", str(pre, "type"));
	b->prefix_space = json_is_true(json_object_get(pre, "add_prefix_space"));
	b->whole = json_is_false(regex);
	return 0;
}

/* --- GPT-2's way to write bytes as letters: those that can be seen are themselves, the others stand from U+0100 on */

static bool seen(uint32_t c)
{
	return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

static void letters(uint32_t of_byte[256])
{
	uint32_t n = 0;

	for (uint32_t c = 0; c < 256; c++)
		of_byte[c] = seen(c) ? c : 256 + n++;
}

/* The bytes of a token's text, at most as many as it has; a text that is not all such letters stands for itself. */
static size_t to_bytes(const uint32_t of_byte[256], const char *text, size_t n, char *out)
{
	size_t k = 0;

	for (size_t at = 0; at < n; ) {
		const uint8_t *p = (const uint8_t *)text + at;
		uint32_t c = p[0], b;

		if (c >= 0xc0 && c < 0xe0 && at + 1 < n)
			c = (c & 0x1f) << 6 | (p[1] & 0x3f);
		for (b = 0; b < 256 && of_byte[b] != c; b++)
			;
		if (b == 256) {
			memcpy(out, text, n);
			return n;
		}
		out[k++] = (char)b;
		at += p[0] < 0x80 ? 1 : 2;
	}
	return k;
}

/* --- tables */

struct read { struct bpe *b; const json_t *vocab; const char **text; size_t cap; uint32_t of_byte[256];
	struct err *e; };

static int take_id(struct read *r, const char *text, const json_t *v, const char *where)
{
	json_int_t id = json_integer_value(v);
	char shown[64];

	(void)snprintf(shown, sizeof(shown), "%s", text);
	text_clean(shown);
	if (!json_is_integer(v) || id < 0 || id >= BPE_IDS_MAX)
		return err_set(r->e, ERR_INVALID, "%s: the id of \"%s\" must be a whole number from 0 to %d", where, shown,
			BPE_IDS_MAX - 1);
	if (strlen(text) > TOKEN_MAX)
		return err_set(r->e, ERR_LIMIT, "%s: the token of id %d has %zu bytes; at most %d are allowed", where, (int)id,
			strlen(text), TOKEN_MAX);
	if ((size_t)id >= r->cap) {
		size_t cap = 2 * (size_t)id + 1024;

		r->text = xrealloc(r->text, cap * sizeof(*r->text));
		memset(r->text + r->cap, 0, (cap - r->cap) * sizeof(*r->text));
		r->cap = cap;
	}
	if (r->text[id] && strcmp(r->text[id], text))
		return err_set(r->e, ERR_INVALID, "%s: id %d is given to two tokens, one of them \"%s\"", where, (int)id,
			shown);
	r->text[id] = text;
	if ((size_t)id >= r->b->size)
		r->b->size = (size_t)id + 1;
	return 0;
}

static int take_added(struct read *r, const json_t *list)
{
	struct bpe *b = r->b;
	size_t i;
	json_t *v;

	if (json_array_size(list) > ADDED_MAX)
		return err_set(r->e, ERR_LIMIT, "added_tokens: %zu; at most %d are allowed", json_array_size(list), ADDED_MAX);
	b->added = xcalloc(json_array_size(list) + 1, sizeof(*b->added));
	json_array_foreach((json_t *)list, i, v) {
		const char *text = str(v, "content");
		const json_t *id = json_object_get(r->vocab, text) ? json_object_get(r->vocab, text) : json_object_get(v, "id");
		char where[40];

		(void)snprintf(where, sizeof(where), "added_tokens[%zu]", i);
		if (!*text)
			return err_set(r->e, ERR_INVALID, "%s has no \"content\"", where);
		if (given(v, "single_word"))
			return refuse(r->e, where, "single_word");
		if (take_id(r, text, id, where) < 0)
			return -1;
		b->starts[(uint8_t)*text] = true;
		b->added[b->nadded++] = (struct added){ xstrdup(text), strlen(text), (int32_t)json_integer_value(id),
			json_is_true(json_object_get(v, "lstrip")), json_is_true(json_object_get(v, "rstrip")),
			json_is_true(json_object_get(v, "normalized")), json_is_true(json_object_get(v, "special")) };
	}
	return 0;
}

static void put_pieces(struct read *r)
{
	struct bpe *b = r->b;
	size_t total = 0;

	for (size_t i = 0; i < b->size; i++)
		total += r->text[i] ? strlen(r->text[i]) : 0;
	b->at = xcalloc(b->size + 1, sizeof(*b->at));
	b->bytes = xmalloc(total + 1);
	total = 0;
	for (size_t i = 0; i < b->size; i++) {
		b->at[i] = (uint32_t)total;
		if (r->text[i])
			total += to_bytes(r->of_byte, r->text[i], strlen(r->text[i]), b->bytes + total);
	}
	b->at[b->size] = (uint32_t)total;
}

/* The letter of each byte is a token of its own, so that every text has ids. */
static int put_bytes(struct read *r)
{
	for (int c = 0; c < 256; c++) {
		uint32_t u = r->of_byte[c];
		char text[3] = { (char)u, 0, 0 };
		const json_t *id;

		if (u >= 0x80) {
			text[0] = (char)(0xc0 | u >> 6);
			text[1] = (char)(0x80 | (u & 0x3f));
		}
		id = json_object_get(r->vocab, text);
		if (!id)
			return err_set(r->e, ERR_INVALID, "model.vocab lacks \"%s\", the token of byte %d: text with this byte "
				"would have no ids", text, c);
		r->b->byte_id[c] = (int32_t)json_integer_value(id);
	}
	return 0;
}

/* "a b", or ["a", "b"]; the result is the token ab. */
static int take_merge(struct read *r, const json_t *v, uint32_t rank)
{
	const char *left = json_string_value(json_array_get(v, 0)), *right = json_string_value(json_array_get(v, 1));
	const char *both = json_string_value(v), *space = both ? strchr(both, ' ') : NULL;
	char whole[2 * TOKEN_MAX + 2], first[TOKEN_MAX + 1];
	const json_t *a, *b, *ab;
	struct merge *m;

	if (space && !strchr(space + 1, ' ') && space - both <= TOKEN_MAX) {
		(void)snprintf(first, sizeof(first), "%.*s", (int)(space - both), both);
		left = first;
		right = space + 1;
	}
	if (!left || !right || json_array_size(v) > 2 || strlen(left) > TOKEN_MAX || strlen(right) > TOKEN_MAX)
		return err_set(r->e, ERR_INVALID, "model.merges[%u]: must be \"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]", rank);
	(void)snprintf(whole, sizeof(whole), "%s%s", left, right);
	a = json_object_get(r->vocab, left);
	b = json_object_get(r->vocab, right);
	ab = json_object_get(r->vocab, whole);
	if (!a || !b || !ab) {
		char shown[64];

		(void)snprintf(shown, sizeof(shown), "%.60s", !a ? left : !b ? right : whole);
		text_clean(shown);
		return err_set(r->e, ERR_INVALID, "model.merges[%u]: \"%s\" is not in model.vocab", rank, shown);
	}
	m = bpe_merge(r->b, (int32_t)json_integer_value(a), (int32_t)json_integer_value(b));
	*m = (struct merge){ (int32_t)json_integer_value(a), (int32_t)json_integer_value(b),
		(int32_t)json_integer_value(ab), rank };
	return 0;
}

static int take_merges(struct read *r, const json_t *list)
{
	size_t slots = 16, i;
	json_t *v;

	while (slots < 2 * json_array_size(list))
		slots *= 2;
	r->b->merge = xcalloc(slots, sizeof(*r->b->merge));
	r->b->mask = slots - 1;
	for (i = 0; i < slots; i++)
		r->b->merge[i].left = -1;
	json_array_foreach((json_t *)list, i, v)
		if (take_merge(r, v, (uint32_t)i) < 0)
			return -1;
	return 0;
}

static int tables(struct read *r, const json_t *root)
{
	const json_t *model = json_object_get(root, "model");
	const char *key;
	json_t *v;

	r->vocab = json_object_get(model, "vocab");
	json_object_foreach((json_t *)r->vocab, key, v)
		if (take_id(r, key, v, "model.vocab") < 0)
			return -1;
	if (take_added(r, json_object_get(root, "added_tokens")) < 0 || put_bytes(r) < 0)
		return -1;
	put_pieces(r);
	return take_merges(r, json_object_get(model, "merges"));
}

struct bpe *bpe_read(const char *json, size_t n, struct err *e)
{
	const struct json_limits limits = { BPE_FILE_MAX, 16, (size_t)1 << 23 };
	json_t *root = json_read(json, n, limits, e);
	struct bpe *b = xcalloc(1, sizeof(*b));
	struct read r = { .b = b, .e = e };
	int rc;

	if (!root) {
		bpe_free(b);
		return NULL;
	}
	letters(r.of_byte);
	rc = check_model(json_object_get(root, "model"), e) < 0 || check_words(b, root, e) < 0 ? -1 : tables(&r, root);
	free(r.text);
	json_decref(root);
	if (rc < 0) {
		bpe_free(b);
		return NULL;
	}
	return b;
}

void bpe_free(struct bpe *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < b->nadded; i++)
		free(b->added[i].text);
	free(b->added);
	free(b->at);
	free(b->bytes);
	free(b->merge);
	free(b);
}

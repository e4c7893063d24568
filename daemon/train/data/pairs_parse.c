/* Lines of a source, a TAB and its answer. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/pairs_parse.h"

void pair_lines_free(struct pair_lines *l)
{
	free(l->ids.v);
	free(l->source);
	free(l->answer);
	*l = (struct pair_lines){ .n = 0 };
}

static void add(struct pair_lines *l, size_t source, size_t answer)
{
	if (l->n + 1 >= l->cap) {
		l->cap = l->cap ? 2 * l->cap : 256;
		l->source = xrealloc(l->source, l->cap * sizeof *l->source);
		l->answer = xrealloc(l->answer, l->cap * sizeof *l->answer);
	}
	l->source[l->n] = source;
	l->answer[l->n++] = answer;
	l->source[l->n] = l->ids.n;
}

static int line(struct pair_lines *l, const struct alphabet *a, const char *text, size_t n, size_t places,
	struct err *e)
{
	const char *tab = memchr(text, '\t', n);
	size_t source = l->ids.n, answer, all;

	if (!tab || memchr(tab + 1, '\t', n - (size_t)(tab + 1 - text)))
		return err_set(e, ERR_INVALID, "a source, one TAB and an answer are wanted");
	alphabet_encode(a, text, (size_t)(tab - text), &l->ids);
	answer = l->ids.n;
	alphabet_encode(a, tab + 1, n - (size_t)(tab + 1 - text), &l->ids);
	all = l->ids.n - answer + 1;
	for (size_t i = source; i < l->ids.n; i++)
		if (alphabet_special(a, l->ids.v[i]))
			return err_set(e, ERR_INVALID, "a text has one of the vocabulary's special tokens in it");
	if (answer == source)
		return err_set(e, ERR_INVALID, "nothing stands before the TAB");
	if (answer - source > places || all > places)
		return err_set(e, ERR_LIMIT, "%zu tokens and %zu with its end, of %zu places each: give the model more, or "
			"leave the line out", answer - source, all, places);
	add(l, source, answer);
	return 0;
}

int pairs_parse(struct pair_lines *l, const struct alphabet *a, const char *text, size_t n, size_t places,
	struct err *e)
{
	size_t at = 0, number = 0;

	while (at < n) {
		const char *from = text + at, *stop = memchr(from, '\n', n - at);
		size_t len = stop ? (size_t)(stop - from) : n - at;

		at += len + 1;
		number++;
		len -= len && from[len - 1] == '\r';
		if (len && line(l, a, from, len, places, e) < 0)
			return err_wrap(e, "line %zu", number);
	}
	return 0;
}

/* Pairs of texts: what is accepted has lines whose texts fit, one behind the other, as often as there are TABs. */
#include <stdlib.h>
#include <string.h>
#include "train/data/pairs_parse.h"

#define PLACES 6

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	const struct alphabet bytes = { .tokens = 256 };
	struct err e = { .code = ERR_NONE };
	struct pair_lines l = { .n = 0 };
	size_t tabs = 0, at = 0;
	char *text = malloc(size ? size : 1);

	if (!text)
		abort();
	if (size)
		memcpy(text, data, size);
	for (size_t i = 0; i < size; i++)
		tabs += text[i] == '\t';
	if (pairs_parse(&l, &bytes, text, size, PLACES, &e)) {
		if (!e.text[0])
			abort();
	} else {
		if (l.n != tabs)
			abort();
		for (size_t i = 0; i < l.n; i++) {
			size_t n = l.answer[i] - l.source[i], m = l.source[i + 1] - l.answer[i];

			if (l.source[i] != at || !n || n > PLACES || m >= PLACES)
				abort();
			at += n + m;
		}
		if (at != l.ids.n)
			abort();
		for (size_t i = 0; i < at; i++)
			if (l.ids.v[i] < 0 || l.ids.v[i] > 255)
				abort();
	}
	pair_lines_free(&l);
	free(text);
	return 0;
}

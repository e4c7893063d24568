/* A vocabulary and, behind a zero byte, a text for it: what is accepted gives every text ids that are its own, and
 * without added tokens the text comes back. */
#include <stdlib.h>
#include <string.h>
#include "train/data/bpe_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
	size_t n = zero ? (size_t)(zero - data) : size, left = zero ? size - n - 1 : 0, at = 0;
	const char *text = zero ? (const char *)zero + 1 : "";
	struct err e = { .code = ERR_NONE };
	struct bpe *b = bpe_read((const char *)data, n, &e);
	struct ids ids = { 0 };

	if (!b) {
		check(e.code != ERR_NONE && e.text[0]);
		return 0;
	}
	bpe_encode(b, text, left, &ids);
	for (size_t i = 0; i < ids.n; i++) {
		size_t k;
		const char *p = bpe_piece(b, ids.v[i], &k);

		check(ids.v[i] >= 0 && (size_t)ids.v[i] < bpe_size(b));
		if (b->nadded || b->prefix_space)
			continue;
		check(k <= left - at && !memcmp(text + at, p, k));
		at += k;
	}
	check(b->nadded || b->prefix_space || at == left);
	free(ids.v);
	bpe_free(b);
	return 0;
}

/* Bytes or a vocabulary: how text becomes ids and back. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "train/data/alphabet.h"
#include "train/data/manifest.h"
#include "train/data/whole.h"

static int read_vocab(struct alphabet *a, struct files *f, const char *path, bool must, struct manifest *m,
	struct err *e)
{
	struct whole w = { NULL, 0 };
	uint8_t digest[32];
	int rc;

	rc = whole_read(f, path, "tokenizer.json", &w, m, e);
	if (rc > 0 && must)
		rc = err_set(e, ERR_NOT_FOUND, "local.vocab: %.200s: no such file", path);
	if (!rc) {
		sha256_of(w.p, w.n, digest);
		manifest_add_whole(m, digest);
		a->bpe = bpe_read(w.p, w.n, e);
		rc = a->bpe ? 0 : err_wrap(e, "vocabulary %.200s", path);
	}
	whole_free(&w);
	return rc < 0 ? -1 : 0;
}

static int find_vocab(struct alphabet *a, struct files *f, const char *path, const struct spec *s, struct manifest *m,
	struct err *e)
{
	struct err none;
	char *beside;
	int rc;

	if (s->local.vocab[0] && s->local.vocab[0] != '/')
		return err_set(e, ERR_INVALID, "local.vocab: \"%.200s\" must be an absolute path", s->local.vocab);
	if (s->local.vocab[0])
		return read_vocab(a, f, s->local.vocab, true, m, e);
	if (f->size(f, path, &none) >= 0)
		return 0;
	beside = xasprintf("%s/tokenizer.json", path);
	rc = read_vocab(a, f, beside, false, m, e);
	free(beside);
	return rc;
}

int alphabet_open(struct alphabet *a, struct files *f, const char *path, const struct spec *s, struct manifest *m,
	struct err *e)
{
	for (int i = 0; i < 256; i++)
		a->byte[i] = (char)i;
	if (find_vocab(a, f, path, s, m, e) < 0)
		return -1;
	a->tokens = a->bpe ? (int32_t)bpe_size(a->bpe) : 256;
	return 0;
}

void alphabet_close(struct alphabet *a)
{
	bpe_free(a->bpe);
	a->bpe = NULL;
}

int32_t alphabet_find(struct alphabet *a, const char *one, const char *other, int32_t *next)
{
	int32_t id = a->bpe ? bpe_find(a->bpe, one) : -1;

	if (id < 0 && a->bpe)
		id = bpe_find(a->bpe, other);
	id = id < 0 ? (*next)++ : id;
	a->sign[a->nsigns++] = id;
	return id;
}

void alphabet_encode(const struct alphabet *a, const char *text, size_t n, struct ids *out)
{
	if (a->bpe) {
		bpe_encode(a->bpe, text, n, out);
		return;
	}
	for (size_t i = 0; i < n; i++)
		ids_put(out, (uint8_t)text[i]);
}

const char *alphabet_piece(const struct alphabet *a, int32_t id, size_t *ret_n)
{
	if (a->bpe)
		return bpe_piece(a->bpe, id, ret_n);
	*ret_n = id >= 0 && id < 256;
	return *ret_n ? &a->byte[id] : NULL;
}

bool alphabet_special(const struct alphabet *a, int32_t id)
{
	for (int i = 0; i < a->nsigns; i++)
		if (id == a->sign[i])
			return true;
	return id >= a->tokens || (a->bpe && bpe_special(a->bpe, id));
}

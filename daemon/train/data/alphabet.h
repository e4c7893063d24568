/* The tokens that texts are made of: bytes, or a vocabulary (local.vocab, or tokenizer.json in the data's folder). Ids
 * from `tokens` on are none of a text's: what a kind of data adds, such as the mask of hidden tokens.
 *
 * Immutable once it is open: any number of threads may ask. */
#ifndef TRAIN_DATA_ALPHABET_H
#define TRAIN_DATA_ALPHABET_H
#include "train/data/bpe.h"
#include "train/data/data.h"

struct manifest;
struct alphabet {
	struct bpe *bpe;                        /* NULL: bytes */
	int32_t tokens;
	int32_t sign[4]; int nsigns;            /* of the kind of data: what alphabet_find has found */
	char byte[256];
};
/* path: of the data. Every byte of a vocabulary goes into the manifest: one merge more is another text. Also after an
 * error alphabet_close. */
int alphabet_open(struct alphabet *a, struct files *f, const char *path, const struct spec *s, struct manifest *m,
	struct err *e);
void alphabet_close(struct alphabet *a);
/* The id of the added token of one of these names, *next and one more for the next when it has none: special from now
 * on, whatever the vocabulary says. */
int32_t alphabet_find(struct alphabet *a, const char *one, const char *other, int32_t *next);
void alphabet_encode(const struct alphabet *a, const char *text, size_t n, struct ids *out);    /* appends */
const char *alphabet_piece(const struct alphabet *a, int32_t id, size_t *ret_n);        /* NULL and 0: no such id */
bool alphabet_special(const struct alphabet *a, int32_t id);   /* no text: a mark, such as a text's end */

#endif

/* Byte-level byte-pair encoding: vocabularies in the form of Hugging Face's tokenizer.json, as GPT-2's (Radford et
 * al., 2019, section 2.2; Sennrich et al., arXiv:1508.07909). The same ids as that library gives without special tokens
 * around the text. What a file asks for and this does not do is refused by name, never left out silently.
 *
 * Immutable after bpe_read: any number of threads may encode. Bytes that are no UTF-8 are kept, as signs of no
 * class. */
#ifndef TRAIN_DATA_BPE_H
#define TRAIN_DATA_BPE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"

#define BPE_IDS_MAX (1 << 22)
#define BPE_FILE_MAX ((size_t)64 << 20)

struct ids { int32_t *v; size_t n, cap; };              /* {0} is an empty list; free(v) */
void ids_put(struct ids *l, int32_t id);

struct bpe;
struct bpe *bpe_read(const char *json, size_t n, struct err *e);        /* NULL and e */
void bpe_free(struct bpe *b);                           /* NULL is fine */
size_t bpe_size(const struct bpe *b);                   /* ids are below it */
void bpe_encode(const struct bpe *b, const char *text, size_t n, struct ids *out);      /* appends */
/* The bytes that an id stands for; NULL and 0 for an id that is none. */
const char *bpe_piece(const struct bpe *b, int32_t id, size_t *ret_n);
bool bpe_special(const struct bpe *b, int32_t id);      /* marks something, such as the end of a text */
int32_t bpe_find(const struct bpe *b, const char *added);       /* id of an added token; -1 */

/* Length of the first word of the text, as GPT-2's pattern cuts it; n > 0. */
size_t bpe_word(const char *text, size_t n);
/* Bytes of blanks at the beginning, or at the end, of a text. */
size_t bpe_blanks(const char *text, size_t n);
size_t bpe_blanks_before(const char *text, size_t n);

#endif

/* What else a text can be asked: how words become ids of its alphabet (bytes, or a vocabulary) and back. */
#ifndef TRAIN_DATA_TEXT_H
#define TRAIN_DATA_TEXT_H
#include "train/data/data.h"
#include "train/data/bpe.h"

bool text_is(const struct data_source *d);
bool text_masked(const struct data_source *d);          /* hidden tokens are guessed, not the next one */
void text_encode(const struct data_source *d, const char *text, size_t n, struct ids *out);     /* appends */
const char *text_piece(const struct data_source *d, int32_t id, size_t *ret_n);         /* NULL and 0: no such id */
bool text_special(const struct data_source *d, int32_t id);

#endif

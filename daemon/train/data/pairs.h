/* What else pairs of texts can be asked: how a model of three rows is asked for an answer. */
#ifndef TRAIN_DATA_PAIRS_H
#define TRAIN_DATA_PAIRS_H
#include "train/data/alphabet.h"

bool pairs_is(const struct data_source *d);
size_t pairs_places(const struct data_source *d);       /* of a row */
int32_t pairs_end(const struct data_source *d);         /* what comes behind an answer's last token */
/* One sample's x: n tokens of a source, the m of its answer so far; n at most all places, m at least one less. */
void pairs_fill(const struct data_source *d, const int32_t *source, size_t n, const int32_t *answer, size_t m, real *x);

#endif

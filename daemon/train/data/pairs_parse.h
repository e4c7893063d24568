/* Lines of a source, a TAB and its answer, as tokens. */
#ifndef TRAIN_DATA_PAIRS_PARSE_H
#define TRAIN_DATA_PAIRS_PARSE_H
#include "train/data/alphabet.h"

/* Tokens of line i: of its source from source[i] on, of its answer from answer[i] to source[i + 1]. {0}: no lines. */
struct pair_lines { struct ids ids; size_t *source, *answer, n, cap; };

/* Appends. Empty lines are none. A source has 1 to `places` tokens, an answer one less at most, none of them
 * special; anything else is an error that names the line. */
int pairs_parse(struct pair_lines *l, const struct alphabet *a, const char *text, size_t n, size_t places,
	struct err *e);
void pair_lines_free(struct pair_lines *l);

#endif

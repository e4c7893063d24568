/* Tables of numbers as comma separated values (RFC 4180), read strictly: every line has as many fields as the first,
 * all are finite numbers; the first line may be names. Empty lines are left out. */
#ifndef TRAIN_DATA_CSV_PARSE_H
#define TRAIN_DATA_CSV_PARSE_H
#include <stddef.h>
#include "common/err.h"

struct csv { size_t rows, columns; float *v; size_t bytes; };  /* row by row */
/* text[n] must be 0. Errors: ERR_CORRUPT "line 3, field 2: ..." */
int csv_parse(struct csv *ret, const char *text, size_t n, struct err *e);
void csv_free(struct csv *c);

#endif

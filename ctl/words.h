/* Words of the command line become a request, by the command table that the daemon sent (control/cmd.h). */
#ifndef CTL_WORDS_H
#define CTL_WORDS_H
#include <jansson.h>
#include "common/err.h"

/* The row that the first words name; *ret_used: how many. NULL: e says which one was perhaps meant.
 * table: array of rows. */
const json_t *words_command(const json_t *table, const char *const *w, size_t n, size_t *ret_used, struct err *e);
/* The words behind the command as params. Files are read here. */
json_t *words_params(const json_t *cmd, const char *const *w, size_t n, struct err *e);
/* "hivectl run start SPEC [--name=NAME] ..." into out. */
void words_usage(const json_t *cmd, char *out, size_t cap);

#endif

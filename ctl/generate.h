/* A text that a run's model writes, printed as it comes. */
#ifndef CTL_GENERATE_H
#define CTL_GENERATE_H
#include "conn.h"

/* Until it is whole. first: the answer to generate; prompt: what it continues; json: messages as they come. Returns the
 * exit code. */
int generate_show(struct conn *c, const json_t *first, const char *prompt, int json);
/* Text for a terminal: lines and tabs stay, other control bytes become '?'. */
void generate_clean(char *text);

#endif

/* `run watch`: redraws in place on a terminal, prints a line per change when piped. */
#ifndef CTL_WATCH_H
#define CTL_WATCH_H
#include <jansson.h>
#include "conn.h"

/* first: the reply of run.watch. Returns hivectl's exit code. */
int watch_run(struct conn *c, const json_t *first, int json, int terminal);
/* The picture of a run object, at most cols wide, as lines in out (for tests too); returns how many lines. */
int watch_draw(const json_t *run, int cols, struct buf *out);
void watch_line(const json_t *run, struct buf *out);

#endif

/* Inside the room: the notation of references, "x! w<=* -> y save:s". */
#ifndef PLAN_REFS_H
#define PLAN_REFS_H
#include "plan/plan.h"

/* One reference; out: written as an output. Errors name what is wrong and what would be right. */
int refs_parse(const struct plan *p, const char *word, size_t len, bool out, struct plan_ref *ret, struct err *e);
/* "in in -> out out": appends to i->in and i->out. */
int refs_parse_all(const struct plan *p, const char *text, struct plan_instr *i, struct err *e);
void refs_print(const struct plan *p, const struct plan_ref *r, bool out, struct buf *b);
bool refs_name_ok(const char *s, size_t len);

#endif

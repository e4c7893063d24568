/* Inside the room: the checker's parts. Each returns 0, or -1 with e filled. */
#ifndef PLAN_CHECK_INT_H
#define PLAN_CHECK_INT_H
#include "plan/check.h"

int check_match(const struct plan *const *v, uint32_t n, uint64_t iterations, struct err *e);
int check_holders(const struct plan *const *v, uint32_t n, struct err *e);
int check_strict(const struct plan *const *v, uint32_t n, const struct check_conf *conf, struct err *e);
int check_commit(const struct plan *p, struct err *e);
int check_passes(const struct plan *p, struct err *e);

#endif

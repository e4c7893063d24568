/* For shown.c, which judges by them. */
#ifndef AVG_WITNESS_H
#define AVG_WITNESS_H
#include "avg/int.h"

bool among(const struct id *v, size_t n, const struct id *id);
struct id *witnesses_of(const struct avg *a, const struct body *c, const uint8_t *bytes, size_t n, size_t *ret_n,
	bool *ret_stranger);
uint64_t last_common(const struct avg *a, const struct id *v, size_t n, uint64_t told /* by its history */);
bool stands_here(const struct avg *a, const struct mate *m);    /* it is a member at this very point */
size_t weight_at(const struct avg *a, const struct id *id, uint64_t epoch);
size_t signers_here(const struct avg *a, uint64_t common, const struct id *other, size_t others);
bool of_late(const struct avg *a, const struct id *id);

#endif

/* Reading checked values out of a JSON object; every error begins with the place ("model[2].kernel: ..."). */
#ifndef TRAIN_SPEC_READ_H
#define TRAIN_SPEC_READ_H
#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "common/err.h"

struct place { char text[160]; };               /* "" is the whole spec */
struct place place_key(const struct place *at, const char *key);
struct place place_index(const struct place *at, size_t i);

/* ERR_INVALID "PLACE: what was expected, what is there". Returns -1. */
int place_err(const struct place *at, struct err *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *json_kind(const json_t *j);         /* "a string" */

int read_object(const json_t *j, const struct place *at, struct err *e);                        /* must be one */
int read_known(const json_t *o, const struct place *at, const char *const *known, struct err *e);  /* NULL-terminated */
/* Absent keys leave *ret as it is; returns 1 then, 0 when read, -1 on error. lo and hi are allowed themselves. */
int read_real(const json_t *o, const struct place *at, const char *key, double lo, double hi, double *ret,
	struct err *e);
int read_u64(const json_t *o, const struct place *at, const char *key, uint64_t lo, uint64_t hi, uint64_t *ret,
	struct err *e);
int read_u32(const json_t *o, const struct place *at, const char *key, uint32_t lo, uint32_t hi, uint32_t *ret,
	struct err *e);
int read_bool(const json_t *o, const struct place *at, const char *key, bool *ret, struct err *e);
int read_text(const json_t *o, const struct place *at, const char *key, char *ret, size_t cap, struct err *e);
/* "1GiB" */
int read_size(const json_t *o, const struct place *at, const char *key, uint64_t *ret_bytes, struct err *e);
int read_number(const json_t *v, const struct place *at, double lo, double hi, double *ret, struct err *e);

#endif

/* One answer that is due: made by who asks (control), carried through the rooms that work on it, and answered exactly
 * once, now or later, by reply_ok or reply_fail. Header only; lies here so that rooms right of control can answer. */
#ifndef COMMON_REPLY_H
#define COMMON_REPLY_H
#include <jansson.h>
#include "common/err.h"

struct reply {
	/* the asker's; use the two functions below */
	void (*done)(struct reply *r, json_t *result, const struct err *e);
};
/* result is stolen and must be an object. */
static inline void reply_ok(struct reply *r, json_t *result) { r->done(r, result, NULL); }
static inline void reply_fail(struct reply *r, const struct err *e) { r->done(r, NULL, e); }

#endif

/* Memory that somebody reads and somebody else has made: it stays as it is until the last of them gives it back. On the
 * loop only. */
#ifndef COMMON_LEASE_H
#define COMMON_LEASE_H
#include <stddef.h>

struct lease {
	void *p; size_t bytes;
	unsigned refs;                          /* whoever makes it has the first */
	void (*back)(struct lease *l);          /* the last reader has gone: frees it */
};

static inline struct lease *lease_take(struct lease *l)
{
	if (l)
		l->refs++;
	return l;
}

static inline void lease_put(struct lease *l)   /* NULL is fine */
{
	if (l && !--l->refs)
		l->back(l);
}

#endif

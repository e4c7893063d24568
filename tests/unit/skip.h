/* A case that cannot run here says why: tests/run reads it, and tests/expected has the reasons for which each may be
 * skipped. */
#ifndef TESTS_UNIT_SKIP_H
#define TESTS_UNIT_SKIP_H
#include <stdarg.h>
#include <stdio.h>

/* Does not return. Before it: what the case holds is to be freed. */
static inline void __attribute__((format(printf, 1, 2))) skip_because(const char *fmt, ...)
{
	va_list ap;
	printf("skipped: ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	skip();
}

#endif

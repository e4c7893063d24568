/* What a test measures: tests/nightly pools it over runs, holds the median against its limit and compares it with
 * nightlies before (tests/history.py). A test that says figures does not judge them. */
#ifndef TESTS_UNIT_FIGURE_H
#define TESTS_UNIT_FIGURE_H
#include <stdio.h>

/* name: without blanks, of this test alone. No more than most, or no less than least. */
static inline void figure_at_most(const char *name, double value, const char *unit, double most)
{
	printf("figure: %s %g %s lower %g\n", name, value, unit, most);
	fflush(stdout);
}

static inline void figure_at_least(const char *name, double value, const char *unit, double least)
{
	printf("figure: %s %g %s higher %g\n", name, value, unit, least);
	fflush(stdout);
}

#endif

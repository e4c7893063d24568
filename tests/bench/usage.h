/* What every bench program answers to --help (its usage, and it ends well) and to words that it does not take (which,
 * what would be right, status 2). */
#ifndef BENCH_USAGE_H
#define BENCH_USAGE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noreturn)) static inline void bench_wrong(const char *usage)
{
	(void)fprintf(stderr, "usage: %s\n", usage);
	_exit(2);
}

/* It takes from least to most words. */
static inline void bench_words(int argc, char **argv, int least, int most, const char *usage)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			printf("usage: %s\n", usage);
			_exit(fflush(stdout) != 0);
		}
	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], "--", 2)) {
			(void)fprintf(stderr, "%s: \"%s\" is no option\n", argv[0], argv[i]);
			bench_wrong(usage);
		}
	if (argc - 1 >= least && argc - 1 <= most)
		return;
	if (argc - 1 > most)
		(void)fprintf(stderr, "%s: \"%s\" is one word too many\n", argv[0], argv[most + 1]);
	bench_wrong(usage);
}

/* The number that is word `at`; def where there is no such word. */
static inline int bench_number(int argc, char **argv, int at, int def, int min, int max, const char *usage)
{
	char *end;
	if (argc <= at)
		return def;
	long v = strtol(argv[at], &end, 10);
	if (end != argv[at] && !*end && v >= min && v <= max)
		return (int)v;
	(void)fprintf(stderr, "%s: \"%s\" is no number from %d to %d\n", argv[0], argv[at], min, max);
	bench_wrong(usage);
}

#endif

/* The fuzz targets without libFuzzer: runs every file of the corpus directories given, each also in a few hundred
 * seeded mutations, so that the normal suite (and gcc's sanitizers) walk the same paths as the long fuzzing does. */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/rng.h"

#define INPUT_MAX ((size_t)1 << 20)
#define MUTATIONS 400u              /* of a file, at most */
#define SECONDS "2"                 /* of all mutations, when FUZZ_SECONDS does not say */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static char where[4300];            /* which input is running: said when it kills us */

static void say_where(void)
{
	ssize_t n = write(2, where, strlen(where));

	(void)n;
}

static void on_signal(int sig)
{
	say_where();
	signal(sig, SIG_DFL);
	raise(sig);
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_one(const uint8_t *p, size_t n)
{
	uint8_t *exact = malloc(n ? n : 1);     /* of the exact size, so that a read past the end is seen */

	if (!exact)
		abort();
	memcpy(exact, p, n);
	LLVMFuzzerTestOneInput(exact, n);
	free(exact);
}

/* Flips, cuts, repeats, or overwrites with a telling value; returns the new size. */
static size_t mutate(struct rng *r, uint8_t *p, size_t n)
{
	static const uint8_t telling[] = { 0, 0xff, 0x7f, 0x80, 1, '"', '{', '[', '\\', '\n', '-', '9' };
	size_t at = n ? rng_below(r, n) : 0, k;

	switch (rng_below(r, 5)) {
	case 0:
		if (n)
			p[at] ^= (uint8_t)(1u << rng_below(r, 8));
		return n;
	case 1:
		return at;
	case 2:
		if (n)
			p[at] = telling[rng_below(r, sizeof telling)];
		return n;
	case 3:                                 /* a piece again, behind itself */
		k = n - at < 64 ? n - at : 64;
		if (n + k > INPUT_MAX)
			return n;
		memmove(p + at + k, p + at, n - at);
		return n + k;
	default:                                /* a piece taken out */
		k = n - at ? 1 + rng_below(r, n - at < 32 ? n - at : 32) : 0;
		memmove(p + at, p + at + k, n - at - k);
		return n - k;
	}
}

static bool run_file(const char *path, double deadline, unsigned *count)
{
	static uint8_t in[INPUT_MAX + 64], work[INPUT_MAX + 64];
	FILE *f = fopen(path, "rb");
	struct rng r;
	size_t n;

	if (!f) {
		perror(path);
		return false;
	}
	n = fread(in, 1, INPUT_MAX, f);
	fclose(f);
	snprintf(where, sizeof where, "input: %s\n", path);
	run_one(in, n);
	++*count;
	rng_seed(&r, n);
	for (unsigned m = 0; m < MUTATIONS && seconds() < deadline; m++) {
		size_t k = n;

		snprintf(where, sizeof where, "input: %s, mutation %u\n", path, m);
		memcpy(work, in, n);
		for (uint64_t times = 1 + rng_below(&r, 4); times--;)
			k = mutate(&r, work, k);
		run_one(work, k);
		++*count;
	}
	return true;
}

/* Every file has its share of the time for mutations, whatever its name. */
static bool run_dir(const char *dir, double start, double most, unsigned *files, unsigned *count)
{
	struct dirent **list;
	int n = scandir(dir, &list, NULL, alphasort);
	bool ok = n >= 0;
	char path[4096];

	if (!ok)
		perror(dir);
	for (int i = 0; i < n; i++) {
		if (list[i]->d_name[0] != '.') {
			snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
			ok = run_file(path, start + most * (i + 1) / n, count) && ok;
			++*files;
		}
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return ok;
}

int main(int argc, char **argv)
{
	const char *most = getenv("FUZZ_SECONDS");
	double start = seconds();
	unsigned files = 0, count = 0;
	bool ok = argc > 1;

	signal(SIGABRT, on_signal);
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(say_where);
	else
		signal(SIGSEGV, on_signal);
	for (int i = 1; i < argc; i++)
		ok = run_dir(argv[i], seconds(), strtod(most ? most : SECONDS, NULL) / (argc - 1), &files, &count) && ok;
	printf("%u files, %u inputs, %.2f s\n", files, count, seconds() - start);
	return ok && files ? 0 : 1;
}

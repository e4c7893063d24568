/* The data pipeline of one core: prepares samples and says how long it took. tests/bench/data.py runs it in turns with
 * torchvision and Pillow.
 *
 * usage: bench_data SPEC.json PATH      then lines "FROM COUNT" on standard input: positions; answers with the seconds
 * of processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common/mem.h"
#include "loop/files.h"
#include "train/data/data.h"
#include "usage.h"

#define BATCH 64

static double seconds(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct spec *spec_of_file(const char *path, struct err *e)
{
	json_error_t why;
	json_t *j = json_load_file(path, 0, &why);
	struct spec *s = j ? spec_of_json(j, e) : NULL;

	if (!j)
		(void)err_set(e, ERR_INVALID, "%s: %s", path, why.text);
	json_decref(j);
	return s;
}

static double prepare(struct data *d, uint64_t from, uint64_t n, real *x, void *y)
{
	double at = seconds();
	uint64_t position[BATCH];
	struct err e;

	for (uint64_t i = 0; i < n; ) {
		size_t k = 0;

		while (k < BATCH && i < n)
			position[k++] = from + i++;
		if (data_read(d, DATA_TRAIN, position, k, x, y, &e) < 0) {
			(void)fprintf(stderr, "%s\n", e.text);
			return -1;
		}
	}
	return seconds() - at;
}

int main(int argc, char **argv)
{
	bench_words(argc, argv, 2, 2, "bench_data SPEC.json PATH");
	unsigned long long from, n;
	struct err e = { .code = ERR_NONE };
	struct spec *s = spec_of_file(argv[1], &e);
	struct data *d = s ? data_open(files_real(), argv[2], s, &e) : NULL;
	char line[64];
	real *x;
	void *y;

	if (!d) {
		(void)fprintf(stderr, "%s\n", e.text);
		spec_free(s);
		return 1;
	}
	x = xmalloc(BATCH * data_x_bytes(d));
	y = xmalloc(BATCH * data_y_bytes(d));
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%llu %llu", &from, &n) != 2)
			break;
		(void)printf("%.9f\n", prepare(d, from, n, x, y));
		(void)fflush(stdout);
	}
	free(x);
	free(y);
	data_free(d);
	spec_free(s);
	return 0;
}

/* CSV: what is accepted has rows of equal length, all finite. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "train/data/csv_parse.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	struct err e = { .code = ERR_NONE };
	char *text = malloc(size + 1);
	struct csv c;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = 0;
	if (csv_parse(&c, text, size, &e)) {
		if (!e.text[0] || c.v)
			abort();
	} else {
		if (!c.rows || !c.columns)
			abort();
		for (size_t i = 0; i < c.rows * c.columns; i++)
			if (!isfinite(c.v[i]))
				abort();
		csv_free(&c);
	}
	free(text);
	return 0;
}

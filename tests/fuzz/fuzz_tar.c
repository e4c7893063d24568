/* tar archives: what is accepted lies inside the archive, under a name that may be shown. */
#include <stdlib.h>
#include <string.h>
#include "common/text.h"
#include "train/data/tar_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input { const uint8_t *p; size_t n; unsigned sum; };

static int pread_(void *arg, void *to, size_t n, uint64_t at, struct err *e)
{
	const struct input *i = arg;

	if (at > i->n || n > i->n - at)
		abort();
	memcpy(to, i->p + at, n);
	return 0;
}

static int member(void *arg, const char *path, uint64_t at, uint64_t bytes, const uint8_t *body, struct err *e)
{
	struct input *i = arg;

	if (at > i->n || bytes > i->n - at || strlen(path) >= TAR_PATH || !text_utf8_ok(path, strlen(path)))
		abort();
	if (body ? memcmp(body, i->p + at, bytes) : bytes <= TAR_BODY)
		abort();
	for (uint64_t k = 0; k < bytes; k++)
		i->sum += i->p[at + k];
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = { .code = ERR_NONE };
	struct input i = { data, size, 0 };
	struct tar_input in = { .bytes = size, .pread = pread_, .arg = &i };

	if (tar_walk(&in, member, &i, &e) && !e.text[0])
		abort();
	return 0;
}

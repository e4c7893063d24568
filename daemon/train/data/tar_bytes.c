/* The bytes of an archive: where its file has them, or unzipped in memory. */
#include <string.h>
#include "train/data/tar_int.h"

int tar_from_file(void *arg, void *to, size_t n, uint64_t at, struct err *e)
{
	struct tar *t = arg;
	int64_t got = t->x.f->pread(t->x.f, t->fd, to, n, at, e);

	if (got >= 0 && got != (int64_t)n)
		return err_set(e, ERR_CORRUPT, "the archive is shorter than when it was opened");
	return got < 0 ? -1 : 0;
}

int tar_from_memory(void *arg, void *to, size_t n, uint64_t at, struct err *e)
{
	struct tar *t = arg;

	memcpy(to, t->mem + at, n);
	return 0;
}

int tar_fetch(struct images *x, const struct image_file *i, uint64_t at, size_t n, uint8_t *to, struct err *e)
{
	struct tar *t = (struct tar *)x;

	return (t->mem ? tar_from_memory : tar_from_file)(t, to, n, i->at + at, e);
}

/* Files read whole, and where a data set of one or two such files lies. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/whole.h"
#include "train/data/manifest.h"

#define WHOLE_MAX ((int64_t)1 << 34)

int whole_read(struct files *f, const char *path, const char *name, struct whole *ret, struct manifest *m,
	struct err *e)
{
	int64_t n = f->size(f, path, e), got;
	int fd;

	if (n < 0)
		return e->code == ERR_NOT_FOUND ? 1 : -1;
	if (n > WHOLE_MAX)
		return err_set(e, ERR_LIMIT, "%.200s: %lld bytes; at most %lld are read", path, (long long)n,
			(long long)WHOLE_MAX);
	ret->p = big_alloc((size_t)n + 1);
	if (!ret->p)
		return err_set(e, ERR_NOMEM, "%.200s: no memory for %lld bytes", path, (long long)n);
	ret->n = (size_t)n;
	ret->stamp = data_stamp(f, path, 0);
	fd = f->open(f, path, O_RDONLY, 0, e);
	got = fd < 0 ? -1 : f->pread(f, fd, ret->p, (size_t)n, 0, e);
	if (fd >= 0)
		(void)f->close(f, fd, NULL);
	if (got >= 0 && got != n)
		return err_set(e, ERR_IO, "%.200s: it became shorter while it was read", path);
	if (got < 0)
		return -1;
	ret->p[n] = 0;
	manifest_add(m, name, ret->n, ret->p, ret->p + (ret->n < MANIFEST_PIECE ? 0 : ret->n - MANIFEST_PIECE));
	return 0;
}

void whole_free(struct whole *w)
{
	if (w->p)
		big_free(w->p, w->n + 1);
	w->p = NULL;
}

static int named(struct files *f, const char *dir, const char *base, const char *suffix, struct whole *ret,
	struct manifest *m,
	struct err *e)
{
	char *name = xasprintf("%s.%s", base, suffix), *path = xasprintf("%s/%s", dir, name);
	int rc = whole_read(f, path, name, ret, m, e);

	free(name);
	free(path);
	return rc;
}

int whole_parts(struct files *f, const char *path, const char *suffix, struct whole ret[DATA_PARTS], struct manifest *m,
	struct err *e)
{
	static const char *const held_out[] = { "test", "val", "validation", NULL };
	struct err none;
	int rc;

	if (f->size(f, path, &none) >= 0)
		return whole_read(f, path, "data", &ret[DATA_TRAIN], m, e);
	rc = named(f, path, "train", suffix, &ret[DATA_TRAIN], m, e);
	for (int i = 0; !rc && held_out[i]; i++) {
		int found = named(f, path, held_out[i], suffix, &ret[DATA_VALIDATION], m, e);

		if (found <= 0)
			return found;
	}
	return rc <= 0 ? rc : err_set(e, ERR_NOT_FOUND, "%.200s: no such file, and no train.%s below it", path, suffix);
}

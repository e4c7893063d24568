/* A folder of images by class: CLASS/FILE, or train/CLASS/FILE with test/ or val/ beside it. Files are opened when they
 * are read. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "train/data/images.h"

struct folder { struct images x; char *root, *archive; bool stamped; };     /* archive: one that lies there */
struct names { char **v; size_t n; };

static int name_row(void *arg, const char *name)
{
	struct names *l = arg;

	if (name[0] == '.')
		return 0;
	l->v = xrealloc(l->v, (l->n + 1) * sizeof(*l->v));
	l->v[l->n++] = xstrdup(name);
	return 0;
}

static bool archive_name(const char *name)
{
	static const char *const ends[] = { ".tar", ".tar.gz", ".tgz", NULL };
	size_t n = strlen(name);

	for (int i = 0; ends[i]; i++)
		if (n > strlen(ends[i]) && !strcmp(name + n - strlen(ends[i]), ends[i]))
			return true;
	return false;
}

/* Below root/path, at most three parts deep. A name that is no image is a folder if it is no regular file. */
static int walk(struct folder *d, const char *path, int depth, struct err *e)
{
	struct files *f = d->x.f;
	struct names l = { NULL, 0 };
	char *full = xasprintf("%s%s%s", d->root, *path ? "/" : "", path);
	int rc = f->list(f, full, name_row, &l, e);

	for (size_t i = 0; i < l.n; i++) {
		char *below = xasprintf("%s%s%s", path, *path ? "/" : "", l.v[i]), *at = xasprintf("%s/%s", d->root, below);
		struct err none;
		int64_t n = !rc && (image_name(l.v[i]) || depth < 3) ? f->size(f, at, image_name(l.v[i]) ? e : &none) : -1;

		if (!rc && !d->archive && archive_name(l.v[i]))
			d->archive = xstrdup(at);
		if (!rc && d->stamped && image_name(l.v[i]))    /* a sum: files come in any order */
			d->x.d.stamp += data_stamp(f, at, siphash(0, 0, below, strlen(below)));
		if (!rc && image_name(l.v[i]))
			rc = n < 0 ? -1 : images_add(&d->x, below, 0, (uint64_t)n, NULL, e);
		else if (!rc && n < 0 && depth < 3)
			rc = walk(d, below, depth + 1, e);
		free(below);
		free(at);
		free(l.v[i]);
	}
	free(l.v);
	free(full);
	return rc;
}

static int fetch(struct images *x, const struct image_file *i, uint64_t at, size_t n, uint8_t *to, struct err *e)
{
	struct folder *d = (struct folder *)x;
	char *path = xasprintf("%s/%s", d->root, i->path);
	int fd = x->f->open(x->f, path, O_RDONLY, 0, e);
	int64_t got = fd < 0 ? -1 : x->f->pread(x->f, fd, to, n, at, e);

	if (fd >= 0)
		(void)x->f->close(x->f, fd, NULL);
	if (got >= 0 && got != (int64_t)n)
		got = err_set(e, ERR_CORRUPT, "%.200s: shorter than when it was indexed", i->path);
	free(path);
	return got < 0 ? -1 : 0;
}

static void close_(struct data_source *d)
{
	struct folder *f = (struct folder *)d;

	images_free(&f->x);
	free(f->root);
	free(f->archive);
	free(f);
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct folder *d = xcalloc(1, sizeof(*d));

	d->root = xstrdup(path);
	d->x.f = f;
	d->x.fetch = fetch;
	d->stamped = s->materialize >= 0;
	if (walk(d, "", 1, e) < 0 || images_ready(&d->x, path, s, e) < 0) {
		if (e->code == ERR_NOT_FOUND && !d->x.n && d->archive)
			(void)err_set(e, ERR_NOT_FOUND, "%.150s: no images, but an archive; did you mean tar:%.150s?", path,
				d->archive);
		close_(&d->x.d);
		return NULL;
	}
	return &d->x.d;
}

const struct data_ops data_folder = {
	.name = "folder", .help = "a folder of JPEG and PNG files by class, with or without train/ and test/",
	.open = open_, .image = images_read, .close = close_,
};

/* A folder of IDX files as MNIST comes: train-images*, train-labels*, and for validation t10k-images*, t10k-labels*
 * (or test-, validation-), each plain or .gz. Images of plain files are read where they lie, sample by sample;
 * labels, and what was compressed, are held in memory as in the files (one byte a pixel). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/data/data.h"
#include "train/data/idx.h"
#include "train/data/manifest.h"

#define FILE_MAX ((int64_t)1 << 36)

/* p: header and data in memory; NULL: they are read from fd */
struct file { char name[128]; struct idx_head head; uint8_t *p; int fd; uint64_t stamp; };
struct idx {
	struct data_source d;
	struct files *f;
	struct file images[DATA_PARTS], labels[DATA_PARTS];
};

static const char *const prefixes[][2] = { { "train-images", "train-labels" }, { "t10k-images", "t10k-labels" },
	{ "test-images", "test-labels" }, { "validation-images", "validation-labels" } };

struct listing { const char *prefix; char found[128], again[128]; };

static int list_row(void *arg, const char *name)
{
	struct listing *l = arg;

	if (strncmp(name, l->prefix, strlen(l->prefix)) || strlen(name) >= sizeof(l->found))
		return 0;
	memcpy(l->found[0] ? l->again : l->found, name, strlen(name) + 1);
	return 0;
}

static bool there(const struct file *f)
{
	return f->p || f->fd >= 0;
}

static int close_with(struct files *f, int fd, int rc)
{
	(void)f->close(f, fd, NULL);
	return rc;
}

/* 1: it is compressed. */
static int plain(struct files *f, int fd, int64_t n, struct file *to, struct err *e)
{
	uint8_t head[4 + 4 * IDX_DIMS] = { 0 };
	int64_t got = f->pread(f, fd, head, sizeof(head), 0, e);

	if (got < 0)
		return -1;
	if (got >= 2 && head[0] == 0x1f && head[1] == 0x8b)
		return 1;
	if (idx_head_parse(&to->head, head, (size_t)got, e) < 0)
		return -1;
	return idx_length_check(&to->head, (uint64_t)n, e);
}

static int read_file(struct files *f, const char *path, bool in_place, struct file *to, struct err *e)
{
	int64_t n = f->size(f, path, e), got;
	struct err why = { 0 };
	uint8_t *p;
	int fd;

	if (n < 0)
		return -1;
	to->stamp = data_stamp(f, path, 0);
	if (n > FILE_MAX)
		return err_set(e, ERR_LIMIT, "%s: %lld bytes; at most %lld are read", path, (long long)n, (long long)FILE_MAX);
	fd = f->open(f, path, O_RDONLY, 0, e);
	if (fd < 0)
		return -1;
	if (in_place) {
		int rc = plain(f, fd, n, to, &why);

		if (rc < 0)
			return close_with(f, fd, err_set(e, why.code, "%s: %s", path, why.text));
		if (rc == 0) {
			to->fd = fd;
			return 0;
		}
	}
	p = big_alloc(n ? (size_t)n : 1);
	if (!p)
		return close_with(f, fd, err_set(e, ERR_NOMEM, "%s: no memory for %lld bytes", path, (long long)n));
	got = f->pread(f, fd, p, (size_t)n, 0, &why);
	(void)close_with(f, fd, 0);
	if (got == n && !idx_parse(&to->head, &to->p, p, (size_t)n, &why)) {
		big_free(p, n ? (size_t)n : 1);
		return 0;
	}
	if (got >= 0 && got != n)
		(void)err_set(&why, ERR_IO, "it became shorter while it was read");
	big_free(p, n ? (size_t)n : 1);
	return err_set(e, why.code, "%s: %s", path, why.text);
}

/* 1: not there. */
static int find_file(struct files *f, const char *dir, const char *prefix, bool in_place, struct file *to,
	struct err *e)
{
	struct listing l = { .prefix = prefix };
	char path[700];
	size_t n;

	if (f->list(f, dir, list_row, &l, e) < 0)
		return -1;
	if (!l.found[0])
		return 1;
	text_clean(l.found);
	if (l.again[0]) {
		text_clean(l.again);
		return err_set(e, ERR_INVALID, "%s: both %s and %s are there; remove one", dir, l.found, l.again);
	}
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, l.found) >= sizeof(path))
		return err_set(e, ERR_INVALID, "%.200s...: the path is too long", dir);
	memcpy(to->name, l.found, sizeof(to->name));
	n = strlen(to->name);
	if (n > 3 && !strcmp(to->name + n - 3, ".gz"))
		to->name[n - 3] = 0;            /* compressed or not, it is the same data set */
	return read_file(f, path, in_place, to, e);
}

static int check_pair(struct idx *x, int part, const char *dir, struct err *e)
{
	const struct idx_head *a = &x->images[part].head, *b = &x->labels[part].head, *first = &x->images[DATA_TRAIN].head;

	if (a->type != IDX_U8 && a->type != IDX_F32)
		return err_set(e, ERR_INVALID, "%s/%s: element type 0x%02x; images are bytes (08) or floats (0d)", dir,
			x->images[part].name, (unsigned)a->type);
	if ((b->type != IDX_U8 && b->type != IDX_I32) || b->ndim != 1)
		return err_set(e, ERR_INVALID, "%s/%s: labels must be one dimension of bytes (08) or integers (0c)", dir,
			x->labels[part].name);
	if (a->dim[0] != b->dim[0])
		return err_set(e, ERR_MISMATCH, "%s: %s has %llu samples and %s has %llu", dir, x->images[part].name,
			(unsigned long long)a->dim[0], x->labels[part].name, (unsigned long long)b->dim[0]);
	if (part && (a->count / a->dim[0] != first->count / first->dim[0] || a->type != first->type))
		return err_set(e, ERR_MISMATCH, "%s: samples of %s and %s have different shapes", dir, x->images[0].name,
			x->images[part].name);
	x->d.count[part] = a->dim[0];
	return 0;
}

static int32_t label_at(const struct file *f, uint64_t i)
{
	const uint8_t *p = f->p + f->head.data_at;

	if (f->head.type == IDX_U8)
		return p[i];
	p += 4 * i;
	return (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
}

/* Labels are looked at once, here: kernels do not check. */
static int check_labels(struct idx *x, int part, const char *dir, struct err *e)
{
	for (uint64_t i = 0; i < x->d.count[part]; i++) {
		int32_t l = label_at(&x->labels[part], i);

		if (l < 0 || l > 1 << 24)
			return err_set(e, ERR_CORRUPT, "%s/%s: label %d at sample %llu; labels are 0, 1, 2, ...", dir,
				x->labels[part].name, l, (unsigned long long)i);
		if ((uint64_t)l >= x->d.classes)
			x->d.classes = (uint64_t)l + 1;
	}
	return 0;
}

/* n bytes of the file as it was before compression. */
static int piece(struct files *f, const struct file *from, uint64_t at, size_t n, void *to, struct err *e)
{
	int64_t got;

	if (from->p) {
		memcpy(to, from->p + at, n);
		return 0;
	}
	got = f->pread(f, from->fd, to, n, at, e);
	return got < 0 ? -1 : got == (int64_t)n ? 0 : err_set(e, ERR_IO, "%s became shorter while it was read", from->name);
}

static int add_manifest(struct manifest *m, struct files *files, const struct file *f, struct err *e)
{
	uint64_t n = f->head.data_at + f->head.bytes;
	size_t part = n < MANIFEST_PIECE ? (size_t)n : MANIFEST_PIECE;
	uint8_t p[2][MANIFEST_PIECE];

	if (piece(files, f, 0, part, p[0], e) < 0 || piece(files, f, n - part, part, p[1], e) < 0)
		return -1;
	manifest_add(m, f->name, n, p[0], p[1]);
	return 0;
}

static void shape_of(const struct idx_head *h, struct shape *ret)
{
	ret->nd = (int)h->ndim - 1;
	if (ret->nd < 1 || ret->nd > SHAPE_MAX) {
		ret->nd = 1;
		ret->d[0] = (size_t)(h->count / h->dim[0]);
		return;
	}
	for (int i = 0; i < ret->nd; i++)
		ret->d[i] = (size_t)h->dim[i + 1];
}

static void close_(struct data_source *d)
{
	struct idx *x = (struct idx *)d;

	for (int i = 0; i < DATA_PARTS; i++) {
		if (x->images[i].fd >= 0)
			(void)x->f->close(x->f, x->images[i].fd, NULL);
		big_free(x->images[i].p, x->images[i].head.data_at + x->images[i].head.bytes);
		big_free(x->labels[i].p, x->labels[i].head.data_at + x->labels[i].head.bytes);
	}
	free(x);
}

static int load(struct idx *x, struct files *f, const char *dir, struct err *e)
{
	int rc = find_file(f, dir, prefixes[0][0], true, &x->images[DATA_TRAIN], e), rl = 0;

	if (rc >= 0)
		rl = find_file(f, dir, prefixes[0][1], false, &x->labels[DATA_TRAIN], e);
	if (rc < 0 || rl < 0)
		return -1;
	if (rc || rl)
		return err_set(e, ERR_NOT_FOUND, "%s: no file %s*; put the IDX files there or set local.data", dir,
			prefixes[0][rc ? 0 : 1]);
	for (size_t k = 1; k < sizeof(prefixes) / sizeof(*prefixes) && !there(&x->images[DATA_VALIDATION]); k++) {
		rc = find_file(f, dir, prefixes[k][0], true, &x->images[DATA_VALIDATION], e);
		if (rc < 0)
			return -1;
		if (rc)
			continue;
		rl = find_file(f, dir, prefixes[k][1], false, &x->labels[DATA_VALIDATION], e);
		if (rl)
			return rl < 0 ? -1 : err_set(e, ERR_NOT_FOUND, "%s: %s is there, and %s* is not", dir,
				x->images[DATA_VALIDATION].name, prefixes[k][1]);
	}
	for (int part = 0; part < DATA_PARTS && there(&x->images[part]); part++)
		if (check_pair(x, part, dir, e) < 0 || check_labels(x, part, dir, e) < 0)
			return -1;
	return 0;
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct idx *x = xcalloc(1, sizeof(*x));
	struct manifest m;
	int rc = 0;

	x->f = f;
	x->d.target = TARGET_CLASS;
	for (int part = 0; part < DATA_PARTS; part++)
		x->images[part].fd = x->labels[part].fd = -1;
	if (load(x, f, path, e) < 0) {
		close_(&x->d);
		return NULL;
	}
	shape_of(&x->images[DATA_TRAIN].head, &x->d.shape);
	x->d.bytes = x->images[DATA_TRAIN].head.type == IDX_U8;
	manifest_begin(&m);
	for (int part = 0; part < DATA_PARTS && there(&x->images[part]); part++) {
		if (!rc)
			rc = add_manifest(&m, f, &x->images[part], e) < 0 || add_manifest(&m, f, &x->labels[part], e) < 0 ? -1 : 0;
		x->d.stamp += x->images[part].stamp + 3 * x->labels[part].stamp;
	}
	manifest_end(&m, &x->d);
	if (rc < 0) {
		close_(&x->d);
		return NULL;
	}
	return &x->d;
}

static void floats(const uint8_t *p, size_t n, real *out)
{
	for (size_t i = 0; i < n; i++, p += 4) {
		uint32_t u = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
		float v;

		memcpy(&v, &u, sizeof(v));
		out[i] = (real)v;
	}
}

static int read_(struct data_source *d, enum data_part part, const uint64_t *index, size_t n, real *x, void *y,
	struct err *e)
{
	struct idx *s = (struct idx *)d;
	const struct file *im = &s->images[part];
	size_t per = (size_t)(im->head.count / im->head.dim[0]), bytes = per * im->head.elem;
	uint8_t *room = im->p ? NULL : xmalloc(bytes);
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		uint64_t at = im->head.data_at + index[i] * bytes;
		const uint8_t *p = im->p ? im->p + at : room;
		real *out = x + i * per;

		if (room)
			rc = piece(s->f, im, at, bytes, room, e);
		((int32_t *)y)[i] = label_at(&s->labels[part], index[i]);
		if (!rc && im->head.type == IDX_F32)
			floats(p, per, out);
		for (size_t k = 0; !rc && im->head.type != IDX_F32 && k < per; k++)
			out[k] = (real)p[k];
	}
	free(room);
	return rc;
}

const struct data_ops data_idx = {
	.name = "idx", .help = "a folder of IDX files as MNIST comes, plain or .gz",
	.open = open_, .read = read_, .close = close_,
};

/* Images by class: the list, the classes, the manifest, and one image decoded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/text.h"
#include "train/data/images.h"
#include "train/data/manifest.h"


static const char *const held_out[] = { "test", "val", "validation", NULL };

/* first: bytes, or (when there are more than two pieces) a piece; last: the last piece. */
static void sum_up(struct image_file *f, const uint8_t *first, const uint8_t *last)
{
	uint8_t both[2 * MANIFEST_PIECE];

	f->summed = true;
	if (f->bytes <= MANIFEST_PIECE) {
		xxh128_of(first, (size_t)f->bytes, f->sum);
		return;
	}
	memcpy(both, first, MANIFEST_PIECE);
	memcpy(both + MANIFEST_PIECE, last, MANIFEST_PIECE);
	xxh128_of(both, sizeof(both), f->sum);
}

int images_add(struct images *x, const char *path, uint64_t at, uint64_t bytes, const uint8_t *body, struct err *e)
{
	const char *base = strrchr(path, '/');

	if (!base || base == path || base[1] == '.' || !image_name(path))
		return 0;
	if (bytes > (uint64_t)IMAGE_FILE_MAX)
		return err_set(e, ERR_LIMIT, "%.150s: %llu bytes; an image file has at most %lld", path,
			(unsigned long long)bytes,
			(long long)IMAGE_FILE_MAX);
	if (x->n == x->cap) {
		x->cap = x->cap ? 2 * x->cap : 1024;
		x->all = xrealloc(x->all, x->cap * sizeof(*x->all));
	}
	x->all[x->n] = (struct image_file){ .path = xstrdup(path), .at = at, .bytes = bytes };
	if (body)
		sum_up(&x->all[x->n], body, body + (bytes > MANIFEST_PIECE ? bytes - MANIFEST_PIECE : 0));
	x->n++;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct image_file *)a)->path, ((const struct image_file *)b)->path);
}

/* The folder that holds the classes: "train/" and such, or nothing. */
static bool under(const char *path, const char *top)
{
	size_t n = strlen(top);

	return !strncmp(path, top, n) && path[n] == '/' && strchr(path + n + 1, '/');
}

/* "train/cat/1.jpg" -> "cat/", 4 */
static const char *class_of(const char *path, bool parts, size_t *ret_n)
{
	const char *c = parts ? strchr(path, '/') + 1 : path;

	*ret_n = (size_t)(strchr(c, '/') - c);
	return c;
}

/* -1: it belongs to none. */
static int part_of(const char *path, bool parts)
{
	if (!parts || under(path, "train"))
		return DATA_TRAIN;
	for (int i = 0; held_out[i]; i++)
		if (under(path, held_out[i]))
			return DATA_VALIDATION;
	return -1;
}

/* The files are sorted, so each class of a part is one run of them. Held-out classes must be among training's. */
static int number(struct images *x, bool parts, struct err *e)
{
	const char **name = NULL, *before = NULL;
	size_t *len = NULL, n = 0, blen = 0;
	int rc = 0;

	for (int part = 0; part < DATA_PARTS && !rc; part++) {
		struct image_file *f = x->file[part];

		before = NULL;
		for (uint64_t i = 0, k = 0; i < x->d.count[part] && !rc; i++) {
			size_t clen;
			const char *c = class_of(f[i].path, parts, &clen);
			bool same = before && clen == blen && !memcmp(c, before, clen);

			before = c;
			blen = clen;
			if (part == DATA_TRAIN && !same) {
				name = xrealloc(name, (n + 1) * sizeof(*name));
				len = xrealloc(len, (n + 1) * sizeof(*len));
				name[n] = c;
				len[n++] = clen;
			}
			for (k = same ? k : 0; part != DATA_TRAIN && k < n && (len[k] != clen || memcmp(name[k], c, clen)); k++)
				;
			if (part != DATA_TRAIN && k == n)
				rc = err_set(e, ERR_INVALID, "%.200s: its class is not among those of training", f[i].path);
			f[i].label = part == DATA_TRAIN ? (int32_t)n - 1 : (int32_t)k;
		}
	}
	x->d.classes = n;
	x->name = xcalloc(n + 1, sizeof(*x->name));
	for (size_t i = 0; i < n; i++)
		x->name[i] = xasprintf("%.*s", (int)len[i], name[i]);
	x->d.class_name = (const char *const *)x->name;
	free(name);
	free(len);
	return rc;
}

static void share_out(struct images *x, bool parts)
{
	for (size_t i = 0; i < x->n; i++) {
		x->all[i].label = part_of(x->all[i].path, parts);
		if (x->all[i].label >= 0)
			x->d.count[x->all[i].label]++;
	}
	for (int part = 0; part < DATA_PARTS; part++) {
		x->file[part] = xcalloc(x->d.count[part] + 1, sizeof(*x->file[part]));
		x->d.count[part] = 0;
	}
	for (size_t i = 0; i < x->n; i++) {
		int part = x->all[i].label;

		if (part >= 0)
			x->file[part][x->d.count[part]++] = x->all[i];
	}
}

/* C8: files in order, each name, size, and a hash of its first and last bytes. */
static int manifest(struct images *x, struct err *e)
{
	uint8_t p[2][MANIFEST_PIECE], size[8];
	struct sha256 h;
	int rc = 0;

	sha256_init(&h);
	for (int part = 0; part < DATA_PARTS && !rc; part++)
		for (uint64_t i = 0; i < x->d.count[part] && !rc; i++) {
			struct image_file *f = &x->file[part][i];
			size_t piece = f->bytes < MANIFEST_PIECE ? (size_t)f->bytes : MANIFEST_PIECE;

			if (!f->summed) {
				rc = x->fetch(x, f, 0, piece, p[0], e);
				if (!rc && f->bytes > piece)
					rc = x->fetch(x, f, f->bytes - piece, piece, p[1], e);
				if (rc)
					break;
				sum_up(f, p[0], p[1]);
			}
			for (int k = 0; k < 8; k++)
				size[k] = (uint8_t)(f->bytes >> (8 * k));
			sha256_add(&h, f->path, strlen(f->path) + 1);
			sha256_add(&h, size, sizeof(size));
			sha256_add(&h, f->sum, sizeof(f->sum));
		}
	sha256_end(&h, x->d.digest);
	return rc;
}

static void file_at(const struct data_source *d, uint64_t i, struct data_file *ret)
{
	const struct images *x = (const struct images *)d;
	int part = i < d->count[DATA_TRAIN] ? DATA_TRAIN : DATA_VALIDATION;
	const struct image_file *f = &x->file[part][i - (part == DATA_TRAIN ? 0 : d->count[DATA_TRAIN])];

	(void)snprintf(ret->name, sizeof(ret->name), "%s", f->path);
	ret->bytes = f->bytes;
	memcpy(ret->sum, f->sum, sizeof(ret->sum));
}

/* Most archives and folders come in order. */
static int sort(struct image_file *f, uint64_t n, struct err *e)
{
	uint64_t i = 1;

	while (i < n && strcmp(f[i - 1].path, f[i].path) < 0)
		i++;
	if (i >= n)
		return 0;
	qsort(f, n, sizeof(*f), by_path);
	for (i = 1; i < n; i++)
		if (!strcmp(f[i - 1].path, f[i].path))
			return err_set(e, ERR_CORRUPT, "%.200s is there twice", f[i].path);
	return 0;
}

int images_ready(struct images *x, const char *path, const struct spec *s, struct err *e)
{
	bool parts = false;

	if (s->input.nd != 3 || (s->input.d[0] != 1 && s->input.d[0] != 3))
		return err_set(e, ERR_MISMATCH, "data %s: images want an input of [1 or 3, height, width]", s->data_name);
	x->channels = s->input.d[0];
	for (size_t i = 0; i < x->n && !parts; i++)
		parts = under(x->all[i].path, "train");
	share_out(x, parts);
	for (int part = 0; part < DATA_PARTS; part++)
		if (sort(x->file[part], x->d.count[part], e) < 0)
			return -1;
	if (!x->d.count[DATA_TRAIN])
		return err_set(e, ERR_NOT_FOUND, "%.200s: no images; CLASS/*.jpg or train/CLASS/*.jpg (or .png) is looked for",
			path);
	x->d.target = TARGET_CLASS;
	x->d.bytes = true;
	x->d.file_at = file_at;
	return number(x, parts, e) < 0 || manifest(x, e) < 0 ? -1 : 0;
}

int images_read(struct data_source *d, enum data_part part, uint64_t index, struct sample *s, int32_t *ret_label,
	struct err *e)
{
	struct images *x = (struct images *)d;
	const struct image_file *f = &x->file[part][index];
	uint8_t *p = sample_file(s, (size_t)f->bytes);
	char shown[160];
	int rc = x->fetch(x, f, 0, (size_t)f->bytes, p, e);

	meter_mark(s->meter, STAGE_READ, 1, f->bytes);
	if (!rc && image_decode(p, (size_t)f->bytes, x->channels, s, e) < 0) {
		(void)snprintf(shown, sizeof(shown), "%.150s", f->path);
		text_clean(shown);
		rc = err_wrap(e, "%s", shown);
	}
	meter_mark(s->meter, STAGE_DECODE, !rc, rc ? 0 : sample_count(s));
	*ret_label = f->label;
	return rc;
}

void images_free(struct images *x)
{
	for (size_t i = 0; i < x->n; i++)
		free(x->all[i].path);
	free(x->all);
	for (size_t i = 0; x->name && x->name[i]; i++)
		free(x->name[i]);
	free(x->name);
	for (int part = 0; part < DATA_PARTS; part++)
		free(x->file[part]);
}

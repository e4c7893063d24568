/* A table: each line the input's numbers, then the label (or as many targets as the model has outputs). One file, or a
 * folder with train.csv, and test.csv or val.csv. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/csv_parse.h"
#include "train/data/whole.h"
#include "train/spec/draft.h"
#include "train/data/manifest.h"

#define LABEL_MAX (1 << 24)

struct table { struct data_source d; struct csv part[DATA_PARTS]; size_t nx, ny; };

static void close_(struct data_source *d)
{
	struct table *t = (struct table *)d;

	for (int i = 0; i < DATA_PARTS; i++)
		csv_free(&t->part[i]);
	free(t);
}

static int check(struct table *t, int part, struct err *e)
{
	const struct csv *c = &t->part[part];

	if (c->columns != t->nx + t->ny)
		return err_set(e, ERR_MISMATCH, "%zu fields a line; %zu inputs and %zu target%s are asked for", c->columns,
			t->nx, t->ny,
			t->ny == 1 ? "" : "s");
	for (size_t i = 0; i < c->rows && t->d.target == TARGET_CLASS; i++) {
		float l = c->v[i * c->columns + t->nx];

		if (!(l >= 0 && l < LABEL_MAX) || l != (float)(int32_t)l)
			return err_set(e, ERR_CORRUPT, "sample %zu: label %g; labels are 0, 1, 2, ... and stand last", i,
				(double)l);
		if ((uint64_t)l >= t->d.classes)
			t->d.classes = (uint64_t)l + 1;
	}
	t->d.count[part] = c->rows;
	return 0;
}

static int load(struct table *t, struct files *f, const char *path, struct err *e)
{
	static const char *const names[] = { "training", "validation" };
	struct whole part[DATA_PARTS] = { { .p = NULL } };
	struct manifest m;
	int rc;

	manifest_begin(&m);
	rc = whole_parts(f, path, "csv", part, &m, e);
	manifest_end(&m, &t->d);
	t->d.stamp = part[DATA_TRAIN].stamp + 3 * part[DATA_VALIDATION].stamp;
	for (int i = 0; i < DATA_PARTS; i++) {
		if (!rc && part[i].p && (csv_parse(&t->part[i], part[i].p, part[i].n, e) < 0 || check(t, i, e) < 0))
			rc = err_wrap(e, "%.200s (%s)", path, names[i]);
		whole_free(&part[i]);
	}
	return rc;
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct model *m = spec_model(s, NULL, e);
	struct table *t;

	if (!m)
		return NULL;
	t = xcalloc(1, sizeof(*t));
	t->d.shape = s->input;
	t->d.target = s->loss->target;
	t->d.y = m->out;
	t->nx = shape_count(&s->input);
	t->ny = t->d.target == TARGET_CLASS ? 1 : shape_count(&m->out);
	model_free(m);
	if (load(t, f, path, e) < 0) {
		close_(&t->d);
		return NULL;
	}
	return &t->d;
}

static int read_(struct data_source *d, enum data_part part, const uint64_t *index, size_t n, real *x, void *y,
	struct err *e)
{
	const struct table *t = (const struct table *)d;

	for (size_t i = 0; i < n; i++) {
		const float *row = t->part[part].v + index[i] * t->part[part].columns;

		for (size_t k = 0; k < t->nx; k++)
			x[i * t->nx + k] = (real)row[k];
		if (d->target == TARGET_CLASS)
			((int32_t *)y)[i] = (int32_t)row[t->nx];
		for (size_t k = 0; d->target != TARGET_CLASS && k < t->ny; k++)
			((real *)y)[i * t->ny + k] = (real)row[t->nx + k];
	}
	return 0;
}

/* A table has no shape of its own: all fields but the last, which is a label when it is a small whole number. */
static int about(struct files *f, const char *path, struct data_about *a, struct err *e)
{
	struct whole part[DATA_PARTS] = { { .p = NULL } };
	struct csv c = { 0 };
	struct manifest m;
	int rc;

	manifest_begin(&m);
	rc = whole_parts(f, path, "csv", part, &m, e);
	manifest_end(&m, NULL);                 /* nobody asks for it here */
	if (!rc && csv_parse(&c, part[DATA_TRAIN].p, part[DATA_TRAIN].n, e) < 0)
		rc = err_wrap(e, "%.200s", path);
	if (!rc && c.columns < 2)
		rc = err_set(e, ERR_INVALID, "%.200s: %zu field a line; inputs and a label are wanted", path, c.columns);
	for (size_t i = 0; !rc && i < c.rows; i++) {
		float l = c.v[(i + 1) * c.columns - 1];

		if (!(l >= 0 && l < 1 << 20) || l != (float)(int32_t)l) {
			a->classes = 0;
			break;
		}
		a->classes = (uint64_t)l >= a->classes ? (uint64_t)l + 1 : a->classes;
	}
	if (!rc) {
		a->count[DATA_TRAIN] = c.rows;
		a->shape = (struct shape){ 1, { c.columns - 1 } };
	}
	csv_free(&c);
	for (int i = 0; i < DATA_PARTS; i++)
		whole_free(&part[i]);
	return rc;
}

const struct data_ops data_csv = {
	.name = "csv", .help = "a table of numbers, the label last: one file, or train.csv and test.csv in a folder",
	.about = about, .open = open_, .read = read_, .close = close_,
};

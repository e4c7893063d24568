/* A look at a data set before there is a spec: how many samples and classes, of which shape, and the mean and deviation
 * of their raw values. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/csv_parse.h"
#include "train/data/images.h"
#include "train/data/whole.h"
#include "common/hash.h"
#include "train/draft.h"

struct sums { double sum[STEP_CHANNELS], square[STEP_CHANNELS]; uint64_t n; };

/* A table has no shape of its own: all fields but the last, which is a label when it is a small whole number. */
static int table(struct files *f, const char *path, struct data_about *a, struct err *e)
{
	struct whole part[DATA_PARTS] = { { .p = NULL } };
	struct csv c = { 0 };
	uint8_t digest[32];
	struct sha256 h;
	int rc;

	sha256_init(&h);
	rc = whole_parts(f, path, "csv", part, &h, e);
	sha256_end(&h, digest);                 /* nobody asks for it here */
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

static void add(struct sums *s, size_t channel, double v)
{
	s->sum[channel] += v;
	s->square[channel] += v * v;
}

static void settle(const struct sums *s, uint32_t channels, struct data_about *a)
{
	a->channels = s->n ? channels : 0;
	for (uint32_t c = 0; c < a->channels; c++) {
		double mean = s->sum[c] / (double)s->n, var = s->square[c] / (double)s->n - mean * mean;

		a->mean[c] = mean;
		a->std[c] = var > 1e-6 ? sqrt(var) : 1;
	}
}

/* Sources of one shape. Planes only count as channels when there are three dimensions. */
static int rows(struct data_source *d, struct data_about *a, struct err *e)
{
	bool planes = d->shape.nd == 3 && d->shape.d[0] <= STEP_CHANNELS;
	size_t n = shape_count(&d->shape), channels = planes ? d->shape.d[0] : 1;
	real *x = xmalloc(n * sizeof(*x));
	void *y = xmalloc((d->labels ? d->labels : 1) * sizeof(int32_t));
	uint64_t count = d->count[DATA_TRAIN], take = count < ABOUT_SAMPLES * 16 ? count : ABOUT_SAMPLES * 16;
	struct sums s = { .n = take * (n / channels) };
	int rc = 0;

	for (uint64_t i = 0; i < take && !rc; i++) {
		uint64_t at = i * count / take;

		rc = d->ops->read(d, DATA_TRAIN, &at, 1, x, y, e);
		for (size_t k = 0; k < n; k++)
			add(&s, k / (n / channels), (double)x[k]);
	}
	free(x);
	free(y);
	if (!rc)
		settle(&s, (uint32_t)channels, a);
	return rc;
}

/* Images: those that cannot be read are left out here, too. */
static void pictures(struct data_source *d, struct data_about *a)
{
	uint64_t count = d->count[DATA_TRAIN], take = count < ABOUT_SAMPLES ? count : ABOUT_SAMPLES;
	struct sample s = { .room = { NULL } };
	bool same = true, grey = true;
	struct sums sum = { .n = 0 };
	int32_t label;
	struct err e;

	for (uint64_t i = 0; i < take; i++) {
		const uint8_t *p;
		size_t n;

		if (d->ops->image(d, DATA_TRAIN, i * count / take, &s, &label, &e) < 0)
			continue;
		p = s.p;
		n = s.h * s.w;
		for (size_t k = 0; k < 3 * n; k++)
			add(&sum, k / n, p[k]);
		grey = grey && !memcmp(p, p + n, n) && !memcmp(p, p + 2 * n, n);
		same = same && (!sum.n || (a->shape.d[1] == s.h && a->shape.d[2] == s.w));
		a->shape = (struct shape){ 3, { 3, s.h, s.w } };
		sum.n += n;
	}
	sample_free(&s);
	if (!same || !sum.n)
		a->shape.nd = 0;
	settle(&sum, grey ? 1 : 3, a);
	if (grey && sum.n)
		a->shape.d[0] = 1;
}

int data_about(struct files *f, const char *kind, const char *path, const char *vocab, struct data_about *ret,
	struct err *e)
{
	const struct data_ops *ops = data_find(kind);
	struct spec stub = { .data_name = "data", .materialize = -1 };
	struct data_source *d;
	int rc = 0;

	*ret = (struct data_about){ .classes = 0 };
	memcpy(ret->kind, ops->name, strlen(ops->name) + 1);
	if (!strcmp(kind, "csv"))
		return table(f, path, ret, e);
	if (!strcmp(kind, "synthetic"))
		return err_set(e, ERR_INVALID, "synthetic data is made for a spec: write one, or name another kind");
	ret->images = ops->image != NULL;
	(void)snprintf(stub.local.vocab, sizeof(stub.local.vocab), "%s", vocab ? vocab : "");
	stub.input = ret->images ? (struct shape){ 3, { 3, 1, 1 } } : (struct shape){ 1, { 1 } };
	d = ops->open(f, path, &stub, e);
	if (!d)
		return -1;
	d->ops = ops;
	ret->classes = d->target == TARGET_CLASS ? d->classes : 0;
	memcpy(ret->count, d->count, sizeof(ret->count));
	ret->shape = d->shape;
	if (ret->images)
		pictures(d, ret);
	else if (strcmp(kind, "text"))
		rc = rows(d, ret, e);
	ops->close(d);
	return rc;
}

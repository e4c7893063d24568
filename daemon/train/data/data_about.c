/* A look at a data set before there is a spec: how many samples and classes, of which shape, and the mean and deviation
 * of their raw values. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/images.h"
#include "train/spec/draft.h"

struct sums { double sum[STEP_CHANNELS], square[STEP_CHANNELS]; uint64_t n; };

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
	struct spec probe = { .data_name = "data", .materialize = -1 };
	struct data_source *d;
	int rc = 0;

	*ret = (struct data_about){ .classes = 0 };
	memcpy(ret->kind, ops->name, strlen(ops->name) + 1);
	if (ops->about)
		return ops->about(f, path, ret, e);
	if (ops->unplaced)
		return err_set(e, ERR_INVALID, "%s data is made for a spec: write one, or name another kind", kind);
	ret->images = ops->image != NULL;
	(void)snprintf(probe.local.vocab, sizeof(probe.local.vocab), "%s", vocab ? vocab : "");
	probe.input = ret->images ? (struct shape){ 3, { 3, 1, 1 } } : (struct shape){ 1, { 1 } };
	d = ops->open(f, path, &probe, e);
	if (!d)
		return -1;
	d->ops = ops;
	ret->classes = d->target == TARGET_CLASS ? d->classes : 0;
	memcpy(ret->count, d->count, sizeof(ret->count));
	ret->shape = d->shape;
	if (ret->images)
		pictures(d, ret);
	else if (ops->read)
		rc = rows(d, ret, e);
	ops->close(d);
	return rc;
}

/* A picture through the steps of preparation, the model in evaluation and softmax. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/serve/classifier.h"

struct classifier {
	struct par par;
	struct model *model;
	struct data *data;
	struct snapshot *weights;
	size_t classes;
	real *x, *y; void *work; size_t x_bytes, y_bytes, work_bytes;
};

static int can(const struct spec *s, const struct data *d, struct err *e)
{
	const struct data_source *src = data_source(d);

	if (s->loss->target != TARGET_CLASS || s->objective.rows != 1)
		return err_set(e, ERR_INVALID, "its model tells no classes apart: the loss is %s%s", s->loss->name,
			s->objective.rows == 1 ? "" : " at every position");
	if (!src->ops->image && !(src->bytes && src->shape.nd >= 2))
		return err_set(e, ERR_INVALID, "its data are no pictures, but %s", s->data_kind);
	return 0;
}

struct classifier *classifier_new(const struct spec *s, struct data *d, const struct par *par, struct snapshot *weights,
	struct err *e)
{
	struct classifier *c;
	struct model *m = can(s, d, e) < 0 ? NULL : spec_model(s, NULL, e);
	struct model_need need;

	if (!m)
		return NULL;
	c = xcalloc(1, sizeof(*c));
	c->model = m;
	c->par = par_serial(par->cpu, s->local.deterministic ? NULL : par->blas);
	c->data = data_ref(d);
	c->weights = weights;
	weights->refs++;
	c->classes = s->objective.n;
	model_need(m, 0, m->nops, 1, 1, &need);
	c->x_bytes = data_x_bytes(d);
	c->y_bytes = need.y;
	c->work_bytes = need.work_eval + 64;
	c->x = big_alloc(c->x_bytes);
	c->y = big_alloc(c->y_bytes);
	c->work = big_alloc(c->work_bytes);
	if (!c->x || !c->y || !c->work) {
		(void)err_set(e, ERR_NOMEM, "no memory to run the model (%zu bytes)", c->x_bytes + c->y_bytes + c->work_bytes);
		classifier_free(c);
		return NULL;
	}
	return c;
}

void classifier_free(struct classifier *c)
{
	if (!c)
		return;
	data_free(c->data);
	snapshot_unref(c->weights);
	model_free(c->model);
	big_free(c->x, c->x_bytes);
	big_free(c->y, c->y_bytes);
	big_free(c->work, c->work_bytes);
	free(c);
}

static uint8_t *slurp(struct files *f, const char *path, size_t *ret_n, struct err *e)
{
	int64_t n = f->size(f, path, e), got;
	uint8_t *p;
	int fd;

	if (n < 0)
		return NULL;
	if (n > CLASSIFIER_FILE_MAX) {
		(void)err_set(e, ERR_LIMIT, "%lld bytes; a picture has at most %lld", (long long)n,
			(long long)CLASSIFIER_FILE_MAX);
		return NULL;
	}
	fd = f->open(f, path, O_RDONLY, 0, e);
	if (fd < 0)
		return NULL;
	p = xmalloc((size_t)n + 1);
	got = f->pread(f, fd, p, (size_t)n, 0, e);
	(void)f->close(f, fd, NULL);
	*ret_n = (size_t)n;
	if (got == n)
		return p;
	if (got >= 0)
		(void)err_set(e, ERR_IO, "it became shorter while it was read");
	free(p);
	return NULL;
}

static int rank(const real *y, size_t classes, struct guess *ret, int *ret_n, struct err *e)
{
	double total = 0, most = (double)y[0];

	*ret_n = 0;
	for (size_t i = 0; i < classes; i++) {
		if (!isfinite((double)y[i]))
			return err_set(e, ERR_NONFINITE, "the model's scores are not finite: its weights are broken");
		most = (double)y[i] > most ? (double)y[i] : most;
	}
	for (size_t i = 0; i < classes; i++)
		total += exp((double)y[i] - most);
	for (size_t i = 0; i < classes; i++) {
		double p = exp((double)y[i] - most) / total;
		int at = *ret_n < CLASSIFIER_TOP ? (*ret_n)++ : CLASSIFIER_TOP;

		for (; at > 0 && ret[at - 1].probability < p; at--)
			if (at < CLASSIFIER_TOP)
				ret[at] = ret[at - 1];
		if (at < CLASSIFIER_TOP)
			ret[at] = (struct guess){ (int32_t)i, p };
	}
	return 0;
}

int classifier_look(struct classifier *c, struct files *f, const char *path, struct guess ret[CLASSIFIER_TOP],
	int *ret_n, struct err *e)
{
	struct model_call call = { .batch = 1, .param = c->weights->data, .work = c->work };
	size_t n;
	uint8_t *file = slurp(f, path, &n, e);
	int rc = file ? data_prepare(c->data, file, n, c->x, e) : -1;

	free(file);
	if (rc < 0)
		return -1;
	if (c->model->nbuffer)
		call.buffer = (real *)c->weights->data + c->model->nparam;
	model_forward(&c->par, c->model, 0, c->model->nops, &call, c->x, c->y);
	return rank(c->y, c->classes, ret, ret_n, e);
}

const char *classifier_name(const struct classifier *c, int32_t label)
{
	const struct data_source *src = data_source(c->data);

	return src->class_name && label >= 0 && (uint64_t)label < src->classes ? src->class_name[label] : NULL;
}

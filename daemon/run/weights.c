/* Runs that begin with somebody's weights: a safetensors file with the names of torchvision or Hugging Face. The
 * author's file decides; its digest is in the spec, and who has no such file gets the state from a member. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "kernels/vec.h"
#include "run/int.h"

struct origin { float *v; size_t n, nparam; struct model *model; uint8_t digest[32]; };     /* v: as weights_tensors */

static int tensors_of(const struct model_param *p, int n, float *at, struct ckpt_tensor *out, struct err *e)
{
	for (int i = 0; i < n; i++) {
		uint64_t shape[CKPT_DIMS];

		for (int k = 0; k < p[i].shape.nd; k++)
			shape[k] = p[i].shape.d[k];
		if (ckpt_tensor(&out[i], p[i].name, CKPT_F32, (unsigned)p[i].shape.nd, shape, at + p[i].offset, e))
			return -1;
	}
	return 0;
}

struct ckpt_tensor *weights_tensors(const struct model *m, float *at, size_t *ret_n, struct err *e)
{
	struct ckpt_tensor *v = xcalloc((size_t)(m->nparams + m->nbuffers) + 1, sizeof *v);

	*ret_n = (size_t)(m->nparams + m->nbuffers);
	if (tensors_of(m->param, m->nparams, at, v, e) || tensors_of(m->buffer, m->nbuffers, at + m->nparam,
		v + m->nparams, e)) {
		free(v);
		return NULL;
	}
	return v;
}

void origin_free(struct origin *w)
{
	if (!w)
		return;
	big_free(w->v, (w->n ? w->n : 1) * sizeof *w->v);
	model_free(w->model);
	free(w);
}

static struct origin *load(struct files *f, const struct spec *s, struct err *e)
{
	struct origin *w = xcalloc(1, sizeof *w);
	struct model *m = w->model = spec_model(s, NULL, e);
	struct ckpt_tensor *v = NULL;
	size_t n;
	int rc;

	if (!m) {
		origin_free(w);
		return NULL;
	}
	w->nparam = m->nparam;
	w->n = m->nparam + m->nbuffer;
	w->v = big_alloc((w->n ? w->n : 1) * sizeof *w->v);
	if (!w->v)
		rc = err_set(e, ERR_NOMEM, "no memory for the weights (%zu bytes)", w->n * sizeof *w->v);
	else
		rc = (v = weights_tensors(m, w->v, &n, e)) ? ckpt_read_weights(f, s->local.weights, v, n, e) : -1;
	free(v);
	for (size_t i = 0; rc == 0 && i < w->n; i++)
		if (!isfinite(w->v[i]))
			rc = err_set(e, ERR_INVALID, "%s: value %zu is not finite", s->local.weights, i);
	if (rc) {
		origin_free(w);
		return NULL;
	}
	return w;
}

int origin_read(struct files *f, const struct spec *s, struct origin **ret, struct err *ret_why, struct err *e)
{
	struct err why = { 0 };
	struct origin *w;

	*ret = NULL;
	*ret_why = (struct err){ 0 };
	if (!s->has_weights)
		return 0;
	if (!s->local.weights[0])
		return s->has_weights_digest ? 0 : err_set(e, ERR_INVALID,
			"\"weights\": the file to begin with is missing: --weights=/PATH, or \"weights\" in \"local\"");
	if (s->local.weights[0] != '/')
		return err_set(e, ERR_INVALID,
			"weights %s: the path must be absolute: it is this machine's daemon that reads it",
			s->local.weights);
	w = load(f, s, &why);
	if (w)
		sha256_of(w->v, w->n * sizeof *w->v, w->digest);
	if (w && s->has_weights_digest && memcmp(w->digest, s->weights_digest, sizeof w->digest)) {
		(void)err_set(&why, ERR_MISMATCH, "%s holds other weights than the run began with", s->local.weights);
		origin_free(w);
		w = NULL;
	}
	if (!w && !s->has_weights_digest) {
		*e = why;
		return -1;
	}
	if (!w)
		*ret_why = why;                 /* the others have them */
	*ret = w;
	return 0;
}

const uint8_t *origin_digest(const struct origin *w)
{
	return w->digest;
}

void origin_apply(const struct origin *w, struct shard *s)
{
	const struct ckpt_tensor *v = s->tensor;

	memcpy(shard_w(s), w->v, w->nparam * sizeof *w->v);
	for (int k = 0; k < w->model->nbuffers; k++)
		for (size_t i = 0; i < s->ntensors; i++)
			if (!strcmp(w->model->buffer[k].name, v[i].name))
				memcpy(v[i].data, w->v + w->nparam + w->model->buffer[k].offset, v[i].bytes);
}

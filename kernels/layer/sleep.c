/* A layer that takes a stated time and stated memory (instrument T3), so that bubbles, overlap and speed-ups can be
 * measured with more daemons than cores. It waits through the model's host, as kernels have no clock. What it
 * computes is real, cheap and differentiable: y[j] = x[j mod in] + w[j mod params]. */
#include <math.h>
#include <string.h>
#include "kernels/layer.h"

enum { FWD_MS, BWD_MS, ACT_BYTES, PARAM_BYTES };
#define BYTES_PER 4     /* spec bytes are those of float32, whatever real is */

static int shape(struct layer *l, struct kerr *e)
{
	if (!l->host || !l->host->wait)
		return kerr_set(e, "sleep layers need somebody who waits for them, and this model has nobody");
	if (fmod(l->attr[ACT_BYTES], BYTES_PER) != 0 || fmod(l->attr[PARAM_BYTES], BYTES_PER) != 0)
		return kerr_set(e, "sleep: act_bytes = %.0f and param_bytes = %.0f must be multiples of %d",
			l->attr[ACT_BYTES], l->attr[PARAM_BYTES], BYTES_PER);
	l->out = l->in;
	if (l->attr[ACT_BYTES] > 0)
		l->out = (struct shape){ 1, { (size_t)l->attr[ACT_BYTES] / BYTES_PER } };
	if (l->attr[PARAM_BYTES] > 0)
		layer_param_add(l, "weight", 1, (size_t[]){ (size_t)l->attr[PARAM_BYTES] / BYTES_PER });
	return 0;
}

static void init(const struct layer *l, uint64_t key, real *param)
{
	rand_uniform(key, 0.01, l->nparam, param);
}

static void forward(const struct par *par, const struct layer_call *c)
{
	size_t in = shape_count(&c->l->in), out = shape_count(&c->l->out), np = c->l->nparam;

	for (size_t b = 0; b < c->batch; b++)
		for (size_t j = 0, i = 0, p = 0; j < out; j++) {
			c->y[b * out + j] = c->x[b * in + i] + (np ? c->param[p] : 0);
			i = i + 1 == in ? 0 : i + 1;
			p = p + 1 >= np ? 0 : p + 1;
		}
	c->l->host->wait(c->l->host->arg, (uint64_t)(c->l->attr[FWD_MS] * 1000 + 0.5), false);
}

static void backward(const struct par *par, const struct layer_call *c)
{
	size_t in = shape_count(&c->l->in), out = shape_count(&c->l->out), np = c->l->nparam;

	if (c->dx)
		memset(c->dx, 0, c->batch * in * sizeof(real));
	for (size_t b = 0; b < c->batch; b++)
		for (size_t j = 0, i = 0, p = 0; j < out; j++) {
			if (c->dx)
				c->dx[b * in + i] += c->dy[b * out + j];
			if (c->dparam && np)
				c->dparam[p] += c->dy[b * out + j];
			i = i + 1 == in ? 0 : i + 1;
			p = p + 1 >= np ? 0 : p + 1;
		}
	c->l->host->wait(c->l->host->arg, (uint64_t)(c->l->attr[BWD_MS] * 1000 + 0.5), true);
}

const struct layer_ops layer_sleep = {
	.name = "sleep", .help = "takes a stated time and stated memory",
	.nattrs = 4,
	.attr = {
		[FWD_MS] = { "fwd_ms", 0, 0, 3600000, false, "milliseconds of a forward pass, whatever the batch" },
		[BWD_MS] = { "bwd_ms", 0, 0, 3600000, false, "milliseconds of a backward pass" },
		[ACT_BYTES] = { "act_bytes", 0, 0, 1u << 30, true, "bytes of output per sample; 0: as the input" },
		[PARAM_BYTES] = { "param_bytes", 0, 0, 1ull << 40, true, "bytes of parameters" },
	},
	.shape = shape, .init = init, .forward = forward, .backward = backward,
};

/* The list of losses, and their sum over a batch: 64 fixed segments of rows, so that a team changes nothing. */
#include "kernels/layer.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

#define SEGMENTS 64

#define LOSS(name) extern const struct loss_ops loss_##name;
#include "kernels/loss/list.h"
#undef LOSS

static const struct loss_ops *const all[] = {
#define LOSS(name) &loss_##name,
#include "kernels/loss/list.h"
#undef LOSS
};
#define COUNT ((int)(sizeof all / sizeof *all))

const struct loss_ops *loss_at(int i)
{
	return i >= 0 && i < COUNT ? all[i] : NULL;
}

const struct loss_ops *loss_find(const char *name)
{
	for (int i = 0; i < COUNT; i++)
		if (!strcmp(all[i]->name, name))
			return all[i];
	return NULL;
}

const char *loss_names(char *out, size_t cap)
{
	size_t at = 0;

	assert(cap > 0);
	out[0] = 0;
	for (int i = 0; i < COUNT && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%s", i ? " " : "", all[i]->name);
	return out;
}

struct rows {
	const struct loss_ops *loss;
	size_t batch, n;
	const real *out;
	const void *target;
	double scale;
	real *dout;
	double sum[SEGMENTS];
	size_t right[SEGMENTS];
};

static void rows_part(void *arg, int part, int parts)
{
	struct rows *r = arg;
	size_t lo, hi;

	par_slice(SEGMENTS, 1, part, parts, &lo, &hi);
	for (size_t s = lo; s < hi; s++) {
		size_t a, b;

		par_slice(r->batch, 1, (int)s, SEGMENTS, &a, &b);
		if (a < b)
			r->sum[s] = r->loss->rows(a, b, r->n, r->out, r->target, r->scale, r->dout, &r->right[s]);
	}
}

double loss_run(const struct par *par, const struct loss_ops *loss, size_t batch, size_t n, const real *out,
	const void *target, double scale, real *dout, size_t *ret_correct)
{
	struct rows r = { .loss = loss, .batch = batch, .n = n, .out = out, .target = target, .scale = scale,
		.dout = dout };
	double sum = 0;
	size_t right = 0;

	if (batch * n < 16384)
		rows_part(&r, 0, 1);
	else
		par_run(par, rows_part, &r);
	for (int s = 0; s < SEGMENTS; s++) {
		sum += r.sum[s];
		right += r.right[s];
	}
	if (ret_correct)
		*ret_correct = right;
	return sum;
}

int loss_check_targets(const struct loss_ops *loss, size_t batch, size_t n, const void *target, struct kerr *e)
{
	const int32_t *t = target;

	if (loss->target != TARGET_CLASS)
		return 0;
	for (size_t i = 0; i < batch; i++)
		if (t[i] < 0 || (size_t)t[i] >= n)
			return kerr_set(e, "label %d of sample %zu is outside 0..%zu: the model has %zu outputs",
				t[i], i, n - 1, n);
	return 0;
}

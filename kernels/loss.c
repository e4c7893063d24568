/* The list of losses, and their sum over a batch: 64 fixed segments of its rows, so that a team changes nothing. */
#include "kernels/layer.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "kernels/lookup.h"

#define SEGMENTS 64

#define LOSS(name) extern const struct loss_ops loss_##name;
#include "kernels/loss/list.h"
#undef LOSS

static const struct loss_ops *const all[] = {
#define LOSS(name) &loss_##name,
#include "kernels/loss/list.h"
#undef LOSS
};
LOOKUP(loss);

struct loss loss_plain(const struct loss_ops *ops, const struct shape *out)
{
	size_t n = shape_count(out);
	bool rows = ops->target == TARGET_CLASS && out->nd == 2;

	return (struct loss){ .ops = ops, .rows = rows ? out->d[0] : 1, .n = rows ? out->d[1] : n };
}

struct segments {
	struct loss_call call;
	size_t rows;
	double sum[SEGMENTS], right[SEGMENTS];
};

static void segments_part(void *arg, int part, int parts)
{
	struct segments *r = arg;
	size_t lo, hi;

	par_slice(SEGMENTS, 1, part, parts, &lo, &hi);
	for (size_t s = lo; s < hi; s++) {
		size_t a, b;

		par_slice(r->rows, 1, (int)s, SEGMENTS, &a, &b);
		if (a < b)
			r->call.loss->ops->rows(&r->call, a, b, &r->sum[s], &r->right[s]);
	}
}

double loss_sum(const struct par *par, const struct loss *loss, size_t batch, const real *out, const void *target,
	double scale, real *dout, double *ret_right)
{
	struct segments r = { .rows = batch * loss->rows, .call = { .loss = loss, .cpu = par->cpu, .out = out,
		.target = target, .scale = scale, .dout = dout } };
	double sum = 0, right = 0;

	if (r.rows * loss->n < 16384)
		segments_part(&r, 0, 1);
	else
		par_run(par, segments_part, &r);
	for (int s = 0; s < SEGMENTS; s++) {
		sum += r.sum[s];
		right += r.right[s];
	}
	if (ret_right)
		*ret_right = right;
	return sum;
}

double loss_run(const struct par *par, const struct loss_ops *loss, size_t batch, size_t n, const real *out,
	const void *target, double scale, real *dout, size_t *ret_correct)
{
	struct loss plain = { .ops = loss, .rows = 1, .n = n };
	double right, sum = loss_sum(par, &plain, batch, out, target, scale, dout, &right);

	if (ret_correct)
		*ret_correct = (size_t)right;
	return sum;
}

int loss_check_labels(const struct loss *loss, size_t batch, const int32_t *target, struct kerr *e)
{
	for (size_t i = 0; i < batch * loss->rows; i++) {
		char place[48] = "";

		if ((target[i] >= 0 && (size_t)target[i] < loss->n) || (loss->ignores && target[i] == loss->ignore))
			continue;
		if (loss->rows > 1)
			(void)snprintf(place, sizeof place, ", position %zu,", i % loss->rows);
		return kerr_set(e, "label %d of sample %zu%s is outside 0..%zu: the model has %zu outputs", target[i],
			i / loss->rows, place, loss->n - 1, loss->n);
	}
	return 0;
}

int loss_check_targets(const struct loss_ops *loss, size_t batch, size_t n, const void *target, struct kerr *e)
{
	struct loss plain = { .ops = loss, .rows = 1, .n = n };

	return loss->target == TARGET_CLASS ? loss_check_labels(&plain, batch, target, e) : 0;
}

/* "g... w opt [loss [stats] [loss_scale]] -> w opt skipped": one optimizer step, bit-exact on every CPU, in place or
 * from one version to the next, of all parameters or of those from one tensor to another: a part steps as it does in
 * the whole. opt holds the state vectors in use, then the clock (step, powers; of a scaled loss its scale) as doubles.
 * A gradient (or loss) that is not finite changes nothing but that scale: every peer sees the same bytes, decides the
 * same. skipped: 0, or 1 + the first bad element. The running statistics behind w become those behind g; stats, in a
 * step of one's own. g may be in parts that lie end to end, in order. loss_scale: what g is to be divided by; it halves
 * when g is not finite, for all who make this step (kernels/scale.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "kernels/scale.h"
#include "kernels/vec.h"
#include "exec/vec.h"

/* The tensors of a part, as they lie in it; free() them. NULL: it begins or ends within one. */
static struct model_param *tensors_of(const struct model *m, const struct vec_arg *w, int *ret_n)
{
	struct model_param *t = xmalloc(((size_t)m->nparams + 1) * sizeof(*t));
	uint64_t at = w->lo;

	*ret_n = 0;
	for (int i = 0; i < m->nparams; i++) {
		if (m->param[i].offset != at || at + m->param[i].count > w->hi)
			continue;
		t[*ret_n] = m->param[i];
		t[(*ret_n)++].offset = (size_t)(at - w->lo);
		at += m->param[i].count;
	}
	if (at == w->hi)
		return t;
	free(t);
	return NULL;
}

/* At the end of opt: step and powers, then of a scaled loss its scale and the steps since that changed. */
static char *clock_of(const struct vec_call *c, const struct vec_arg *opt, double *ret)
{
	size_t bytes = (c->env.scale_interval ? 5 : 3) * sizeof(*ret);
	char *at = (char *)opt->p + opt->bytes - bytes;

	memcpy(ret, at, bytes);
	return at;
}

static void rescale(const struct vec_call *c, const struct vec_arg *opt, bool overflowed, bool made)
{
	double at[5];
	struct scale s;
	char *to;

	if (!c->env.scale_interval || !(overflowed || made))
		return;
	to = clock_of(c, opt, at);
	s = (struct scale){ .scale = at[3], .good = (uint64_t)at[4] };
	scale_step(&s, overflowed, c->env.scale_interval);
	memcpy(to + 3 * sizeof(*at), (double[]){ s.scale, (double)s.good }, 2 * sizeof(*at));
}

static void step(const struct vec_call *c, const struct vec_arg *opt, struct optim_call *call)
{
	double at[5];
	char *to = clock_of(c, opt, at);
	struct optim_clock clock = { .step = (uint64_t)at[0], .power = { at[1], at[2] } };

	optim_tick(call->ops, call->hyper, &clock);
	call->clock = &clock;
	optim_step(call);
	memcpy(to, (double[]){ (double)clock.step, clock.power[0], clock.power[1] }, 3 * sizeof(*at));
}

/* The gradient where it may be scaled. What is lent is never written to, since the mean of a round is on its way to
 * others from there: a copy is, which is memory beside the plan's for the time of a step. NULL: there is none. */
static real *to_scale(const struct vec_call *c, const struct vec_arg *g, size_t n)
{
	real *mine;

	if (!g->lent || !n || PLANTED(LENT_SCALED))
		return vec_real(g);
	mine = big_alloc(n * sizeof(*mine));
	if (mine)
		vec_copy(c->par, n, vec_real(g), mine);
	return mine;
}

/* g divided by scale (0: as it is), and no longer than clip_norm: mostly it is g. NULL: no memory. */
static real *scaled(const struct vec_call *c, const struct vec_arg *g, size_t n, double scale)
{
	real *x = vec_real(g);
	double factor = 1;

	if (scale > 0 && (x = to_scale(c, g, n)))
		vec_scale(c->par, n, 1 / scale, x);
	if (x && c->env.clip_norm > 0)
		factor = vec_clip_factor(vec_norm2(c->par, n, x), c->env.clip_norm);
	if (factor < 1 && x == vec_real(g))
		x = to_scale(c, g, n);
	if (factor < 1 && x)
		vec_scale(c->par, n, factor, x);
	return x;
}

static int run(struct vec_call *c)
{
	struct vec_arg all, *g = &all, *w = &c->out[0], *opt = &c->out[1];
	uint32_t ng = vec_joined(c->in, c->nin, &all);
	const struct vec_arg *loss = vec_arg_of(c->in, c->nin, PLAN_SCALAR);
	const struct optim_ops *o = c->env.optim;
	double *skipped = vec_scalar(&c->out[2]), scale;
	bool bad_loss = loss && !isfinite(*vec_scalar(loss));
	real *state[OPTIM_STATES_MAX] = { NULL }, *next = vec_real(opt);
	size_t n = vec_params(c, w), tail = vec_len(w) - n, bad;
	const real *stats = c->nin > ng + 3 && c->in[ng + 3].class == PLAN_WEIGHT ? vec_real(&c->in[ng + 3]) :
		vec_real(g) + n;
	struct model_param *own = NULL;
	real *grad = vec_real(g);
	struct optim_call call = { .par = c->par, .ops = o, .hyper = c->env.hyper, .state = state, .param = vec_real(w),
		.grad = vec_real(g), .tensor = c->env.model->param, .ntensors = c->env.model->nparams,
		.decay_all = c->env.decay_all };

	if (!ng)
		return kerr_set(c->e, "opt: the parts of the gradient do not lie end to end");
	if ((!w->part && c->env.model->nparam != n) || g->bytes != w->bytes)
		return kerr_set(c->e, "opt works on all parameters or on a part that says which: %zu elements of w, %zu of g, "
			"and the model has %zu", n, vec_params(c, g), c->env.model->nparam);
	if (w->part && c->env.clip_norm > 0)
		return kerr_set(c->e, "opt: clip_norm is about the norm of all gradients, and these are elements %zu to %zu",
			(size_t)w->lo, (size_t)w->hi);
	if (vec_goes_on(c, 0, ng) < 0 || vec_goes_on(c, 1, ng + 1) < 0)
		return -1;
	bad = vec_nonfinite(c->par, n, vec_real(g));
	if (bad == n)
		bad += vec_nonfinite(c->par, tail, stats);
	*skipped = bad < n + tail || bad_loss ? 1 + (double)bad : 0;
	rescale(c, opt, *skipped > 0 && !bad_loss, !*skipped);
	if (*skipped > 0)
		return 0;
	scale = vec_scale_of(c->in, c->nin, ng + 3);
	if (w->part && !(own = tensors_of(c->env.model, w, &call.ntensors)))
		return kerr_set(c->e, "opt: a part begins and ends with tensors, and elements %zu to %zu do not", (size_t)w->lo,
			(size_t)w->hi);
	call.tensor = own ? own : call.tensor;
	call.grad = grad = scaled(c, g, n, scale);
	if (!grad) {
		free(own);
		return kerr_set(c->e, "opt: no memory for a gradient of %zu elements that is scaled", n);
	}
	for (int i = 0; i < o->nstates; i++)
		if (c->env.state[i]) {
			state[i] = next;
			next += n;
		}
	step(c, opt, &call);
	free(own);
	if (grad != vec_real(g))
		big_free(grad, n * sizeof(*grad));
	memcpy(vec_real(w) + n, stats, tail * sizeof(*stats));
	return 0;
}

const struct vec_ops fn_opt = { "opt", "one step of the run's optimizer", 3, 3, run };

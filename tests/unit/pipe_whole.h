/* What one process learns, epoch after epoch, for tests that hold a pipeline against it. */
#ifndef TESTS_PIPE_WHOLE_H
#define TESTS_PIPE_WHOLE_H
#include "pipe_agree.h"

struct whole { real *w, *before, *mean, *state[OPTIM_STATES_MAX]; struct optim_clock clock; };

static inline void whole_open(const struct world *w, struct whole *o)
{
	size_t n = w->model->nparam;

	*o = (struct whole){ .w = xcalloc(n, sizeof(real)), .mean = xcalloc(n, sizeof(real)) };
	for (int i = 0; i < OPTIM_STATES_MAX; i++)
		o->state[i] = w->states[i] ? xcalloc(n, sizeof(real)) : NULL;
	optim_clock_init(&o->clock);
	model_init(w->model, 3, o->w);
	o->before = xmemdup(o->w, n * sizeof(real));
}

static inline void whole_close(struct whole *o)
{
	free(o->w);
	free(o->before);
	free(o->mean);
	for (int i = 0; i < OPTIM_STATES_MAX; i++)
		free(o->state[i]);
}

/* One process. late: its gradient is of the parameters before the last step. */
static inline void whole_step(const struct world *w, struct whole *o, bool late)
{
	struct optim_call c = { .par = &w->par, .ops = w->spec->optim, .hyper = w->spec->hyper, .clock = &o->clock,
		.state = o->state, .param = o->w, .grad = o->mean, .tensor = w->model->param, .ntensors = w->model->nparams };
	double loss = 0;

	alone(w, late ? o->before : o->w, o->mean, &loss);
	memcpy(o->before, o->w, w->model->nparam * sizeof(real));
	optim_tick(w->spec->optim, w->spec->hyper, &o->clock);
	optim_step(&c);
}

#endif

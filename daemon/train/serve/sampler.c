/* Sampling from language models: windows of growing size over one vector of parameters, the head for one row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/serve/sampler.h"

#define WINDOW_MIN 16
#define WINDOWS_MAX 24

/* One size of the model. head: its last op alone, for one position; NULL: the whole model makes all scores. */
struct window { size_t n; struct model *m; };
struct sampler {
	struct par par;
	struct sampler_opts o;
	struct snapshot *weights;
	struct window window[WINDOWS_MAX]; int nwindows;
	struct model *head;                     /* built for one position; NULL: the last op cannot stand alone, or pairs */
	const struct data_source *pairs;        /* NULL: it continues a text */
	struct ids ids; size_t prompt;          /* so many of them */
	size_t vocab, context, drawn;
	real *x, *y, *score, *room; void *work; size_t x_bytes, y_bytes, work_bytes;
};

/* What comes later must not be seen earlier. */
static int looks_ahead(const struct model *m, struct err *e)
{
	for (int i = 0; i < m->nops; i++)
		if (!strcmp(m->op[i].ops->name, "attention") && layer_attr(&m->op[i], "causal") == 0)
			return err_set(e, ERR_INVALID, "layer %s sees what comes later: such a model fills gaps, it does not "
				"continue a text", m->op[i].name);
	return 0;
}

int sampler_can(const struct spec *s, const struct data_source *source, struct err *e)
{
	struct model *m;
	char in[64], out[64];
	int rc;

	if (!source->alphabet)
		return err_set(e, ERR_INVALID, "its data is %s, not text", s->data_kind);
	if (text_masked(source) || s->loss->target != TARGET_CLASS)
		return err_set(e, ERR_INVALID, "it guesses hidden tokens, not the next one");
	m = spec_model(s, NULL, e);
	if (!m)
		return -1;
	if (pairs_is(source)) {
		model_free(m);
		return 0;               /* it has checked the model's shapes itself */
	}
	if (m->in.nd != 1 || m->out.nd != 2 || m->out.d[0] != m->in.d[0])
		rc = err_set(e, ERR_INVALID, "its model makes %s of %s: a score for every token at every position is needed",
			shape_text(&m->out, out, sizeof(out)), shape_text(&m->in, in, sizeof(in)));
	else
		rc = looks_ahead(m, e);
	model_free(m);
	return rc;
}

/* A model of another length must have the same parameters at the same places. */
static bool same_parameters(const struct model *a, const struct model *b)
{
	if (a->nparam != b->nparam || a->nparams != b->nparams || a->nbuffer != b->nbuffer || a->nops != b->nops)
		return false;
	for (int i = 0; i < a->nparams; i++)
		if (a->param[i].offset != b->param[i].offset || a->param[i].count != b->param[i].count)
			return false;
	return true;
}

static struct model *model_of(const struct spec *s, size_t n, const struct model *like)
{
	const struct shape in = { 1, { n } };
	struct err why;
	struct model *m = spec_model_of(s, &in, NULL, &why);

	return m && like && !same_parameters(m, like) ? model_free(m) : m;
}

/* The last op alone: what flows into it must be one row of the tensor before it, nothing else. */
static struct model *head_of(const struct spec *s, const struct model *like)
{
	struct model *m = like->nops > 1 ? model_of(s, 1, like) : NULL;
	struct model_need one, all;

	if (!m)
		return NULL;
	model_need(m, m->nops - 1, m->nops, 1, 1, &one);
	model_need(like, like->nops - 1, like->nops, 1, 1, &all);
	if (one.x == shape_count(model_shape(m, m->nops - 1)) * sizeof(real) && all.x == one.x * like->in.d[0])
		return m;
	return model_free(m);
}

static void most(size_t *have, size_t n)
{
	*have = n > *have ? n : *have;
}

static int memory(struct sampler *x, struct err *e)
{
	const struct model *full = x->window[x->nwindows - 1].m;
	int last = full->nops - (x->head ? 1 : 0);
	struct model_need need;

	for (int i = 0; i < x->nwindows; i++) {
		model_need(x->window[i].m, 0, last, 1, 1, &need);
		most(&x->work_bytes, need.work_eval);
		most(&x->y_bytes, need.y);
	}
	if (x->head) {
		model_need(x->head, last, last + 1, 1, 1, &need);
		most(&x->work_bytes, need.work_eval);
	}
	x->x_bytes = shape_count(&full->in) * sizeof(real);
	x->x = big_alloc(x->x_bytes);
	x->y = big_alloc(x->y_bytes);
	x->work = big_alloc(x->work_bytes + 64);
	x->score = big_alloc(x->vocab * sizeof(real));
	x->room = big_alloc(x->vocab * sizeof(real));
	if (!x->x || !x->y || !x->work || !x->score || !x->room)
		return err_set(e, ERR_NOMEM, "no memory to run the model (%zu bytes)", sampler_bytes(x));
	return 0;
}

static int fits(const struct sampler *x, struct err *e)
{
	return x->prompt <= x->context ? 0 : err_set(e, ERR_LIMIT, "the prompt has %zu tokens, and the model reads %zu",
		x->prompt, x->context);
}

struct sampler *sampler_new(const struct spec *s, const struct data_source *source, const struct par *par,
	struct snapshot *weights, const struct ids *prompt, const struct sampler_opts *o, struct err *e)
{
	struct sampler *x;
	struct model *full;

	if (sampler_can(s, source, e) < 0 || !(full = spec_model(s, NULL, e)))
		return NULL;
	x = xcalloc(1, sizeof(*x));
	x->par = par_serial(par->cpu, s->local.deterministic ? NULL : par->blas);
	x->o = *o;
	x->weights = weights;
	weights->refs++;
	x->pairs = pairs_is(source) ? source : NULL;
	x->context = x->pairs ? pairs_places(x->pairs) : full->in.d[0];
	x->prompt = prompt->n;
	x->vocab = full->out.d[1];
	for (size_t n = WINDOW_MIN; !x->pairs && n < x->context && x->nwindows < WINDOWS_MAX - 1; n *= 2) {
		struct model *m = model_of(s, n, full);

		if (m)
			x->window[x->nwindows++] = (struct window){ n, m };
	}
	x->head = x->pairs ? NULL : head_of(s, full);
	x->window[x->nwindows++] = (struct window){ x->context, full };
	for (size_t i = 0; i < prompt->n; i++)
		ids_put(&x->ids, prompt->v[i]);
	if ((x->pairs && fits(x, e) < 0) || memory(x, e) < 0) {
		sampler_free(x);
		return NULL;
	}
	return x;
}

void sampler_free(struct sampler *x)
{
	if (!x)
		return;
	snapshot_unref(x->weights);
	for (int i = 0; i < x->nwindows; i++)
		model_free(x->window[i].m);
	model_free(x->head);
	big_free(x->x, x->x_bytes);
	big_free(x->y, x->y_bytes);
	big_free(x->work, x->work_bytes + 64);
	big_free(x->score, x->vocab * sizeof(real));
	big_free(x->room, x->vocab * sizeof(real));
	free(x->ids.v);
	free(x);
}

size_t sampler_bytes(const struct sampler *x)
{
	return x->x_bytes + x->y_bytes + x->work_bytes + 2 * x->vocab * sizeof(real);
}

/* --- one token */

static int descending(const void *a, const void *b)
{
	real x = *(const real *)a, y = *(const real *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

int32_t sampler_draw(const real *score, size_t n, const struct sampler_opts *o, uint64_t index, real *room)
{
	size_t best = 0, last = 0;
	double total = 0, at;
	real least;

	for (size_t i = 0; i < n; i++) {
		if (!isfinite((double)score[i]))
			return -1;
		best = score[i] > score[best] ? i : best;
	}
	if (o->temperature <= 0 || o->top_k == 1)
		return (int32_t)best;
	least = -(real)INFINITY;
	if (o->top_k && o->top_k < n) {
		memcpy(room, score, n * sizeof(*room));
		qsort(room, n, sizeof(*room), descending);
		least = room[o->top_k - 1];
	}
	for (size_t i = 0; i < n; i++) {
		room[i] = score[i] < least ? 0 : (real)exp(((double)score[i] - (double)score[best]) / o->temperature);
		total += (double)room[i];
	}
	at = rand_unit(rand_key(o->seed, 0x5a3), index) * total;
	for (size_t i = 0; i < n; i++) {
		if (room[i] <= 0)
			continue;
		last = i;
		at -= (double)room[i];
		if (at < 0)
			break;
	}
	return (int32_t)last;
}

/* Behind the window's text lie zeros, which a causal model does not see. Of n rows the last one's scores. */
static void run(struct sampler *x, const struct window *w, size_t n)
{
	struct model_call c = { .batch = 1, .param = x->weights->data, .work = x->work };
	int last = w->m->nops - (x->head ? 1 : 0);
	size_t row;

	if (w->m->nbuffer)
		c.buffer = (real *)x->weights->data + w->m->nparam;
	if (x->pairs)
		pairs_fill(x->pairs, x->ids.v, x->prompt, x->ids.v + x->prompt, n - 1, x->x);
	for (size_t i = 0; !x->pairs && i < w->n; i++)
		x->x[i] = i < n ? (real)x->ids.v[x->ids.n - n + i] : 0;
	model_forward(&x->par, w->m, 0, last, &c, x->x, x->y);
	if (!x->head) {
		memcpy(x->score, x->y + (n - 1) * x->vocab, x->vocab * sizeof(real));
		return;
	}
	row = shape_count(model_shape(x->head, last));
	model_forward(&x->par, x->head, last, last + 1, &c, x->y + (n - 1) * row, x->score);
}

int sampler_next(struct sampler *x, int32_t *ret_id, struct err *e)
{
	size_t n = x->pairs ? x->ids.n - x->prompt + 1 : x->ids.n < x->context ? x->ids.n : x->context;
	int i = 0;

	if (n > x->context) {                   /* no place is left */
		*ret_id = pairs_end(x->pairs);
		return 0;
	}
	while (x->window[i].n < n)
		i++;
	run(x, &x->window[i], n);
	*ret_id = sampler_draw(x->score, x->vocab, &x->o, x->drawn++, x->room);
	if (*ret_id < 0)
		return err_set(e, ERR_NONFINITE, "the model's scores are not finite: its weights are broken");
	ids_put(&x->ids, *ret_id);
	return 0;
}

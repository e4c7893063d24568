/* Samples made from the seed: for losses that want classes, one noisy cluster per class; for the others, targets that
 * are a fixed mixture of the input; for models that begin with an embedding, or read of the input by one through a
 * select layer, tokens that count upwards, each place labelled with the next. For tests, benchmarks and first runs
 * without files. */
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "common/rng.h"
#include "train/data/data.h"

struct synthetic {
	struct data_source d;
	uint64_t key;
	size_t nx, ny, labels;
	uint64_t vocab;                         /* 0: inputs are no tokens */
	uint64_t *of;                           /* NULL, or of each input its own vocabulary; 0: as the others */
	size_t first, step;                     /* of: where the first of these is, and from it to the next */
};

/* The inputs that select takes are tokens. */
static void mark(uint64_t *of, const struct layer *select, uint64_t vocab)
{
	size_t axis = (size_t)layer_attr(select, "axis"), inside = 1, n = shape_count(&select->in), all;
	size_t index = (size_t)layer_attr(select, "index"), count = (size_t)layer_attr(select, "count");

	for (int i = (int)axis + 1; i < select->in.nd; i++)
		inside *= select->in.d[i];
	all = inside * select->in.d[axis];
	for (size_t i = 0; i < n; i++)
		if (i % all / inside >= index && i % all / inside < index + (count ? count : 1))
			of[i] = !of[i] || vocab < of[i] ? vocab : of[i];
}

/* Where embeddings behind a select read the model's input. NULL: nowhere. */
static uint64_t *tokens_of(const struct model *m, size_t nx)
{
	uint64_t *of = NULL;

	for (int i = 0; i < m->nops; i++) {
		int from = m->node[i].from[0] - 1;

		if (strcmp(m->op[i].ops->name, "embedding") || from < 0 || strcmp(m->op[from].ops->name, "select") ||
		    m->node[from].from[0] != 0)
			continue;
		of = of ? of : xcalloc(nx, sizeof(*of));
		mark(of, &m->op[from], (uint64_t)layer_attr(&m->op[i], "vocab"));
	}
	return of;
}

/* Whose vocabularies are part of what the samples are: their digest says so. */
static void tokens_set(struct synthetic *y, const struct model *m, uint64_t *made)
{
	size_t n = 0;

	if (!strcmp(m->op[0].ops->name, "embedding"))
		y->vocab = (uint64_t)layer_attr(&m->op[0], "vocab");
	y->of = tokens_of(m, y->nx);
	for (size_t k = 0; y->of && k < y->nx; k++) {
		if (y->of[k] && y->vocab && y->vocab < y->of[k])
			y->of[k] = y->vocab;
		*made = rng_mix(*made, y->of[k]);
		if (!y->of[k] || n > 1)
			continue;
		y->first = n ? y->first : k;
		y->step = n ? k - y->first : 1;
		n++;
	}
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct model *m = spec_model(s, NULL, e);
	struct synthetic *y;
	uint64_t made[3];

	if (!m)
		return NULL;
	y = xcalloc(1, sizeof(*y));
	y->d.count[DATA_TRAIN] = s->data_count;
	y->d.count[DATA_VALIDATION] = s->data_count / 8;
	y->d.shape = s->input;
	y->d.target = s->loss->target;
	y->d.y = m->out;
	y->nx = shape_count(&s->input);
	y->ny = shape_count(&m->out);
	y->labels = y->d.target == TARGET_CLASS && m->out.nd == 2 ? m->out.d[0] : 1;
	y->d.labels = y->labels;
	y->d.classes = y->d.target == TARGET_CLASS ? y->ny / y->labels : 0;
	y->key = rng_mix(s->seed, 0x5e7);
	made[0] = s->data_count;
	made[1] = y->key;
	made[2] = y->nx;
	tokens_set(y, m, &made[2]);
	sha256_of(made, sizeof(made), y->d.digest);
	model_free(m);
	return &y->d;
}

static real unit(uint64_t key, uint64_t i)
{
	return (real)((double)(rng_at(key, i) >> 11) * 0x1p-52 - 1);
}

static int read_(struct data_source *d, enum data_part part, const uint64_t *index, size_t n, real *x, void *y,
	struct err *e)
{
	const struct synthetic *s = (const struct synthetic *)d;

	for (size_t i = 0; i < n; i++) {
		uint64_t key = rng_mix(s->key, 2 * index[i] + part + 1000), of = index[i] % (d->classes ? d->classes : 1);
		uint64_t center = rng_mix(s->key, of + 1);

		for (size_t k = 0; k < s->nx; k++) {
			uint64_t vocab = s->of && s->of[k] ? s->of[k] : s->vocab;

			x[i * s->nx + k] = vocab ? (real)((key + k) % vocab) : unit(key, k) + (d->classes ? unit(center, k) : 0);
		}
		if (d->target == TARGET_CLASS) {
			for (size_t k = 0; k < s->labels; k++)
				((int32_t *)y)[i * s->labels + k] = (int32_t)(s->vocab ? (key + k + 1) % d->classes :
					s->of && s->labels > 1 ? (key + s->first + (k + 1) * s->step) % d->classes : of);
			continue;
		}
		for (size_t j = 0; j < s->ny; j++) {
			uint64_t mix = rng_mix(s->key, 500 + j);
			real sum = 0;

			for (size_t k = 0; k < s->nx; k++)
				sum += unit(mix, k) * x[i * s->nx + k];
			((real *)y)[i * s->ny + j] = sum > 0 ? 1 : 0;
		}
	}
	return 0;
}

static void close_(struct data_source *d)
{
	free(((struct synthetic *)d)->of);
	free(d);
}

const struct data_ops data_synthetic = {
	.name = "synthetic", .help = "clusters made from the seed; needs no files", .unplaced = true,
	.open = open_, .read = read_, .close = close_,
};

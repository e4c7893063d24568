/* Pairs of texts, for models that read one and write the other (Sutskever et al., arXiv:1409.3215): each line a source,
 * a TAB and its answer. A sample has three rows: the source; the answer behind a sign that it begins; 1 where the
 * source has a token, 0 where it has none (attention's mask). Labels are the answer, and a sign that it ends. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/manifest.h"
#include "train/data/pairs.h"
#include "train/data/pairs_parse.h"
#include "train/data/whole.h"

struct pairs {
	struct data_source d;                   /* first */
	struct alphabet a;
	struct pair_lines part[DATA_PARTS];
	size_t places;                          /* 0: samples have no shape yet */
	int32_t begin, end, pad, ignore;
};

extern const struct data_ops data_pairs;

static void close_(struct data_source *d)
{
	struct pairs *p = (struct pairs *)d;

	for (int i = 0; i < DATA_PARTS; i++)
		pair_lines_free(&p->part[i]);
	alphabet_close(&p->a);
	free(p);
}

static int shape_of(struct pairs *p, const struct spec *s, struct err *e)
{
	const struct shape *in = &s->input;

	if (!s->loss)                           /* a look at them before there is a spec: no sample is read */
		return 0;
	if (in->nd != 2 || in->d[0] != 3 || s->objective.rows != in->d[1])
		return err_set(e, ERR_INVALID, "data %s: pairs are for models that read three rows and answer at every place: "
			"\"model\": {\"zoo\":\"transformer\"}", s->data_name);
	p->places = in->d[1];
	p->d.labels = p->places;
	p->ignore = s->objective.ignore;
	if (!s->objective.ignores || (p->ignore >= 0 && (size_t)p->ignore < s->objective.n))
		return err_set(e, ERR_INVALID, "data %s: places behind an answer must not count: "
			"\"loss\": {\"type\":\"cross_entropy\",\"ignore\":-100}", s->data_name);
	return 0;
}

static int load(struct pairs *p, struct files *f, const char *path, const struct spec *s, struct err *e)
{
	static const char *const names[] = { "training", "validation" };
	struct whole part[DATA_PARTS] = { { .p = NULL } };
	struct manifest m;
	int32_t next;
	int rc;

	manifest_begin(&m);
	rc = whole_parts(f, path, "tsv", part, &m, e);
	if (!rc)
		rc = alphabet_open(&p->a, f, path, s, &m, e);
	manifest_end(&m, &p->d);
	p->d.stamp = part[DATA_TRAIN].stamp + 3 * part[DATA_VALIDATION].stamp;
	next = p->a.tokens;
	p->begin = alphabet_find(&p->a, "[CLS]", "<s>", &next);
	p->end = alphabet_find(&p->a, "[SEP]", "</s>", &next);
	p->pad = alphabet_find(&p->a, "[PAD]", "<pad>", &next);
	p->d.classes = (uint64_t)next;
	for (int i = 0; i < DATA_PARTS; i++) {
		if (!rc && part[i].p && pairs_parse(&p->part[i], &p->a, part[i].p, part[i].n, p->places ? p->places : SIZE_MAX,
				e) < 0)
			rc = err_wrap(e, "%.200s (%s)", path, names[i]);
		p->d.count[i] = p->part[i].n;
		whole_free(&part[i]);
	}
	if (!rc && !p->d.count[DATA_TRAIN])
		rc = err_set(e, ERR_INVALID, "%.200s: no pairs to train on", path);
	return rc;
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct pairs *p = xcalloc(1, sizeof(*p));

	p->d.ops = &data_pairs;
	p->d.target = TARGET_CLASS;
	p->d.shape = s->input;
	p->d.alphabet = &p->a;
	if (shape_of(p, s, e) < 0 || load(p, f, path, s, e) < 0) {
		close_(&p->d);
		return NULL;
	}
	return &p->d;
}

bool pairs_is(const struct data_source *d) { return d->ops == &data_pairs; }
size_t pairs_places(const struct data_source *d) { return ((const struct pairs *)d)->places; }
int32_t pairs_end(const struct data_source *d) { return ((const struct pairs *)d)->end; }

void pairs_fill(const struct data_source *d, const int32_t *source, size_t n, const int32_t *answer, size_t m, real *x)
{
	const struct pairs *p = (const struct pairs *)d;

	for (size_t k = 0; k < p->places; k++) {
		x[k] = (real)(k < n ? source[k] : p->pad);
		x[p->places + k] = (real)(!k ? p->begin : k <= m ? answer[k - 1] : p->pad);
		x[2 * p->places + k] = k < n;
	}
}

/* There is no chance in it, but numbers that stand for words have no mean that data_about should look for. */
static int read_keyed(struct data_source *d, enum data_part of, const uint64_t *index, const uint64_t *key, size_t n,
	real *x, void *y, struct err *e)
{
	const struct pairs *p = (const struct pairs *)d;
	const struct pair_lines *l = &p->part[of];

	for (size_t i = 0; i < n; i++) {
		const int32_t *source = l->ids.v + l->source[index[i]], *answer = l->ids.v + l->answer[index[i]];
		size_t m = l->source[index[i] + 1] - l->answer[index[i]];
		int32_t *label = (int32_t *)y + i * p->places;

		pairs_fill(d, source, (size_t)(answer - source), answer, m, x + i * 3 * p->places);
		for (size_t k = 0; k < p->places; k++)
			label[k] = k < m ? answer[k] : k == m ? p->end : p->ignore;
	}
	return 0;
}

const struct data_ops data_pairs = {
	.name = "pairs", .help = "lines of a source, a TAB and an answer: one file, or train.tsv and test.tsv in a folder",
	.tokens = true, .open = open_, .read_keyed = read_keyed, .close = close_,
};

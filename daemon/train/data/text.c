/* Text: bytes, or tokens of a vocabulary (local.vocab, or tokenizer.json in the folder). A model that answers once a
 * sample guesses the token behind a window that begins anywhere; one that answers at every position gets windows side
 * by side, so that each token is guessed once a data epoch; one that reads two rows (BERT) guesses hidden tokens. A
 * single file gives its end to validation; a folder has train.txt, and test.txt or val.txt. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/text.h"
#include "train/data/whole.h"
#include "train/data/manifest.h"

#define HELD 0.1                                /* of a single file, when validation.split says nothing */
#define HIDDEN 0.15                             /* of the tokens (Devlin et al., arXiv:1810.04805, section 3.1); of */
#define MASKED 0.8                              /* those: replaced by the mask, by any token, and left as they are */
#define RANDOM 0.1

struct text {
	struct data_source d;                   /* first */
	struct whole file[DATA_PARTS];          /* bytes; freed when there are ids */
	struct ids ids[DATA_PARTS];
	struct alphabet a;
	struct { const uint8_t *bytes; const int32_t *ids; size_t n; } part[DATA_PARTS];
	size_t window;
	bool each, masked;                      /* a label at each position; of hidden tokens */
	int32_t mask, ignore;                   /* the mask's id */
};

extern const struct data_ops data_text;

static void close_(struct data_source *d)
{
	struct text *t = (struct text *)d;

	for (int i = 0; i < DATA_PARTS; i++) {
		whole_free(&t->file[i]);
		free(t->ids[i].v);
	}
	alphabet_close(&t->a);
	free(t);
}

static void encode(struct text *t)
{
	int32_t next = t->a.tokens;

	t->mask = alphabet_find(&t->a, "[MASK]", "<mask>", &next);
	t->d.classes = (uint64_t)t->a.tokens + (t->masked && t->mask == t->a.tokens);
	for (int i = 0; i < DATA_PARTS && t->a.bpe; i++) {
		if (t->file[i].p)
			alphabet_encode(&t->a, t->file[i].p, t->file[i].n, &t->ids[i]);
		whole_free(&t->file[i]);
	}
}

static void part(struct text *t, int to, int from, size_t at, size_t n)
{
	t->part[to].bytes = t->a.bpe ? NULL : (const uint8_t *)t->file[from].p + at;
	t->part[to].ids = t->a.bpe ? t->ids[from].v + at : NULL;
	t->part[to].n = n;
}

/* Windows never reach from one part into the other. */
static int cut(struct text *t, const char *path, const struct spec *s, bool two, struct err *e)
{
	size_t all = t->a.bpe ? t->ids[DATA_TRAIN].n : t->file[DATA_TRAIN].n, n = all, behind = t->masked ? 0 : 1;
	double share = s->validation_split > 0 ? s->validation_split : two ? 0 : HELD;
	const char *unit = t->a.bpe ? "token" : "byte";

	n -= (size_t)(share * (double)n);
	part(t, DATA_TRAIN, DATA_TRAIN, 0, n);
	if (share > 0)
		part(t, DATA_VALIDATION, DATA_TRAIN, n, all - n);
	else
		part(t, DATA_VALIDATION, DATA_VALIDATION, 0, t->a.bpe ? t->ids[DATA_VALIDATION].n : t->file[DATA_VALIDATION].n);
	if (n < t->window + behind)
		return err_set(e, ERR_INVALID, "%.200s: %zu %ss to train on; a sample is %zu%s%s%s", path, n, unit,
			t->window, behind ? " and the " : "", behind ? unit : "", behind ? " after" : "");
	t->d.count[DATA_TRAIN] = t->each ? (n - behind) / t->window : n - t->window;
	n = t->part[DATA_VALIDATION].n;
	t->d.count[DATA_VALIDATION] = n > t->window || (t->masked && n == t->window) ? (n - behind) / t->window : 0;
	return 0;
}

static int shape_of(struct text *t, const struct spec *s, struct err *e)
{
	const struct shape *in = &s->input;

	t->each = s->objective.rows > 1;
	t->masked = t->each && in->nd == 2 && in->d[0] == 2 && s->objective.rows == in->d[1];
	t->window = t->masked ? in->d[1] : shape_count(in);
	t->d.labels = t->each ? t->window : 1;
	t->ignore = s->objective.ignore;
	if (t->masked && (!s->objective.ignores || (t->ignore >= 0 && (size_t)t->ignore < s->objective.n)))
		return err_set(e, ERR_INVALID, "data %s: a model of two rows guesses hidden tokens, so those that are not "
			"hidden must not count: \"loss\": {\"type\":\"cross_entropy\",\"ignore\":-100}", s->data_name);
	return 0;
}

static struct data_source *open_(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	struct text *t = xcalloc(1, sizeof(*t));
	struct manifest m;
	bool two;
	int rc;

	t->d.ops = &data_text;
	t->d.alphabet = &t->a;
	t->d.target = TARGET_CLASS;
	t->d.shape = s->input;
	t->d.split = true;
	rc = shape_of(t, s, e);
	manifest_begin(&m);
	if (!rc)
		rc = whole_parts(f, path, "txt", t->file, &m, e);
	two = t->file[DATA_VALIDATION].p != NULL;
	if (!rc)
		rc = alphabet_open(&t->a, f, path, s, &m, e);
	manifest_end(&m, &t->d);
	if (!rc)
		encode(t);
	t->d.bytes = !t->a.bpe;
	if (rc < 0 || cut(t, path, s, two, e) < 0) {
		close_(&t->d);
		return NULL;
	}
	return &t->d;
}

static int32_t token(const struct text *t, int of, size_t i)
{
	return t->a.bpe ? t->part[of].ids[i] : t->part[of].bytes[i];
}

/* What is chosen does not depend on anything but the key: as many of every sample (Algorithm S: Knuth, The Art of
 * Computer Programming 2, 3.4.2), or tokens of samples that hide few would weigh more than others. */
static void hide(const struct text *t, int of, size_t from, uint64_t key, real *x, int32_t *y)
{
	size_t n = t->window, left = (size_t)(HIDDEN * (double)n + 0.5);

	left = left ? left : 1;
	for (size_t k = 0; k < n; k++) {
		int32_t is = token(t, of, from + k), shown = is;
		double how = rand_unit(key, 3 * k + 1);

		y[k] = t->ignore;
		if (rand_unit(key, 3 * k) * (double)(n - k) < (double)left) {
			left--;
			y[k] = is;
			shown = how < MASKED ? t->mask : how < MASKED + RANDOM ?
				(int32_t)(rand_bits(key, 3 * k + 2) % (uint64_t)t->a.tokens) : is;
		}
		x[k] = (real)shown;
		x[n + k] = 0;                   /* one segment */
	}
}

/* A window anywhere, or side by side; validation takes them side by side. */
static int read_keyed(struct data_source *d, enum data_part of, const uint64_t *index, const uint64_t *key, size_t n,
	real *x, void *y, struct err *e)
{
	const struct text *t = (const struct text *)d;

	for (size_t i = 0; i < n; i++) {
		size_t at = (size_t)index[i] * (of == DATA_TRAIN && !t->each ? 1 : t->window);
		real *to = x + i * t->window * (t->masked ? 2 : 1);
		int32_t *label = (int32_t *)y + i * d->labels;

		if (t->masked) {
			hide(t, of, at, key[i], to, label);
			continue;
		}
		for (size_t k = 0; k < t->window; k++)
			to[k] = (real)token(t, of, at + k);
		for (size_t k = 0; k < d->labels; k++)
			label[k] = token(t, of, at + (t->each ? k + 1 : t->window));
	}
	return 0;
}

bool text_masked(const struct data_source *d)
{
	return d->ops == &data_text && ((const struct text *)d)->masked;
}

const struct data_ops data_text = {
	.name = "text", .help = "a text file or a folder of train.txt and test.txt: bytes, or tokens of local.vocab",
	.tokens = true, .open = open_, .read_keyed = read_keyed, .close = close_,
};

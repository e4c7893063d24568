/* Data sets: the registry of kinds, the split into training and validation, the order of training positions, and the
 * checks of what the files hold against the model. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/id.h"
#include "common/mem.h"
#include "common/rng.h"
#include "common/text.h"
#include "train/data/data_int.h"

#define DATA(x) extern const struct data_ops data_##x;
#include "train/data/list.h"
#undef DATA

static const struct data_ops *const kinds[] = {
#define DATA(x) &data_##x,
#include "train/data/list.h"
#undef DATA
	NULL
};

const struct data_ops *data_find(const char *name)
{
	for (int i = 0; kinds[i]; i++)
		if (!strcmp(kinds[i]->name, name))
			return kinds[i];
	return NULL;
}

const struct data_ops *data_at(int i)
{
	return i >= 0 && i < (int)(sizeof(kinds) / sizeof(*kinds)) - 1 ? kinds[i] : NULL;
}

const char *data_names(char *out, size_t cap)
{
	size_t n = 0;

	out[0] = 0;
	for (int i = 0; kinds[i] && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? " " : "", kinds[i]->name);
	return out;
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n >= k && !strcmp(s + n - k, with);
}

int data_place(const char *word, char *ret_kind, size_t cap, const char **ret_path, struct err *e)
{
	static const char jpeg[] = "cifar10-jpeg";
	size_t n = strcspn(word, ":/");
	const char *names[sizeof(kinds) / sizeof(*kinds) + 1], *near;
	char kind[32], all[200];

	*ret_path = word;
	if (word[n] != ':')
		return 1;
	(void)snprintf(kind, sizeof(kind), "%.*s", (int)(n < 31 ? n : 31), word);
	*ret_path = word + n + 1;
	if (!**ret_path)
		return err_set(e, ERR_INVALID, "data: a path must stand behind \"%s:\"", kind);
	if (data_find(kind)) {
		(void)snprintf(ret_kind, cap, "%s", kind);
		return 0;
	}
	if (!strcmp(kind, jpeg)) {
		bool tar = ends(word, ".tar") || ends(word, ".tar.gz") || ends(word, ".tgz");

		(void)snprintf(ret_kind, cap, "%s", tar ? "tar" : "folder");
		return 0;
	}
	for (n = 0; kinds[n]; n++)
		names[n] = kinds[n]->name;
	names[n++] = jpeg;
	names[n] = NULL;
	text_clean(kind);
	near = text_nearest(kind, names);
	if (near)
		return err_set(e, ERR_INVALID, "data: unknown kind \"%s\"; did you mean \"%s:%.200s\"?", kind, near, *ret_path);
	return err_set(e, ERR_INVALID, "data: unknown kind \"%s\"; KIND:PATH with one of %s %s", kind,
		data_names(all, sizeof(all)), jpeg);
}

/* nout: class labels must be below, real targets must be as many. */
static int check_source(const struct data_source *d, const struct spec *s, size_t nout, struct err *e)
{
	size_t labels = d->labels ? d->labels : 1;
	bool cut = false;
	char have[64], want[64];

	for (int i = 0; i < s->nsteps; i++)
		cut |= s->step[i].ops->sizes;
	if (d->shape.nd && !cut && shape_count(&d->shape) != shape_count(&s->input))
		return err_set(e, ERR_MISMATCH, "data %s: a sample is %s, and input: %s is asked for", s->data_name,
			shape_text(&d->shape, have, sizeof(have)), shape_text(&s->input, want, sizeof(want)));
	if (!d->count[DATA_TRAIN])
		return err_set(e, ERR_INVALID, "data %s: there are no training samples", s->data_name);
	if (d->target == TARGET_CLASS && labels != s->objective.rows)
		return err_set(e, ERR_MISMATCH, "data %s: a sample has %zu label%s, and the model answers %zu time%s",
			s->data_name, labels, labels == 1 ? "" : "s", s->objective.rows, s->objective.rows == 1 ? "" : "s");
	if (d->target == TARGET_CLASS && s->loss->target == TARGET_CLASS && d->classes > nout)
		return err_set(e, ERR_MISMATCH, "data %s: label %llu occurs, and the model has %zu outputs (labels 0 to %zu)",
			s->data_name, (unsigned long long)d->classes - 1, nout, nout - 1);
	if (d->target == TARGET_CLASS && s->loss->target == TARGET_REAL && d->classes > (nout == 1 ? 2 : nout))
		return err_set(e, ERR_MISMATCH, "data %s: %llu classes, and the model has %zu outputs", s->data_name,
			(unsigned long long)d->classes, nout);
	if (d->target == TARGET_REAL && s->loss->target == TARGET_CLASS)
		return err_set(e, ERR_MISMATCH, "data %s has real targets, and the loss %s wants classes", s->data_name,
			s->loss->name);
	if (d->target == TARGET_REAL && shape_count(&d->y) != nout)
		return err_set(e, ERR_MISMATCH, "data %s: a target is %s, and the model has %zu outputs", s->data_name,
			shape_text(&d->y, have, sizeof(have)), nout);
	return 0;
}

static int check_digest(const struct data_source *d, const struct spec *s, struct err *e)
{
	struct id a, b;
	char ha[9], hb[9];

	if (!s->has_data_digest || !memcmp(d->digest, s->data_digest, 32))
		return 0;
	memcpy(a.b, d->digest, 32);
	memcpy(b.b, s->data_digest, 32);
	return err_set(e, ERR_MISMATCH, "data.digest: the data set %s here (manifest %s) is not the run's (%s): "
		"get the same files as the run's author", s->data_name, id_short(&a, ha), id_short(&b, hb));
}

void data_source_close(struct data_source *d)
{
	if (d)
		d->ops->close(d);
}

struct data *data_open(struct files *f, const char *path, const struct spec *s, struct err *e)
{
	return data_open_or(f, path, s, NULL, e);
}

struct data *data_open_or(struct files *f, const char *path, const struct spec *s, struct data_source **ret_other,
	struct err *e)
{
	const struct data_ops *ops = data_find(s->data_kind);
	struct data_source *src;
	struct data *d;
	uint64_t n;

	assert(ops);
	src = ops->open(f, path, s, e);
	if (!src)
		return NULL;
	src->ops = ops;
	if (check_source(src, s, s->objective.n, e) < 0) {
		ops->close(src);
		return NULL;
	}
	if (check_digest(src, s, e) < 0) {
		if (ret_other)
			*ret_other = src;
		else
			ops->close(src);
		return NULL;
	}
	d = data_of(src, f, s);
	data_cache_open(d, path, s);
	n = data_count(d, DATA_TRAIN);
	if (!n)
		(void)err_set(e, ERR_INVALID, "validation.split: nothing is left to train on (%llu samples in all)",
			(unsigned long long)src->count[DATA_TRAIN]);
	else if (s->data_samples && s->data_samples != n)
		(void)err_set(e, ERR_MISMATCH, "data.samples: the spec says %llu to train on, and there are %llu here (leave "
			"it out: it is filled in)", (unsigned long long)s->data_samples, (unsigned long long)n);
	else
		return d;
	data_free(d);
	return NULL;
}

void data_free(struct data *d)
{
	if (!d || d->refs-- > 0)
		return;
	data_cache_close(d);
	d->source->ops->close(d->source);
	for (int part = 0; part < DATA_PARTS; part++)
		free(d->bad[part]);
	free(d);
}

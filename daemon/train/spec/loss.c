/* The loss of a spec: a name, or an object with its options, held against the model's output. Building the model here
 * is also where all shapes of a spec are checked. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "train/spec/int.h"

/* What people write, beside the names of the files. */
static const char *full_name(const char *name)
{
	return !strcmp(name, "ce") ? "cross_entropy" : !strcmp(name, "bce") ? "bce_with_logits" : name;
}

static int read_ignore(struct loss *l, const json_t *o, const struct place *at, struct err *e)
{
	const struct place p = place_key(at, "ignore");
	const json_t *v = json_object_get(o, "ignore");

	if (!v)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < INT32_MIN || json_integer_value(v) > INT32_MAX)
		return place_err(&p, e, "must be a label such as -100, and is %s", json_kind(v));
	l->ignores = true;
	l->ignore = (int32_t)json_integer_value(v);
	return 0;
}

/* {"name":"text", "length":16}; the last one's length may be missing. */
static int read_part(struct loss *l, const json_t *o, const json_t *weights, const struct place *at, size_t left,
	bool last, struct err *e)
{
	static const char *const known[] = { "name", "length", NULL };
	const struct place p = place_key(at, "length"), w = { "loss.weights" };
	char name[64] = "";
	uint64_t len = last ? left : 0;
	int i = l->nparts++;

	if (read_object(o, at, e) < 0 || read_known(o, at, known, e) < 0 ||
	    read_text(o, at, "name", name, sizeof(name), e) < 0 || read_u64(o, at, "length", 1, left, &len, e) < 0)
		return -1;
	if (!len || (last && len != left))
		return place_err(&p, e, "%s: the model has %zu positions, and %zu are left here", len ? "does not add up" :
			"is missing", l->rows, left);
	l->part[i].len = len;
	l->part[i].weight = NAN;
	if (read_real(weights, &w, name, 0, 1e9, &l->part[i].weight, e) < 0)
		return -1;
	if (isnan(l->part[i].weight))
		return place_err(&w, e, "has no weight for the part \"%s\"", name);
	return 0;
}

static int read_parts(struct loss *l, const json_t *o, const struct place *loss_at, struct err *e)
{
	const struct place at = place_key(loss_at, "parts"), wp = place_key(loss_at, "weights");
	const json_t *v = json_object_get(o, "parts"), *weights = json_object_get(o, "weights");
	size_t n = json_array_size(v), left = l->rows;
	double sum = 0;

	if (read_object(weights, &wp, e) < 0)
		return -1;
	if (n < 1 || n > LOSS_PARTS_MAX)
		return place_err(&at, e, "must be an array of 1 to %d parts in their order, such as "
			"[{\"name\":\"text\",\"length\":16},{\"name\":\"image\"}], and is %s", LOSS_PARTS_MAX,
			json_kind(v));
	if (json_object_size(weights) != n)
		return place_err(&wp, e, "has %zu weights for %zu parts", json_object_size(weights), n);
	for (size_t i = 0; i < n; i++) {
		const struct place p = place_index(&at, i);

		if (read_part(l, json_array_get(v, i), weights, &p, left, i + 1 == n, e) < 0)
			return -1;
		left -= l->part[i].len;
		sum += l->part[i].weight;
	}
	return sum > 0 ? 0 : place_err(&wp, e, "are all 0: nothing would be learned");
}

static int read_options(struct loss *l, const json_t *o, const struct place *at, struct err *e)
{
	static const char *const plain[] = { "type", NULL };
	static const char *const classes[] = { "type", "label_smoothing", "ignore", NULL };
	static const char *const parts[] = { "type", "label_smoothing", "ignore", "weights", "parts", NULL };
	bool of_parts = !strcmp(l->ops->name, "parts"), labels = l->ops->target == TARGET_CLASS;

	if (read_known(o, at, of_parts ? parts : labels ? classes : plain, e) < 0 ||
	    read_real(o, at, "label_smoothing", 0, 1, &l->smoothing, e) < 0 || read_ignore(l, o, at, e) < 0)
		return -1;
	return of_parts ? read_parts(l, o, at, e) : 0;
}

static int fit(struct spec *s, const json_t *o, const struct place *at, struct err *e)
{
	struct model *m = spec_model(s, NULL, e);      /* every shape is checked here */
	struct kerr why;
	char shape[80];
	int rc = 0;

	if (!m)
		return -1;
	if (s->loss->check && s->loss->check(&m->out, &why) < 0)
		rc = place_err(at, e, "does not fit the model's output %s: %s", shape_text(&m->out, shape, sizeof(shape)),
			why.text);
	s->objective = loss_plain(s->loss, &m->out);
	model_free(m);
	if (!rc && o)
		rc = read_options(&s->objective, o, at, e);
	else if (!rc && !strcmp(s->loss->name, "parts"))
		rc = place_err(at, e, "parts needs an object: {\"type\":\"parts\", \"weights\":{...}, \"parts\":[...]}");
	return rc;
}

int spec_read_loss(struct spec *s, const json_t *shared, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, "loss"), tp = place_key(&at, "type");
	const json_t *v = json_object_get(shared, "loss"), *type = json_is_object(v) ? json_object_get(v, "type") : v;
	const char *name = json_string_value(type);
	const struct place *where = json_is_object(v) ? &tp : &at;
	char names[200];

	if (!name)
		return place_err(where, e, "must be the name of a loss%s, and is %s", json_is_object(v) ? "" :
			" or an object whose \"type\" is that name", json_kind(type));
	s->loss = loss_find(full_name(name));
	if (!s->loss)
		return place_unknown(where, "loss", name, loss_names(names, sizeof(names)), e);
	return fit(s, json_is_object(v) ? v : NULL, &at, e);
}

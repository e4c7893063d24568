/* data.steps and data.materialize_after of a spec. A step is an object {"type": NAME, ...} or, without numbers, its
 * name. "read", "decode" and "batch" may be listed for whoever wants to see the whole way; they are always done. */
#include <string.h>
#include "train/spec/int.h"
#include "train/step.h"

static int read_step(struct spec_step *st, const json_t *o, const struct place *at, struct err *e)
{
	const struct place p = place_key(at, "type");
	const char *type;
	char names[200];

	if (read_object(o, at, e) < 0)
		return -1;
	type = json_string_value(json_object_get(o, "type"));
	if (!type)
		return place_err(&p, e, "must be the name of a step, and is %s", json_kind(json_object_get(o, "type")));
	st->ops = step_find(type);
	if (!st->ops)
		return place_unknown(&p, "step", type, step_names(names, sizeof(names)), e);
	return st->ops->read(st, o, at, e);
}

/* Stages that are no steps stand where they are done: 1 when v is one. */
static int fixed(const json_t *v, size_t i, size_t n, const json_t *list, const struct place *at, struct err *e)
{
	const char *name = json_string_value(v);
	const char *before = i ? json_string_value(json_array_get(list, i - 1)) : NULL;

	if (!name || (strcmp(name, "read") && strcmp(name, "decode") && strcmp(name, "batch")))
		return 0;
	if (!strcmp(name, "batch") && i + 1 != n)
		return place_err(at, e, "\"batch\" must be the last: there are no steps behind it");
	if (!strcmp(name, "read") && i)
		return place_err(at, e, "\"read\" must be the first");
	if (!strcmp(name, "decode") && (i > 1 || (i == 1 && (!before || strcmp(before, "read")))))
		return place_err(at, e, "\"decode\" must stand behind \"read\" or first");
	return 1;
}

static int check_step(struct spec *s, int k, bool real_now, const struct place *p, struct err *e)
{
	if (s->step[k].ops->bytes && real_now)
		return place_err(p, e, "must stand before normalize: it works on bytes");
	if (s->step[k].ops->image && s->input.nd < 2)
		return place_err(p, e, "works on images, and the input has one dimension");
	return 0;
}

static int read_materialize(struct spec *s, const json_t *data, const json_t *list, const int *done,
	const struct place *data_at, struct err *e)
{
	const struct place at = place_key(data_at, "materialize_after"), steps = place_key(data_at, "steps");
	uint64_t n = json_array_size(list), i = 0;

	s->materialize = -1;
	if (!json_object_get(data, "materialize_after"))
		return 0;
	if (read_u64(data, data_at, "materialize_after", 0, n, &i, e) < 0)
		return -1;
	s->materialize_listed = (size_t)i;
	s->materialize = i ? done[i - 1] : 0;
	for (int k = 0; k < s->materialize; k++)
		if (s->step[k].ops->random)
			return place_err(&at, e, "%s of %s depends on chance; such steps must stand behind what is kept",
				s->step[k].ops->name, steps.text);
	return 0;
}

int spec_read_steps(struct spec *s, const json_t *data, const struct place *data_at, struct err *e)
{
	const struct place at = place_key(data_at, "steps");
	const json_t *v = json_object_get(data, "steps");
	int done[SPEC_STEPS_MAX + 3];           /* steps up to entry i of the list */
	size_t n = json_array_size(v);
	bool real_now = false;

	if (v && (!json_is_array(v) || n > SPEC_STEPS_MAX + 3))
		return place_err(&at, e, "must be an array of at most %d steps, and is %s", SPEC_STEPS_MAX, json_kind(v));
	for (size_t i = 0; i < n; i++) {
		const struct place p = place_index(&at, i);
		json_t *o = json_array_get(v, i);
		int rc = fixed(o, i, n, v, &p, e);

		if (!rc && s->nsteps == SPEC_STEPS_MAX)
			return place_err(&at, e, "must be an array of at most %d steps", SPEC_STEPS_MAX);
		if (!rc) {
			o = json_is_string(o) ? json_pack("{s:O}", "type", o) : json_incref(o);
			rc = read_step(&s->step[s->nsteps], o, &p, e);
			json_decref(o);
			rc = rc < 0 || check_step(s, s->nsteps, real_now, &p, e) < 0 ? -1 : 0;
			real_now |= !rc && !strcmp(s->step[s->nsteps++].ops->name, "normalize");
		}
		if (rc < 0)
			return -1;
		done[i] = s->nsteps;
	}
	return read_materialize(s, data, v, done, data_at, e);
}

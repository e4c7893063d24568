/* What "plan" of a spec says to strategy pipeline (said.h), judged before anything is known of model and members. */
#include <string.h>
#include "train/strategy/parts/said.h"
#include "train/strategy/parts/partition.h"

const struct turns_ops *said_schedule(const json_t *values)
{
	const char *name = json_string_value(json_object_get(values, "schedule"));

	return turns_find(name ? name : "1f1b");
}

bool said_auto(const json_t *values, const char *key)
{
	const char *text = json_string_value(json_object_get(values, key));

	return text && !strcmp(text, SAID_AUTO);
}

enum said_remat said_remat(const json_t *values)
{
	const char *text = json_string_value(json_object_get(values, "remat"));

	return !text || !strcmp(text, "none") ? REMAT_NONE : !strcmp(text, "boundary") ? REMAT_BOUNDARY :
		!strcmp(text, SAID_AUTO) ? REMAT_AUTO : REMAT_UNKNOWN;
}

static uint32_t count_of(const json_t *v, uint32_t most)
{
	json_int_t n = json_integer_value(v);

	return json_is_integer(v) && n >= 1 && n <= most ? (uint32_t)n : 0;
}

static int check_stage(const json_t *o, size_t at, struct err *e)
{
	const json_t *layers = json_object_get(o, "layers"), *replicas = json_object_get(o, "replicas");
	const char *key;
	json_t *v;

	if (!json_is_object(o))
		return err_set(e, ERR_INVALID, "stages[%zu] must be an object such as {\"layers\": 4, \"replicas\": 2}", at);
	json_object_foreach((json_t *)o, key, v)
		if (strcmp(key, "layers") && strcmp(key, "replicas"))
			return err_set(e, ERR_INVALID, "stages[%zu]: unknown key \"%.40s\"; a stage has layers and replicas", at,
				key);
	if (replicas && !count_of(replicas, PLAN_MEMBERS_MAX))
		return err_set(e, ERR_INVALID, "stages[%zu].replicas must be a whole number from 1 to %d", at,
			PLAN_MEMBERS_MAX);
	if (layers && !count_of(layers, 1 << 20) && !json_is_string(layers))
		return err_set(e, ERR_INVALID, "stages[%zu].layers must be how many layers, or the first and the last one such "
			"as \"conv1-fc\"", at);
	return 0;
}

static int check_stages(const json_t *v, struct err *e)
{
	size_t given = 0, i;
	json_t *o;

	if (!v)
		return err_set(e, ERR_INVALID, "stages is missing: into how many the model is cut, such as 4, or \"auto\"");
	if (json_is_string(v) && !strcmp(json_string_value(v), SAID_AUTO))
		return 0;
	if (json_is_integer(v))
		return count_of(v, STAGES_MAX) ? 0 : err_set(e, ERR_INVALID, "stages must be from 1 to %d", STAGES_MAX);
	if (!json_is_array(v) || !json_array_size(v) || json_array_size(v) > STAGES_MAX)
		return err_set(e, ERR_INVALID, "stages must be a number, or a list of 1 to %d stages, or \"auto\"",
			STAGES_MAX);
	json_array_foreach((json_t *)v, i, o) {
		if (check_stage(o, i, e) < 0)
			return -1;
		given += json_object_get(o, "layers") != NULL;
	}
	if (given && given < json_array_size(v))
		return err_set(e, ERR_INVALID, "stages: %zu of %zu say their layers; give those of all, or of none and "
			"the cuts are found", given, json_array_size(v));
	return 0;
}

int said_check(const json_t *values, struct err *e)
{
	const json_t *schedule = json_object_get(values, "schedule"), *micro = json_object_get(values, "micro_batches");
	const json_t *size = json_object_get(values, "micro_batch_size"), *units = json_object_get(values, "replicas");
	const json_t *remat = json_object_get(values, "remat");
	char names[200];

	if (schedule && !json_is_string(schedule))
		return err_set(e, ERR_INVALID, "schedule must be one of: %s", turns_names(names, sizeof(names)));
	if (!said_schedule(values))
		return err_set(e, ERR_INVALID, "schedule \"%.40s\" is unknown; known: %s", json_string_value(schedule),
			turns_names(names, sizeof(names)));
	if (micro && !count_of(micro, MICRO_MAX))
		return err_set(e, ERR_INVALID, "micro_batches must be a whole number from 1 to %d", MICRO_MAX);
	if (size && !said_auto(values, "micro_batch_size") && !count_of(size, SAMPLES_MAX))
		return err_set(e, ERR_INVALID, "micro_batch_size must be a whole number from 1 to %d, or \"auto\"",
			SAMPLES_MAX);
	if (said_remat(values) == REMAT_UNKNOWN || (remat && !json_is_string(remat)))
		return err_set(e, ERR_INVALID, "remat must be one of: none boundary auto; what a stage needs for its way back "
			"is kept, or made again from the input of the stage");
	if (units && !count_of(units, PLAN_MEMBERS_MAX))
		return err_set(e, ERR_INVALID, "replicas must be a whole number from 1 to %d: so many pipelines side by side "
			"at most", PLAN_MEMBERS_MAX);
	return check_stages(json_object_get(values, "stages"), e);
}

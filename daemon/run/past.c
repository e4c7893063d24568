/* Runs that were over before this daemon started: whoever asks for one gets it as it was left, out of its rows in the
 * store; checkpoints that are still here can be used, exported and removed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/int.h"

struct run *run_bare(struct runs *rs, struct spec *spec, const struct id *author, const struct id *id)
{
	struct run *r = xcalloc(1, sizeof *r);
	r->rs = rs;
	r->spec = spec;
	r->author = *author;
	r->mine = id_eq(author, net_self(rs->ctx.net));
	r->loss = r->accuracy = r->epoch_loss = r->val_loss = r->val_accuracy = r->best_accuracy = NAN;
	list_init(&r->ckpt_waiters);
	avg_point_init(&r->point);
	snprintf(r->name, sizeof r->name, "%s", spec->name);
	id_hex(author, r->author_hex);
	if (id) {
		r->id = *id;
		id_hex(id, r->hex);
	}
	r->tell.name = "run.tell";
	return r;
}

struct spec *run_spec_of_row(const json_t *row, struct id *ret_id, struct id *ret_author, struct err *e)
{
	const char *name = json_string_value(json_object_get(row, "name"));
	const char *spec = json_string_value(json_object_get(row, "spec"));
	const char *local = json_string_value(json_object_get(row, "local"));
	json_t *shared = spec ? json_loads(spec, 0, NULL) : NULL, *own = local ? json_loads(local, 0, NULL) : NULL;
	struct spec *s = NULL;
	if (!name)
		err_set(e, ERR_CORRUPT, "its row in the database has no name");
	else if (!json_get_hex(row, "run", ret_id->b, 32, e) && !json_get_hex(row, "author", ret_author->b, 32, e))
		s = spec_of(name, shared, own, e);
	json_decref(shared);
	json_decref(own);
	return s;
}

/* What came into force, the newest last. */
static void take_params(struct run *r)
{
	json_t *rows = store_list(r->rs->ctx.store, STORE_PARAMS, r->hex, 1000), *row;
	r->point.params = spec_live(r->spec);
	for (size_t i = json_array_size(rows); i--; ) {
		const char *key, *value;
		row = json_array_get(rows, i);
		const char *state = json_string_value(json_object_get(row, "state"));
		key = json_string_value(json_object_get(row, "key"));
		value = json_string_value(json_object_get(row, "new_value"));
		if (state && key && value && !strcmp(state, "applied"))
			json_object_set_new(r->point.params, key, json_loads(value, JSON_DECODE_ANY, NULL));
	}
	json_decref(rows);
}

static uint64_t count_of(const json_t *row, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(row, key));
}

/* Its last state; one that the daemon could not take up again has failed. */
static void take_state(struct run *r, const json_t *row)
{
	const char *state = json_string_value(json_object_get(row, "state"));
	const char *error = json_string_value(json_object_get(row, "error"));
	r->state = RUN_FAILED;
	for (int s = RUN_DONE; s < RUN_STATES; s++)
		if (state && !strcmp(run_state_word((enum run_state)s), state))
			r->state = (enum run_state)s;
	if (error)
		err_set(&r->error, ERR_STATE, "%s", error);
}

struct run *run_past(struct runs *rs, const json_t *row, struct err *e)
{
	struct store_end end;
	struct id id, author;
	struct spec *s = run_spec_of_row(row, &id, &author, e);
	if (!s)
		return NULL;
	struct run *r = run_bare(rs, s, &author, &id);
	r->past = true;
	r->created_ms = count_of(row, "created_ms");
	r->point.epoch = count_of(row, "epoch");
	r->point.samples = count_of(row, "samples");
	r->point.params_version = count_of(row, "params_version");
	take_state(r, row);
	take_params(r);
	store_run_end(rs->ctx.store, r->hex, &end);
	r->was_members = (uint32_t)end.members;
	r->epoch_loss = end.loss;
	r->val_at = end.val_epoch;
	r->val_loss = end.val_loss;
	r->val_accuracy = end.val_accuracy;
	r->best_accuracy = end.best_accuracy;
	trace_past(r);
	list_push(&rs->list, &r->link);
	return r;
}

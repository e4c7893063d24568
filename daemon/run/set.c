/* What an operator sets while a run goes: proposed to the swarm, which takes it at one epoch, or this peer's own. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "run/int.h"

#define DUMP (JSON_ENCODE_ANY | JSON_REAL_PRECISION(15))

static void record_change(struct run *r, const json_t *patch, uint64_t version, uint64_t epoch, const char *state,
	const char *note)
{
	const char *key;
	json_t *v;
	char self[ID_HEX];
	id_hex(net_self(r->rs->ctx.net), self);
	if (!r->rs->ctx.store)
		return;
	json_object_foreach((json_t *)patch, key, v) {
		json_t *old = json_object_get(r->point.params, key);
		char *was = old ? json_dumps(old, DUMP) : NULL, *is = json_dumps(v, DUMP);
		store_param_put(r->rs->ctx.store, &(struct store_param){ .run = r->hex, .key = key, .old_value = was,
			.new_value = is, .author = self, .state = state, .note = note, .version = version, .epoch = epoch });
		free(was);
		free(is);
	}
}

static void proposed(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	struct ask *a = arg;
	struct run *r = a->rs ? runs_by_id(a->rs, &a->run) : NULL;
	struct avg_view v = { 0 };
	a->open--;
	if (r && !e)
		avg_view(r->avg, &v);
	if (r && e && e->code == ERR_EXISTS) {
		record_change(r, a->patch, r->point.params_version + 1, a->at > r->point.epoch ? a->at : r->point.epoch + 1,
			"superseded", e->text);
		run_log(r, LOG_WARN_, "set.superseded", "%s", e->text);
	}
	if (r && !e) {
		record_change(r, a->patch, version, epoch, "proposed", NULL);
		if (epoch < r->unsettled)
			r->unsettled = epoch;
		if (epoch <= r->point.epoch)    /* its commit has said what came of it, or never will */
			run_settle(r);
		run_log(r, LOG_INFO_, "run.set", "version %llu from epoch %llu on", (unsigned long long)version,
			(unsigned long long)epoch);
	}
	if (a->reply && e)
		reply_fail(a->reply, e);
	else if (a->reply && a->rs)
		run_answer(a->rs, a->reply, json_pack("{s:I,s:I,s:i}", "version", (json_int_t)version, "epoch",
			(json_int_t)epoch, "peers_told", (int)v.last_members));    /* of the COMMIT that carried it */
	ask_free(a);
}

static void set_alone(struct run *r, json_t *patch, struct reply *reply)
{
	struct err e;
	json_t *all = json_deep_copy(r->point.params);
	json_object_update(all, patch);
	if (trainer_set_live(r->trainer, all, &e)) {
		json_decref(all);
		reply_fail(reply, &e);
		return;
	}
	r->point.params_version++;
	record_change(r, patch, r->point.params_version, r->point.epoch + 1, "applied", NULL);
	json_decref(r->point.params);
	r->point.params = all;
	run_answer(r->rs, reply, json_pack("{s:I,s:I,s:i}", "version", (json_int_t)r->point.params_version, "epoch",
		(json_int_t)r->point.epoch + 1, "peers_told", 1));
}

/* This peer's own: nobody else needs to agree. */
static void set_batch(struct run *r, const json_t *patch, struct reply *reply)
{
	const json_t *v = json_object_get(patch, "batch");
	struct err e;
	enum run_event ev = EV_NONE;
	int rc = 0;
	if (json_object_size(patch) > 1)
		rc = err_set(&e, ERR_INVALID, "batch is of this peer alone, what stands beside it is the swarm's: set it by "
			"itself");
	else if (!json_is_integer(v) || json_integer_value(v) < 1)
		rc = err_set(&e, ERR_INVALID, "batch: must be a whole number of samples, 1 to %d", 1 << 20);
	else
		rc = run_again_batch(r, (uint64_t)json_integer_value(v), &ev, &e);
	run_event(r, ev);
	if (rc)
		reply_fail(reply, &e);
	else
		run_answer(r->rs, reply, json_pack("{s:I,s:I,s:i}", "version", (json_int_t)r->point.params_version, "epoch",
			(json_int_t)r->point.epoch + 1, "peers_told", 1));
}

void runs_set(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	json_t *patch = json_object_get(params, "values");
	struct err e;
	uint64_t at = 0;
	if (!r)
		return;
	int rc = 0;
	if (run_over(r) || !r->trainer || !r->point.params)
		rc = err_set(&e, ERR_STATE, "run %s is %s: nothing to set", r->name, run_state_name(r));
	else if (json_object_get(patch, "batch")) {
		set_batch(r, patch, reply);
		return;
	} else if (json_object_get(params, "at"))
		rc = json_get_u64(params, "at", &at, &e);
	if (!rc && at && at <= r->point.epoch)
		rc = err_set(&e, ERR_INVALID, "epoch %llu has passed; the run is at %llu", (unsigned long long)at,
		(unsigned long long)r->point.epoch);
	if (!rc && json_object_get(patch, SPEC_REACHED))
		rc = err_set(&e, ERR_INVALID, "%s is not set by hand: validation says it", SPEC_REACHED);
	if (rc || run_may_change(r, net_self(rs->ctx.net), patch, NULL, &e)) {
		reply_fail(reply, &e);
		return;
	}
	if (!r->avg) {
		set_alone(r, patch, reply);
		return;
	}
	struct ask *a = ask_new(rs, r, reply);
	a->patch = json_incref(patch);
	a->at = at;
	a->open++;
	avg_propose(r->avg, json_incref(patch), at, proposed, a);
}

void runs_get(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	const char *key = json_string_value(json_object_get(params, "key"));
	struct err e;
	if (!r)
		return;
	json_t *now = r->point.params ? json_incref(r->point.params) : spec_live(r->spec);
	json_t *values = json_object(), *history = json_array(), *row;
	json_t *v = key ? json_object_get(now, key) : NULL;
	if (key && !v) {
		err_set(&e, ERR_NOT_FOUND, "run %s has no hyperparameter \"%s\"; hivectl get %s lists them", r->name, key,
			r->name);
		reply_fail(reply, &e);
	}
	if (key && v)
		json_object_set(values, key, v);
	else if (!key)
		json_object_update(values, now);
	json_t *rows = rs->ctx.store ? store_list(rs->ctx.store, STORE_PARAMS, r->hex, 1000) : json_array();
	size_t i;
	json_array_foreach(rows, i, row)
		if (!key || !strcmp(key, json_string_value(json_object_get(row, "key"))))
			json_array_append(history, row);
	json_decref(rows);
	json_decref(now);
	if (key && !v) {                        /* it has been answered */
		json_decref(values);
		json_decref(history);
		return;
	}
	reply_ok(reply, json_pack("{s:o,s:I,s:o}", "values", values, "version", (json_int_t)r->point.params_version,
		"history", history));
}

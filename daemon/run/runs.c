/* All runs of this peer: starting them, resuming after a restart, and what operators ask of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/saved.h"
#include "train/spec/draft.h"

/* ---- starting ---- */

/* --data KIND:PATH says what the data is, too; a spec without data gets it. */
static int place_data(json_t *whole, const json_t *params, struct err *e)
{
	const char *word = json_string_value(json_object_get(params, "data")), *path;
	char kind[32];
	int rc = word ? data_place(word, kind, sizeof kind, &path, e) : 1;
	if (rc)
		return rc < 0 ? -1 : 0;
	if (!json_object_get(whole, "data"))
		json_object_set_new(whole, "data", json_pack("{s:s#}", "name", word, (int)(path - 1 - word)));
	if (json_is_object(json_object_get(whole, "data")))
		json_object_set_new(json_object_get(whole, "data"), "kind", json_string(kind));
	json_object_set_new(json_object_get(whole, "local"), "data", json_string(path));
	return 0;
}

static struct spec *spec_from(const json_t *params, struct err *e)
{
	json_t *whole = json_deep_copy(json_object_get(params, "spec"));
	int rc = spec_aliases(whole, e);                /* before what goes over it */
	if (json_is_string(json_object_get(params, "name")))
		json_object_set(whole, "name", json_object_get(params, "name"));
	json_object_set_new(whole, "local", runs_local(json_object_get(whole, "local"), params));
	draft_over(whole, params);
	if (json_string_length(json_object_get(json_object_get(whole, "local"), "weights")) && !json_object_get(whole,
		"weights"))
		json_object_set_new(whole, "weights", json_object());
	struct spec *s = rc || place_data(whole, params, e) ? NULL : spec_of_json(whole, e);
	json_decref(whole);
	return s;
}

static size_t active(const struct runs *rs)
{
	size_t n = 0;
	list_each(it, &rs->list)
		n += !run_over(list_entry(it, struct run, link));
	return n;
}

size_t runs_active(const struct runs *rs) { return active(rs); }

void runs_start(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct err e;
	struct spec *s = NULL;
	if (!json_is_object(json_object_get(params, "spec"))) {         /* few words: it comes back with a spec */
		runs_draft(rs, params, reply);
		return;
	}
	if (runs_closed(rs, &e))
		s = NULL;
	else if (json_object_get(params, "model") || json_object_get(params, "with"))
		err_set(&e, ERR_INVALID, "--model and its key=value words go with the name of a run; the file has a model");
	else if (active(rs) >= RUNS_MAX)
		err_set(&e, ERR_LIMIT, "%d runs are under way on this peer: that is the most", RUNS_MAX);
	else
		s = spec_from(params, &e);
	if (!s) {
		const json_t *name = json_object_get(params, "name");
		if (!name)
			name = json_object_get(json_object_get(params, "spec"), "name");
		runs_refuse(rs, "start", json_string_value(name), reply, &e);
		return;
	}
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (!run_over(r) && r->mine && !strcmp(r->name, s->name)) {
			err_set(&e, ERR_EXISTS,
				"run %s is here already (%s); stop it first or give the new one another name with --name", r->name,
					run_state_name(r));
			runs_refuse(rs, "start", s->name, reply, &e);
			spec_free(s);
			return;
		}
	}
	if (json_is_true(json_object_get(params, "dry_run"))) {
		runs_dry_run(rs, s, reply);
		return;
	}
	run_new(rs, s, net_self(rs->ctx.net), NULL, reply);
}

/* ---- after a restart ---- */

static void resume_one(struct runs *rs, const json_t *row)
{
	struct err e;
	struct id id, author;
	struct spec *s = run_spec_of_row(row, &id, &author, &e);
	const char *name = json_string_value(json_object_get(row, "name"));
	if (s)
		run_new(rs, s, &author, &id, NULL)->was_epoch = (uint64_t)json_integer_value(json_object_get(row, "epoch"));
	else
		log_write(rs->ctx.env->log, LOG_ERROR_, "runs", "run %s cannot be resumed: %s", name ? name : "?", e.text);
}

static const struct run_calls calls = { .opened = run_opened, .quiet = sync_quiet, .watched = ctl_watched,
	.ended = ctl_ended };

struct runs *runs_new(const struct runs_ctx *ctx, struct err *e)
{
	struct runs *rs = xcalloc(1, sizeof *rs);
	rs->ctx = *ctx;
	rs->ctx.hashes = hashes_both(ctx->hashes, HASHES_NEWEST);
	rs->calls = &calls;
	list_init(&rs->list);
	list_init(&rs->graves);
	list_init(&rs->asks);
	list_init(&rs->serving);
	list_init(&rs->exports);
	list_init(&rs->profiles);
	rs->donors = donors_new(rs);
	ctl_serve(rs);
	differ_serve(rs);
	rs->lends = lends_new(rs);
	json_t *rows = ctx->store ? store_list(ctx->store, STORE_RUNS, NULL, RUNS_MAX) : json_array(), *row;
	size_t i;
	json_array_foreach(rows, i, row)
		if (json_integer_value(json_object_get(row, "resume")))
			resume_one(rs, row);
	json_decref(rows);
	return rs;
}

void runs_free(struct runs *rs)
{
	if (!rs)
		return;
	rs->closing = true;
	runs_serving_free(rs);
	net_on(rs->ctx.net, KIND_RUN_CTL, NULL, NULL);
	net_on(rs->ctx.net, KIND_RUN_DATA, NULL, NULL);
	env_timer(rs->ctx.env, &rs->drain_timer, 0);
	list_each_safe(it, &rs->list)
		run_free(list_entry(it, struct run, link));
	runs_exports_free(rs);
	runs_profiles_free(rs);
	lends_free(rs->lends);
	donors_free(rs->donors);
	runs_asks_free(rs);
	list_each_safe(it, &rs->graves) {       /* jobs still running: their memory goes when they are done */
		list_del(it);
		list_init(it);
	}
	free(rs);
}

void runs_wake(struct runs *rs)
{
	list_each(it, &rs->list)
		run_wake(list_entry(it, struct run, link));
	runs_profiles_wake(rs);
}

/* ---- what operators ask ---- */

json_t *runs_json(struct runs *rs)
{
	json_t *list = json_array();
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (r->spec && !run_over(r))
			json_array_append_new(list, run_json(r));
	}
	return list;
}

void runs_list(struct runs *rs, const json_t *params, struct reply *reply)
{
	bool all = json_is_true(json_object_get(params, "all"));
	json_t *list = json_array(), *rows, *row;
	size_t i, k;
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (r->spec && (all || !r->past))
			json_array_append_new(list, run_json(r));
	}
	if (all && rs->ctx.store) {
		rows = store_list(rs->ctx.store, STORE_RUNS, NULL, RUNS_MAX);
		json_array_foreach(rows, i, row) {
			json_t *have;
			bool known = false;
			json_array_foreach(list, k, have)
				known |= json_equal(json_object_get(have, "run"), json_object_get(row, "run"));
			if (known)
				continue;
			json_object_del(row, "spec");
			json_object_del(row, "local");
			json_array_append(list, row);
		}
		json_decref(rows);
	}
	reply_ok(reply, json_pack("{s:o}", "runs", list));
}

void runs_watch(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	if (r)
		reply_ok(reply, run_json(r));
}

void runs_leave(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find_open(rs, params, reply);
	if (!r)
		return;
	run_event(r, EV_LEAVE);
	run_answer(rs, reply, run_json(r));
}

void runs_hold(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find_open(rs, params, reply);
	if (!r)
		return;
	r->held = r->spec->local.hold = !json_is_true(json_object_get(params, "off"));  /* after a restart, too */
	if (!r->held)
		r->error.code = ERR_NONE;       /* of too many broken files: it was seen */
	run_log(r, LOG_INFO_, "run.hold", "%s on this peer", r->held ? "held" : "goes on");
	run_effective_pause(r);
	run_answer(rs, reply, run_json(r));
}

void runs_checkpoint(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct err e;
	if (json_object_get(params, "run")) {
		struct run *r = runs_find(rs, params, reply);
		if (r)
			run_save(r, reply);
		return;
	}
	struct run *last = NULL;
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (run_over(r) || !r->trainer)
			continue;
		if (last)
			run_save(last, NULL);
		last = r;
	}
	if (last) {
		run_save(last, reply);
		return;
	}
	err_set(&e, ERR_STATE, "no run is under way: nothing to save");
	reply_fail(reply, &e);
}

static int remove_one(void *arg, const char *name)
{
	json_array_append_new(arg, json_string(name));
	return 0;
}

void runs_rm(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	struct err e;
	char dir[4096], path[4608];
	json_t *names, *removed, *name;
	size_t i;
	if (r && (!run_over(r) || r->trainer || r->saving)) {
		err_set(&e, ERR_STATE, "run %s is %s; stop or leave it first", r->name, run_state_name(r));
		reply_fail(reply, &e);
		r = NULL;
	}
	if (!r || run_checked(r, params, reply))
		return;
	names = json_array();
	removed = json_array();
	if (rs->ctx.state_dir) {
		run_dir(r, dir, sizeof dir);
		rs->ctx.env->files->list(rs->ctx.env->files, dir, remove_one, names, NULL);
		json_array_foreach(names, i, name) {
			snprintf(path, sizeof path, "%s/%s", dir, json_string_value(name));
			if (!rs->ctx.env->files->unlink(rs->ctx.env->files, path, NULL))
				json_array_append_new(removed, json_string(path));
		}
	}
	json_decref(names);
	if (rs->ctx.store)
		store_run_rm(rs->ctx.store, r->hex);
	run_free(r);
	run_answer(rs, reply, json_pack("{s:o}", "removed", removed));
}

void runs_describe_peer(struct runs *rs, const struct id *peer, json_t *obj)
{
	bool takes_part = false;
	unsigned out_of_line = 0;
	double rate = 0;
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		struct avg_member m[RUN_PEERS_SHOWN];
		size_t n = r->avg ? avg_members(r->avg, m, RUN_PEERS_SHOWN) : 0;
		for (size_t i = 0; i < n && i < RUN_PEERS_SHOWN; i++) {
			if (!id_eq(&m[i].id, peer))
				continue;
			takes_part |= m[i].live && !m[i].absent[0];
			rate += m[i].rate;
			if (m[i].absent[0])
				json_object_set_new(obj, "absent", json_string(m[i].absent));
			if (m[i].odd > out_of_line)
				out_of_line = m[i].odd;
		}
	}
	if (out_of_line > 1)                    /* rounds running; one alone says little */
		json_object_set_new(obj, "out_of_line", json_integer((json_int_t)out_of_line));
	json_object_set_new(obj, "participating", json_boolean(takes_part));
	if (takes_part)
		json_object_set_new(obj, "samples_per_s", json_real(rate));
}

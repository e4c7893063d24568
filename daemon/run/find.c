/* The run that is meant: by its id, or by an operator's word; and what else commands have in common. */
#include <string.h>
#include "common/jrpc.h"
#include "common/text.h"
#include "run/int.h"

struct run *runs_by_id(struct runs *rs, const struct id *id)
{
	struct run *over = NULL;
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (!id_eq(&r->id, id))
			continue;
		if (!run_over(r))
			return r;
		over = r;
	}
	return over;
}

/* A name, a whole id, or its first digits. */
static bool called(const char *name, const char *hex, const char *word)
{
	return name && hex && (!strcmp(name, word) || (strlen(word) >= 4 && !strncmp(hex, word, strlen(word))));
}

struct found { struct run *hit; size_t hits, n; const char *names[2 * RUNS_MAX + 1]; };

static void note_name(struct found *f, const char *name)
{
	if (name && f->n < 2 * RUNS_MAX)
		f->names[f->n++] = name;
}

static void look_here(struct runs *rs, const char *word, bool over, struct found *f)
{
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (run_over(r) != over || r->past)     /* their order is that of their rows, not of who has asked */
			continue;
		note_name(f, r->name);
		if (called(r->name, r->hex, word)) {
			f->hit = r;
			f->hits += !over || !f->hits;   /* of those that are over the newest counts */
		}
	}
}

/* It is in the list when somebody has asked for it before. */
static struct run *of_row(struct runs *rs, const json_t *row, struct err *e)
{
	struct id id;
	struct run *r = json_get_hex(row, "run", id.b, sizeof id.b, e) ? NULL : runs_by_id(rs, &id);
	return r ? r : run_past(rs, row, e);
}

/* What was over before this daemon started, the newest that can be read. -1 and e: it was, and none can. */
static int look_back(struct runs *rs, const char *word, const json_t *rows, struct found *f, struct err *e)
{
	int rc = 0;
	for (size_t i = json_array_size(rows); i-- && !f->hits; ) {
		const json_t *row = json_array_get(rows, i);
		const char *name = json_string_value(json_object_get(row, "name"));
		note_name(f, name);
		if (!called(name, json_string_value(json_object_get(row, "run")), word))
			continue;
		f->hit = of_row(rs, row, e);
		f->hits = f->hit != NULL;
		rc = f->hit ? 0 : err_wrap(e, "run %s, as it was left", name);
	}
	return rc;
}

/* Those that are over yield to those that are not. */
struct run *runs_find(struct runs *rs, const json_t *params, struct reply *reply)
{
	const char *word = json_string_value(json_object_get(params, "run"));
	struct found f = { 0 };
	json_t *rows = NULL;
	struct err e;
	int rc = 0;
	look_here(rs, word, false, &f);
	if (!f.hits)
		look_here(rs, word, true, &f);
	if (!f.hits && rs->ctx.store) {
		rows = store_list(rs->ctx.store, STORE_RUNS, NULL, RUNS_MAX);
		rc = look_back(rs, word, rows, &f, &e);
	}
	if (!rc && f.hits > 1)
		rc = err_set(&e, ERR_STATE, "\"%s\" fits %zu runs; give the first digits of the id (hivectl run list)", word,
			f.hits);
	if (!rc && !f.hits) {
		const char *near = text_nearest(word, f.names);
		rc = err_set(&e, ERR_NOT_FOUND,
			"no run \"%s\" on this peer%s%s%s; hivectl run list shows them, hivectl run join %s asks the swarm",
			word, near ? "; did you mean " : "", near ? near : "", near ? "?" : "", word);
	}
	json_decref(rows);
	if (!rc)
		return f.hit;
	reply_fail(reply, &e);
	return NULL;
}

struct run *runs_find_open(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	struct err e;
	if (!r || !run_over(r))
		return r;
	err_set(&e, ERR_STATE, "run %s is %s already", r->name, run_state_name(r));
	reply_fail(reply, &e);
	return NULL;
}

bool run_checked(const struct run *r, const json_t *params, struct reply *reply)
{
	if (!json_is_true(json_object_get(params, "check")))
		return false;
	reply_ok(reply, json_pack("{s:s,s:s,s:s}", "run", r->hex, "name", r->name, "state", run_state_name(r)));
	return true;
}

/* The local part: of the spec (may be NULL), over it --local, over it --data, --batch and so on. New reference. */
json_t *runs_local(const json_t *of_spec, const json_t *params)
{
	static const char *const over[] = { "data", "vocab", "batch", "threads", "log", "weights", "aux",
		"remat" };
	json_t *out = json_is_object(of_spec) ? json_deep_copy(of_spec) : json_object(), *local = json_object_get(params,
		"local");
	if (local)
		json_object_update(out, local);
	for (size_t i = 0; i < sizeof over / sizeof *over; i++) {
		json_t *v = json_object_get(params, over[i]);
		if (v)
			json_object_set(out, over[i], v);
	}
	return out;
}

/* What an operator asked for and did not get is looked for later, too. */
void runs_refuse(struct runs *rs, const char *what, const char *name, struct reply *reply, const struct err *e)
{
	log_write(rs->ctx.env->log, LOG_WARN_, "runs", "%s %s refused: %s", what, name ? name : "?", e->text);
	if (rs->ctx.store)
		store_event(rs->ctx.store, LOG_WARN_, "run.refused", NULL, NULL, NULL, "%s %s: %s", what, name ? name : "?",
			e->text);
	reply_fail(reply, e);
}

/* Operators' words to a run: who may say them (its author, its admins, with `open` everybody in the swarm), and that
 * they are on the disk before they are answered. Admins are those of the spec until the author sets others: "admins" is
 * then a hyperparameter like any other, agreed at an epoch and part of the point. */
#include <stdio.h>
#include <string.h>
#include "run/int.h"

static size_t admins_of(const struct run *r, const json_t *params, struct id ret[SPEC_ADMINS_MAX])
{
	const json_t *set = json_object_get(params, "admins");
	size_t n = 0;
	struct err e;
	if (set && !spec_admins(set, ret, &n, &e))
		return n;
	memcpy(ret, r->spec->admin, r->spec->nadmins * sizeof *ret);
	return r->spec->nadmins;
}

static bool may_at(const struct run *r, const json_t *params, const struct id *who)
{
	struct id admin[SPEC_ADMINS_MAX];
	if (r->spec->open || id_eq(who, &r->author))
		return true;
	for (size_t i = 0, n = admins_of(r, params, admin); i < n; i++)
		if (id_eq(who, &admin[i]))
			return true;
	return false;
}

bool run_lawful(const struct run *r, const struct id *who)
{
	return may_at(r, r->point.params, who);
}

const char *run_who_may(const struct run *r, char *out, size_t cap)
{
	struct id admin[SPEC_ADMINS_MAX];
	size_t n = admins_of(r, r->point.params, admin), at;
	char who[9];
	at = (size_t)snprintf(out, cap, "the author (%.8s)", r->author_hex);
	for (size_t i = 0; i < n && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%s", i ? ", " : n > 1 ? " and the admins " : " and the admin ",
			id_short(&admin[i], who));
	return out;
}

int run_may_change(void *arg, const struct id *author, const json_t *patch, const json_t *params, struct err *e)
{
	struct run *r = arg;
	char may[200], who[9];
	const json_t *now = params ? params : r->point.params;
	if (json_object_get(patch, SPEC_REACHED))
		return run_crew_may_end(r, author, patch, !params, e);
	if (!may_at(r, now, author))
		return err_set(e, ERR_AUTH, "only %s may change run %s, not %s", run_who_may(r, may, sizeof may), r->name,
			id_short(author, who));
	if (json_object_get(patch, "admins") && !id_eq(author, &r->author))
		return err_set(e, ERR_AUTH, "only the author (%.8s) says who the admins of run %s are, not %s", r->author_hex,
			r->name, id_short(author, who));
	if (spec_live_check(r->spec, patch, e) || run_mode_check(r, patch, now, !params, e)) {
		e->code = ERR_INVALID;
		return -1;
	}
	return 0;
}

void run_answer(struct runs *rs, struct reply *reply, json_t *result)
{
	struct err e;
	if (rs->ctx.store && store_sync(rs->ctx.store, &e)) {
		char text[400];
		snprintf(text, sizeof text, "done, but it could not be written down, and a restart may not know of it: %s",
			e.text);
		json_object_set_new(result, "warning", json_string(text));
	}
	reply_ok(reply, result);
}

/* What all settings together come to: each by itself is good. */
int run_mode_check(struct run *r, const json_t *patch, const json_t *params, bool here, struct err *e)
{
	json_int_t target = json_integer_value(json_object_get(patch, "target_batch"));
	if (run_crew_change(r, patch, e) || (here && target > 0 && run_crew_can_make(r, (uint64_t)target, e)))
		return -1;
	json_t *all = params ? json_deep_copy(params) : json_object();
	json_object_update(all, (json_t *)patch);
	int rc = spec_mode_fits(r->spec, all) ? 0 : here && !r->rs->ctx.state_dir ? err_set(e, ERR_STATE,
		"without a state folder the run cannot begin anew with that") : spec_mode_check(r->spec, all, e);
	json_decref(all);
	return rc;
}

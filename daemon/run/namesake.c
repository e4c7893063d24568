/* Two authors may each have a run of one name: who joins by the name alone must then say whose is meant. Whoever starts
 * the second hears of it, when the table answers soon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "run/int.h"

#define SOON_US 1000000

static void answer(struct ask *a, const char *warning)
{
	struct run *r = runs_by_id(a->rs, &a->run);
	struct reply *reply = a->reply;
	struct err e;
	env_timer(a->rs->ctx.env, &a->late, 0);
	a->reply = NULL;
	if (!r) {
		err_set(&e, ERR_CANCELLED, "run %s has gone meanwhile", a->what);
		reply_fail(reply, &e);
		return;
	}
	json_t *result = run_json(r);
	if (warning[0])
		json_object_set_new(result, "warning", json_string(warning));
	run_answer(a->rs, reply, result);
}

static void late(struct timer *t) { answer(container_of(t, struct ask, late), ""); }

/* The short ids of those who offer a run under that name as theirs, but this peer. */
static size_t others(const struct ask *a, const struct record *rec, size_t n, char *out, size_t cap)
{
	size_t found = 0, at = 0;
	for (size_t i = 0; i < n; i++) {
		if (!record_own(&rec[i]) || id_eq(&rec[i].owner, net_self(a->rs->ctx.net)))
			continue;
		if (at < cap)
			at += (size_t)snprintf(out + at, cap - at, "%s%.8s", found ? ", " : "", rec[i].subkey);
		found++;
	}
	return found;
}

static void named(void *arg, const struct record *rec, size_t n, const struct err *error)
{
	struct ask *a = arg;
	char who[128] = "", mine[ID_HEX], text[400] = "";
	a->open--;
	if (a->rs && others(a, rec, n, who, sizeof who)) {
		struct run *r = runs_by_id(a->rs, &a->run);
		id_hex(net_self(a->rs->ctx.net), mine);
		snprintf(text, sizeof text, "a run of the name %s is offered by %s, too: whoever joins by the name must say "
			"--author=%.8s for this one", a->what, who, mine);
		if (r)
			run_log(r, LOG_WARN_, "run.namesake", "%s", text);
	}
	if (a->rs && a->reply)
		answer(a, text);
	ask_free(a);
}

void run_answer_start(struct run *r)
{
	char key[160];
	struct reply *reply = r->start_reply;
	r->start_reply = NULL;
	if (!reply)
		return;
	if (!r->mine || !r->rs->ctx.asks_names) {
		run_answer(r->rs, reply, run_json(r));
		return;
	}
	struct ask *a = ask_new(r->rs, r, reply);
	snprintf(a->what, sizeof a->what, "%s", r->name);
	a->late = (struct timer){ .fire = late, .name = "run.namesake" };
	env_after(r->rs->ctx.env, &a->late, SOON_US);
	a->open++;
	ctl_key("run", r->name, key);
	dht_get(r->rs->ctx.dht, key, true, named, a);
}

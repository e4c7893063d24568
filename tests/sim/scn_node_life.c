/* The life of whole nodes in a swarm that trains: struck at any point of the code, sent away and back by their
 * operators, told to pause, to change the learning rate, to stop. */
#include <stdio.h>
#include <string.h>
#include "avg/int.h"
#include "chain_check.h"
#include "node_world.h"

/* Starts again who has died, wakes who has stopped, as a service manager would. */
static void supervise(struct sim *s, void *arg)
{
	for (int i = 0; i < sim_nodes(s); i++)
		if (!sim_alive(s, i))
			sim_restart(s, i);
		else
			sim_resume(s, i);
	sim_at(s, sim_now(s) + 2 * SEC, supervise, arg);
}

/* Whoever comes to a point by chance dies there, stops there for a while, or hears that the call has failed; the others
 * go on, and whoever died comes back from what its disk has. */
static void scn_points(struct sim *s)
{
	static const char *const points[] = {
#define FP(name) name,
#include "failpoints.h"
#undef FP
	};
	struct node_world *w = node_begin(s, 6, 2);
	size_t n = sizeof points / sizeof *points;
	w->forks_allowed = true;
	sim_at(s, sim_now(s) + 2 * SEC, supervise, w);
	for (int k = 0; k < 20 && !sim_failed(s); k++) {
		const char *point;
		do                              /* files, store and memory: scn_fault, tests/e2e/fault.sh */
			point = points[rng_below(sim_rng(s), n)];
		while (strncmp(point, "avg.", 4) && strncmp(point, "net.", 4) && strncmp(point, "run.", 4));
		enum sim_fate fate = rng_below(sim_rng(s), 3) ? SIM_KILL : rng_below(sim_rng(s), 2) ? SIM_PAUSE : SIM_ERROR;
		sim_failpoint(s, node_any(w), point, fate, 1 + (int)rng_below(sim_rng(s), 10));
		sim_run_for(s, rng_below(sim_rng(s), 2 * SEC));
	}
	sim_run_for(s, 5 * SEC);
	node_goes_on(w, 3, 90 * SEC);           /* what has not struck yet may strike now */
#ifdef FAILPOINTS
	struct sim_stats st;
	sim_stats(s, &st);
	if (st.fail_points < 6)
		sim_late(s, "only %llu of 20 points have struck", (unsigned long long)st.fail_points);
#endif
	node_world_free(w);                     /* who was stopped was late, of course */
}

/* ---- operators ---- */

static double lr_of(struct node_world *w, int i)
{
	return json_number_value(json_object_get(node_run(w, i)->point.params, "lr"));
}

static json_t *say(struct node_world *w, int node, node_ask_fn *fn, json_t *params)
{
	struct err e = { 0 };
	json_t *r = node_ask(w, node, fn, params, &e);
	if (!r)
		sim_fail(w->s, "node %d refuses: %s", node, e.text);
	return r;
}

static void said(struct node_world *w, int node, node_ask_fn *fn, json_t *params)
{
	json_decref(say(w, node, fn, params));
}

static void refused(struct node_world *w, int node, node_ask_fn *fn, json_t *params, const char *why)
{
	struct err e = { 0 };
	json_t *r = node_ask(w, node, fn, params, &e);
	if (r || !strstr(e.text, why))
		sim_fail(w->s, "node %d: \"%s\" instead of a refusal (%s)", node, r ? "done" : e.text, why);
	json_decref(r);
}

static bool all_in(struct node_world *w, const char *state)
{
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (sim_alive(w->s, i) && strcmp(node_run(w, i) ? run_state_name(node_run(w, i)) : "-", state))
			return false;
	return true;
}

struct awaited { struct node_world *w; const char *state; };
static bool is_so(struct sim *s, void *arg)
{
	struct awaited *a = arg;
	return all_in(a->w, a->state);
}


static void wait_all(struct node_world *w, const char *state, uint64_t limit_us)
{
	struct awaited a = { w, state };
	sim_await_or(w->s, is_so, &a, limit_us, "not everybody is in state %s", state);
}

/* What the author says holds for all with one epoch, and for who was away when it was said; others may not say it. */
static void scn_words(struct sim *s)
{
	struct node_world *w = node_begin(s, 5, 3);
	json_t *name = json_pack("{s:s}", "run", "naps");
	uint64_t at;
	refused(w, 3, node_run_pause, json_incref(name), "only the author");
	refused(w, 3, node_set, json_pack("{s:s,s:{s:f}}", "run", "naps", "values", "lr", 0.5), "only the author");
	refused(w, 0, node_set, json_pack("{s:s,s:{s:f}}", "run", "naps", "values", "lr", -1.0), "lr");
	said(w, 0, node_set, json_pack("{s:s,s:{s:f}}", "run", "naps", "values", "lr", 0.5));
	node_goes_on(w, 3, 30 * SEC);
	for (int i = 0; i < 5; i++)
		sim_check(s, lr_of(w, i) == 0.5 && node_run(w, i)->point.params_version == 1);
	sim_kill(s, 4);
	said(w, 0, node_run_pause, json_incref(name));
	sim_restart(s, 4);
	wait_all(w, "paused", 40 * SEC);
	at = node_newest(w);
	sim_run_for(s, 10 * SEC);
	sim_check(s, node_newest(w) == at);
	said(w, 0, node_run_resume, json_incref(name));
	node_goes_on(w, 3, 60 * SEC);
	sim_check(s, lr_of(w, 4) == 0.5);
	said(w, 2, node_run_hold, json_incref(name));
	for (int i = 0; i < 5; i++)
		w->idle[i] = i == 2;
	node_goes_on(w, 3, 30 * SEC);
	sim_check(s, !strcmp(run_state_name(node_run(w, 2)), "held"));
	said(w, 2, node_run_hold, json_pack("{s:s,s:b}", "run", "naps", "off", 1));
	w->idle[2] = false;
	node_goes_on(w, 3, 30 * SEC);
	for (int i = 0; i < 5; i++)
		w->idle[i] = true;              /* its operators do not join it again */
	said(w, 0, node_run_stop, name);
	wait_all(w, "stopped", 30 * SEC);
	node_end(w);
}

static void idle_all(struct node_world *w, bool idle)
{
	for (int i = 0; i < sim_nodes(w->s); i++)
		w->idle[i] = idle;
}

static json_t *admins(int node, struct node_world *w)
{
	char hex[ID_HEX];
	id_hex(node_id(node_peer(w, node)->node), hex);
	return json_pack("{s:s,s:{s:s}}", "run", "naps", "values", "admins", hex);
}

/* The author says who else may; whoever was told so may when the author is gone for good, nobody else. */
static void scn_admins(struct sim *s)
{
	struct node_world *w = node_begin(s, 5, 3);
	json_t *name = json_pack("{s:s}", "run", "naps");
	json_t *lr = json_pack("{s:s,s:{s:f}}", "run", "naps", "values", "lr", 0.5);
	char why[80], hex[ID_HEX];
	refused(w, 1, node_run_pause, json_incref(name), "only the author (");
	refused(w, 1, node_set, admins(1, w), "only the author (");
	refused(w, 0, node_set, json_pack("{s:s,s:{s:s}}", "run", "naps", "values", "admins", "1234"), "64 hex digits");
	said(w, 0, node_set, admins(1, w));
	node_goes_on(w, 3, 30 * SEC);
	refused(w, 1, node_set, admins(2, w), "who the admins of run naps are");
	said(w, 1, node_set, json_incref(lr));
	node_goes_on(w, 3, 30 * SEC);
	for (int i = 0; i < 5; i++)
		sim_check(s, lr_of(w, i) == 0.5);
	w->idle[0] = true;
	sim_kill(s, 0);
	node_goes_on(w, 2, 60 * SEC);
	id_hex(node_id(node_peer(w, 1)->node), hex);
	snprintf(why, sizeof why, "and the admin %.8s may stop", hex);
	refused(w, 3, node_run_stop, json_incref(name), why);
	sim_kill(s, 2);                         /* it has it from its state when it is back */
	sim_restart(s, 2);
	node_goes_on(w, 2, 60 * SEC);
	said(w, 1, node_run_pause, json_incref(name));
	wait_all(w, "paused", 40 * SEC);
	said(w, 1, node_run_resume, json_incref(name));
	node_goes_on(w, 2, 60 * SEC);
	idle_all(w, true);
	said(w, 1, node_run_stop, name);
	wait_all(w, "stopped", 30 * SEC);
	json_decref(lr);
	node_end(w);
}

/* Nobody in particular rules a run that is open. */
static void scn_open(struct sim *s)
{
	static char spec[720];
	char naps[700];
	node_naps(naps, 200, 5 * 16);
	snprintf(spec, sizeof spec, "{\"open\":true,%s", naps + 1);
	struct node_world *w = node_world_new(s, spec);
	node_world_add(w, 3);
	node_run_to(w, 3, 60 * SEC);
	said(w, 2, node_set, json_pack("{s:s,s:{s:f}}", "run", "naps", "values", "lr", 0.5));
	node_goes_on(w, 3, 30 * SEC);
	for (int i = 0; i < 3; i++)
		sim_check(s, lr_of(w, i) == 0.5);
	refused(w, 2, node_set, admins(2, w), "who the admins of run naps are");
	idle_all(w, true);
	said(w, 1, node_run_stop, json_pack("{s:s}", "run", "naps"));
	wait_all(w, "stopped", 30 * SEC);
	node_end(w);
}

/* How many an operator's word has reached, and by how much an epoch went beyond its target, as answers say. */
static void reaches(struct node_world *w, int node, node_ask_fn *fn, json_t *params, int peers)
{
	json_t *r = say(w, node, fn, params);
	json_int_t told = json_integer_value(json_object_get(r, "peers_told"));
	if (r && told > peers)
		sim_fail(w->s, "node %d: %lld peers were told, and there are %d", node, (long long)told, peers);
	if (r && told < peers)
		sim_late(w->s, "node %d: %lld peers were told of %d", node, (long long)told, peers);
	json_decref(r);
}

static void overshoots(struct node_world *w, double least, double most)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct run *r = node_run(w, i);
		if (!r)
			continue;
		json_t *o = say(w, i, node_run_show, json_pack("{s:s}", "run", "naps"));
		const struct avg_point *at = run_point_at(r, r->point.epoch), *before = run_point_at(r, r->point.epoch - 1);
		const json_t *v = json_object_get(o, "overshoot");
		double by = json_number_value(v), want = before ? (double)(at->samples - before->samples) /
			(double)run_target(r) - 1 : -1;
		if (!v || by < want - 1e-9 || by > want + 1e-9)
			sim_fail(w->s, "node %d: an overshoot of %.4f at epoch %llu; by its samples %.4f", i, by,
				(unsigned long long)r->point.epoch, want);
		if (by < least || by > most)
			sim_late(w->s, "node %d: an overshoot of %.4f at epoch %llu, and not %.1f to %.1f", i, by,
				(unsigned long long)r->point.epoch, least, most);
		json_decref(o);
	}
}

static void scn_told(struct sim *s)
{
	struct node_world *w = node_begin(s, 5, 3);
	json_t *name = json_pack("{s:s}", "run", "naps");
	overshoots(w, 0, 0.2);                  /* two micro-batches of eight from each are the target */
	reaches(w, 0, node_set, json_pack("{s:s,s:{s:f}}", "run", "naps", "values", "lr", 0.5), 5);
	reaches(w, 0, node_set, json_pack("{s:s,s:{s:i}}", "run", "naps", "values", "target_batch", 42), 5);
	node_goes_on(w, 4, 30 * SEC);
	overshoots(w, 0.1, 1);                  /* eights: 48 are the least that is no less */
	sim_kill(s, 4);
	reaches(w, 0, node_run_pause, json_incref(name), 4);
	wait_all(w, "paused", 40 * SEC);
	reaches(w, 0, node_run_resume, json_incref(name), 4);
	node_goes_on(w, 3, 60 * SEC);
	reaches(w, 0, node_set, json_pack("{s:s,s:{s:f}}", "run", "naps", "values", "lr", 0.25), 4);
	reaches(w, 3, node_set, json_pack("{s:s,s:{s:i}}", "run", "naps", "values", "batch", 4), 1);
	node_goes_on(w, 3, 60 * SEC);
	for (int i = 0; i < 5; i++)
		w->idle[i] = true;              /* its operators do not join it again */
	reaches(w, 0, node_run_stop, name, 4);
	node_end(w);
}

/* Peers leave, one after the other, with or without a drained daemon, and come back: no sample of theirs is lost, and
 * nobody waits for them. */
static void scn_come_and_go(struct sim *s)
{
	struct node_world *w = node_begin(s, 6, 3);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		int i = k == 1 ? node_leader(w) : node_any(w);
		uint64_t from = sim_now(s), at = node_newest(w);
		if (i < 0)
			continue;
		w->idle[i] = true;
		if (k % 2)
			said(w, i, node_drain, json_object());
		else
			said(w, i, node_run_leave, json_pack("{s:s}", "run", "naps"));
		node_run_to(w, at + 4, 20 * SEC);
		if (sim_now(s) - from > 10 * SEC)
			sim_late(s, "four epochs took %llu ms when node %d had left",
				(unsigned long long)(sim_now(s) - from) / 1000, i);
		if (k % 2)
			sim_restart(s, i);
		w->idle[i] = false;
		node_goes_on(w, 2, 30 * SEC);
	}
	node_end(w);
}

struct victim { struct node_world *w; int node; };

static bool sums(struct sim *s, void *arg)
{
	struct victim *v = arg;
	struct run *r = node_run(v->w, v->node);
	return r && r->avg && r->avg->x_jobs;
}

/* An operator stops the run on a peer while the reduce lane is summing what that peer has contributed: the vector stays
 * until the sum has ended, although averager and trainer are gone. */
static void scn_stopped_in_sum(struct sim *s)
{
	static char spec[700];
	struct node_world *w = node_world_new(s, node_naps_of(spec, 60000, 50, 3 * 64));
	node_world_add(w, 3);
	node_run_to(w, 2, 60 * SEC);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		struct victim v = { w, 1 + k % 2 };
		sim_lane_slow(s, v.node, "reduce", 500);
		if (!sim_await(s, sums, &v, 20 * SEC))
			break;
		run_event(node_run(w, v.node), EV_STOP);
		sim_run_for(s, 2 * SEC);
		sim_kill(s, v.node);
		sim_restart(s, v.node);
		node_run_to(w, node_newest(w) + 2, 60 * SEC);
	}
	node_world_free(w);
}

/* What a node shows of the run, and of who is there or was: so many members; and whether a run log is, or was, kept. */
static void shows(struct node_world *w, int node, json_int_t members, bool log)
{
	json_t *o = say(w, node, node_run_show, json_pack("{s:s}", "run", "naps"));
	const json_t *kept = json_object_get(o, "log"), *path = json_object_get(kept, "path");
	char hex[ID_HEX], want[200] = "";
	if (node_run(w, node) && log) {
		id_hex(&node_run(w, node)->id, hex);
		snprintf(want, sizeof want, "/state/runs/%s/run.log", hex);
	}
	if (json_integer_value(json_object_get(o, "members")) != members)
		sim_late(w->s, "node %d, %s: %lld members are shown of %lld", node, node_run(w, node) ?
			run_state_name(node_run(w, node)) : "-", (long long)json_integer_value(json_object_get(o, "members")),
			(long long)members);
	if (strcmp(json_is_string(path) ? json_string_value(path) : "", want) ||
			(json_integer_value(json_object_get(kept, "bytes")) > 0) != log || json_is_true(json_object_get(kept,
			"ended")))
		sim_fail(w->s, "node %d: its run log is shown at \"%s\", not at \"%s\"", node, json_is_string(path) ?
			json_string_value(path) : "", want);
	json_decref(o);
}

/* A run that is over still says who made its last epoch, and where its run log is, which the author keeps. */
static void scn_over(struct sim *s)
{
	static char spec[800];
	json_t *j = json_loads(node_naps(spec, 200, 4 * 16), 0, NULL);
	json_object_set_new(j, "stop", json_pack("{s:i}", "epochs", 12));
	json_object_set_new(json_object_get(j, "local"), "log", json_integer(1 << 20));
	char *text = json_dumps(j, 0);
	snprintf(spec, sizeof spec, "%s", text);
	free(text);
	json_decref(j);
	struct node_world *w = node_world_new(s, spec);
	node_world_add(w, 4);
	node_run_to(w, 3, 60 * SEC);
	for (int i = 0; i < 4; i++)
		shows(w, i, 4, i == 0);
	idle_all(w, true);                      /* nobody joins it again */
	sim_kill(s, 3);
	wait_all(w, "done", 60 * SEC);
	for (int i = 0; i < 3; i++)
		shows(w, i, 3, i == 0);
	sim_run_for(s, SEC);                    /* what it held is let go */
	for (int i = 0; i < 3; i++)
		shows(w, i, 3, i == 0);
	node_end(w);
}

static const struct scn list[] = { SCN(points), SCN(words), SCN(come_and_go), SCN(told), SCN(stopped_in_sum),
	SCN(admins), SCN(open), SCN(over), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

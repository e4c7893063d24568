/* Pipelines whose epochs run on into each other (schedule 2bw) in whole nodes, beside one peer alone whose gradients
 * are one step late, too: whoever dies on the way, what is learned has the bits of that one. */
#include <stdio.h>
#include <string.h>
#include "line_world.h"
#include "run/crew_int.h"
#include "train/trainer_int.h"

#define ONE ", \"replicas\": 1"

/* A gradient is one step late on every stage, and never more. That none waits for a round: test_pipeline_on. */
static void scn_on(struct sim *s)
{
	struct line *l = line_late(s, ONE, 3);
	sim_await(s, line_all_seated, l, 60 * SEC);
	line_goes_on(l, 20);
	for (int i = 0; i < 3; i++) {
		struct trainer_view v;
		trainer_view(node_run(l->w, i)->trainer, &v);
		if (v.stale_most != 1)
			sim_fail(s, "a gradient of node %d was %llu steps late", i, (unsigned long long)v.stale_most);
	}
	line_end(l);
}

static void scn_killed(struct sim *s) { line_killed(line_late(s, ONE, 4)); }
static void scn_in_a_row(struct sim *s) { line_in_a_row(line_late(s, ONE ", \"redundancy\": 3", 7)); }
static void scn_back(struct sim *s) { line_back_at_once(line_late(s, ONE, 3)); }

/* Of a pipeline some give nothing to a round: a stage that learns nothing, which keeps its neighbours, and a replica
 * for which another one speaks. What their pipeline is in, they are in: nothing begins anew with a COMMIT. */
static void gives_nothing(struct sim *s, const char *stages)
{
	char more[200];
	snprintf(more, sizeof more, ONE ", \"stages\": %s", stages);
	struct line *l = line_late(s, more, 3);
	sim_await(s, line_all_seated, l, 60 * SEC);
	const struct run *r = node_run(l->w, 0);
	uint64_t was = r ? r->crew->generation : 0;
	line_goes_on(l, 20);
	if (!r || r->crew->generation != was)
		sim_fail(s, "another generation, and nobody has died");
	line_same_among(l, 3);
	line_free(l);
}

static void scn_learns_nothing(struct sim *s)
{
	gives_nothing(s, "[{\"layers\": 4}, {\"layers\": 2}, {\"layers\": 4}]");
}

static void scn_spoken_for(struct sim *s) { gives_nothing(s, "[{}, {\"replicas\": 2}]"); }

/* ---- a target batch that three stages cannot share out ---- */

struct told { bool over; uint64_t epoch; char text[320]; };

static void told(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	struct told *q = arg;
	*q = (struct told){ .over = true, .epoch = epoch };
	snprintf(q->text, sizeof q->text, "%s", e ? e->text : "");
}

static bool is_told(struct sim *s, void *arg) { return ((struct told *)arg)->over; }

static void why(struct sim *s, bool taken, const char *text, const char *whom)
{
	if (taken || !strstr(text, "target_batch 16: schedule 2bw") ||
	    !strstr(text, "there are 3 members and 2 micro-batches"))
		sim_fail(s, "a target batch of 16, asked of %s: %s", whom, taken ? "taken" : text);
}

/* The author's daemon refuses it; so does whoever leads when that one keeps silent. */
static void refused(struct line *l, const char *when)
{
	int author = l->w->author;
	struct told q = { 0 };
	struct err e;
	json_t *r = node_ask(l->w, author, node_set, json_pack("{s:s,s:{s:i}}", "run", "line", "values",
		"target_batch", 16), &e);
	why(l->s, r, e.text, when);
	json_decref(r);
	if (sim_failed(l->s))
		return;
	avg_propose(node_run(l->w, author)->avg, json_pack("{s:i}", "target_batch", 16), 0, told, &q);
	if (sim_await(l->s, is_told, &q, 60 * SEC))
		why(l->s, q.epoch, q.text, "who leads");
}

static void author_is_spare(struct line *l)
{
	int author = l->w->author;
	sim_await(l->s, line_all_seated, l, 60 * SEC);
	if (line_seated(l->w, author)) {
		sim_kill(l->s, author);
		line_goes_on(l, 3);
		sim_restart(l->s, author);
	}
	line_goes_on(l, 3);
	sim_await(l->s, line_all_seated, l, 60 * SEC);
	if (line_seated(l->w, author))
		sim_fail(l->s, "who comes back took a stage from somebody");
}

/* Who is there when a generation begins without it finds what its members have settled. */
static void spares_know(struct line *l)
{
	const json_t *values = node_run(l->w, line_any_seated(l->w))->crew->values;
	for (int i = 0; i < sim_nodes(l->s); i++) {
		const struct run *r = node_run(l->w, i);
		if (r && r->crew && r->crew->generation && !json_equal((json_t *)values, r->crew->values))
			sim_fail(l->s, "a spare has not found the cuts that the members have");
	}
}

/* Whoever is asked, a spare, too, or when there is no generation just then: it is refused, and the run goes on. */
static void scn_target(struct sim *s)
{
	struct line *l = line_late(s, ONE, 4);
	int author = l->w->author, dead;
	author_is_spare(l);
	spares_know(l);
	refused(l, "a spare");
	line_goes_on(l, 4);
	do
		dead = line_any_seated(l->w);
	while (dead == author && !sim_failed(s));
	sim_kill(s, dead);
	sim_run_for(s, rng_below(sim_rng(s), 300 * MSEC));
	refused(l, "a spare whose turn it is");
	line_goes_on(l, 4);
	refused(l, "a member");
	sim_restart(s, dead);
	line_goes_on(l, 4);
	if (node_told(l->w, "run.failed"))
		sim_fail(s, "a run has ended: %s", node_told(l->w, "run.failed"));
	line_end(l);
}

static bool author_is_in(struct sim *s, void *world)
{
	struct node_world *w = world;
	return node_run(w, w->author) && node_run(w, w->author)->state == RUN_TRAIN;
}

static void goes_on_alone(struct node_world *w, int who)
{
	struct err e;
	if (node_run(w, who))
		json_decref(node_ask(w, who, node_run_hold, json_pack("{s:s,s:b}", "run", "line", "off", 1), &e));
}

/* They are told to go on while they do not know yet who plays what, and hold parts of it. */
static void scn_told_early(struct sim *s)
{
	struct line *l = line_late(s, ONE, 4);
	sim_await(s, line_all_seated, l, 60 * SEC);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		int dead = line_kill_any(l, 100 * MSEC);
		for (uint64_t until = sim_now(s) + 4 * SEC; sim_now(s) < until && !sim_failed(s);) {
			sim_run_for(s, rng_below(sim_rng(s), 20 * MSEC));
			goes_on_alone(l->w, node_any(l->w));
		}
		sim_restart(s, dead);
		line_goes_on(l, 2 + rng_below(sim_rng(s), 3));
	}
	line_end(l);
}

/* It is paused for less than a step, or told to go on though it does: by the author, or one of them by itself. */
static void scn_touched(struct sim *s)
{
	struct line *l = line_late(s, ONE, 4);
	struct node_world *w = l->w;
	struct err e;
	sim_await(s, line_all_seated, l, 60 * SEC);
	sim_await(s, author_is_in, w, 60 * SEC);
	for (int k = 0; k < 12 && !sim_failed(s); k++) {
		int who = rng_below(sim_rng(s), 2) ? w->author : (int)rng_below(sim_rng(s), 4);
		bool all = who == w->author && rng_below(sim_rng(s), 2);
		if (rng_below(sim_rng(s), 3))
			json_decref(node_ask(w, who, all ? node_run_pause : node_run_hold, json_pack("{s:s}", "run", "line"), &e));
		sim_run_for(s, rng_below(sim_rng(s), 60 * MSEC));
		if (all)
			json_decref(node_ask(w, who, node_run_resume, json_pack("{s:s}", "run", "line"), &e));
		else
			goes_on_alone(w, who);
		line_goes_on(l, 2 + rng_below(sim_rng(s), 3));
	}
	line_end(l);
}

static const struct scn list[] = { SCN(on), SCN(killed), SCN(in_a_row), SCN(back), SCN(target), SCN(learns_nothing),
	SCN(spoken_for), SCN(touched), SCN(told_early), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

/* Several pipelines side by side in whole nodes (line_world.h): they learn together what one peer alone learns, a death
 * takes a pipeline out of the round and not the round down, and whoever holds a part holds the same bits of it. */
#include <string.h>
#include "line_world.h"
#include "node/node.h"
#include "train/trainer_int.h"

static bool six_seated(struct sim *s, void *world) { return line_seats(world) >= 6; }

/* Six members are two pipelines, of which each makes half of an epoch; together they learn what one alone does. */
static void units(struct sim *s, struct line *l)
{
	sim_await(s, six_seated, l->w, 120 * SEC);
	line_goes_on(l, 6);
	if (line_seats(l->w) != 6)
		sim_fail(s, "a pipeline is gone, and nobody has died");
	l->rounded = 1e-5;
	line_end(l);
}

static void scn_units(struct sim *s) { units(s, line_of(s, "layernorm", UNITS, 6)); }
static void scn_late_units(struct sim *s) { units(s, line_late(s, "", 6)); }

/* ---- several, and deaths ---- */

/* The generation of the newest COMMIT; where epochs run on it may be heard of before that of this epoch is applied. */
static uint64_t base_at(struct line *l, uint64_t epoch)
{
	uint64_t base = 0;
	for (int i = 0; i < sim_nodes(l->s); i++) {
		const struct run *r = node_run(l->w, i);
		if (r && r->crew && r->point.epoch >= epoch && run_crew_base(r) > base)
			base = run_crew_base(r);
	}
	return base;
}

static void wait_six(struct line *l)
{
	sim_await(l->s, six_seated, l->w, 120 * SEC);
}

/* Who dies takes its pipeline out of the round, not the round down: the COMMITs that follow at once are of the same
 * generation, and then the next has the other pipeline alone. Who comes back makes a second one whole. */
static void unit_dies(struct sim *s, struct line *l)
{
	int same = 0;
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		wait_six(l);
		line_goes_on(l, 2);
		sim_run_for(s, rng_below(sim_rng(s), 300 * MSEC));
		uint64_t at = node_newest(l->w), was = base_at(l, at);
		int dead = line_any_seated(l->w);
		sim_kill(s, dead);
		for (int ms = 0; ms < 20000 && node_newest(l->w) <= at; ms++)  /* the dead one alone was there, perhaps */
			sim_run_for(s, MSEC);
		sim_run_for(s, 2 * MSEC);               /* who has told of it has not, perhaps, told the crew */
		same += base_at(l, at + 1) == was;
		line_goes_on(l, 4);
		sim_restart(s, dead);
		line_goes_on(l, 4);
	}
	if (same < 3)
		sim_late(s, "a pipeline that nobody died of did not go on in its generation");
	wait_six(l);
	line_same_among(l, 6);
	line_free(l);
}

static void scn_unit_dies(struct sim *s) { unit_dies(s, line_of(s, "layernorm", UNITS, 6)); }
static void scn_late_dies(struct sim *s) { unit_dies(s, line_late(s, "", 6)); }

static void ask(struct line *l, int node, node_ask_fn *what, json_t *params /* stolen */)
{
	struct err e;
	json_t *r = node_ask(l->w, node, what, params, &e);
	if (!r)
		sim_fail(l->s, "refused: %s", e.text);
	json_decref(r);
}

static void target(struct line *l, int samples)
{
	ask(l, l->w->author, node_set, json_pack("{s:s,s:{s:i}}", "run", "line", "values", "target_batch", samples));
}

/* ---- as predicted ---- */

static void ask_plan(void *node, const json_t *params, struct reply *r) { runs_plan(node_runs(node), params, r); }

/* What `run plan` says of a flush of so many micro-batches on so many members, us. */
static double predicted_us(struct line *l, int members)
{
	struct err e;
	json_t *spec = json_loads(l->spec, 0, NULL), *r, *o;
	if (!spec)
		return 0;
	r = node_ask(l->w, 0, ask_plan, json_pack("{s:o,s:i,s:f}", "run", spec, "members", members, "latency", 1e-4), &e);
	o = json_object_get(json_object_get(r, "predicted"), "us");
	double us = json_number_value(o);
	if (!r)
		sim_fail(l->s, "no plan: %s", e.text);
	json_decref(r);
	return us;
}

/* An epoch, of one flush, takes what was predicted to 15 %, with schedules of every kind, on one pipeline and on
 * two. */
static void scn_predicted(struct sim *s)
{
	static const char *const schedule[] = { "naive", "gpipe", "1f1b" };
	uint64_t seed = sim_seed(s);
	bool two = seed % 2;
	char more[120];
	snprintf(more, sizeof more, ", \"stages\": %d, \"schedule\": \"%s\", \"micro_batches\": 8, \"replicas\": %d",
		two ? 2 : 3, schedule[seed / 2 % 3], two ? 2 : 1);
	struct line *l = line_of(s, "layernorm", more, two ? 4 : 3);
	l->stages = two ? 4 : 3;
	sim_await(s, line_all_seated, l, 60 * SEC);
	line_goes_on(l, 2);
	double us = predicted_us(l, l->stages);
	uint64_t at = node_newest(l->w), from = sim_now(s);
	sim_run_for(s, 5 * SEC);
	double epoch = (double)(sim_now(s) - from) / (double)(node_newest(l->w) - at + (node_newest(l->w) == at));
	if (!(epoch > 0.85 * us && epoch < 1.15 * us))
		sim_late(s, "an epoch takes %.0f us, and %.0f were predicted (%s)", epoch, us, more);
	line_free(l);
}

/* Epochs of a minute: nobody takes its leader for idle because there is nothing to report yet, nor a pipeline that is
 * there first, because the leader waits for the other one. */
static void scn_long_epoch(struct sim *s)
{
	struct line *l = line_of(s, "layernorm", UNITS, 6);
	wait_six(l);
	line_goes_on(l, 2);
	target(l, 64 * 300);
	line_goes_on(l, 2);
	for (int k = 0; k < 3; k++) {
		uint64_t at = node_newest(l->w);
		int slow = line_pick(l, 10 * SEC);
		sim_lane_slow(s, slow, "train", 100);
		node_run_to(l->w, at + 1, 400 * SEC);
		sim_lane_slow(s, slow, "train", 1);
	}
	if (node_told(l->w, "unfit"))
		sim_fail(s, "a leader was passed over: %s", node_told(l->w, "unfit"));
	line_free(l);
}

static uint64_t weight_at(struct line *l)
{
	uint64_t at = node_newest(l->w), weight = 0;
	for (int i = 0; i < sim_nodes(l->s); i++) {
		const struct run *r = node_run(l->w, i);
		weight = r && r->commit.epoch == at ? r->commit.weight : weight;
	}
	return weight;
}

static bool half(struct sim *s, void *line) { return weight_at(line) == 32; }
static bool whole(struct sim *s, void *line) { return weight_at(line) == 64; }

/* One member takes hundreds of times as long for everything: its pipeline is left out, and no other waits for it more
 * than now and then. When it is as fast as the others again, all are in the round. Nothing has begun anew for that. */
static void slow_unit(struct sim *s, struct line *l)
{
	wait_six(l);
	line_goes_on(l, 3);
	uint64_t was = base_at(l, node_newest(l->w));
	int slow = line_any_seated(l->w);
	sim_lane_slow(s, slow, "train", 400);
	sim_await(s, half, l, 60 * SEC);
	uint64_t at = node_newest(l->w);
	sim_run_for(s, 20 * SEC);
	if (node_newest(l->w) < at + 20)
		sim_late(s, "%llu epochs in 20 s: the others wait for it", (unsigned long long)(node_newest(l->w) - at));
	sim_lane_slow(s, slow, "train", 1);
	sim_await(s, whole, l, 60 * SEC);
	line_goes_on(l, 3);
	if (base_at(l, node_newest(l->w)) != was)
		sim_fail(s, "another generation, and nobody has died");
	line_same_among(l, 6);
	line_free(l);
}

static void scn_slow_unit(struct sim *s) { slow_unit(s, line_of(s, "layernorm", UNITS, 6)); }
static void scn_late_slow(struct sim *s) { slow_unit(s, line_late(s, "", 6)); }

static bool light(struct sim *s, void *line) { return weight_at(line) == 128; }

/* Other target batches, while two pipelines run: each makes half of them. One that is so small that a second pipeline
 * would have nothing to do leaves one; and back. */
static void targets(struct sim *s, struct line *l, int small)
{
	wait_six(l);
	line_goes_on(l, 3);
	target(l, 128);
	sim_await(s, light, l, 60 * SEC);
	line_goes_on(l, 4);
	target(l, small);
	line_goes_on(l, 6);
	target(l, 64);
	line_goes_on(l, 6);
	wait_six(l);
	sim_await(s, whole, l, 60 * SEC);
	line_same_among(l, 6);
	line_free(l);
}

static void scn_target(struct sim *s) { targets(s, line_of(s, "layernorm", UNITS, 6), 8); }

static void say(struct line *l, node_ask_fn *what)
{
	ask(l, l->w->author, what, json_pack("{s:s}", "run", "line"));
}

static void held(struct line *l, int node, bool is)
{
	ask(l, node, node_run_hold, json_pack("{s:s,s:b}", "run", "line", "off", !is));
}

/* Paused, and on again before all have stopped, with spare members: who pauses and who does not is known to whoever
 * leads, and nobody waits for long. */
static void scn_naps(struct sim *s)
{
	struct line *l = line_of(s, "layernorm", UNITS, 6);
	wait_six(l);
	line_goes_on(l, 2);
	target(l, 8);
	line_goes_on(l, 4);
	for (int k = 0; k < 10 && !sim_failed(s); k++) {
		say(l, node_run_pause);
		sim_run_for(s, rng_below(sim_rng(s), 30 * MSEC));
		say(l, node_run_resume);
		node_run_to(l->w, node_newest(l->w) + 3, 8 * SEC);
		sim_run_for(s, rng_below(sim_rng(s), 100 * MSEC));
	}
	line_free(l);
}

/* One member after the other is held, most of all such as lead: the others go on without it. */
static void scn_held(struct sim *s)
{
	struct line *l = line_of(s, "layernorm", UNITS, 6);
	wait_six(l);
	target(l, 8);
	line_goes_on(l, 4);
	for (int k = 0; k < 8 && !sim_failed(s); k++) {
		int led = k % 4 ? node_leader(l->w) : line_any_seated(l->w);
		held(l, led, true);
		node_run_to(l->w, node_newest(l->w) + 4, 8 * SEC);
		held(l, led, false);
		node_run_to(l->w, node_newest(l->w) + 4, 8 * SEC);
	}
	line_free(l);
}

/* What cannot be shared out is refused, and nothing else comes of it. */
static void scn_late_target(struct sim *s)
{
	struct line *l = line_late(s, "", 6);
	struct err e;
	wait_six(l);
	json_t *r = node_ask(l->w, l->w->author, node_set, json_pack("{s:s,s:{s:i}}", "run", "line", "values",
		"target_batch", 16), &e);
	if (r || !strstr(e.text, "there are 3 members and 2 micro-batches"))
		sim_fail(s, "a target batch of 16: %s", r ? "taken" : e.text);
	targets(s, l, 32);
}

/* Two die within a moment, often of both pipelines; with three copies nothing is lost. */
static void units_in_a_row(struct sim *s, struct line *l)
{
	wait_six(l);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		int one = line_kill_any(l, 20 * MSEC), two = line_kill_any(l, 20 * MSEC);
		line_goes_on(l, 3);
		sim_restart(s, one);
		sim_restart(s, two);
		line_goes_on(l, 3);
		wait_six(l);
	}
	line_same_among(l, 6);
	line_free(l);
}

static void scn_units_in_a_row(struct sim *s)
{
	units_in_a_row(s, line_of(s, "layernorm", UNITS ", \"redundancy\": 3", 7));
}

static void scn_late_row(struct sim *s) { units_in_a_row(s, line_late(s, ", \"redundancy\": 3", 7)); }

static const struct scn list[] = { SCN(units), SCN(unit_dies), SCN(slow_unit), SCN(target),
	SCN(long_epoch), SCN(predicted), SCN(units_in_a_row), SCN(naps), SCN(held),
	SCN(late_units), SCN(late_dies), SCN(late_slow), SCN(late_target), SCN(late_row), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

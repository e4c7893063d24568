/* Strategy pipeline in whole nodes (node_world.h): stages die at any moment and come back as whatever they are needed
 * for, and what is learned keeps the bits of one peer alone that nothing disturbs, on everybody who holds a part. */
#include "line_world.h"
#include "run/crew_int.h"
#include "train/trainer_int.h"

static void scn_killed(struct sim *s) { line_killed(line_begin(s, PIPELINE, 4)); }
static void scn_in_a_row(struct sim *s) { line_in_a_row(line_begin(s, PIPELINE ", \"redundancy\": 3", 7)); }

/* Without a spare: they wait, and go on with whoever comes back, though it has nothing. */
static void scn_waits(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE, 3);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		int dead = line_kill_any(l, 300 * MSEC);
		sim_run_for(s, 10 * SEC);
		uint64_t at = node_newest(l->w);
		sim_run_for(s, 5 * SEC);
		if (node_newest(l->w) != at)
			sim_fail(s, "two of three stages have gone on");
		sim_restart(s, dead);
		line_goes_on(l, 4);
	}
	if (!node_told(l->w, "crew.waits"))
		sim_late(s, "nobody has said that it waits");
	line_end(l);
}

/* Two sides that both lack a stage, and one that does not. */
static void scn_divided(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE, 5);
	int side[5];
	l->w->forks_allowed = true;
	for (int k = 0; k < 2 && !sim_failed(s); k++) {
		for (int i = 0; i < 5; i++)
			side[i] = (int)rng_below(sim_rng(s), 2);
		sim_partition(s, side, 5);
		sim_run_for(s, 5 * SEC + rng_below(sim_rng(s), 10 * SEC));
		sim_heal(s);
		line_goes_on(l, 4);
	}
	line_end(l);
}

static void scn_back_at_once(struct sim *s) { line_back_at_once(line_begin(s, PIPELINE, 3)); }

static int filling(struct node_world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		const struct run *r = node_run(w, i);
		if (r && r->crew && r->crew->step == SEAT_FILLS && trainer_round_len(r->trainer))
			return i;
	}
	return -1;
}

static bool somebody_fills(struct sim *s, void *world) { return filling(world) >= 0; }

/* A generation makes a COMMIT before one of its members has all of its part: others did without it. It holds nothing of
 * what was made, as if it had no part in it, and follows; also where the generation was over here before. The COMMIT is
 * told to nobody else: with the death there are two holders fewer, of three. */
static void scn_unfilled(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE ", \"redundancy\": 3", 4);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		int dead = line_kill_any(l, 300 * MSEC);
		sim_await(s, somebody_fills, l->w, 30 * SEC);
		int i = filling(l->w);
		struct run *r = i < 0 ? NULL : node_run(l->w, i);
		if (!r)
			break;
		const struct trainer_part *part = trainer_part(r->trainer);
		struct avg_commit c = { .epoch = r->point.epoch + 1, .generation = r->crew->generation, .lo = part->keep_lo,
			.hi = part->keep_hi };
		if (k % 2)
			crew_fail(r->crew->crew, r->crew->generation);
		sim_check(s, run_crew_passed(r, &c));
		sim_check(s, !run_crew_stands(r) && !run_crew_whole(r));
		sim_restart(s, dead);
		line_goes_on(l, 4);
	}
	line_end(l);
}

/* The spare and a stage start anew, and as soon as one of them has a stage again, before there is a COMMIT, who leads
 * dies: nobody else knew of them but by its word. */
static void scn_newcomers(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE ", \"redundancy\": 3", 4);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		int stage = line_pick(l, MSEC), leader = node_leader(l->w);
		for (int i = 0; i < 4; i++)
			if (!line_seated(l->w, i) && i != leader)
				sim_kill(s, i);
		while (stage == leader || !sim_alive(s, stage))
			stage = (stage + 1) % 4;
		sim_kill(s, stage);
		sim_run_for(s, rng_below(sim_rng(s), 100 * MSEC));
		for (int i = 0; i < 4; i++)
			if (!sim_alive(s, i))
				sim_restart(s, i);
		sim_run_until(s, line_all_seated, l, 60 * SEC);
		leader = node_leader(l->w);
		sim_kill(s, leader);
		node_run_to(l->w, node_newest(l->w) + 4, 20 * SEC);
		sim_restart(s, leader);
		line_goes_on(l, 4);
	}
	line_end(l);
}

/* Where a stage was another daemon is now, of another swarm or of this one: that is a member which is not there, and
 * nobody's run ends. Its neighbours may hear so from the daemon before they know that it is dead. */
static void scn_stranger(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE, 4);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		int dead = line_pick(l, 300 * MSEC);
		bool silent = rng_below(sim_rng(s), 2);
		(silent ? sim_power_off : sim_kill)(s, dead);
		if (silent)
			sim_run_for(s, rng_below(sim_rng(s), 2 * SEC));
		l->w->stranger[dead] = k % 2 ? NODE_OTHER_PEER : NODE_OTHER_SWARM;
		l->w->idle[dead] = true;
		sim_restart(s, dead);
		line_goes_on(l, 4);
		sim_kill(s, dead);
		l->w->stranger[dead] = NODE_ITSELF;
		l->w->idle[dead] = false;
		sim_restart(s, dead);
		line_goes_on(l, 4);
	}
	if (node_told(l->w, "run.failed"))
		sim_fail(s, "the run of a neighbour has ended: %s", node_told(l->w, "run.failed"));
	line_end(l);
}

static bool author_is_in(struct sim *s, void *world)
{
	struct node_world *w = world;
	return node_run(w, w->author) && node_run(w, w->author)->state == RUN_TRAIN;
}

static bool all_paused(struct sim *s, void *world)
{
	struct node_world *w = world;
	int n = 0;
	for (int i = 0; i < sim_nodes(s); i++)
		n += node_run(w, i) && !strcmp(run_state_name(node_run(w, i)), "paused");
	return n == sim_nodes(s);
}

/* It is paused before its stages are there, and goes on as soon as it is resumed; and while it is paused one of them,
 * or the spare, starts anew. */
static void scn_paused(struct sim *s)
{
	struct line *l = line_ready(s, PIPELINE, 4);
	struct node_world *w = l->w;
	struct err e;
	sim_await(s, author_is_in, w, 60 * SEC);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		json_decref(node_ask(w, w->author, node_run_pause, json_pack("{s:s}", "run", "line"), &e));
		sim_await(s, all_paused, w, 60 * SEC);
		if (k) {
			int dead = (w->author + 1 + (int)rng_below(sim_rng(s), 3)) % 4;
			sim_kill(s, dead);
			sim_run_for(s, rng_below(sim_rng(s), 2 * SEC));
			sim_restart(s, dead);
			sim_await(s, all_paused, w, 60 * SEC);
		}
		sim_run_for(s, rng_below(sim_rng(s), 3 * SEC));
		json_decref(node_ask(w, w->author, node_run_resume, json_pack("{s:s}", "run", "line"), &e));
		line_goes_on(l, 4);
	}
	line_end(l);
}

static const struct scn list[] = { SCN(killed), SCN(in_a_row), SCN(waits), SCN(divided), SCN(back_at_once),
	SCN(unfilled), SCN(newcomers), SCN(stranger), SCN(paused), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

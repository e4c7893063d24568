/* Validation of runs whose plans have many members, in whole nodes beside one peer alone: what members say of an epoch
 * is what that one says, to the last right answer, whatever happens to them; and nothing stands still for it. */
#include "looks.h"

/* Two batches of eight samples: six numbers, a label and a position each; of who reads them, to the byte. */
static bool holds_out(struct looks *v, int node, json_int_t said)
{
	const struct trainer *t = node_run(v->l->w, node)->trainer;
	struct trainer_view x;
	trainer_view(t, &x);
	return said == (t->seat.reads ? 2 * 8 * (6 * 4 + 4 + 8) : 0) && said == (json_int_t)x.held_bytes;
}

/* `run plan` of who has a stage has the program of a validation beside that of the step, and says what it costs; of who
 * has none there is no plan. */
static void planned(struct looks *v)
{
	sim_await(v->l->s, line_all_seated, v->l, 60 * SEC);
	for (int i = 0; i < sim_nodes(v->l->s) && !sim_failed(v->l->s); i++) {
		struct err e = { 0 };
		json_t *o = node_ask(v->l->w, i, node_run_plan, json_pack("{s:s,s:b}", "run", "line", "draw", 1), &e), *at;
		const char *text = json_string_value(json_object_get(o, "text"));
		size_t k, loads = 0;
		if (!line_seated(v->l->w, i)) {
			json_decref(o);
			continue;
		}
		double took = (double)node_run(v->l->w, i)->val_took_us;
		json_t *look = json_object_get(o, "validation"), *cost = json_object_get(look, "predicted");
		json_array_foreach(json_object_get(json_object_get(look, "plan"), "body"), k, at)
			loads += !strcmp(json_string_value(json_object_get(at, "do")), "LOAD");
		if (json_integer_value(json_object_get(look, "micro_batches")) != (HELD + 7) / 8 || !loads ||
				json_integer_value(json_object_get(look, "samples")) != HELD || json_integer_value(json_object_get(look,
				"programs")) != 1)
			sim_fail(v->l->s, "node %d: run plan has no validation of all that is held out (%s)", i, e.text);
		else if (!json_is_false(json_object_get(cost, "stuck")) || !json_integer_value(json_object_get(cost,
				"peak_bytes")))
			sim_fail(v->l->s, "node %d: run plan says of a validation that it is stuck, or takes no memory", i);
		else if (!holds_out(v, i, json_integer_value(json_object_get(look, "held_out_bytes"))))
			sim_fail(v->l->s, "node %d: run plan does not say what memory batches take that are held out", i);
		else if (!strstr(text, "a validation, of 16 held-out micro-batches (125 samples, 1 program):") ||
				!strstr(strstr(text, "a validation"), "\n  1 train"))
			sim_fail(v->l->s, "node %d: run plan prints no validation", i);
		if (!(fabs(json_number_value(json_object_get(cost, "us")) / took - 1) < 0.05))
			sim_late(v->l->s, "node %d: run plan says that a validation takes %.0f us, and it has taken %.0f", i,
				json_number_value(json_object_get(cost, "us")), took);
		json_decref(o);
	}
}

static void plain(struct sim *s, const char *norm, const char *more, int n)
{
	struct looks *v = begin(s, norm, more, n);
	until(v, NULL, NULL, SEC);
	all_told(v, n);
	planned(v);
	end(v);
}

static void scn_plain(struct sim *s) { plain(s, "batchnorm", PIPELINE, 3); }
static void scn_late(struct sim *s) { plain(s, NULL, ", \"replicas\": 1", 3); }
static void scn_replicas(struct sim *s)
{
	plain(s, "layernorm", ", \"stages\": [{}, {\"replicas\": 2}, {\"replicas\": 3}], \"replicas\": 1, "
		"\"micro_batches\": 4", 6);
}

/* Two have no stage: they are told, whoever that is; and when who tells them dies, too. */
static void spares(struct sim *s, const char *norm, const char *more)
{
	struct looks *v = begin(s, norm, more, 5);
	wait_for(v, SEC);
	all_told(v, 5);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		into(v);
		int dead = line_any_seated(v->l->w);
		sim_kill(s, dead);
		goes_on(v, 4);
		sim_restart(s, dead);
		goes_on(v, 4);
		wait_for(v, 5 * SEC);
		all_told(v, 5);
	}
	end(v);
}

static void scn_spares(struct sim *s) { spares(s, "batchnorm", PIPELINE); }
static void scn_late_spares(struct sim *s) { spares(s, NULL, ", \"replicas\": 1"); }

/* A stage without parameters, which has no part in any round. */
#define LEARNS_NOTHING ", \"redundancy\": 1, \"replicas\": 1, \"stages\": [{\"layers\": 4}, {\"layers\": 2}, " \
	"{\"layers\": 4}]"
static void scn_nothing(struct sim *s) { plain(s, "batchnorm", LEARNS_NOTHING, 3); }
static void scn_late_nothing(struct sim *s) { plain(s, NULL, LEARNS_NOTHING, 3); }

/* Anybody who has a stage dies in the middle of it, and comes back. */
static void killed(struct sim *s, const char *norm, const char *more, int n)
{
	struct looks *v = begin(s, norm, more, n);
	for (int k = 0; k < 5 && !sim_failed(s); k++) {
		into(v);
		int dead = line_any_seated(v->l->w);
		sim_kill(s, dead);
		goes_on(v, 4);
		sim_restart(s, dead);
		goes_on(v, 4);
	}
	end(v);
}

static void scn_killed(struct sim *s) { killed(s, "batchnorm", PIPELINE, 4); }
static void scn_late_killed(struct sim *s) { killed(s, NULL, ", \"replicas\": 1", 4); }

/* Two pipelines: whoever dies disturbs his own alone, and both say the same. */
static void units(struct sim *s, const char *norm, const char *more, int n)
{
	struct looks *v = begin(s, norm, more, n);
	v->l->rounded = 1e-5;                   /* several add up in another order */
	wait_for(v, SEC);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		into(v);
		int dead = line_any_seated(v->l->w);
		sim_kill(s, dead);
		goes_on(v, 5);
		sim_restart(s, dead);
		goes_on(v, 5);
	}
	end(v);
}

static void scn_units(struct sim *s) { units(s, "layernorm", UNITS, 6); }
static void scn_late_units(struct sim *s) { units(s, NULL, "", 6); }

/* Both are whole, and all six say all. */
static void scn_side_by_side(struct sim *s) { plain(s, "layernorm", UNITS, 6); }

/* All die but one, or all, in a row; with nothing in hand they come back. */
static void scn_in_a_row(struct sim *s)
{
	struct looks *v = begin(s, "batchnorm", PIPELINE ", \"redundancy\": 3", 5);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		into(v);
		int one = line_any_seated(v->l->w);
		sim_kill(s, one);
		wait_for(v, rng_below(sim_rng(s), 100 * MSEC));
		int two = line_any_seated(v->l->w);
		if (two != one)
			sim_kill(s, two);
		goes_on(v, 4);
		for (int i = 0; i < 5; i++)
			if (!sim_alive(s, i))
				sim_restart(s, i);
		goes_on(v, 4);
	}
	end(v);
}

/* A peer comes in the middle of it, where there was none to spare. */
static void scn_joins(struct sim *s)
{
	struct looks *v = begin(s, "batchnorm", PIPELINE, 3);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		into(v);
		node_world_add(v->l->w, 1);
		goes_on(v, 4);
		into(v);
		sim_kill(s, line_any_seated(v->l->w));
		goes_on(v, 4);
	}
	end(v);
}

static void ask(struct looks *v, int node, node_ask_fn *fn)
{
	struct err e;
	json_t *r = node_ask(v->l->w, node, fn, json_pack("{s:s}", "run", "line"), &e);
	if (!r)
		sim_fail(v->l->s, "refused: %s", e.text);
	json_decref(r);
}

/* Who has a stage leaves in order; a spare takes its place. */
static void scn_leaves(struct sim *s)
{
	struct looks *v = begin(s, "batchnorm", PIPELINE, 4);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		into(v);
		int who = line_any_seated(v->l->w);
		v->l->w->idle[who] = true;
		ask(v, who, node_run_leave);
		wait_for(v, SEC);
		goes_on(v, 4);
		v->l->w->idle[who] = false;
		wait_for(v, 3 * SEC);
		goes_on(v, 4);
	}
	end(v);
}

static void scn_paused(struct sim *s)
{
	struct looks *v = begin(s, "batchnorm", PIPELINE, 3);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		into(v);
		ask(v, v->l->w->author, node_run_pause);
		wait_for(v, 3 * SEC);
		uint64_t at = node_newest(v->l->w);
		wait_for(v, 3 * SEC);
		if (node_newest(v->l->w) > at)
			sim_fail(s, "a run goes on that is paused");
		ask(v, v->l->w->author, node_run_resume);
		goes_on(v, 4);
	}
	all_told(v, 3);
	end(v);
}

/* Seven peers, two pipelines, several deaths at a time. */
static void seven(struct sim *s, const char *norm, const char *more)
{
	struct looks *v = begin(s, norm, more, 7);
	v->l->rounded = 1e-5;
	for (int k = 0; k < 5 && !sim_failed(s); k++) {
		into(v);
		for (int d = 0; d < 1 + k % 2; d++) {
			int dead = line_any_seated(v->l->w);
			if (sim_alive(s, dead))
				sim_kill(s, dead);
			wait_for(v, rng_below(sim_rng(s), 200 * MSEC));
		}
		goes_on(v, 5);
		for (int i = 0; i < 7; i++)
			if (!sim_alive(s, i))
				sim_restart(s, i);
		goes_on(v, 5);
	}
	end(v);
}

static bool six_seated(struct looks *v, void *arg) { return line_seats(v->l->w) >= 6; }
static bool newest_at(struct looks *v, void *arg) { return node_newest(v->l->w) >= *(uint64_t *)arg; }

static bool all_six_say(struct looks *v, void *arg)
{
	for (uint64_t e = node_newest(v->l->w); e + 8 > node_newest(v->l->w); e--)
		if (v->of[e].told == 6)
			return true;
	return false;
}

/* A pipeline that is left out of rounds is left out in the middle of validations, too. Nobody waits for it, and when it
 * is as fast as the others again it says what they say. */
static void slow(struct sim *s, const char *norm, const char *more)
{
	struct looks *v = begin(s, norm, more, 6);
	v->l->rounded = 1e-5;
	await(v, six_seated, NULL, 120 * SEC, "there is no second pipeline");
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		into(v);
		int who = line_any_seated(v->l->w);
		sim_lane_slow(s, who, "train", 20 + (uint32_t)rng_below(sim_rng(s), 400));
		uint64_t to = node_newest(v->l->w) + 20;
		await(v, newest_at, &to, 60 * SEC, "the others wait for it");
		sim_lane_slow(s, who, "train", 1);
		goes_on(v, 6);
	}
	await(v, all_six_say, NULL, 120 * SEC, "who was slow says nothing any more");
	end(v);
}

static void scn_slow(struct sim *s) { slow(s, "layernorm", UNITS); }
static void scn_late_slow(struct sim *s) { slow(s, NULL, ""); }

static void scn_seven(struct sim *s) { seven(s, "layernorm", UNITS ", \"redundancy\": 4"); }
static void scn_late_seven(struct sim *s) { seven(s, NULL, ", \"redundancy\": 4"); }

static const struct scn list[] = { SCN(plain), SCN(late), SCN(replicas), SCN(nothing), SCN(late_nothing), SCN(killed),
	SCN(late_killed), SCN(units), SCN(late_units), SCN(side_by_side), SCN(in_a_row), SCN(joins), SCN(leaves),
	SCN(paused), SCN(spares), SCN(late_spares), SCN(seven), SCN(late_seven), SCN(slow), SCN(late_slow), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

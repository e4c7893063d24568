/* Validation of runs whose plans have many members, in whole nodes beside one peer alone: what members say of an epoch
 * is what that one says, to the last right answer, whatever happens to them; and nothing stands still for it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "line_world.h"
#include "node/node.h"
#include "train/trainer_int.h"

#define EVERY 2
#define VALIDATES ", \"validation\": {\"every\": 2}"
#define HELD 125                                /* of 1000 synthetic samples */
#define EPOCHS 4000

struct result { double loss, accuracy; unsigned told; };
struct looks {
	struct line *l; struct result of[EPOCHS];
	bool any_end;                           /* not because of stop.accuracy */
	struct { const struct run *r; uint64_t at, ended; bool excused; } seen[16];
};

static bool equal(double a, double b) { return !memcmp(&a, &b, sizeof a); }

/* Each result once. All members of all pipelines must say the same. */
static void note(struct sim *s, struct result *of, const struct run *r)
{
	struct result *x = &of[r->val_at % EPOCHS];
	if (x->told && (!equal(x->loss, r->val_loss) || !equal(x->accuracy, r->val_accuracy)))
		sim_fail(s, "two members say %.17g and %.17g, %.17g and %.17g of one epoch", x->loss, r->val_loss, x->accuracy,
			r->val_accuracy);
	*x = (struct result){ r->val_loss, r->val_accuracy, x->told + 1 };
	if (getenv("VERBOSE"))
		fprintf(stderr, "epoch %llu: loss %.9g, accuracy %.9g\n", (unsigned long long)r->val_at, r->val_loss,
			r->val_accuracy);
}

/* A COMMIT has said so, to all of one epoch. */
static void ended(struct looks *v, int i, const struct run *r)
{
	v->seen[i].ended = r->point.epoch;
	if (!v->any_end && !json_object_get(r->point.params, SPEC_REACHED))
		sim_fail(v->l->s, "a member ends by itself");
	for (int k = 0; k < 16; k++)
		if (v->seen[k].ended && v->seen[k].ended != r->point.epoch)
			sim_fail(v->l->s, "two members end at different epochs");
}

static void look(struct looks *v)
{
	for (int i = 0; i < sim_nodes(v->l->s) && i < 16; i++) {
		const struct run *r = node_run(v->l->w, i);
		if (v->seen[i].r != r) {
			v->seen[i].r = r;
			v->seen[i].at = 0;
		}
		if (r && r->state == RUN_DONE && !v->seen[i].ended)
			ended(v, i, r);
		if (!r || r->val_at == v->seen[i].at)
			continue;
		v->seen[i].at = r->val_at;
		note(v->l->s, v->of, r);
	}
}

typedef bool until_fn(struct looks *v, void *arg);
struct until { struct looks *v; until_fn *fn; void *arg; };

static bool looking(struct sim *s, void *arg)
{
	struct until *u = arg;
	look(u->v);
	return u->fn && u->fn(u->v, u->arg);
}

static bool until(struct looks *v, until_fn *fn, void *arg, uint64_t us)
{
	struct until u = { v, fn, arg };
	return sim_run_until(v->l->s, looking, &u, us);
}

static void wait_for(struct looks *v, uint64_t us) { until(v, NULL, NULL, us); }

static int validating(struct node_world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		const struct run *r = node_run(w, i);
		if (r && r->trainer && r->trainer->v.eval.runs)
			return i;
	}
	return -1;
}

static bool begun(struct looks *v, void *arg) { return validating(v->l->w) >= 0; }
static bool at_epoch(struct looks *v, void *arg) { return node_all_at(v->l->w, *(uint64_t *)arg); }

static void goes_on(struct looks *v, uint64_t epochs)
{
	uint64_t to = node_newest(v->l->w) + epochs;
	if (!until(v, at_epoch, &to, 120 * SEC) && !sim_failed(v->l->s))
		sim_fail(v->l->s, "it stands still");
}

/* Somewhere in a validation. */
static void into(struct looks *v)
{
	if (!until(v, begun, NULL, 120 * SEC) && !sim_failed(v->l->s))
		sim_fail(v->l->s, "nobody validates");
	wait_for(v, rng_below(sim_rng(v->l->s), 80 * MSEC));
}

static struct looks *begin(struct sim *s, const char *norm, const char *more, int n)
{
	struct looks *v = xcalloc(1, sizeof *v);
	v->l = line_both(s, norm, more, VALIDATES, n);
	goes_on(v, 2);
	return v;
}

/* The one alone is taken as far, and has said the same. */
static void same_as_alone(struct looks *v, uint64_t newest, unsigned least)
{
	struct alone *a = &v->l->a;
	unsigned compared = 0;
	struct result *of = xcalloc(EPOCHS, sizeof *of);
	uint64_t was = 0;
	for (int ms = 0; ms < 2000000 && was < newest && !sim_failed(a->s); ms++) {
		const struct run *r = node_run(a->w, 0);
		sim_run_for(a->s, MSEC);
		if (r && r->val_at != was) {
			was = r->val_at;
			note(a->s, of, r);
		}
	}
	for (uint64_t e = 1; e <= newest && e < EPOCHS; e++) {
		struct result *x = &v->of[e], *y = &of[e];
		if (!x->told || !y->told)
			continue;
		compared++;
		if (llround(x->accuracy * HELD) != llround(y->accuracy * HELD) || !(fabs(x->loss - y->loss) <= 1e-6 * y->loss))
			sim_fail(v->l->s, "members say %.9g and %.9g of an epoch, one alone %.9g and %.9g", x->loss, x->accuracy,
				y->loss, y->accuracy);
	}
	if (compared < least)
		sim_fail(v->l->s, "only %u validations could be compared", compared);
	free(of);
}

static void end(struct looks *v)
{
	look(v);
	if (!sim_failed(v->l->s) && v->l->rounded <= 0)
		same_as_alone(v, node_newest(v->l->w) / EVERY * EVERY, 3);
	line_free(v->l);
	free(v);
}

/* Nobody is disturbed: all members say all of it. */
static void all_told(struct looks *v, int members)
{
	uint64_t from = node_newest(v->l->w) / EVERY * EVERY + EVERY;
	goes_on(v, 20);
	for (uint64_t e = from; e + EVERY <= node_newest(v->l->w); e += EVERY)
		if (v->of[e].told != (unsigned)members)
			sim_fail(v->l->s, "%u of %d members know what an epoch is worth", v->of[e].told, members);
}

static void plain(struct sim *s, const char *norm, const char *more, int n)
{
	struct looks *v = begin(s, norm, more, n);
	until(v, NULL, NULL, SEC);
	all_told(v, n);
	end(v);
}

static void scn_plain(struct sim *s) { plain(s, "batchnorm", PIPELINE, 3); }
static void scn_late(struct sim *s) { plain(s, NULL, ", \"replicas\": 1", 3); }
static void scn_replicas(struct sim *s)
{
	plain(s, "layernorm", ", \"stages\": [{}, {\"replicas\": 2}, {\"replicas\": 3}], \"replicas\": 1, "
		"\"micro_batches\": 4", 6);
}

/* A stage without parameters, which has no part in any round. */
#define LEARNS_NOTHING ", \"redundancy\": 1, \"replicas\": 1, \"stages\": [{\"layers\": 4}, {\"layers\": 2}, {\"layers\": 4}]"
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

/* ---- stop.accuracy ---- */

static bool some_ended(struct looks *v, void *arg)
{
	for (int i = 0; i < sim_nodes(v->l->s); i++)
		if (v->seen[i].ended)
			return true;
	return false;
}

static bool all_ended(struct looks *v, void *arg)
{
	for (int i = 0; i < sim_nodes(v->l->s); i++)
		if (!v->seen[i].ended && !v->seen[i].excused)
			return false;
	return true;
}

static bool begun_or_over(struct looks *v, void *arg) { return begun(v, arg) || some_ended(v, arg); }

static bool on_or_over(struct looks *v, void *arg)
{
	return node_newest(v->l->w) >= *(uint64_t *)arg || some_ended(v, NULL);
}

static void kill_one(struct looks *v)
{
	struct sim *s = v->l->s;
	uint64_t to = node_newest(v->l->w) + 2; /* one between two COMMITs: there are two copies */
	if (!until(v, on_or_over, &to, 120 * SEC) && !sim_failed(s))
		sim_fail(s, "it stands still");
	until(v, begun_or_over, NULL, 120 * SEC);
	until(v, some_ended, NULL, rng_below(sim_rng(s), 120 * MSEC));
	int dead = line_any_seated(v->l->w);
	if (!line_seated(v->l->w, dead) || some_ended(v, NULL))
		return;
	sim_kill(s, dead);
	wait_for(v, rng_below(sim_rng(s), SEC));
	v->seen[dead].excused = some_ended(v, NULL);    /* whom could it hear so from? */
	sim_restart(s, dead);
	wait_for(v, rng_below(sim_rng(s), 2 * SEC));
}

/* All end at one epoch, the spare, too, and whoever has died on the way. */
static void ends(struct sim *s, bool kills, const char *norm, const char *more, int n)
{
	struct looks *v = xcalloc(1, sizeof *v);
	v->l = line_both(s, norm, more, VALIDATES ", \"stop\": {\"accuracy\": 0.78}", n);
	while (kills && !sim_failed(s) && !some_ended(v, NULL))
		kill_one(v);
	if (!until(v, all_ended, NULL, 300 * SEC) && !sim_failed(s))
		sim_fail(s, "it does not end");
	line_free(v->l);
	free(v);
}

static void scn_ends(struct sim *s) { ends(s, false, "batchnorm", PIPELINE, 4); }
static void scn_ends_killed(struct sim *s) { ends(s, true, "batchnorm", PIPELINE, 4); }
static void scn_ends_late(struct sim *s) { ends(s, true, NULL, ", \"replicas\": 1", 4); }

/* ---- the last one ---- */

#define LAST 12
#define AT_THE_END ", \"validation\": {\"every\": 0}, \"stop\": {\"epochs\": 12}"

static bool somebody_finishes(struct looks *v, void *arg)
{
	for (int i = 0; i < sim_nodes(v->l->s); i++) {
		const struct run *r = node_run(v->l->w, i);
		if (r && r->state == RUN_FINISH)
			return true;
	}
	return some_ended(v, arg);
}

/* Only when the goal is reached: members look once more together, and nobody waits for who dies then. */
static void at_the_end(struct sim *s, bool kills, const char *norm, const char *more, int n, unsigned members)
{
	struct looks *v = xcalloc(1, sizeof *v);
	v->any_end = true;
	v->l = line_both(s, norm, more, AT_THE_END, n);
	if (kills && until(v, somebody_finishes, NULL, 120 * SEC)) {
		until(v, some_ended, NULL, rng_below(sim_rng(s), 60 * MSEC));
		int dead = node_any(v->l->w);
		sim_kill(s, dead);
		v->seen[dead].excused = true;
	}
	if (!until(v, all_ended, NULL, 60 * SEC) && !sim_failed(s))
		sim_fail(s, "it does not end");
	for (uint64_t e = 0; e < EPOCHS; e++)
		if (v->of[e].told && e != LAST)
			sim_fail(s, "somebody has looked before the end");
	if (!kills && v->of[LAST].told != members)
		sim_fail(s, "%u of %u members know what it is worth", v->of[LAST].told, members);
	if (!kills && !sim_failed(s))
		same_as_alone(v, LAST, 1);
	line_free(v->l);
	free(v);
}

static void scn_last(struct sim *s) { at_the_end(s, false, "batchnorm", PIPELINE, 4, 3); }
static void scn_last_late(struct sim *s) { at_the_end(s, false, NULL, ", \"replicas\": 1", 4, 3); }
static void scn_last_units(struct sim *s) { at_the_end(s, false, "layernorm", UNITS, 6, 6); }
static void scn_last_killed(struct sim *s) { at_the_end(s, true, "batchnorm", PIPELINE, 4, 3); }

/* ---- when, and by whom ---- */

/* Where the spec is silent: 20 * 125 / (3 * 64), rounded up, by all at once. */
static void scn_seldom(struct sim *s)
{
	struct looks *v = xcalloc(1, sizeof *v);
	uint64_t to = 60;
	v->l = line_both(s, "batchnorm", PIPELINE, ", \"validation\": {}", 3);
	sim_check(s, until(v, at_epoch, &to, 120 * SEC));
	for (uint64_t e = 1; e < to - 1; e++)
		if (v->of[e].told != (e % 14 ? 0 : 3))
			sim_fail(s, "%u have looked at epoch %u", v->of[e].told, (unsigned)e);
	line_free(v->l);
	free(v);
}

struct told { bool over; uint64_t epoch; char text[320]; };

static void told(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	struct told *q = arg;
	*q = (struct told){ .over = true, .epoch = epoch };
	snprintf(q->text, sizeof q->text, "%s", e ? e->text : "");
}

static bool is_told(struct looks *v, void *arg) { return ((struct told *)arg)->over; }

/* Who has no stage cannot end the run, and nobody can with what is no reason to. */
static void scn_by_hand(struct sim *s)
{
	struct looks *v = xcalloc(1, sizeof *v);
	struct told q = { 0 };
	int spare = 0;
	v->l = line_both(s, "batchnorm", PIPELINE, VALIDATES ", \"stop\": {\"accuracy\": 0.999}", 4);
	sim_check(s, sim_run_until(s, line_all_seated, v->l, 60 * SEC));
	while (line_seated(v->l->w, spare))
		spare++;
	avg_propose(node_run(v->l->w, spare)->avg, json_pack("{s:f}", SPEC_REACHED, 0.9995), 0, told, &q);
	if (!until(v, is_told, &q, 30 * SEC) || q.epoch || !strstr(q.text, "no member of this generation"))
		sim_fail(s, "a spare says that the run is over: %s", q.text);
	q = (struct told){ 0 };
	avg_propose(node_run(v->l->w, line_any_seated(v->l->w))->avg, json_pack("{s:f}", SPEC_REACHED, 0.5), 0, told, &q);
	if (!until(v, is_told, &q, 30 * SEC) || q.epoch || !strstr(q.text, "an accuracy of at least 0.999"))
		sim_fail(s, "a member says that 0.5 is enough: %s", q.text);
	goes_on(v, 6);
	line_free(v->l);
	free(v);
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
	sim_check(s, until(v, six_seated, NULL, 120 * SEC));
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		into(v);
		int who = line_any_seated(v->l->w);
		sim_lane_slow(s, who, "train", 20 + (uint32_t)rng_below(sim_rng(s), 400));
		uint64_t to = node_newest(v->l->w) + 20;
		if (!until(v, newest_at, &to, 60 * SEC) && !sim_failed(s))
			sim_fail(s, "the others wait for it");
		sim_lane_slow(s, who, "train", 1);
		goes_on(v, 6);
	}
	if (!until(v, all_six_say, NULL, 120 * SEC) && !sim_failed(s))
		sim_fail(s, "who was slow says nothing any more");
	end(v);
}

static void scn_slow(struct sim *s) { slow(s, "layernorm", UNITS); }
static void scn_late_slow(struct sim *s) { slow(s, NULL, ""); }

/* The slower pipeline has its last validation to the end, though the others have gone. */
static void scn_last_slow(struct sim *s)
{
	struct looks *v = xcalloc(1, sizeof *v);
	v->any_end = true;
	v->l = line_both(s, "layernorm", UNITS, AT_THE_END, 6);
	sim_lane_slow(s, line_any_seated(v->l->w), "train", 3);
	if (!until(v, all_ended, NULL, 60 * SEC) && !sim_failed(s))
		sim_fail(s, "it does not end");
	if (v->of[LAST].told != 6)
		sim_fail(s, "%u of 6 members know what it is worth", v->of[LAST].told);
	line_free(v->l);
	free(v);
}

static void scn_seven(struct sim *s) { seven(s, "layernorm", UNITS ", \"redundancy\": 4"); }
static void scn_late_seven(struct sim *s) { seven(s, NULL, ", \"redundancy\": 4"); }

static const struct scn list[] = { SCN(plain), SCN(late), SCN(replicas), SCN(nothing), SCN(late_nothing),
	SCN(killed), SCN(late_killed), SCN(units),
	SCN(late_units), SCN(side_by_side), SCN(in_a_row), SCN(joins), SCN(leaves), SCN(paused), SCN(ends),
	SCN(ends_killed), SCN(ends_late), SCN(last), SCN(last_late), SCN(last_units), SCN(last_killed), SCN(seldom),
	SCN(by_hand), SCN(seven), SCN(late_seven), SCN(slow), SCN(late_slow),
	SCN(last_slow), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

/* The end of runs whose members validate together: stop.accuracy ends all of them at one epoch, by a COMMIT; what is
 * asked for only at the end is had by all; and when that is, and who may say that it is good enough. */
#include "common/jrpc.h"
#include "looks.h"

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
	await(v, on_or_over, &to, 120 * SEC, "it stands still");
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
	await(v, all_ended, NULL, 300 * SEC, "it does not end");
	line_free(v->l);
	free(v);
}

static void scn_ends(struct sim *s) { ends(s, false, "batchnorm", PIPELINE, 4); }
static void scn_ends_killed(struct sim *s) { ends(s, true, "batchnorm", PIPELINE, 4); }
static void scn_ends_late(struct sim *s) { ends(s, true, NULL, ", \"replicas\": 1", 4); }

/* ---- the last one ---- */

#define LAST 40
#define AT_THE_END ", \"validation\": {\"every\": 0}, \"stop\": {\"epochs\": 40}"

static bool somebody_finishes(struct looks *v, void *arg)
{
	for (int i = 0; i < sim_nodes(v->l->s); i++) {
		const struct run *r = node_run(v->l->w, i);
		if (r && r->state == RUN_FINISH)
			return true;
	}
	return some_ended(v, arg);
}

static void known_to(struct looks *v, int n)
{
	unsigned told = v->of[LAST].told;
	if (!told)
		sim_fail(v->l->s, "nobody knows what it is worth");
	else if (told != (unsigned)n)
		sim_late(v->l->s, "%u of %d peers know what it is worth", told, n);
}

/* Only when the goal is reached: members look once more together, and nobody waits for who dies then. Whoever has no
 * stage is told. */
static void at_the_end(struct sim *s, bool kills, const char *norm, const char *more, int n)
{
	struct looks *v = xcalloc(1, sizeof *v);
	v->any_end = true;
	v->l = line_both(s, norm, more, AT_THE_END, n);
	if (kills && await(v, somebody_finishes, NULL, 120 * SEC, "nobody comes to the end")) {
		until(v, some_ended, NULL, rng_below(sim_rng(s), 60 * MSEC));
		int dead = node_any(v->l->w);
		sim_kill(s, dead);
		v->seen[dead].excused = true;
	}
	await(v, all_ended, NULL, 60 * SEC, "it does not end");
	for (uint64_t e = 0; e < EPOCHS; e++)
		if (v->of[e].told && e != LAST)
			sim_fail(s, "somebody has looked before the end");
	if (!kills)
		known_to(v, n);
	if (!kills && !sim_failed(s))
		same_as_alone(v, LAST, 1);
	line_free(v->l);
	free(v);
}

static void scn_last(struct sim *s) { at_the_end(s, false, "batchnorm", PIPELINE, 4); }
static void scn_last_late(struct sim *s) { at_the_end(s, false, NULL, ", \"replicas\": 1", 4); }
static void scn_last_units(struct sim *s) { at_the_end(s, false, "layernorm", UNITS, 6); }
static void scn_last_killed(struct sim *s) { at_the_end(s, true, "batchnorm", PIPELINE, 4); }

/* ---- when, and by whom ---- */

/* Where the spec is silent: 20 * 125 / (3 * 64), rounded up, by all at once. */
static void scn_seldom(struct sim *s)
{
	struct looks *v = xcalloc(1, sizeof *v);
	uint64_t to = 60;
	v->l = line_both(s, "batchnorm", PIPELINE, ", \"validation\": {}", 3);
	await(v, at_epoch, &to, 120 * SEC, "it stands still");
	for (uint64_t e = 1; e < to - 1; e++)
		if (e % 14 && v->of[e].told)
			sim_fail(s, "%u have looked at epoch %u", v->of[e].told, (unsigned)e);
		else if (e % 14 == 0 && v->of[e].told != 3)
			sim_late(s, "%u of 3 have looked at epoch %u", v->of[e].told, (unsigned)e);
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
	sim_await(s, line_all_seated, v->l, 60 * SEC);
	while (line_seated(v->l->w, spare))
		spare++;
	avg_propose(node_run(v->l->w, spare)->avg, json_pack("{s:f}", SPEC_REACHED, 0.9995), 0, told, &q);
	if (await(v, is_told, &q, 30 * SEC, "a spare hears nothing") && (q.epoch || !strstr(q.text,
			"no member of this generation")))
		sim_fail(s, "a spare says that the run is over: %s", q.text);
	q = (struct told){ 0 };
	avg_propose(node_run(v->l->w, line_any_seated(v->l->w))->avg, json_pack("{s:f}", SPEC_REACHED, 0.5), 0, told, &q);
	if (await(v, is_told, &q, 30 * SEC, "a member hears nothing") && (q.epoch || !strstr(q.text,
			"an accuracy of at least 0.999")))
		sim_fail(s, "a member says that 0.5 is enough: %s", q.text);
	goes_on(v, 6);
	line_free(v->l);
	free(v);
}

/* What a validation of the newest epoch has come to, as `from` says it; loss NaN: it says of none. */
static void say(struct looks *v, int from, int to, double loss, double accuracy)
{
	struct run *r = node_run(v->l->w, from);
	json_t *said = json_pack("{s:I,s:o,s:i,s:f,s:i}", "epoch", (json_int_t)r->point.epoch, "prev",
		json_hex(r->point.prev, DIGEST), "samples", HELD, "accuracy", accuracy, "took_us", 1);
	if (!isnan(loss))
		json_object_set_new(said, "loss", json_real(loss));
	net_post(r->rs->ctx.net, node_id(node_peer(v->l->w, to)->node), KIND_RUN_SHARD, json_pack("{s:s,s:o}", "run",
		r->hex, "validated", said), NO_BLOB, CLASS_control);
}

/* One without a stage tells another that all is learned: that is no word of a member's. */
static void scn_false_word(struct sim *s)
{
	struct looks *v = xcalloc(1, sizeof *v);
	int liar = 0, to = 4;
	v->l = line_both(s, "batchnorm", PIPELINE, VALIDATES, 5);
	sim_await(s, line_all_seated, v->l, 60 * SEC);
	goes_on(v, 2);
	while (line_seated(v->l->w, liar))
		liar++;
	while (line_seated(v->l->w, to))
		to--;
	sim_check(s, liar < to);
	for (int k = 0; k < 40 && !sim_failed(s); k++) {
		say(v, liar, to, 1e-3, 1);
		wait_for(v, rng_below(sim_rng(s), 100 * MSEC));
	}
	all_told(v, 5);
	line_free(v->l);
	free(v);
}

static bool no_number(struct looks *v, void *node)
{
	const struct run *r = node_run(v->l->w, *(int *)node);
	return r && r->val_at && isnan(r->val_loss) && r->val_accuracy == 0.25;
}

/* A loss that is not finite is a result, too. */
static void scn_no_number(struct sim *s)
{
	struct looks *v = xcalloc(1, sizeof *v);
	int to = 4;
	v->l = line_both(s, "batchnorm", PIPELINE, ", \"validation\": {\"every\": 0}", 5);
	sim_await(s, line_all_seated, v->l, 60 * SEC);
	goes_on(v, 2);
	while (line_seated(v->l->w, to))
		to--;
	for (int k = 0; k < 10 && !no_number(v, &to); k++) {     /* it may stand at another epoch when it hears it */
		say(v, line_any_seated(v->l->w), to, NAN, 0.25);
		until(v, no_number, &to, SEC);
	}
	if (!no_number(v, &to))
		sim_late(s, "node %d does not know that the loss is no number", to);
	line_free(v->l);
	free(v);
}

/* The slower pipeline has its last validation to the end, though the others have gone. */
static void scn_last_slow(struct sim *s)
{
	struct looks *v = xcalloc(1, sizeof *v);
	v->any_end = true;
	v->l = line_both(s, "layernorm", UNITS, AT_THE_END, 6);
	sim_lane_slow(s, line_any_seated(v->l->w), "train", 3);
	await(v, all_ended, NULL, 60 * SEC, "it does not end");
	known_to(v, 6);
	line_free(v->l);
	free(v);
}

static const struct scn list[] = { SCN(ends), SCN(ends_killed), SCN(ends_late), SCN(last), SCN(last_late),
	SCN(last_units), SCN(last_killed), SCN(last_slow), SCN(seldom), SCN(by_hand), SCN(false_word),
	SCN(no_number), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

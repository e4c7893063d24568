/* Pipelines whose first stage and last stage have parameters in common, in whole nodes (line_world.h): members die at
 * any moment and come back as whatever they are needed for, what is learned has the bits of a pipeline that nothing
 * disturbs, and all who hold what is in common hold the same bits of it. */
#include "line_world.h"

static void ends(struct line *l, int least)
{
	line_same_among(l, least);
	line_end(l);
}

static void scn_learns(struct sim *s)
{
	struct line *l = line_tied(s, false, PIPELINE, 3);
	line_goes_on(l, 3);
	ends(l, 3);
}

static void killed(struct line *l)
{
	for (int k = 0; k < 4 && !sim_failed(l->s); k++) {
		int dead = line_kill_any(l, 300 * MSEC);
		line_goes_on(l, 4);
		sim_restart(l->s, dead);
		line_goes_on(l, 4);
	}
	ends(l, 3);
}

static void scn_killed(struct sim *s) { killed(line_tied(s, false, PIPELINE, 4)); }
static void scn_late_killed(struct sim *s) { killed(line_tied(s, true, ", \"replicas\": 1", 4)); }
static void scn_back_at_once(struct sim *s) { line_back_at_once(line_tied(s, false, PIPELINE, 3)); }
static void scn_in_a_row(struct sim *s) { line_in_a_row(line_tied(s, false, PIPELINE ", \"redundancy\": 3", 7)); }

/* Two pipelines, with replicas of the last stage. */
static struct line *two(struct sim *s)
{
	struct line *l = line_tied(s, false, ", \"stages\": [{}, {\"replicas\": 2}], \"micro_batches\": 4", 6);
	l->stages = 6;
	sim_await(s, line_all_seated, l, 120 * SEC);
	l->rounded = 1e-3;
	line_goes_on(l, 3);
	return l;
}

static void scn_units(struct sim *s) { ends(two(s), 6); }

/* A death takes one of them out of an epoch, or more. */
static void scn_unit_dies(struct sim *s)
{
	struct line *l = two(s);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		int dead = line_kill_any(l, 300 * MSEC);
		line_goes_on(l, 4);
		sim_restart(s, dead);
		line_goes_on(l, 4);
	}
	line_same_among(l, 6);
	line_free(l);
}

/* The first layer alone is a stage, and the last one: all that they have to learn is in common. */
static void scn_ends_alone(struct sim *s)
{
	struct line *l = line_tied(s, false, ", \"stages\": [{\"layers\": 1}, {\"layers\": 8}, {\"layers\": 1}], "
		"\"micro_batches\": 4, \"replicas\": 1", 4);
	l->copies = 5;                                  /* what is in common three times, the rest twice */
	killed(l);
}

static const struct scn list[] = { SCN(learns), SCN(killed), SCN(in_a_row), SCN(back_at_once), SCN(units),
	SCN(unit_dies),
	SCN(late_killed), SCN(ends_alone), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

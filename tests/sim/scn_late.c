/* Pipelines whose epochs run on into each other (schedule 2bw) in whole nodes, beside one peer alone whose gradients
 * are one step late, too: whoever dies on the way, what is learned has the bits of that one. */
#include "line_world.h"
#include "run/crew_int.h"
#include "train/trainer_int.h"

#define ONE ", \"replicas\": 1"

/* A gradient is one step late on every stage, and never more. That none waits for a round: test_pipeline_on. */
static void scn_on(struct sim *s)
{
	struct line *l = line_late(s, ONE, 3);
	sim_check(s, sim_run_until(s, line_all_seated, l, 60 * SEC));
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

static const struct scn list[] = { SCN(on), SCN(killed), SCN(in_a_row), SCN(back), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

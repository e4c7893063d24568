/* Scenarios that are in time, late and never there, for lateness.sh: what scn.c makes of the two verdicts. */
#include "sim.h"

#define SEC 1000000ull

static void set(struct sim *s, void *arg) { *(bool *)arg = true; }
static bool is_set(struct sim *s, void *arg) { return *(bool *)arg; }

/* It comes after so many seconds, and ten are allowed. */
static void comes_after(struct sim *s, uint64_t seconds)
{
	bool there = false;
	sim_at(s, sim_now(s) + seconds * SEC, set, &there);
	bool came = sim_await(s, is_set, &there, 10 * SEC);
	if (came != there || (came && sim_now(s) != (1 + seconds) * SEC))
		sim_fail(s, "the world did not stop when it came");
}

static void scn_in_time(struct sim *s) { comes_after(s, 9); }
static void scn_never(struct sim *s) { comes_after(s, 71); }
static void scn_seldom(struct sim *s) { comes_after(s, sim_seed(s) % 12 < 2 ? 11 : 9); }
/* One row of a table of seven, always and now and then. */
static void scn_row(struct sim *s) { comes_after(s, sim_seed(s) % 7 == 5 ? 11 : 9); }
static void scn_row_seldom(struct sim *s) { comes_after(s, sim_seed(s) == 5 || sim_seed(s) == 33 ? 11 : 9); }

static void scn_often(struct sim *s) { comes_after(s, sim_seed(s) % 12 < 3 ? 69 : 9); }

/* What is late does not end the world, and what fails after it is what counts. */
static void scn_late_then_failed(struct sim *s)
{
	sim_in_time(s, sim_seed(s) == 0);
	sim_late(s, "the second one is not told");
	sim_run_for(s, 5 * SEC);
	sim_check(s, sim_now(s) == 6 * SEC && sim_was_late(s) && !sim_failed(s));
	sim_check(s, sim_seed(s) != 3);
}

static void again(struct sim *s, void *arg) { sim_at(s, sim_now(s) + 1, again, arg); }

/* Time passes, and there is no end: the number of events is bounded. */
static void scn_endless(struct sim *s)
{
	sim_costs(s)->events_max = 1000;
	again(s, NULL);
	sim_run_for(s, SEC);
}

/* A world in the world tells it. */
static void scn_inner(struct sim *s)
{
	for (int i = 0; i < 2; i++) {
		struct sim *own = sim_new(sim_seed(s));
		comes_after(own, sim_seed(s) == 4 ? 80 : sim_seed(s) == 5 ? 20 : 1);
		sim_told_of(s, own, "world %d", i);
		sim_free(own);
	}
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(in_time), SCN(never), SCN(seldom), SCN(often), SCN(late_then_failed),
		SCN(inner), SCN(row), SCN_CELLS(row_seldom, 7), { "table", scn_row, 7 },
		SCN(endless), {0} };
	return scn_main(list, argc, argv);
}

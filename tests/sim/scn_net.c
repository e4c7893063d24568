/* Scenarios of the wire: whatever happens to links and processes, every call ends exactly once, and every request runs
 * at most once per process. */
#include "net_app.h"

static bool all_ended(struct sim *s, void *arg)
{
	for (struct ended *d = arg; d->sim; d++)
		if (!d->times)
			return false;
	return true;
}

static void scn_two(struct sim *s)
{
	struct net_world w = {0};
	struct net_app *a = net_app_add(s, &w), *b = net_app_add(s, &w);
	struct ended d[4] = { { .sim = s }, { .sim = s }, { .sim = s }, {0} };
	struct id to = *net_self(b->net);

	net_app_know(s, 0, 1);
	for (int i = 0; i < 3; i++)
		net_app_call(a, &to, 10 * i, NO_BLOB, 2000000, &d[i]);
	sim_check(s, sim_run_until(s, all_ended, d, 5000000));
	for (int i = 0; i < 3; i++)
		sim_check(s, d[i].ok && d[i].n == 10 * i + 1);
	sim_check(s, b->handled == 3);
	/* B has learnt where A is from HELLO alone. */
	memset(d, 0, sizeof d);
	d[0].sim = s;
	net_app_call(b, net_self(a->net), 7, NO_BLOB, 2000000, &d[0]);
	sim_check(s, sim_run_until(s, all_ended, d, 5000000) && d[0].ok && d[0].n == 8);
	sim_run_for(s, 100000);
}

static const struct scn list[] = { SCN(two), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }

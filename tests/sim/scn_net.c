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

static bool both_moved(struct sim *s, void *arg)
{
	struct moved *m = arg;

	return m[0].times && m[1].times;
}

static uint8_t *noise(struct sim *s, size_t n)
{
	uint8_t *p = xmalloc(n ? n : 1);

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(rng_u64(sim_rng(s)) >> 24);
	return p;
}

/* Transfers of all sizes, with the taker there before or after the first chunk. */
static void scn_transfer(struct sim *s)
{
	static const size_t sizes[] = { 0, 1, 4096, 65536, 262144, 262145, 3 << 20 };
	struct net_world w = {0};
	struct net_app *a = net_app_add(s, &w), *b = net_app_add(s, &w);

	net_app_know(s, 0, 1);
	for (int i = 0; i < 14; i++) {
		size_t n = sizes[i / 2];
		uint8_t *data = noise(s, n), *out = xcalloc(1, n + 1);
		struct moved m[2] = { { .sim = s }, { .sim = s } };
		struct id tag = { .b = { (uint8_t)i } };
		uint64_t deadline = sim_now(s) + 5000000;

		if (i % 2)
			xfer_recv(b->chunks, net_self(a->net), &tag, out, n, deadline, net_app_moved, &m[1]);
		xfer_send(a->chunks, net_self(b->net), &tag, data, n, CLASS_weight, deadline, net_app_moved, &m[0]);
		if (i % 2 == 0) {
			sim_run_for(s, 5000);
			xfer_recv(b->chunks, net_self(a->net), &tag, out, n, deadline, net_app_moved, &m[1]);
		}
		sim_check(s, sim_run_until(s, both_moved, m, 6000000));
		if (!m[0].ok || !m[1].ok)
			sim_fail(s, "%zu bytes: %s / %s", n, m[0].text, m[1].text);
		sim_check(s, !memcmp(data, out, n) && m[0].times == 1 && m[1].times == 1);
		free(data);
		free(out);
	}
}

static const struct scn list[] = { SCN(two), SCN(transfer), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }

/* Row C01 of the systems: keys, and presence: the list of who is present is the list of who lives, one life of a record
 * after each of ten events: kills, hosts that lose power, newcomers; records of a swarm that is a second old. With
 * light cryptography: many signatures that are not the point. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht_world.h"

static const struct id *self_of(struct sim *s, int node) { return net_self(dht_net(s, node)); }

#define PRESENT_MS 30000

static void present(struct sim *s, int node)
{
	char hex[ID_HEX];
	id_hex(self_of(s, node), hex);
	dht_keep(dht_of(s, node), "peers", hex, json_integer(node), PRESENT_MS, true);
}

struct list_end { bool done; size_t n, right; struct sim *s; };

static void on_list(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct list_end *l = arg;
	l->done = true;
	l->n = n;
	for (size_t i = 0; i < n; i++) {
		char hex[ID_HEX];
		int node = (int)json_integer_value(r[i].value);
		if (node < sim_nodes(l->s) && sim_alive(l->s, node)) {
			id_hex(self_of(l->s, node), hex);
			l->right += !strcmp(hex, r[i].subkey);
		}
	}
}

static struct list_end list_of(struct sim *s, int node)
{
	struct list_end *l = xcalloc(1, sizeof *l), ret;
	l->s = s;
	dht_get(dht_of(s, node), "peers", true, on_list, l);
	sim_await(s, dht_flag, &l->done, 60 * SEC);
	ret = *l;
	if (ret.done)
		free(l);
	return ret;
}

/* Of those who live, so many; whoever is missing is there in the end. The dead are on it no longer. */
static void want_list(struct sim *s, int event, int node, int alive)
{
	struct list_end end = list_of(s, node);
	if (end.n == end.right && end.n < (size_t)alive) {
		sim_late(s, "event %d: node %d sees %zu of %d who live", event, node, end.n, alive);
		sim_run_for(s, SIM_NEVER_US);
		end = list_of(s, node);
	}
	if (end.right != end.n)
		sim_fail(s, "event %d: node %d sees %zu peers, %zu of them right; %d live", event, node, end.n, end.right,
			alive);
	else if (end.n != (size_t)alive)
		sim_fail(s, "event %d: node %d never sees all who live: %zu of %d", event, node, end.n, alive);
}

static void scn_C01_presence(struct sim *s)
{
	struct dht_world w = { 0 };
	int alive = 20;
	dht_add(s, &w, alive);
	dht_joined(s);
	for (int i = 0; i < alive; i++)
		present(s, i);
	for (int event = 0; event < 10 && !sim_failed(s); event++) {
		sim_run_for(s, rng_below(sim_rng(s), 5 * SEC));
		int node = dht_any(s);
		if (rng_below(sim_rng(s), 2) && node) {
			if (rng_below(sim_rng(s), 2))
				sim_kill(s, node);
			else
				sim_power_off(s, node);
			alive--;
		} else {
			dht_add(s, &w, 1);
			present(s, sim_nodes(s) - 1);
			alive++;
		}
		sim_run_for(s, (PRESENT_MS + 2000) * 1000ull);
		want_list(s, event, dht_any(s), alive);
	}
}

/* ---- keys ---- */

#define NODES 64
#define KEYS 1000
#define HOPS_MAX (6 + 2)                        /* ceil(log2 NODES) + 2 */

/* Row C01, with its own numbers: every key from any node, in so many hops; at least 99 % when 30 % have died at once;
 * none after its end. */
static void scn_C01_keys(struct sim *s)
{
	struct dht_world w = { .unchecked = true };
	dht_add(s, &w, NODES);
	dht_joined(s);
	struct dht_looked put = dht_look(s, KEYS, 1800000), all = dht_look(s, KEYS, 0), left, none;
	uint64_t at = sim_now(s);
	if (put.found != KEYS || put.fewest != 8 || all.found != KEYS)
		sim_fail(s, "%d keys are on %u nodes and %d found of %d", put.found, put.fewest, all.found, KEYS);
	if (all.hops_max > HOPS_MAX)
		sim_late(s, "%u hops to a key, at most %d", all.hops_max, HOPS_MAX);
	for (int i = 0; i < NODES * 3 / 10; i++)
		sim_kill(s, dht_any(s));
	left = dht_look(s, KEYS, 0);
	if (left.found * 100 < KEYS * 99)
		sim_late(s, "%d of %d found after %d of %d nodes died", left.found, KEYS, NODES * 3 / 10, NODES);
	sim_run_for(s, 1900 * SEC - (sim_now(s) - at));
	none = dht_look(s, KEYS, 0);
	if (none.found)
		sim_fail(s, "%d are found after their end", none.found);
}

/* A hundred have come at one time and know little of each other: what one of them stores the others find. */
static void scn_young(struct sim *s)
{
	struct dht_world w = { .conf = { .k = 3 } };
	char key[16];
	dht_add(s, &w, 100);
	dht_joined(s);
	for (int i = 0; i < 30; i++) {
		snprintf(key, sizeof key, "k%d", i);
		dht_put_wait(s, dht_any(s), key, NULL, json_integer(i), 600000, false);
		dht_want(s, dht_any(s), key, i);
	}
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(C01_presence), SCN(C01_keys), SCN(young), { 0 } };
	return scn_main(list, argc, argv);
}

/* Row C01 of the systems: the list of who is present is the list of who lives, one life of a record after each of ten
 * events: kills, hosts that lose power, newcomers. With light cryptography: many signatures that are not the point. */
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
		struct list_end *l = xcalloc(1, sizeof *l), end;
		l->s = s;
		node = dht_any(s);
		dht_get(dht_of(s, node), "peers", true, on_list, l);
		sim_check(s, sim_run_until(s, dht_flag, &l->done, 60 * SEC));
		end = *l;
		if (end.done)
			free(l);
		if (end.n != (size_t)alive || end.right != end.n)
			sim_fail(s, "event %d: node %d sees %zu peers, %zu of them right; %d live", event, node, end.n, end.right,
				alive);
	}
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(C01_presence), { 0 } };
	return scn_main(list, argc, argv);
}

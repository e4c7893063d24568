/* The simulator itself: what its network does to messages. Loss, order, breaks, cuts, deaths, doors, stalls. */
#include "chat.h"

static void scn_delivery(struct sim *s)
{
	struct sim_stats st;
	add(s, 3);
	for (uint32_t i = 1; i <= 100; i++) {
		say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', i, 200);
		say(of(s, 2), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', i, 100000);
	}
	sim_check(s, of(s, 0)->back == 0);      /* nothing re-enters */
	sim_run_for(s, 2000000);
	sim_check(s, of(s, 1)->got == 200 && of(s, 1)->out_of_order == 0 && of(s, 0)->unsent == 0);
	sim_stats(s, &st);
	sim_check(s, st.lost == 0 && st.delivered == 200 && st.lag_us_max >= 10);
}

/* A broken connection loses one suffix at most as long as the buffers, and what is left overlaps with the next. */
static void scn_break(struct sim *s)
{
	struct chat *c;
	struct sim_stats st;
	struct sim_link slow = { .latency_us = 20000, .bytes_per_s = 50000000 };

	add(s, 2);
	sim_link(s, -1, -1, &slow);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', 1, 64);
	sim_run_for(s, 500000);
	for (uint32_t i = 2; i <= 40; i++)
		say(of(s, 0), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', i, 50000);
	sim_run_for(s, 25000);
	sim_break(s, 0, 1);
	for (uint32_t i = 41; i <= 60; i++)
		say(of(s, 0), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', i, 64);
	sim_run_for(s, 3000000);
	c = of(s, 1);
	sim_stats(s, &st);
	sim_check(s, of(s, 0)->unsent == 0);
	sim_check(s, c->out_of_order == 0);
	sim_check(s, c->got + (int)st.lost == 60);
	sim_check(s, c->connections >= 2 && c->last[0] == 60);
	sim_check(s, st.lost <= 40);
}

/* Two behind one line share its rate; among themselves, and beside it, nothing is slow; calls do not wait for bulk. */
static void scn_line(struct sim *s)
{
	sim_costs(s)->call_queue_us = 25000;
	add(s, 4);
	sim_line(s, (const int[]){ 0, 1 }, 2, 20000, 1000000);
	for (uint32_t i = 1; i <= 10; i++) {
		say(of(s, 0), sim_endpoint(s, 2), CHAN_BULK, 0, 'S', i, 100000);
		say(of(s, 1), sim_endpoint(s, 2), CHAN_BULK, 0, 'S', i, 100000);
		say(of(s, 0), sim_endpoint(s, 1), CHAN_BULK, 0, 'S', i, 100000);
		say(of(s, 2), sim_endpoint(s, 3), CHAN_BULK, 0, 'S', i, 100000);
	}
	say(of(s, 0), sim_endpoint(s, 3), CHAN_CTRL, 0, 'S', 1, 200);
	sim_run_for(s, 100000);
	sim_check(s, of(s, 1)->got == 10 && of(s, 3)->got == 11);
	sim_run_for(s, 900000);
	sim_check(s, of(s, 2)->got >= 8 && of(s, 2)->got <= 10);        /* a megabyte a second, both together */
	sim_run_for(s, 1200000);
	sim_check(s, of(s, 2)->got == 20);
}

static void scn_partition(struct sim *s)
{
	struct linkinfo li;
	int side[3] = { 0, 1, 1 };

	add(s, 3);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_partition(s, side, 3);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 2, 64);
	say(of(s, 0), sim_endpoint(s, 2), CHAN_CTRL, 0, 'S', 1, 64);
	say(of(s, 1), sim_endpoint(s, 2), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 5000000);
	sim_check(s, of(s, 1)->got == 1 && of(s, 2)->got == 1);
	sim_check(s, of(s, 0)->unsent == 0);            /* it said yes to what nobody has */
	sim_check(s, env_now(of(s, 0)->env) == sim_now(s));
	sim_check(s, of(s, 0)->env->ops->linkinfo(of(s, 0)->env, sim_endpoint(s, 1), &li) && li.connected &&
		!li.maybe_dead);
	sim_heal(s);
	sim_run_for(s, 500000);
	sim_check(s, of(s, 1)->got == 1);               /* TCP's next retransmission is at 6.2 s */
	sim_run_for(s, 9000000);
	sim_check(s, of(s, 1)->got == 2);
	sim_check(s, of(s, 2)->got + of(s, 0)->unsent == 2);
}

static void scn_one_way(struct sim *s)
{
	add(s, 2);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 1, 64);
	say(of(s, 1), sim_endpoint(s, 0), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_cut(s, 0, 1);
	for (uint32_t i = 2; i < 8; i++) {              /* 0 to 1 is silent; 1 to 0 flows until its buffers are full */
		say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', i, 150000);
		say(of(s, 1), sim_endpoint(s, 0), CHAN_CTRL, 0, 'S', i, 150000);
	}
	sim_run_for(s, 1000000);
	sim_check(s, of(s, 1)->got == 1);
	sim_check(s, of(s, 0)->got == 5);
	sim_heal(s);
	sim_run_for(s, 3000000);
	sim_check(s, of(s, 1)->got == 7 && of(s, 0)->got == 7);
}

static void scn_death(struct sim *s)
{
	struct linkinfo li;
	struct env *e;

	add(s, 2);
	e = sim_env(s, 0);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_kill(s, 1);
	sim_check(s, !sim_app(s, 1) && !sim_alive(s, 1));
	sim_check(s, e->ops->linkinfo(e, sim_endpoint(s, 1), &li) && !li.maybe_dead);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 2, 64);
	sim_run_for(s, 5000);
	sim_check(s, of(s, 0)->unsent == 0);
	sim_check(s, e->ops->linkinfo(e, sim_endpoint(s, 1), &li) && li.maybe_dead && !li.connected);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 3, 64);
	sim_run_for(s, 3000000);
	sim_restart(s, 1);
	sim_run_for(s, 3000000);
	sim_check(s, of(s, 1)->got == 1 && of(s, 1)->last[0] == 3);
	sim_check(s, e->ops->linkinfo(e, sim_endpoint(s, 1), &li) && li.connected && !li.maybe_dead);
	e->ops->close_link(e, sim_endpoint(s, 1), false);
	sim_check(s, !e->ops->linkinfo(e, sim_endpoint(s, 1), &li));
	sim_power_off(s, 1);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 4, 64);
	sim_run_for(s, 30000000);
	sim_check(s, of(s, 0)->unsent == 1);            /* waited for a connection, came back */
}

static void scn_pause(struct sim *s)
{
	add(s, 2);
	say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_pause(s, 1);
	for (uint32_t i = 2; i <= 11; i++)
		say(of(s, 0), sim_endpoint(s, 1), CHAN_CTRL, 0, 'S', i, 100000);
	sim_run_for(s, 1000000);
	sim_check(s, of(s, 1)->got == 1 && of(s, 0)->back > 5 && of(s, 0)->back < 11);
	sim_resume(s, 1);
	sim_run_for(s, 1000000);
	sim_check(s, of(s, 1)->got == 11 && of(s, 0)->back == 11);
}

static void scn_door(struct sim *s)
{
	struct endpoint client;
	struct sim_stats st;

	sim_costs(s)->door_drop = 0;
	sim_node_add(s, NULL, &chat);
	memset(&client, 0, sizeof(client));
	client.ip[0] = 0xfd;
	sim_node_add(s, &client, &chat);
	say(of(s, 1), sim_endpoint(s, 0), CHAN_DOOR, 0, 'Q', 1, 64);
	sim_run_for(s, 100000);
	sim_check(s, of(s, 1)->answers == 1 && of(s, 0)->token);
	say(of(s, 0), NULL, CHAN_DOOR, of(s, 0)->token, 'S', 7, 64);    /* unasked */
	sim_run_for(s, 100000);
	sim_check(s, of(s, 1)->got == 2);
	say(of(s, 1), NULL, CHAN_DOOR, of(s, 1)->token, 'S', 8, 64);    /* the way back works on both sides */
	sim_run_for(s, 100000);
	sim_check(s, of(s, 0)->last[1] == 8);
	for (uint32_t i = 10; i < 14; i++)
		say(of(s, 0), NULL, CHAN_DOOR, of(s, 0)->token, 'S', i, 64);
	sim_run_for(s, 100000);
	sim_stats(s, &st);
	sim_check(s, st.door_drops == 0 && of(s, 1)->got == 6 && of(s, 1)->last[0] == 13);      /* spaced */
	sim_costs(s)->door_drop = 1;
	say(of(s, 0), NULL, CHAN_DOOR, of(s, 0)->token, 'S', 20, 64);
	sim_run_for(s, 100000);
	sim_stats(s, &st);
	sim_check(s, st.door_drops == 1 && of(s, 1)->got == 6 && of(s, 0)->unsent == 0);
	say(of(s, 0), &client, CHAN_CTRL, 0, 'S', 1, 64);
	sim_run_for(s, 100000);
	sim_check(s, of(s, 0)->unsent == 1);            /* nobody can dial a client */
	sim_kill(s, 1);
	say(of(s, 0), NULL, CHAN_DOOR, of(s, 0)->token, 'S', 9, 64);
	sim_run_for(s, 100000);
	sim_check(s, of(s, 0)->unsent == 1);            /* vanishes, as nanomsg's does */
}

/* Thirty nodes, random traffic, breaks, kills, cuts: nothing may ever come out of order within a connection, and every
 * packet comes back to its owner (chat_stop). */
static int ordered(struct sim *s, void *arg, struct err *e)
{
	for (int i = 0; i < sim_nodes(s); i++)
		if (sim_app(s, i) && of(s, i)->out_of_order)
			return err_set(e, ERR_STATE, "node %d: out of order", i);
	return 0;
}

static void scn_storm(struct sim *s)
{
	struct sim_link bad = { .latency_us = 2000, .jitter_us = 3000, .bytes_per_s = 10000000, .break_every = 40 };
	struct rng *r = sim_rng(s);
	struct sim_stats st = { 0 };

	sim_costs(s)->stall_every = 30;
	add(s, 30);
	sim_link(s, -1, -1, &bad);
	sim_after_event(s, ordered, NULL);
	for (uint32_t i = 1; i < 1500 || (st.delivered <= 500 && i < 6000); i++) {     /* some seeds kill many */
		int a = (int)rng_below(r, 30), b = (int)rng_below(r, 30);
		if (a != b && sim_app(s, a))
			say(of(s, a), sim_endpoint(s, b), rng_below(r, 3), 0, rng_below(r, 2) ? 'Q' : 'S', i,
				64 + rng_below(r, 20000));
		if (rng_below(r, 60) == 0)
			sim_kill(s, b);
		if (rng_below(r, 60) == 0)
			sim_restart(s, a);
		if (rng_below(r, 100) == 0)
			sim_cut(s, a, (int)rng_below(r, 31) - 1);
		if (rng_below(r, 100) == 0)
			sim_heal(s);
		if (rng_below(r, 50) == 0 && sim_app(s, a))
			sim_env(s, a)->ops->close_link(sim_env(s, a), sim_endpoint(s, b), false);
		sim_run_for(s, rng_below(r, 20000));
		sim_stats(s, &st);
	}
	sim_heal(s);
	sim_run_for(s, 60000000);
	sim_stats(s, &st);
	sim_check(s, st.breaks > 10 && st.delivered > 500 && st.lost > 0);
}

/* A loop that is held up finds messages of several connections in any order, but each connection's in its own. */
static void scn_stall(struct sim *s)
{
	struct sim_link even = { .latency_us = 100 };
	int runs[2];
	uint32_t number = 0;

	sim_after_event(s, ordered, NULL);
	sim_link(s, -1, -1, &even);
	add(s, 4);
	for (int pass = 0; pass < 2; pass++) {
		sim_costs(s)->stall_every = pass ? 2 : 0;
		of(s, 0)->runs = 0;
		for (int i = 0; i < 200; i++) {
			number++;
			say(of(s, 1), sim_endpoint(s, 0), CHAN_CTRL, 0, 'S', number, 64);
			say(of(s, 2), sim_endpoint(s, 0), CHAN_CTRL, 0, 'S', number, 64);
			sim_run_for(s, 500);
		}
		sim_run_for(s, 1000000);
		runs[pass] = of(s, 0)->runs;
	}
	sim_check(s, of(s, 0)->got == 800 && of(s, 0)->out_of_order == 0);
	sim_check(s, runs[0] <= 2 && runs[1] > 20);
}

static const struct scn list[] = { SCN(delivery), SCN(break), SCN(line), SCN(partition), SCN(one_way), SCN(death),
	SCN(pause), SCN(door), SCN(storm), SCN(stall), {0} };

int main(int argc, char **argv) { return scn_main(list, argc, argv); }

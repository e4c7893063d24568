/* Contributions that are given while they are made: each member's comes from its end to its beginning, in parts, in its
 * own time, and lies in memory that holds something else until then. Whoever dies, stops or is late in the middle of
 * one: its samples count as a whole or not at all (check.h), and nobody else is left out for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"
#include "common/mem.h"

#define LEN 900
#define PARTS 8
#define NOBODY WORLD_MAX

struct notes {
	uint64_t us[WORLD_MAX];                 /* that its parts take, all together */
	float *made[WORLD_MAX];                 /* what x will be */
	uint64_t samples[WORLD_MAX], tail;      /* that it is of; see pause_of */
	int late;                               /* the one that may be left out; -1: anybody */
	uint64_t left_out, partial, whole;
};

/* With tail: the late one has all but so many elements at once, and only who sums these waits for it. */
static uint64_t pause_of(struct apeer *p)
{
	const struct notes *n = p->w->user;
	uint64_t us = n->us[p->node] / PARTS;
	bool quick = p->node == n->late && p->w->conf.len - p->grown > n->tail;
	return n->tail && quick ? 200 : us + rng_below(sim_rng(p->w->s), us + 1);
}

static void next_part(struct timer *t)
{
	struct apeer *p = container_of(t, struct apeer, grow);
	struct notes *n = p->w->user;
	uint64_t len = p->w->conf.len, left = len - p->grown, part = 1 + rng_below(sim_rng(p->w->s), 2 * len / PARTS), lo;
	if (!p->in_round || p->syncing || p->grown == len)
		return;
	if (n->tail && p->node == n->late && left > n->tail)
		part = left - n->tail;
	lo = left > part ? left - part : 0;
	memcpy(p->x + lo, n->made[p->node] + lo, (left - lo) * sizeof(float));
	avg_contribute_part(p->avg, p->round_epoch, p->x, p->samples, &p->claimed, lo, left);
	p->grown = len - lo;
	if (p->grown < len)
		env_after(p->env, &p->grow, pause_of(p));
}

/* x is there, and taken away again; but what was made for another attempt at this epoch. */
static void bring(struct world *w, struct apeer *p)
{
	struct notes *n = w->user;
	size_t bytes = w->conf.len * sizeof(float);
	n->made[p->node] = xrealloc(n->made[p->node], bytes);
	memcpy(n->made[p->node], p->x, bytes);
	p->grown = p->begins > 1 && p->samples == n->samples[p->node] ? p->grown : 0;
	n->samples[p->node] = p->samples;
	for (size_t k = 0; k < w->conf.len - p->grown; k++)
		p->x[k] = 1e6f;
	env_timer(p->env, &p->grow, 0);
	p->grow = (struct timer){ .fire = next_part, .name = "test.grow" };
	avg_grows(p->avg, true);
	avg_contribute_part(p->avg, p->round_epoch, p->x, p->samples, &p->claimed, w->conf.len - p->grown, w->conf.len);
	env_after(p->env, &p->grow, 1 + pause_of(p));
}

static bool is(const struct apeer *p, const struct id *id)
{
	return p && id_eq(id, net_self(p->net));
}

/* Nobody but the late one is left out of what it has brought. */
static void saw(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = w->user;
	n->partial += p->samples && p->grown < w->conf.len;
	n->whole += c->my_samples > 0;
	if (c->my_samples && p->grown < w->conf.len)
		sim_fail(w->s, "node %d: its samples count in epoch %llu, of which it had made %llu of %zu elements", p->node,
			(unsigned long long)c->epoch, (unsigned long long)p->grown, w->conf.len);
	for (size_t i = 0; i < c->left_out_n && n->late >= 0; i++) {
		if (n->late == NOBODY || !is(world_peer(w, n->late), &c->left_out[i]))
			sim_late(w->s, "epoch %llu: somebody is left out who is not late", (unsigned long long)c->epoch);
		n->left_out++;
	}
}

static void heard(struct world *w, int node, const char *code, const struct id *peer)
{
	struct notes *n = w->user;
	if (n->late >= 0 && !strcmp(code, "complains alone") && (n->late == NOBODY || !is(world_peer(w, n->late), peer)))
		sim_fail(w->s, "node %d: an honest member is said to complain alone", node);
}

static struct world *world_of(struct sim *s, struct notes *n, int peers)
{
	struct world *w = world_new(s, LEN, (uint64_t)peers * 32, 16, 10 * MSEC);
	*n = (struct notes){ .late = -1 };
	w->user = n;
	w->start_us = 3 * SEC;
	w->conf.part_min = 32;
	w->conf.slice = 60;
	w->bring = bring;
	w->saw = saw;
	w->heard = heard;
	for (int i = 0; i < WORLD_MAX; i++)
		n->us[i] = (5 + rng_below(sim_rng(s), 40)) * MSEC;
	return w;
}

static void begin(struct world *w, int peers)
{
	world_add(w, peers);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 40 * SEC);
}

static void end(struct world *w)
{
	struct notes *n = w->user;
	world_free(w);
	for (int i = 0; i < WORLD_MAX; i++)
		free(n->made[i]);
}

/* All are in every epoch, however long each takes. */
static void scn_grown(struct sim *s)
{
	struct notes n;
	int peers = 3 + (int)(sim_seed(s) % 5);
	struct world *w = world_of(s, &n, peers);
	begin(w, peers);
	n.left_out = 0;
	n.late = NOBODY;
	world_go_on(w, 20);
	sim_in_time(s, !n.left_out && n.whole >= 20 * (uint64_t)peers);
	end(w);
}

/* Whose round is its own contribution does not commit before that is there. */
static void scn_alone(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 1);
	begin(w, 1);
	world_go_on(w, 10);
	sim_check(s, n.whole >= 10);
	end(w);
}

static void scn_killed(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 6);
	begin(w, 6);
	for (int k = 0; k < 3; k++) {
		world_strike(w, SIM_KILL);
		world_go_on(w, 4);
	}
	end(w);
}

static void scn_two_killed(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 7);
	w->conf.group_size = sim_seed(s) % 2 ? 3 : 64;
	begin(w, 7);
	world_strike(w, SIM_KILL);
	world_strike(w, SIM_KILL);
	world_go_on(w, 6);
	end(w);
}

/* At any moment of the making, with no news of it. */
static void scn_power(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 5);
	begin(w, 5);
	sim_run_for(s, rng_below(sim_rng(s), 80 * MSEC));
	sim_power_off(s, (int)rng_below(sim_rng(s), 5));
	world_go_on(w, 6);
	end(w);
}

static void scn_stopped(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 6);
	w->forks_allowed = true;
	begin(w, 6);
	uint64_t at = world_newest(w);
	world_strike(w, SIM_PAUSE);
	sim_run_for(s, 4 * SEC);
	for (int i = 0; i < sim_nodes(s); i++)
		sim_resume(s, i);
	sim_run_for(s, 2 * SEC);
	sim_in_time(s, world_newest(w) > at + 8);
	world_go_on(w, 6);
	end(w);
}

static void scn_breaking(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 5);
	struct sim_link l = { .latency_us = 2 * MSEC, .jitter_us = MSEC, .break_every = 200 };
	w->forks_allowed = true;
	begin(w, 5);
	sim_link(s, -1, -1, &l);
	world_go_on(w, 20);
	end(w);
}

/* One needs longer than any deadline: the others go on without it, and none of them is blamed. Then it is as fast as
 * they, and counts again. */
static void late(struct world *w, int peers)
{
	struct notes *n = w->user;
	begin(w, peers);
	n->late = (int)rng_below(sim_rng(w->s), (uint64_t)peers);
	n->us[n->late] = 20 * SEC;
	n->tail = sim_seed(w->s) % 2 ? 0 : 1 + rng_below(sim_rng(w->s), 60);
	world_run_to(w, world_newest(w) + 6, 60 * SEC);
	sim_in_time(w->s, n->left_out > 0 && n->partial > 0);
	n->us[n->late] = 10 * MSEC;
	world_run_to(w, world_newest(w) + 60, 120 * SEC);
	struct apeer *p = world_peer(w, n->late);
	world_brings(w, n->late, 0);
	uint64_t before = p->my_total;
	world_go_on(w, 20);
	world_brings(w, n->late, before);
	end(w);
}

static void scn_late(struct sim *s)
{
	struct notes n;
	int peers = 3 + (int)(sim_seed(s) % 4);
	late(world_of(s, &n, peers), peers);
}

static void scn_late_in_rows(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 10);
	w->conf.group_size = 3 + sim_seed(s) % 2;
	late(w, 10);
}

/* In a grid. */
static void scn_late_in_lines(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 9);
	w->conf.group_size = 3;
	w->conf.topology = topo_find("moshpit");
	w->takes_mean = true;
	w->apart = w->slack = 1e-5;
	late(w, 9);
}

/* All are too slow for a round: it comes to nothing, and the next one has what they have made. */
static void scn_all_late(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 4);
	begin(w, 4);
	for (int i = 0; i < WORLD_MAX; i++)
		n.us[i] = 6 * SEC;
	world_go_on(w, 3);
	end(w);
}

/* Backward takes longer than any deadline that has not been measured: whoever is in the middle of it is not late, from
 * the first round on. */
static void scn_patient(struct sim *s)
{
	struct notes n;
	int peers = 3 + (int)(sim_seed(s) % 3);
	struct world *w = world_of(s, &n, peers);
	w->conf.target_batch = (uint64_t)peers * w->micro;
	n.late = NOBODY;
	for (int i = 0; i < WORLD_MAX; i++) {
		w->step_us[i] = 8 * SEC;
		n.us[i] = (3 + rng_below(sim_rng(s), 3)) * SEC;
	}
	world_add(w, peers);
	world_settle(w, 20 * SEC);
	for (int i = 0; i < peers; i++)
		avg_grows(world_peer(w, i)->avg, true);
	world_run_to(w, 4, 200 * SEC);
	world_same(w);
	sim_in_time(s, n.whole >= 4 * (uint64_t)peers && !n.left_out);
	end(w);
}

/* It says what it has, and makes nothing of it. */
static void scn_never(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 5);
	begin(w, 5);
	n.late = (int)rng_below(sim_rng(s), 5);
	n.us[n.late] = 100000 * SEC;
	world_run_to(w, world_newest(w) + 10, 60 * SEC);
	sim_in_time(s, n.left_out > 0);
	end(w);
}

static void scn_joins(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 3);
	w->forks_allowed = true;
	begin(w, 2);
	for (int k = 0; k < 5 && !sim_failed(s); k++) {
		world_add(w, 1);
		sim_run_for(s, 100 * MSEC + rng_below(sim_rng(s), 100 * MSEC));
		world_go_on(w, 1);
		if (k == 3)
			sim_kill(s, (int)rng_below(sim_rng(s), 3));
	}
	world_go_on(w, 3);
	end(w);
}

struct goer { struct world *w; int node; uint64_t at; bool gone; };

/* Some of what it brings is there, and not all. */
static bool middle(struct sim *s, void *arg)
{
	struct goer *g = arg;
	int from = (int)rng_below(sim_rng(s), (uint64_t)sim_nodes(s));
	for (int k = 0; k < sim_nodes(s); k++) {
		struct apeer *p = world_peer(g->w, g->node = (from + k) % sim_nodes(s));
		if (p && p->in_round && !p->syncing && p->grown && p->grown < g->w->conf.len)
			return true;
	}
	return false;
}

static bool others_on(struct sim *s, void *arg)
{
	const struct goer *g = arg;
	for (int i = 0; i < sim_nodes(s); i++)
		if (i != g->node && world_peer(g->w, i) && world_peer(g->w, i)->point.epoch <= g->at)
			return false;
	return true;
}

static void is_gone(void *arg) { ((struct goer *)arg)->gone = true; }
static bool has_gone(struct sim *s, void *arg) { return ((struct goer *)arg)->gone; }

/* Whoever leaves in order in the middle of one, whether it makes the rest still or not: what it has given counts as a
 * whole or not at all, and the others wait for the rest as long as BEGIN says, no longer. */
static void leaves(struct sim *s, bool ends)
{
	struct notes n;
	struct world *w = world_of(s, &n, 7);
	w->conf.group_size = sim_seed(s) % 3 ? 64 : 3;
	begin(w, 7);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		struct goer g = { w };
		if (!sim_await(s, middle, &g, 10 * SEC))
			break;
		struct apeer *p = world_peer(w, g.node);
		uint64_t until = p->deadline_us + SEC, total = p->my_total, now = sim_now(s);
		g.at = p->point.epoch;
		n.us[g.node] = ends ? n.us[g.node] : 100000 * SEC;
		if (!ends)
			env_timer(p->env, &p->grow, 0);
		avg_leave(p->avg, is_gone, &g);
		sim_await_or(s, others_on, &g, until > now ? until - now : 1,
			"the others wait for node %d, which leaves, beyond its deadline", g.node);
		sim_await_or(s, has_gone, &g, 7 * SEC, "node %d does not get away", g.node);
		sim_check(s, ends || p->my_total == total);
		sim_kill(s, g.node);
		world_go_on(w, 4);
	}
	end(w);
}

static void scn_leaves(struct sim *s) { leaves(s, true); }
static void scn_leaves_half(struct sim *s) { leaves(s, false); }

static const char *const specs[] = { "\"fp16\"", "\"uniform8\"", "\"blockwise8\"", "\"blockwise4\"" };

static void scn_coded(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 6);
	json_t *codec = json_loads(specs[sim_seed(s) % 4], JSON_DECODE_ANY, NULL);
	w->conf.codec = codec;
	w->conf.error_feedback = sim_seed(s) % 2;
	w->part = 0.5;
	begin(w, 6);
	world_strike(w, SIM_KILL);
	world_go_on(w, 6);
	end(w);
	json_decref(codec);
}

/* Pieces that are summed in a lane. */
static void scn_lanes(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 5);
	w->conf.len = 120000;
	w->conf.slice = 17000;
	w->conf.group_size = sim_seed(s) % 2 ? 2 : 64;
	w->micro = 1;
	w->conf.target_batch = 10;
	for (int i = 0; i < WORLD_MAX; i++)
		w->saved_model[i] = xrealloc(w->saved_model[i], w->conf.len * sizeof(float));
	begin(w, 5);
	world_strike(w, SIM_KILL);
	world_go_on(w, 4);
	end(w);
}

/* With a mean that bears liars every member signs the hashes of all that it brings: once it is there. */
static void scn_robust(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 5);
	w->conf.robust = ROBUST_CLIP;
	w->slack = 10;                          /* a robust mean is not the samples' */
	begin(w, 5);
	world_go_on(w, 6);
	sim_in_time(s, n.whole > 20);
	end(w);
}

static const struct scn list[] = { SCN_CELLS(grown, 5), SCN(alone), SCN(never), SCN(joins), SCN(killed),
	SCN(two_killed),
	SCN(power), SCN(stopped), SCN(breaking), SCN(late), SCN(late_in_rows), SCN(late_in_lines), SCN(all_late),
	SCN(patient), SCN(leaves), SCN(leaves_half), SCN(coded), SCN(lanes), SCN(robust), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

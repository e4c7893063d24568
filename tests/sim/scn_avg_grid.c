/* Rounds in a grid (topology moshpit): all hold the mean of the committed samples to 1e-6 and those of one line the
 * same bytes, whatever the number of members and whoever dies; every few epochs all agree in every bit again. check.h
 * holds every mean against the samples and every member against the others, here within `apart`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"
#include "common/hash.h"
#include "common/mem.h"

#define LEN 900
#define EXACT 1e-6
#define AGREE 4
#define KEPT 16

struct seen { uint64_t epoch; uint8_t prev[DIGEST], mean[16]; };
struct notes {
	uint64_t bytes, grids, agreed, left_out, nonfinite; bool met[WORLD_MAX][WORLD_MAX]; int evil;
	size_t dims; struct seen seen[WORLD_MAX][KEPT];
};

static int node_of(struct world *w, const char *name)
{
	char own[9];
	for (int k = 0; k < sim_nodes(w->s); k++)
		if (sim_alive(w->s, k) && world_peer(w, k) && !strcmp(id_short(net_self(world_peer(w, k)->net), own), name))
			return k;
	return -1;
}

static void same_bytes(struct world *w, int node, int other, const struct seen *own, const char *why)
{
	struct notes *n = w->user;
	const struct seen *o = &n->seen[other][own->epoch % KEPT];
	if (other != node && o->epoch == own->epoch && !memcmp(o->prev, own->prev, DIGEST) &&
			memcmp(o->mean, own->mean, 16))
		sim_fail(w->s, "nodes %d and %d %s, and their means of epoch %llu are not the same bytes", node, other, why,
			(unsigned long long)own->epoch);
}

static bool in_row(const json_t *row, const char *name)
{
	const json_t *id;
	size_t i;
	json_array_foreach(json_object_get(row, "peers"), i, id)
		if (!strcmp(json_string_value(id), name))
			return true;
	return false;
}

static void with_line(struct world *w, int node, const json_t *shape, const struct seen *own)
{
	const json_t *row, *id;
	char name[9];
	size_t r, i;
	id_short(net_self(world_peer(w, node)->net), name);
	json_array_foreach(json_object_get(shape, "rows"), r, row) {
		if (!in_row(row, name))
			continue;
		json_array_foreach(json_object_get(row, "peers"), i, id) {
			int other = node_of(w, json_string_value(id));
			if (other >= 0)
				same_bytes(w, node, other, own, "are in one line");
		}
	}
}

static void look(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = w->user;
	struct seen *own = &n->seen[p->node][c->epoch % KEPT];
	json_t *shape = avg_shape(p->avg);
	const char *topology = json_string_value(json_object_get(shape, "topology"));
	bool grid = topology && !strcmp(topology, "moshpit");
	own->epoch = c->epoch;
	memcpy(own->prev, c->point->prev, DIGEST);
	xxh128_of(mean, w->conf.len * sizeof *mean, own->mean);
	if (grid)
		with_line(w, p->node, shape, own);
	for (int i = 0; !grid && i < sim_nodes(w->s); i++)
		same_bytes(w, p->node, i, own, "are in one round");
	if (grid == (c->epoch % AGREE == 0) && c->members > w->conf.group_size)
		sim_fail(w->s, "epoch %llu of %u members: topology %s", (unsigned long long)c->epoch, c->members, topology);
	n->grids += grid;
	n->agreed += !grid;
	n->bytes += c->bytes_in;
	n->dims = grid ? json_array_size(json_object_get(shape, "grid")) : n->dims;
	for (size_t k = 0; k < w->conf.len; k++)
		if (!isfinite(mean[k]))
			sim_fail(w->s, "node %d: a mean that is not finite", p->node);
	struct apeer *evil = n->evil < 0 ? NULL : world_peer(w, n->evil);
	for (size_t i = 0; i < c->left_out_n && p->node == 0 && evil; i++)
		n->left_out += id_eq(&c->left_out[i], net_self(evil->net));
	json_decref(shape);
}

static struct world *world_of(struct sim *s, struct notes *n, int peers, uint32_t group)
{
	struct world *w = world_new(s, LEN, (uint64_t)peers * 32, 16, 10 * MSEC);
	*n = (struct notes){ .evil = -1 };
	w->user = n;
	w->start_us = 3 * SEC;
	w->conf.group_size = group;
	w->conf.topology = topo_find("moshpit");
	w->conf.agree_every = AGREE;
	w->conf.part_min = 32;
	w->takes_mean = true;
	w->apart = w->slack = EXACT;
	w->saw = look;
	return w;
}

static void begin(struct world *w, int peers)
{
	world_add(w, peers);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 20 * SEC);
}

/* Who stands at that epoch, the first of them; the others have the same bits, or it is a fault. */
static struct apeer *equal_at(struct world *w, uint64_t epoch)
{
	struct apeer *first = NULL;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		if (!p || p->point.epoch != epoch)
			continue;
		if (first && (memcmp(p->point.prev, first->point.prev, DIGEST) ||
				memcmp(p->model, first->model, w->conf.len * sizeof(float))))
			sim_fail(w->s, "nodes %d and %d hold different models at epoch %llu, in which all agree", first->node, i,
				(unsigned long long)epoch);
		first = first ? first : p;
	}
	return first;
}

/* So many epochs more, and then to one in which all agree: equal in every bit. Some may be further already, and when
 * the last one takes a newer state all of them: then to the next one. */
static void finish(struct world *w, uint64_t more)
{
	struct notes *n = w->user;
	struct apeer *there = NULL;
	for (int i = 0; i < 3 && !there; i++) {
		uint64_t to = world_newest(w) + (i ? 1 : more);
		to += (AGREE - to % AGREE) % AGREE;
		world_run_to(w, to, 60 * SEC);
		there = equal_at(w, to);
	}
	sim_in_time(w->s, there && n->grids > 0);
}

/* ---- nobody dies ---- */

static bool is_data(const uint8_t *wire, size_t len)
{
	return len > 100 && wire[6] + wire[7] == KIND_CHUNK;
}

static void on_wire(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct notes *n = arg;
	if (is_data(wire, len))
		n->met[from][to] = true;
}

/* 2^3, 3^3 and 4^2 peers: exact in d phases, with 2 |g| (M-1) bytes in a line; nobody sends to more than d (M-1)
 * others. */
static void full(struct sim *s, int peers, int m, size_t dims)
{
	struct notes n;
	struct world *w = world_of(s, &n, peers, (uint32_t)m);
	begin(w, peers);
	world_run_to(w, AGREE, 60 * SEC);
	sim_tap(s, on_wire, &n);
	n.bytes = n.grids = 0;
	world_run_to(w, AGREE + AGREE - 1, 60 * SEC);
	sim_tap(s, NULL, NULL);
	uint64_t want = 2ull * LEN * 4 * dims * (uint64_t)(m - 1) * (uint64_t)(peers / m) * (AGREE - 1);
	if (n.grids != (uint64_t)peers * (AGREE - 1) || n.dims != dims)
		sim_late(s, "%llu means of %zu phases from %d peers in %d epochs", (unsigned long long)n.grids, n.dims, peers,
			AGREE - 1);
	if (n.bytes != want)
		sim_late(s, "%llu bytes in %d epochs, %llu would do", (unsigned long long)n.bytes, AGREE - 1,
			(unsigned long long)want);
	for (int i = 0; i < peers; i++) {
		int met = 0;
		for (int k = 0; k < peers; k++)
			met += n.met[i][k];
		if (met > (int)dims * (m - 1))
			sim_late(s, "node %d of %d sends parts to %d others, %d would do", i, peers, met, (int)dims * (m - 1));
	}
	finish(w, 1);
	world_free(w);
}

static void scn_eight(struct sim *s) { full(s, 8, 2, 3); }
static void scn_cube(struct sim *s) { full(s, 27, 3, 3); }
static void scn_square(struct sim *s) { full(s, 16, 4, 2); }

/* Any number of members, most of them with gaps in the grid. */
static void scn_gaps(struct sim *s)
{
	struct notes n;
	int peers = 5 + (int)(sim_seed(s) % 11);
	struct world *w = world_of(s, &n, peers, 2 + (uint32_t)(sim_seed(s) % 3));
	begin(w, peers);
	world_run_to(w, 12, 60 * SEC);
	finish(w, 1);
	world_free(w);
}

/* ---- no bad time to die ---- */

static void scn_killed(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 11, 3);
	begin(w, 11);
	for (int k = 0; k < 3; k++) {
		world_strike(w, SIM_KILL);
		finish(w, 4);
	}
	world_free(w);
}

static void scn_two_killed(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 10, 2);
	begin(w, 10);
	world_strike(w, SIM_KILL);
	world_strike(w, SIM_KILL);
	finish(w, 6);
	world_free(w);
}

/* Stopped for longer than any deadline; the others find out who it was, and go on. */
static void scn_stopped(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 10, 3);
	w->forks_allowed = true;
	begin(w, 10);
	uint64_t at = world_newest(w);
	world_strike(w, SIM_PAUSE);
	sim_run_for(s, 3 * SEC);
	for (int i = 0; i < sim_nodes(s); i++)
		sim_resume(s, i);
	sim_run_for(s, SEC);
	sim_in_time(s, world_newest(w) > at + 10);
	finish(w, 6);
	world_free(w);
}

/* Sums in the lane, and many pieces. */
static void scn_lanes(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 7, 3);
	w->conf.len = 120000;
	w->conf.slice = 17000;
	w->conf.part_min = 20000;
	w->micro = 1;
	w->conf.target_batch = 14;
	for (int i = 0; i < WORLD_MAX; i++)
		w->saved_model[i] = xrealloc(w->saved_model[i], w->conf.len * sizeof(float));
	begin(w, 7);
	world_strike(w, SIM_KILL);
	finish(w, 4);
	world_free(w);
}

/* ---- who else is there ---- */

static void send_nan(struct world *w, int node, float *x)
{
	if (node == ((struct notes *)w->user)->evil)
		x[LEN / 2] = NAN;
}

static void hear(struct world *w, int node, const char *code, const struct id *peer)
{
	struct notes *n = w->user;
	struct apeer *evil = n->evil < 0 ? NULL : world_peer(w, n->evil);
	n->nonfinite += !strcmp(code, "nonfinite") && peer && evil && id_eq(peer, net_self(evil->net));
}

static void scn_not_a_number(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 8, 2);
	n.evil = (int)rng_below(sim_rng(s), 8);
	w->heard = hear;
	begin(w, 8);
	n.left_out = n.nonfinite = 0;
	w->twist = send_nan;
	world_run_to(w, 13, 60 * SEC);
	sim_in_time(s, n.left_out >= 8 && n.nonfinite >= 8);
	w->twist = NULL;
	finish(w, 4);
	world_free(w);
}

/* Clients, who sum for nobody and of whom a line may consist, and a helper who brings nothing; a slow owner of a
 * contribution holds nobody up, and gets the mean. */
static void scn_roles(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 9, 3);
	world_draw_roles(w, 9);
	begin(w, 9);
	world_roles_hold(w, 9);
	finish(w, 6);
	world_free(w);
}

/* They come one after the other: flat at first, then two dimensions, then others; some leave again. */
static void scn_grow(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 5, 3);
	w->forks_allowed = true;
	begin(w, 2);
	for (int k = 0; k < 10 && !sim_failed(s); k++) {
		world_add(w, 1);
		sim_run_for(s, 200 * MSEC);
		world_run_to(w, world_newest(w) + 1, 60 * SEC);
	}
	finish(w, 1);
	for (int k = 0; k < 8 && !sim_failed(s); k++) {
		sim_kill(s, k);
		sim_run_for(s, rng_below(sim_rng(s), 60 * MSEC));
	}
	finish(w, 3);
	world_free(w);
}

static const struct scn list[] = { SCN(eight), SCN(cube), SCN(square), SCN_CELLS(gaps, 11), SCN(killed),
	SCN(two_killed),
	SCN(stopped), SCN(lanes), SCN(not_a_number), SCN(roles), SCN(grow), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

/* Rounds in rows: more members than a group. One set of bytes whoever dies, subs, owners, leaders, in plain and encoded
 * rounds; as many bytes as a flat round, and neighbours instead of everybody. check.h holds every mean against the
 * committed samples and every member against the others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"
#include "common/mem.h"

#define LEN 900
#define GROUP 3

struct notes { uint64_t bytes, epochs, left_out, nonfinite; bool met[WORLD_MAX][WORLD_MAX]; int evil; };

static struct world *world_of(struct sim *s, struct notes *n, int peers)
{
	struct world *w = world_new(s, LEN, (uint64_t)peers * 32, 16, 10 * MSEC);
	*n = (struct notes){ .evil = -1 };
	w->user = n;
	w->start_us = 3 * SEC;
	w->conf.group_size = GROUP;
	w->conf.part_min = 32;
	w->conf.error_feedback = true;
	return w;
}

static void begin(struct world *w, int peers)
{
	world_add(w, peers);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 20 * SEC);
}

static void finish(struct world *w, uint64_t more)
{
	world_go_on(w, more);
}

/* ---- what goes over the wire ---- */

static void count_bytes(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = w->user;
	n->bytes += c->bytes_in;
	n->epochs += p->node == 0;
}

/* A piece of a transfer, and not only its receipt (the header is daemon/net/frame.h's). */
static bool is_data(const uint8_t *wire, size_t len)
{
	return len > 500 && wire[6] + wire[7] == KIND_CHUNK;
}

static void on_wire(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct notes *n = arg;
	if (is_data(wire, len))
		n->met[from][to] = true;
}

/* Every number of members, every last row: 2 |g| (N-1) bytes, and nobody has to do with more than its row and the subs
 * of other rows. */
static void scn_bytes(struct sim *s)
{
	struct notes n;
	int peers = 7 + (int)(sim_seed(s) % 10), rows = (peers + GROUP - 1) / GROUP, most = 0;
	/* In a row that is shorter than others somebody has two columns. */
	int bound = GROUP - 1 + (rows - 1) * (peers % GROUP ? 2 : 1);
	struct world *w = world_of(s, &n, peers);
	begin(w, peers);
	world_run_to(w, 10, 60 * SEC);
	w->saw = count_bytes;
	memset(n.met, 0, sizeof n.met);
	sim_tap(s, on_wire, &n);
	world_run_to(w, 20, 60 * SEC);
	sim_tap(s, NULL, NULL);
	uint64_t want = 2ull * LEN * 4 * (uint64_t)(peers - 1), got = n.epochs ? n.bytes / n.epochs : 0;
	if (got > want * 102 / 100 || got * 100 < want * 85)
		sim_late(s, "%d members: %llu bytes in a round, 2 |g| (N-1) is %llu", peers, (unsigned long long)got,
			(unsigned long long)want);
	for (int i = 0; i < peers; i++) {
		int met = 0;
		for (int k = 0; k < peers; k++)
			met += n.met[i][k];
		if (met > bound)
			sim_late(s, "node %d of %d sends parts to %d others, %d would do", i, peers, met, bound);
		most = met > most ? met : most;
	}
	sim_in_time(s, most >= GROUP);
	world_same(w);
	world_free(w);
}

/* ---- no bad time to die ---- */

static void scn_killed(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 10);
	begin(w, 10);
	for (int k = 0; k < 3; k++) {
		world_strike(w, SIM_KILL);
		finish(w, 4);
	}
	world_free(w);
}

static void scn_two_killed(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 11);
	begin(w, 11);
	world_strike(w, SIM_KILL);
	world_strike(w, SIM_KILL);
	finish(w, 6);
	world_free(w);
}

/* Stopped for longer than any deadline; the others find out who it was, and go on. */
static void scn_stopped(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 10);
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

/* ---- encoded, in the lanes ---- */

static const char *const specs[] = { "\"fp16\"", "\"uniform8\"", "\"blockwise8\"", "\"blockwise4\"" };

static void scn_coded(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 8);
	json_t *codec = json_loads(specs[sim_seed(s) % 4], JSON_DECODE_ANY, NULL);
	w->conf.codec = codec;
	w->conf.slice = 70;
	w->part = 0.5;          /* blockwise4 on every way up and down */
	begin(w, 8);
	world_strike(w, SIM_KILL);
	finish(w, 6);
	world_free(w);
	json_decref(codec);
}

static void scn_lanes(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 7);
	json_t *codec = json_loads(specs[sim_seed(s) % 4], JSON_DECODE_ANY, NULL);
	w->conf.codec = sim_seed(s) % 3 ? codec : NULL;
	w->conf.len = 120000;
	w->conf.slice = 17000;
	w->micro = 1;
	w->conf.target_batch = 14;
	w->part = 0.5;          /* blockwise4 on every way up and down */
	for (int i = 0; i < WORLD_MAX; i++)
		w->saved_model[i] = xrealloc(w->saved_model[i], w->conf.len * sizeof(float));
	begin(w, 7);
	world_strike(w, SIM_KILL);
	finish(w, 4);
	world_free(w);
	json_decref(codec);
}

/* What rows' means leave out comes later: after 40 epochs of half bytes the sum of what was applied is as near to the
 * truth as after few (scn_avg_coded's measure). */
struct drift { double *truth, *sum; };

static void add_up(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct drift *d = w->user;
	if (p->node)
		return;
	world_truth(p, c, LEN, d->truth);
	for (size_t k = 0; k < LEN; k += 5)
		d->sum[k] += mean[k];
}

static double apart_after(struct sim *s, bool feedback)
{
	struct notes n;
	struct sim *own = sim_new(sim_seed(s));
	struct world *w = world_of(own, &n, 6);
	struct drift d = { xcalloc(LEN, sizeof *d.truth), xcalloc(LEN, sizeof *d.sum) };
	json_t *codec = json_string("blockwise4");
	double apart = 0;
	w->conf.codec = codec;
	w->conf.error_feedback = feedback;
	w->part = 0.5;          /* blockwise4 on every way up and down */
	w->user = &d;
	w->saw = add_up;
	begin(w, 6);
	world_run_to(w, 30, 60 * SEC);
	for (size_t k = 0; k < LEN; k += 5)
		apart += fabs(d.sum[k] - d.truth[k]) / (LEN / 5);
	world_free(w);
	sim_told(s, own);
	uint64_t hash = sim_hash(own);
	sim_trace(s, &hash, sizeof hash);
	sim_free(own);
	json_decref(codec);
	free(d.truth);
	free(d.sum);
	return apart;
}

static void scn_feedback(struct sim *s)
{
	double with = apart_after(s, true), without = apart_after(s, false);
	if (!(with < 0.015) || !(with * 2 < without))
		sim_late(s, "with feedback the sum is %g from the truth, without %g", with, without);
}

/* ---- who else is there ---- */

static void send_nan(struct world *w, int node, float *x)
{
	if (node == ((struct notes *)w->user)->evil)
		x[LEN / 2] = NAN;
}

static void add_left_out(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = w->user;
	struct apeer *evil = world_peer(w, n->evil);
	for (size_t i = 0; i < c->left_out_n && p->node == 0 && evil; i++)
		n->left_out += id_eq(&c->left_out[i], net_self(evil->net));
	for (size_t k = 0; k < LEN; k++)
		if (!isfinite(mean[k]))
			sim_fail(w->s, "node %d: a mean that is not finite", p->node);
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
	struct world *w = world_of(s, &n, 8);
	n.evil = (int)rng_below(sim_rng(s), 8);
	w->heard = hear;
	begin(w, 8);
	w->saw = add_left_out;
	w->twist = send_nan;
	world_run_to(w, 13, 60 * SEC);
	sim_in_time(s, n.left_out >= 8 && n.nonfinite >= 8);
	w->twist = NULL;
	finish(w, 4);
	world_free(w);
}

/* What is not finite belongs to the mean of one part, for a while (avg_cb.overflows): nobody is left out or blamed. */
static void add_infinite(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = w->user;
	n->left_out += c->left_out_n;
	n->epochs += p->node == 0 && !isfinite(mean[LEN / 2]);
}

static void scn_overflow(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 8);
	void (*was)(struct world *, struct apeer *, const struct avg_commit *, const float *);
	n.evil = (int)rng_below(sim_rng(s), 8);
	w->heard = hear;
	begin(w, 8);
	was = w->saw;
	w->saw = add_infinite;
	w->overflow_until = world_newest(w) + 8;
	n.left_out = n.nonfinite = n.epochs = 0;
	w->twist = send_nan;
	world_run_to(w, w->overflow_until, 60 * SEC);
	sim_check(s, !n.left_out && !n.nonfinite);
	sim_in_time(s, n.epochs >= 6);
	w->saw = was;
	w->twist = NULL;
	finish(w, 4);
	world_free(w);
}

/* A row may consist of clients, who sum for nobody, and of helpers who bring nothing; a slow owner of a contribution
 * holds nobody up. */
static void scn_roles(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 9);
	world_draw_roles(w, 9);
	begin(w, 9);
	world_roles_hold(w, 9);
	finish(w, 6);
	world_free(w);
}

/* They come one after the other: flat at first, then rows, then other rows; some leave again. */
static void scn_grow(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, 5);
	w->forks_allowed = true;
	begin(w, 2);
	for (int k = 0; k < 10 && !sim_failed(s); k++) {
		world_add(w, 1);
		sim_run_for(s, 200 * MSEC);
		finish(w, 1);
	}
	for (int k = 0; k < 8 && !sim_failed(s); k++) {
		sim_kill(s, k);
		sim_run_for(s, rng_below(sim_rng(s), 60 * MSEC));
	}
	finish(w, 3);
	world_free(w);
}

/* ---- neighbours ---- */

#define PLACES 16
#define THIN_LEN 40000

struct crossing { uint64_t bytes; };

/* Every other member is elsewhere: 100 ms away, at 10 Mbit/s. */
static void cross_wire(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct crossing *c = arg;
	if (is_data(wire, len) && from % 2 != to % 2)
		c->bytes += len;
}

static void rows_are_places(struct world *w)
{
	json_t *o = avg_shape(world_peer(w, 0)->avg), *row, *id;
	size_t r, i;
	if (json_array_size(json_object_get(o, "rows")) != 2)
		sim_late(w->s, "%zu rows of two places", json_array_size(json_object_get(o, "rows")));
	json_array_foreach(json_object_get(o, "rows"), r, row) {
		int place = -1;
		json_array_foreach(json_object_get(row, "peers"), i, id)
			for (int k = 0; k < PLACES; k++) {
				char name[9];
				if (strcmp(id_short(net_self(world_peer(w, k)->net), name), json_string_value(id)))
					continue;
				if (place >= 0 && place != k % 2)
					sim_late(w->s, "node %d is in a row of the other place", k);
				place = k % 2;
			}
	}
	json_decref(o);
}

/* What crosses in a round, and how long one takes in virtual time: every pair has a thin link of its own here, so that
 * a flat round is not slower for what it sends across; where all share one, the bytes say it. */
static void cross(struct sim *own, uint32_t group, uint64_t *ret_bytes, uint64_t *ret_us)
{
	struct notes n;
	struct crossing c = { 0 };
	struct avg_view v, u;
	struct world *w = world_new(own, THIN_LEN, PLACES, 1, 300 * MSEC);
	w->user = &n;
	w->start_us = 6 * SEC;
	w->conf.group_size = group;
	for (int i = 0; i < PLACES; i++)
		for (int k = 0; k < PLACES; k++) {
			struct sim_link thin = { .latency_us = 50 * MSEC, .jitter_us = MSEC, .bytes_per_s = 1250000 },
				near = { .latency_us = 500, .jitter_us = 50 };
			sim_link(own, i, k, i % 2 == k % 2 ? &near : &thin);
		}
	world_add(w, PLACES);
	world_settle(w, 60 * SEC);
	world_run_to(w, 8, 120 * SEC);
	if (group < PLACES)
		rows_are_places(w);
	avg_view(world_peer(w, 0)->avg, &v);
	sim_tap(own, cross_wire, &c);
	world_run_to(w, 14, 120 * SEC);
	sim_tap(own, NULL, NULL);
	avg_view(world_peer(w, 0)->avg, &u);
	*ret_bytes = c.bytes / (u.rounds_done - v.rounds_done + !(u.rounds_done - v.rounds_done));
	*ret_us = u.last_round_us;
	world_same(w);
	world_free(w);
}

static void scn_places(struct sim *s)
{
	uint64_t bytes[2], us[2], thin = 2ull * THIN_LEN * 4;
	for (int rows = 0; rows < 2; rows++) {
		struct sim *own = sim_new(sim_seed(s));
		cross(own, rows ? 8 : 64, &bytes[rows], &us[rows]);
		sim_told(s, own);
		uint64_t hash = sim_hash(own);
		sim_trace(s, &hash, sizeof hash);
		sim_free(own);
	}
	if (getenv("VERBOSE"))
		fprintf(stderr, "across: flat %llu bytes, %llu us; in rows %llu bytes, %llu us; 2 |g| is %llu\n",
			(unsigned long long)bytes[0], (unsigned long long)us[0], (unsigned long long)bytes[1],
			(unsigned long long)us[1], (unsigned long long)thin);
	if (bytes[1] > thin * 102 / 100 || bytes[0] < 4 * bytes[1])
		sim_late(s, "%llu bytes cross in a round, %llu when it is flat; 2 |g| is %llu", (unsigned long long)bytes[1],
			(unsigned long long)bytes[0], (unsigned long long)thin);
}

static const struct scn list[] = { SCN_CELLS(bytes, 10), SCN(killed), SCN(two_killed), SCN(stopped), SCN(coded),
	SCN(lanes),
	SCN(feedback), SCN(not_a_number), SCN(overflow), SCN(roles), SCN(grow),
	SCN(places), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

/* How many of the living peers are in each committed round while peers die all the time: whole nodes in the simulator,
 * light cryptography, every invariant of chain_check.h watched. usage: bench_availability [PEERS [PER_HOUR [MINUTES
 * [SEED]]]]; JSON out, status 1 when a round had less than 95 % of those who could be in it.
 *
 * PEERS (32) train in micro-batches of a virtual second, four of each an epoch. PER_HOUR (125) times an hour, at random
 * moments, one of them dies without a word; ten seconds later it is started again, with what its disk has. A committed
 * round is held against all processes that live when it is first seen (of_living), and against those that were a second
 * old when its epoch began: a newcomer may take a second and the epoch that is under way (of_present: the figure).
 * of_undisturbed_samples: what was committed, against as much time before the first death. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "chain_check.h"
#include "common/text.h"
#include "node_world.h"
#include "usage.h"

#define PEERS_MAX 256
#define EPOCHS_MAX 65536
#define AIM 0.95
#define BATCH 8
#define MICRO_MS 1000
#define PER_EPOCH 4                             /* micro-batches of each peer */
#define AWAY_US (10 * SEC)
#define LOOK_US (5 * MSEC)                      /* how often somebody looks for a new commit */

struct tally { double min, sum; unsigned below; };
struct bench { struct node_world *w; int peers; double per_hour; uint64_t since[PEERS_MAX], away[PEERS_MAX];
	uint64_t end_us, newest, faults, commits, weight, first_us, gap_us, last_us, epoch_us;
	uint64_t back_n, back_sum_us, back_max_us;
	bool returns[PEERS_MAX]; struct tally living, present; };

static const char *spec_of_run(char out[800], int peers)
{
	snprintf(out, 800, "{\"name\": \"naps\", \"input\": [4], \"model\": [{\"type\": \"sleep\", \"fwd_ms\": %d}, "
		"{\"type\": \"linear\", \"out\": 3}], \"loss\": \"cross_entropy\", \"target_batch\": %d, "
		"\"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, \"strategy\": \"hivemind\", "
		"\"averaging\": {\"group_max\": %d}, \"validation\": {\"every\": 0}, "
		"\"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 100000}, \"stop\": {\"epochs\": 1000000}, "
		"\"local\": {\"batch\": %d, \"checkpoint_every\": 5}}", MICRO_MS, BATCH * PER_EPOCH * peers, peers, BATCH);
	return out;
}

static uint64_t until_next(struct bench *b)
{
	double u = (double)(1 + rng_below(sim_rng(b->w->s), 1000000)) / 1000001.0, l = 0;
	for (double x = u; x < 1; x *= 1.001)           /* -ln u in steps of a thousandth */
		l += 0.0009995;
	return (uint64_t)(l * 3600e6 / b->per_hour);
}

static void strike(struct sim *s, void *arg)
{
	struct bench *b = arg;
	if (sim_now(s) < b->end_us) {
		if (node_alive(b->w) > b->peers / 2) {
			int i = node_any(b->w);
			sim_kill(s, i);
			b->away[i] = sim_now(s);
			b->returns[i] = false;
			b->faults++;
		}
		sim_at(s, sim_now(s) + until_next(b), strike, b);
	}
}

static void revive(struct bench *b)
{
	struct sim *s = b->w->s;
	for (int i = 0; i < b->peers; i++)
		if (!sim_alive(s, i) && sim_now(s) >= b->away[i] + AWAY_US) {
			sim_restart(s, i);
			b->since[i] = sim_now(s);
			b->returns[i] = true;
		}
}

static void count(struct tally *t, unsigned in, unsigned of)
{
	double share = of ? (double)in / of : 1;
	t->min = share < t->min ? share : t->min;
	t->sum += share;
	t->below += share < AIM;
}

/* Node i is in the round that this commit ended. */
static bool is_in(const struct bench *b, const struct body *c, int i)
{
	struct node_peer *p = node_peer(b->w, i);
	struct id me = *net_self(node_net(p->node));
	for (size_t k = 0; k < c->n; k++)
		if (id_eq(&c->m[k].id, &me))
			return (c->m[k].flags & MATE_IN) && c->m[k].samples > 0;
	return false;
}

static void committed(struct bench *b, const struct body *c)
{
	uint64_t now = sim_now(b->w->s);
	unsigned in = 0, living = 0, in_present = 0, present = 0;
	for (int i = 0; i < b->peers; i++) {
		if (!sim_alive(b->w->s, i))
			continue;
		bool there = is_in(b, c, i), old = b->last_us >= b->since[i] + SEC;
		living++;
		in += there;
		present += old;
		in_present += old && there;
		if (there && b->returns[i]) {
			uint64_t took = now - b->since[i];
			b->returns[i] = false;
			b->back_n++;
			b->back_sum_us += took;
			b->back_max_us = took > b->back_max_us ? took : b->back_max_us;
		}
	}
	count(&b->living, in, living);
	count(&b->present, in_present, present);
	if (getenv("VERBOSE") && in_present < present)
		fprintf(stderr, "%.3f s: epoch %llu: %u of %u present, %u of %u living\n", (double)now / 1e6,
			(unsigned long long)c->epoch, in_present, present, in, living);
	if (b->commits && now - b->last_us > b->gap_us)
		b->gap_us = now - b->last_us;
	b->first_us = b->commits ? b->first_us : now;
	b->last_us = now;
	b->commits++;
	b->weight += b->commits > 1 ? c->weight : 0;    /* what the time between the first and the last has brought */
}

static void look(struct bench *b)
{
	for (int i = 0; i < b->peers; i++) {
		struct run *r = node_run(b->w, i);
		struct body c;
		struct err e;
		if (!r || !r->avg || r->avg->point.epoch <= b->newest || !r->avg->last_commit.len)
			continue;
		if (body_read(&c, r->avg->last_commit.p, r->avg->last_commit.len, &e))
			continue;
		if (c.epoch > b->newest) {
			b->newest = c.epoch;
			committed(b, &c);
		}
		body_free(&c);
	}
}

static void print(const struct bench *b, double minutes, uint64_t seed)
{
	double n = b->commits ? (double)b->commits : 1, took = (double)(b->last_us - b->first_us) / 1e6;
	double undisturbed = (double)b->peers * BATCH * PER_EPOCH * 1e6 / (double)b->epoch_us;
	printf("{\"bench\": \"availability\", \"peers\": %d, \"faults_per_hour\": %.0f, \"virtual_minutes\": %.0f, "
		"\"seed\": %llu, "
		"\"faults\": %llu, \"commits\": %llu, \"epoch_s\": %.3f, \"longest_gap_s\": %.3f, "
		"\"of_present\": {\"min\": %.4f, \"mean\": %.4f, \"below_95\": %u}, "
		"\"of_living\": {\"min\": %.4f, \"mean\": %.4f, \"below_95\": %u}, "
		"\"back\": {\"n\": %llu, \"mean_s\": %.3f, \"max_s\": %.3f}, \"of_undisturbed_samples\": %.4f, "
		"\"torchft\": 0.53}\n",
		b->peers, b->per_hour, minutes, (unsigned long long)seed, (unsigned long long)b->faults,
		(unsigned long long)b->commits, (double)b->epoch_us / 1e6, (double)b->gap_us / 1e6, b->present.min,
		b->present.sum / n, b->present.below, b->living.min, b->living.sum / n, b->living.below,
		(unsigned long long)b->back_n, b->back_n ? (double)b->back_sum_us / (double)b->back_n / 1e6 : 0,
		(double)b->back_max_us / 1e6, took > 0 ? (double)b->weight / took / undisturbed : 0);
}

static int run(int peers, int per_hour, int minutes, uint64_t seed)
{
	struct sim *s = sim_new(seed);
	char spec[800];
	struct bench b = { .w = node_world_new(s, spec_of_run(spec, peers)), .peers = peers, .per_hour = per_hour,
		.living.min = 1, .present.min = 1 };
	b.w->forks_allowed = true;              /* who comes back may be alone for a moment */
	node_world_add(b.w, peers);
	node_run_to(b.w, 3, 600 * SEC);
	uint64_t at = node_newest(b.w), from = sim_now(s);
	node_run_to(b.w, at + 5, 600 * SEC);
	b.epoch_us = (sim_now(s) - from) / 5;
	b.newest = node_newest(b.w);
	b.last_us = sim_now(s);
	b.end_us = sim_now(s) + (uint64_t)minutes * 60 * SEC;
	sim_at(s, sim_now(s) + until_next(&b), strike, &b);
	while (sim_now(s) < b.end_us && !sim_failed(s)) {
		sim_run_for(s, LOOK_US);
		look(&b);
		revive(&b);
	}
	print(&b, minutes, seed);
	int bad = sim_trouble(s) || b.present.below || !b.commits;
	if (sim_trouble(s))
		fprintf(stderr, "%s\n", sim_trouble(s));
	node_world_free(b.w);
	sim_free(s);
	return bad;
}

static const char usage[] = "bench_availability [PEERS [PER_HOUR [MINUTES [SEED]]]]";

int main(int argc, char **argv)
{
	bench_words(argc, argv, 0, 4, usage);
	int peers = bench_number(argc, argv, 1, 32, 2, PEERS_MAX, usage);
	int per_hour = bench_number(argc, argv, 2, 125, 1, 1000000, usage);
	int minutes = bench_number(argc, argv, 3, 60, 1, 100000, usage);
	int seed = bench_number(argc, argv, 4, 1, 1, 1 << 30, usage);
	json_object_seed(1);
	return run(peers, per_hour, minutes, (uint64_t)seed);
}

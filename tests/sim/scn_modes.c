/* Ways to average, in whole nodes (node_world.h): in each of them peers die in the middle of rounds and come back,
 * others join, and what its mode promises to be equal is equal; peers of different speed contribute by their speed (row
 * C09); an epoch of delayed averaging takes the longer of computing and communicating (row C08). */
#include <stdio.h>
#include <string.h>
#include "avg/int.h"
#include "chain_check.h"
#include "node_world.h"
#include "train/memory.h"
#include "train/trainer_int.h"

static const char *mode_spec(char out[900], const char *strategy, const char *averaging, unsigned nap_ms,
	unsigned target, unsigned width)
{
	snprintf(out, 900, "{\"name\": \"naps\", \"input\": [4], \"model\": [{\"type\": \"sleep\", \"fwd_ms\": %u}, "
		"{\"type\": \"linear\", \"out\": %u}], \"loss\": \"cross_entropy\", \"target_batch\": %u, "
		"\"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, \"strategy\": \"%s\", \"averaging\": {%s}, "
		"\"validation\": {\"every\": 0}, \"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, "
		"\"stop\": {\"epochs\": 1000000}, \"local\": {\"batch\": 8}}", nap_ms, width, target, strategy, averaging);
	return out;
}

static bool all_work(struct node_world *w, int n)
{
	for (int i = 0; i < n; i++)
		if (!node_run(w, i) || !node_run(w, i)->own_samples)
			return false;
	return true;
}

/* Of six two die, two that were never there join, the dead come back. */
static void life_of(struct sim *s, struct node_world *w)
{
	int dead[2];
	node_world_add(w, 6);
	node_run_to(w, 4, 120 * SEC);
	for (int k = 0; k < 2; k++) {
		sim_run_for(s, rng_below(sim_rng(s), SEC));
		dead[k] = node_any(w);
		sim_kill(s, dead[k]);
	}
	node_goes_on(w, 6, 60 * SEC);
	node_world_add(w, 2);
	node_goes_on(w, 6, 60 * SEC);
	for (int k = 0; k < 2; k++)
		if (!sim_alive(s, dead[k]))
			sim_restart(s, dead[k]);
	node_goes_on(w, 8, 60 * SEC);
	for (int k = 0; k < 10 && !all_work(w, 8); k++)
		node_goes_on(w, 4, 60 * SEC);
	sim_in_time(s, all_work(w, 8));
	sim_check(s, chain_commits(w->chain) >= 20);
	sim_in_time(s, chain_states(w->chain) >= 16);
}

static void life(struct sim *s, const char *strategy, const char *averaging, unsigned nap_ms)
{
	static char spec[900];
	struct node_world *w = node_world_new(s, mode_spec(spec, strategy, averaging, nap_ms, 96, 3));
	life_of(s, w);
	node_world_free(w);
}

static void scn_delayed(struct sim *s) { life(s, "hivemind", "\"delay_grad\": true, \"delay_step\": true", 200); }
static void scn_delta(struct sim *s) { life(s, "hivemind", "\"local_updates\": true, \"delay_state\": true", 200); }
static void scn_seldom(struct sim *s) { life(s, "hivemind", "\"local_updates\": true, \"every\": 3", 100); }
static void scn_plain(struct sim *s) { life(s, "allreduce", "", 200); }
static void scn_sync_every(struct sim *s) { life(s, "allreduce", "\"sync_every\": 3", 100); }

/* A bucket behind each layer. Forward, after which samples count, is as long as what they need to meet. */
static struct node_world *buckets(struct sim *s)
{
	return node_world_new(s, "{\"name\": \"naps\", \"input\": [4], \"model\": [{\"type\": \"linear\", "
		"\"out\": 5}, {\"type\": \"sleep\", \"fwd_ms\": 110, \"bwd_ms\": 90}, {\"type\": \"linear\", \"out\": 6}, "
		"{\"type\": \"sleep\", \"fwd_ms\": 110, \"bwd_ms\": 90}, {\"type\": \"linear\", \"out\": 3}], "
		"\"loss\": \"cross_entropy\", \"target_batch\": 96, \"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, "
		"\"strategy\": \"allreduce\", \"averaging\": {\"bucket_bytes\": 1}, \"validation\": {\"every\": 0}, "
		"\"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, \"stop\": {\"epochs\": 1000000}, "
		"\"local\": {\"batch\": 8}}");
}

static void scn_buckets(struct sim *s)
{
	struct node_world *w = buckets(s);
	life_of(s, w);
	node_world_free(w);
}

struct giver { struct node_world *w; int node; };

/* Some of the buckets of a micro-batch that counts have been given to a round, and others are still to be made. */
static bool gives(struct sim *s, void *arg)
{
	struct giver *g = arg;
	int from = (int)rng_below(sim_rng(s), (uint64_t)sim_nodes(s));
	for (int k = 0; k < sim_nodes(s); k++) {
		const struct run *r = node_run(g->w, g->node = (from + k) % sim_nodes(s));
		const struct trainer *t = r ? r->trainer : NULL;
		if (t && r->state == RUN_TRAIN && t->grow.told && t->sums.n && t->sums.n < t->sums.wanted)
			return true;
	}
	return false;
}

static bool has_left(struct sim *s, void *arg)
{
	const struct giver *g = arg;
	return node_run(g->w, g->node)->state == RUN_LEFT;
}

/* An operator has it leave just then: it goes in order, the others end the round by the time that rounds have, and no
 * sample counts twice or is lost (chain_check.h). It comes back with what they have by then. */
static void scn_buckets_leave(struct sim *s)
{
	struct node_world *w = buckets(s);
	node_world_add(w, 5);
	node_run_to(w, 4, 120 * SEC);
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		struct giver g = { w };
		struct err e = { 0 };
		if (!sim_await(s, gives, &g, 60 * SEC))
			break;
		uint64_t from = sim_now(s), at = node_newest(w);
		w->idle[g.node] = true;
		json_decref(node_ask(w, g.node, node_run_leave, json_pack("{s:s}", "run", "naps"), &e));
		if (e.code)
			sim_fail(s, "node %d does not leave: %s", g.node, e.text);
		sim_await(s, has_left, &g, 8 * SEC);
		node_run_to(w, at + 1, 20 * SEC);
		if (sim_now(s) - from > SEC)    /* backward takes 180 ms */
			sim_late(s, "epoch %llu took %llu ms more when node %d had left", (unsigned long long)at + 1,
				(unsigned long long)(sim_now(s) - from) / 1000, g.node);
		node_goes_on(w, 3, 20 * SEC);
		w->idle[g.node] = false;
		node_goes_on(w, 2, 30 * SEC);
	}
	node_world_free(w);
}

static void scn_async(struct sim *s) { life(s, "allreduce", "\"async\": true", 200); }
static void scn_diloco(struct sim *s) { life(s, "diloco", "\"inner_steps\": 4", 100); }

static void scn_fragments(struct sim *s) { life(s, "diloco", "\"inner_steps\": 4, \"fragments\": 2", 100); }
static void scn_streaming(struct sim *s)
{
	life(s, "diloco", "\"inner_steps\": 8, \"fragments\": 2, \"overlap\": 2", 50);
}

/* Each way with encoded vectors: what must be equal is, though nobody gets what was sent to the bit. */
static void scn_coded_sync(struct sim *s) { life(s, "hivemind", "\"codec\": \"blockwise8\"", 200); }
static void scn_coded_delayed(struct sim *s)
{
	life(s, "hivemind", "\"delay_grad\": true, \"codec\": \"fp16\"", 200);
}
static void scn_coded_delta(struct sim *s)
{
	life(s, "hivemind", "\"local_updates\": true, \"delay_state\": true, \"codec\": \"uniform8\"", 200);
}
static void scn_coded_seldom(struct sim *s)
{
	life(s, "hivemind", "\"local_updates\": true, \"average_optimizer\": true, \"every\": 3, \"codec\": \"bf16\"", 100);
}
static void scn_coded_async(struct sim *s) { life(s, "allreduce", "\"async\": true, \"codec\": \"fp16_scaled\"", 200); }
static void scn_coded_diloco(struct sim *s) { life(s, "diloco", "\"inner_steps\": 4, \"codec\": \"blockwise8\"", 100); }
static void scn_coded_streaming(struct sim *s)
{
	life(s, "diloco", "\"inner_steps\": 8, \"fragments\": 2, \"overlap\": 2, \"codec\": \"blockwise4\"", 50);
}

/* ---- what is computed twice ---- */

/* Three of four compute twice, each its own way; what they take stays what was predicted, whenever a round or a death
 * cuts them short, and whoever comes back does as before. */
static void twice(struct sim *s, const char *averaging)
{
	static const char *const remat[] = { "periodic", NULL, "boundary", "user:b,d" };
	static char spec[1200];
	char plain[900];
	const char *at = strstr(mode_spec(plain, "hivemind", averaging, 100, 96, 3), "{\"type\": \"linear\"");
	snprintf(spec, sizeof spec, "%.*s{\"type\": \"linear\", \"out\": 6, \"name\": \"b\"}, {\"type\": \"tanh\"}, "
		"{\"type\": \"dropout\", \"p\": 0.2}, {\"type\": \"linear\", \"out\": 6, \"name\": \"d\"}, {\"type\": "
		"\"layernorm\"}, "
		"{\"type\": \"sleep\", \"fwd_ms\": 50}, %s", (int)(at - plain), plain, at);
	struct node_world *w = node_world_new(s, spec);
	for (int i = 0; i < 8; i++)
		w->remat_of[i] = remat[i % 4];
	life_of(s, w);
	for (int i = 0; i < 8; i++) {
		const struct trainer *t = node_run(w, i) ? node_run(w, i)->trainer : NULL;
		struct trainer_view v;
		if (!t)
			continue;
		trainer_view(t, &v);
		const char *policy = t->pass.ops->name;
		if (strncmp(policy, remat[i % 4] ? remat[i % 4] : "none", strlen(policy)))
			sim_fail(s, "peer %d goes by %s", i, policy);
		if (!v.arena_peak_bytes || v.arena_peak_bytes > v.arena_predicted_bytes)
			sim_fail(s, "peer %d, %s: %llu bytes, and %llu were predicted", i, policy,
				(unsigned long long)v.arena_peak_bytes, (unsigned long long)v.arena_predicted_bytes);
	}
	node_world_free(w);
}

static void scn_twice(struct sim *s) { twice(s, ""); }
static void scn_twice_delayed(struct sim *s) { twice(s, "\"delay_grad\": true, \"delay_step\": true"); }

/* ---- an order of each peer's own ---- */

static const char *independent(char out[900], const char *strategy, const char *averaging)
{
	static const char data[] = "\"count\": 1000";
	char spec[900];
	mode_spec(spec, strategy, averaging, 200, 96, 3);
	char *at = strstr(spec, data);
	snprintf(out, 900, "%.*s\"order\": \"independent\", %s", (int)(at - spec), spec, at);
	return out;
}

/* The first sample that each peer's order names. */
static uint64_t first_of(struct node_world *w, int i)
{
	return data_index(node_run(w, i)->data, 0);
}

static uint64_t walked_to(struct node_world *w, int i)
{
	const struct ranges *v = &node_run(w, i)->walked;
	return v->n ? v->v[v->n - 1].hi : 0;
}

/* The first samples of each have been in a round: what it makes in the epoch in which it comes may be too late for it,
 * and comes again. */
static bool all_walk(struct node_world *w, int n)
{
	for (int i = 0; i < n; i++)
		if (!node_run(w, i) || !node_run(w, i)->walked.n || node_run(w, i)->walked.v[0].lo)
			return false;
	return all_work(w, n);
}

/* A peer dies behind the checkpoint of epoch 20, others join, it comes back and goes on where its order stood then; who
 * lives has behind it what its own commits took, without a hole wider than what is under way. */
static void own_orders(struct sim *s, const char *strategy, const char *averaging)
{
	static char spec[900];
	struct node_world *w = node_world_new(s, independent(spec, strategy, averaging));
	bool differ = false;
	node_world_add(w, 5);
	if (!node_run_to(w, 24, 120 * SEC))
		return;
	for (int i = 1; i < 5; i++)
		differ = differ || first_of(w, i) != first_of(w, 0);
	sim_check(s, differ);                   /* five times the same of a thousand by chance: never */
	int dead = node_any(w);
	uint64_t first = first_of(w, dead), stood = walked_to(w, dead);
	sim_kill(s, dead);
	node_world_add(w, 1);
	sim_restart(s, dead);
	node_goes_on(w, 3, 120 * SEC);
	sim_check(s, first_of(w, dead) == first);
	if (10 * walked_to(w, dead) < 7 * stood)
		sim_late(s, "peer %d stood at %llu of its order and is at %llu after its return", dead,
			(unsigned long long)stood, (unsigned long long)walked_to(w, dead));
	for (int k = 0; k < 10 && !all_walk(w, 6); k++)
		node_goes_on(w, 4, 60 * SEC);
	sim_in_time(s, all_walk(w, 6));
	for (int i = 0; i < 6 && !sim_failed(s); i++) {
		const struct run *r = node_run(w, i);
		sim_check(s, !r->point.done.n && r->walked.n && !r->walked.v[0].lo);
		if (walked_to(w, i) - ranges_count(&r->walked) > 200)
			sim_late(s, "peer %d: holes in its order up to %llu", i, (unsigned long long)walked_to(w, i));
	}
	node_world_free(w);
}

static void scn_own_orders(struct sim *s) { own_orders(s, "hivemind", ""); }
static void scn_own_orders_delayed(struct sim *s) { own_orders(s, "hivemind", "\"delay_grad\": true"); }

/* ---- validation where the spec is silent ---- */

/* Half of the data is held out: a validation takes as long as several epochs do, and a twentieth of the time in all. */
static void scn_validation(struct sim *s)
{
	static const char never[] = "\"every\": 0";
	static char spec[900];
	char plain[900];
	mode_spec(plain, "hivemind", "", 20, 96, 3);
	char *at = strstr(plain, never);
	snprintf(spec, sizeof spec, "%.*s\"split\": 0.5%s", (int)(at - plain), plain, at + strlen(never));
	struct node_world *w = node_world_new(s, spec);
	uint64_t last = 0, times = 0, took = 0, begun;
	node_world_add(w, 1);
	if (!node_run_to(w, 1, 60 * SEC))
		return;
	begun = sim_now(s);
	for (uint64_t e = 2; e < 200; e++) {
		if (!node_run_to(w, e, 60 * SEC))
			return;
		const struct run *r = node_run(w, 0);
		if (r->val_epoch != last && !r->validating) {
			last = r->val_epoch;
			times++;
			took += r->val_took_us;
		}
	}
	double share = (double)took / (double)(sim_now(s) - begun);
	if (times < 3 || share > 0.06)
		sim_late(s, "%llu validations took %.3f of the time", (unsigned long long)times, share);
	node_world_free(w);
}

/* ---- C09 ---- */

/* Three peers whose micro-batches take as long and have 32, 16 and 8 samples. */
static void scn_speeds(struct sim *s)
{
	static char spec[900];
	struct node_world *w = node_world_new(s, mode_spec(spec, "hivemind", "\"delay_grad\": true", 50, 1792, 3));
	uint64_t before[3], all = 0, begun, epoch;
	for (int i = 0; i < 3; i++)
		w->batch_of[i] = 32u >> i;
	node_world_add(w, 3);
	node_run_to(w, 3, 120 * SEC);
	sim_run_for(s, 3 * SEC);
	for (int i = 0; i < 3; i++)
		before[i] = node_run(w, i)->own_samples;
	begun = sim_now(s);
	epoch = node_newest(w);
	node_run_to(w, epoch + 15, 120 * SEC);
	for (int i = 0; i < 3; i++)
		all += node_run(w, i)->own_samples - before[i];
	for (int i = 0; i < 3; i++) {
		double share = (double)(node_run(w, i)->own_samples - before[i]) / (double)all, fair = (double)(4 >> i) / 7;
		if (share < 0.9 * fair || share > 1.1 * fair)
			sim_late(s, "peer %d: a share of %.3f, and %.3f is its speed", i, share, fair);
	}
	/* 1792 samples at 56 samples in 50 ms: 1600 ms an epoch; what BEGIN interrupts is lost */
	double ms = (double)(sim_now(s) - begun) / 1e3 / (double)(node_newest(w) - epoch);
	if (ms < 1440 || ms > 1760)
		sim_late(s, "an epoch took %.1f ms, and all speeds together make 1600", ms);
	node_world_free(w);
}

/* ---- C08 ---- */

/* Virtual ms of an epoch of four peers: 60 naps of 10 ms together, fifteen each, and 100 kB of gradients. (A round
 * begins and ends between two naps: naps of 50 ms would add one to every epoch.) */
static double epoch_ms(struct sim *s, const char *averaging, uint64_t bytes_per_s)
{
	static char spec[900];
	struct node_world *w = node_world_new(s, mode_spec(spec, "hivemind", averaging, 10, 480, 5000));
	node_world_add(w, 4);
	node_run_to(w, 2, 300 * SEC);
	if (bytes_per_s)
		sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 100, .jitter_us = 20, .bytes_per_s = bytes_per_s });
	node_goes_on(w, 6, 300 * SEC);
	uint64_t begun = sim_now(s), epoch = node_newest(w);
	node_run_to(w, epoch + 20, 300 * SEC);
	double ms = (double)(sim_now(s) - begun) / 1e3 / (double)(node_newest(w) - epoch);
	node_world_free(w);
	return ms;
}

static void scn_overlap(struct sim *s)
{
	struct sim *other[2] = { sim_new(sim_seed(s) + 100), sim_new(sim_seed(s) + 200) };
	double alone = epoch_ms(s, "", 0), serial = epoch_ms(other[0], "", 330000), both;
	double wire = serial - alone;
	both = epoch_ms(other[1], "\"delay_grad\": true, \"delay_step\": true", 330000);
	fprintf(stderr, "computing %.1f ms, in turns %.1f ms, delayed %.1f ms an epoch\n", alone, serial, both);
	/* the oracle's case: both take as long, and in turns twice as long */
	if (wire < 0.95 * alone || wire > 1.05 * alone)
		sim_late(s, "the wire takes %.1f ms and computing %.1f: nothing to compare", wire, alone);
	if (both > 1.15 * (wire > alone ? wire : alone))
		sim_late(s, "an epoch takes %.1f ms; computing %.1f, communicating %.1f", both, alone, wire);
	for (int i = 0; i < 2; sim_free(other[i++]))
		sim_told_of(s, other[i], "another world");
}

/* ---- B01, B03, DiLoCo: bytes ---- */

/* Of all four peers, an epoch; ret_most: of who sends most. */
static double epoch_bytes(struct sim *s, const char *strategy, const char *averaging, double *ret_most)
{
	static char spec[900];
	struct node_world *w = node_world_new(s, mode_spec(spec, strategy, averaging, 20, 64, 5000));
	double bytes = 0, one[4];
	uint64_t epoch;
	node_world_add(w, 4);
	node_run_to(w, 5, 60 * SEC);
	for (int k = 0; k < 10 && !all_work(w, 4); k++)
		node_goes_on(w, 1, 60 * SEC);
	node_goes_on(w, 2, 60 * SEC);           /* whoever came last is in the rounds, too */
	epoch = node_newest(w);
	for (int i = 0; i < 4; i++)
		one[i] = -(double)node_run(w, i)->avg->bytes_out;
	uint64_t rounds = node_run(w, 0)->avg->rounds_done;
	node_run_to(w, epoch + 20, 60 * SEC);
	for (int i = 0; i < 4; i++)
		one[i] += (double)node_run(w, i)->avg->bytes_out;
	rounds = node_run(w, 0)->avg->rounds_done - rounds;
	*ret_most = 0;
	for (int i = 0; i < 4; i++) {
		bytes += one[i];
		*ret_most = one[i] > *ret_most ? one[i] : *ret_most;
	}
	*ret_most /= (double)rounds;
	node_world_free(w);
	return bytes / (double)rounds;
}

/* Rows B01, B03, C04: of vectors, where links are equal, every peer sends exactly 2 (n - 1) / n of the gradient. A
 * round costs the same whatever its epoch holds: so four steps an epoch are exactly a quarter of the bytes a step. */
static void scn_bytes(struct sim *s)
{
	struct sim *other[2] = { sim_new(sim_seed(s) + 100), sim_new(sim_seed(s) + 200) };
	double most, unused, g = 25000 * sizeof(float), plain = epoch_bytes(s, "allreduce", "", &most);
	double four = epoch_bytes(other[0], "allreduce", "\"sync_every\": 4", &unused);
	double inner = epoch_bytes(other[1], "diloco", "\"inner_steps\": 4", &unused);
	if (plain != 2 * g * 3 || most != 2 * g * 3 / 4)
		sim_late(s, "a step sends %.0f bytes, and 2 |g| (n - 1) are %.0f; one peer %.0f", plain, 2 * g * 3, most);
	if (four != plain || inner != plain)
		sim_late(s, "a round sends %.0f bytes, %.0f after four steps, %.0f in DiLoCo", plain, four, inner);
	for (int i = 0; i < 2; sim_free(other[i++]))
		sim_told_of(s, other[i], "another world");
}

/* ---- C05: bytes at the ends of epochs only ---- */

/* Bytes of vectors that the wire has carried, of all three. */
static uint64_t vectors(struct node_world *w)
{
	uint64_t sum = 0;
	for (int i = 0; i < 3; i++) {
		struct peer_info p[8];
		size_t n = net_peers(node_run(w, i)->rs->ctx.net, p, 8);
		for (size_t k = 0; k < n && k < 8; k++)
			for (int c = CLASS_activation; c < CLASS_COUNT_; c++)
				sum += p[k].bytes.out[c] + p[k].bytes.in[c];
	}
	return sum;
}

/* Every millisecond: vectors move while somebody is in a round (or was a millisecond ago), and at no other time. */
static void ends_only(struct sim *s, const char *averaging)
{
	static char spec[900];
	struct node_world *w = node_world_new(s, mode_spec(spec, "hivemind", averaging, 20, 192, 2000));
	int quiet = 0, moved = 0;
	bool before = true;
	node_world_add(w, 3);
	node_run_to(w, 5, 60 * SEC);
	uint64_t was = vectors(w), rounds = 0;
	for (int ms = 0; ms < 3000 && !sim_failed(s); ms++) {
		bool in_round = false;
		uint64_t done = 0;
		sim_run_for(s, MSEC);
		for (int i = 0; i < 3; i++) {
			struct avg_view v;
			avg_view(node_run(w, i)->avg, &v);
			in_round |= v.in_round;
			done += v.rounds_done;
		}
		in_round |= done != rounds;             /* some take less than a millisecond */
		rounds = done;
		uint64_t now = vectors(w);
		moved += now != was;
		quiet += !in_round && !before;
		if (now != was && !in_round && !before)
			sim_fail(s, "%llu bytes of vectors were sent between two rounds", (unsigned long long)(now - was));
		before = in_round;
		was = now;
	}
	if (moved < 10 || quiet < 1500)
		sim_late(s, "vectors moved in %d of 3000 ms, and %d were outside of rounds", moved, quiet);
	node_world_free(w);
}

static void scn_ends(struct sim *s)
{
	struct sim *other = sim_new(sim_seed(s) + 100);
	ends_only(s, "");
	ends_only(other, "\"local_updates\": true");
	sim_told_of(s, other, "local updates");
	sim_free(other);
}

static const struct scn list[] = { SCN(bytes), SCN(ends), SCN(delayed), SCN(delta), SCN(seldom), SCN(plain),
	SCN(sync_every), SCN(buckets), SCN(buckets_leave), SCN(async), SCN(diloco), SCN(speeds), SCN(overlap),
	SCN(own_orders), SCN(own_orders_delayed),
	SCN(fragments), SCN(streaming), SCN(coded_sync), SCN(coded_delayed), SCN(coded_delta), SCN(coded_seldom),
	SCN(coded_async), SCN(coded_diloco), SCN(coded_streaming),
	SCN(validation), SCN(twice), SCN(twice_delayed), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

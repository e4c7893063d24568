/* Rounds whose vectors travel encoded, in pieces: everybody holds the same bytes whoever dies, error feedback loses
 * nothing, the encoding changes at one epoch; and members that send nonsense. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"
#include "common/mem.h"
#include "kernels/codec.h"

#define LEN 1500
#define PEERS 5

struct notes { struct world *w; double *true_sum, *sum; uint64_t epochs, bytes, odd, nonfinite, left_out; int evil; };

static struct notes *notes_of(struct world *w) { return w->user; }

/* How far a mean may be from the samples' (avg_world.h), as a part of it: errors of what members send and of the
 * result, of which those of the last epoch come back, against a mean that is some thirtieth of what gradients may
 * be. */
static double part_of(const char *codec)
{
	return strstr(codec, "none") && !strstr(codec, "8") ? 1e-5 : strstr(codec, "blockwise4") ? 0.4 :
		strstr(codec, "quantile8") ? 0.1 : strstr(codec, "8") ? 0.05 : 0.01;
}

static struct world *world_of(struct sim *s, struct notes *n, const char *codec, double slack, size_t len,
	uint32_t micro)
{
	struct world *w = world_new(s, len, PEERS * 2 * micro, micro, 10 * MSEC);
	static const struct avg_tensor tensors[] = { { 600, AVG_MATRIX }, { 60, AVG_VECTOR }, { 400, AVG_MATRIX },
		{ 440, AVG_STATE } };
	w->start_us = 3 * SEC;
	w->conf.slice = 80;
	w->conf.tensors = tensors;
	w->conf.ntensors = 4;
	w->conf.codec = json_loads(codec, JSON_DECODE_ANY, NULL);
	w->conf.error_feedback = true;
	w->slack = slack;
	w->part = slack > 0 ? 0 : part_of(codec);
	*n = (struct notes){ .w = w, .true_sum = xcalloc(LEN, sizeof(double)), .sum = xcalloc(LEN, sizeof(double)),
		.evil = -1 };
	w->user = n;
	return w;
}

static struct world *coded_world(struct sim *s, struct notes *n, const char *codec, double slack)
{
	return world_of(s, n, codec, slack, LEN, 16);
}

static void begin(struct world *w)
{
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 20 * SEC);
}

static void over(struct notes *n)
{
	json_t *codec = n->w->conf.codec;
	world_free(n->w);
	json_decref(codec);
	free(n->true_sum);
	free(n->sum);
}

static const char *const specs[] = { "\"fp16\"", "\"fp16_scaled\"", "\"bf16\"", "\"uniform8\"", "\"quantile8\"",
	"\"blockwise8\"", "\"blockwise4\"", "{\"default\":\"blockwise8\",\"small\":\"none\",\"state\":\"fp16\"}" };
#define SPECS (sizeof specs / sizeof *specs)

static const char *const points[] = { "avg.data.before", "avg.data.after", "avg.attempt.after", "avg.result.before",
	"avg.result.after", "avg.ack.before", "avg.commit.before", "avg.commit.after" };
#define POINTS (sizeof points / sizeof *points)

/* Two of five die in the middle of rounds; the others finish them with one set of bytes (check.h compares). */
static void scn_deaths(struct sim *s)
{
	struct notes n;
	struct world *w = coded_world(s, &n, specs[sim_seed(s) % SPECS], 0);
	begin(w);
	for (int i = 0; i < 2; i++) {
		uint64_t at = 0;
		sim_failpoint(s, -1, points[rng_below(sim_rng(s), POINTS)], SIM_KILL, 1 + (int)rng_below(sim_rng(s), 30));
		for (int k = 0; k < PEERS; k++)
			if (sim_alive(s, k) && world_peer(w, k)->point.epoch > at)
				at = world_peer(w, k)->point.epoch;
		world_run_to(w, at + 6, 60 * SEC);
	}
	world_same(w);
	over(&n);
}

/* Pieces that are encoded, summed and decoded in the lane, while owners die and attempts change under them. */
static void scn_lanes(struct sim *s)
{
	struct notes n;
	struct world *w = world_of(s, &n, specs[sim_seed(s) % SPECS], 0, 150000, 1);
	w->conf.slice = 17000;
	w->conf.robust = sim_seed(s) % 5 == 1 ? ROBUST_CLIP : ROBUST_NONE;
	begin(w);
	sim_failpoint(s, -1, points[rng_below(sim_rng(s), POINTS)], SIM_KILL, 1 + (int)rng_below(sim_rng(s), 40));
	world_run_to(w, 9, 60 * SEC);
	world_same(w);
	over(&n);
}

static void add_up(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = notes_of(w);
	if (p->node)
		return;
	world_truth(p, c, LEN, n->true_sum);
	for (size_t k = 0; k < LEN; k += 5)
		n->sum[k] += mean[k];
	n->epochs++;
	n->bytes += c->bytes_out;
}

static double mean_distance(const struct notes *n)
{
	double sum = 0;
	for (size_t k = 0; k < LEN; k += 5)
		sum += fabs(n->sum[k] - n->true_sum[k]) / (LEN / 5);
	return sum;
}

/* After 25 epochs of half bytes, what was applied is as near to the truth as after one: without feedback it wanders. */
static void scn_feedback(struct sim *s)
{
	double apart[2];
	for (int on = 0; on < 2; on++) {
		struct sim *own = sim_new(sim_seed(s));
		struct notes n;
		struct world *w = coded_world(own, &n, "\"blockwise4\"", 0);
		w->conf.error_feedback = on;
		w->saw = add_up;
		begin(w);
		world_run_to(w, 28, 60 * SEC);
		world_same(w);
		apart[on] = mean_distance(&n);
		sim_told(s, own);
		uint64_t hash = sim_hash(own);
		sim_trace(s, &hash, sizeof hash);
		over(&n);
		sim_free(own);
	}
	if (!(apart[1] < 0.012) || !(apart[1] * 2 < apart[0]))
		sim_late(s, "with feedback the sum is %g from the truth, without %g", apart[1], apart[0]);
}

static void count_bytes(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = notes_of(w);
	n->bytes += c->bytes_in;
	n->epochs += p->node == 0;
}

static uint64_t bytes_per_round(struct notes *n, uint64_t to_epoch)
{
	n->bytes = n->epochs = 0;
	world_run_to(n->w, to_epoch, 60 * SEC);
	return n->epochs ? n->bytes / n->epochs : 0;
}

static void agreed(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	if (!e)
		*(uint64_t *)arg = epoch;
}

static bool is_agreed(struct sim *s, void *arg) { return *(const uint64_t *)arg > 0; }

/* hivectl set codec=...: one epoch for all, and fewer bytes from it on. */
static void scn_changed(struct sim *s)
{
	struct notes n;
	struct world *w = coded_world(s, &n, "\"none\"", 0.02);
	uint64_t epoch = 0, before, after, at, plain = 2ull * LEN * 4 * (PEERS - 1);
	begin(w);
	w->saw = count_bytes;
	before = bytes_per_round(&n, 20);
	if (before > plain * 102 / 100 || before * 100 < plain * 80)
		sim_late(s, "%llu bytes in a round, 2 |g| (N-1) is %llu", (unsigned long long)before,
			(unsigned long long)plain);
	avg_propose(world_peer(w, 3)->avg, json_pack("{s:s}", "codec", "blockwise8"), 0, agreed, &epoch);
	world_run_to(w, 30, 60 * SEC);
	sim_await(s, is_agreed, &epoch, 0);
	if (epoch <= 20)
		sim_fail(s, "agreed for epoch %llu, which is over", (unsigned long long)epoch);
	else if (epoch > 30)
		sim_late(s, "agreed for epoch %llu", (unsigned long long)epoch);
	at = world_peer(w, 0)->point.epoch;
	after = bytes_per_round(&n, at + 10);
	if (after * 37 / 10 > before)
		sim_late(s, "%llu bytes in a round, %llu before the change", (unsigned long long)after,
			(unsigned long long)before);
	world_same(w);
	over(&n);
}

/* ---- nonsense ---- */

static void send_large(struct world *w, int node, float *x)
{
	for (size_t k = 0; k < LEN && node == notes_of(w)->evil; k++)
		x[k] = 1e6f * world_gradient(k, 1);
}

static void send_flipped(struct world *w, int node, float *x)
{
	for (size_t k = 0; k < LEN && node == notes_of(w)->evil; k++)
		x[k] *= -50;
}

static void send_nan(struct world *w, int node, float *x)
{
	if (node == notes_of(w)->evil)
		x[700] = NAN;
}

static void hear(struct world *w, int node, const char *code, const struct id *peer)
{
	struct notes *n = notes_of(w);
	struct apeer *evil = world_peer(w, n->evil);
	bool it = peer && evil && id_eq(peer, net_self(evil->net));
	n->odd += !strcmp(code, "out of line") && it;
	n->nonfinite += !strcmp(code, "nonfinite") && it;
	if (!strcmp(code, "out of line") && !it)
		sim_fail(w->s, "node %d: another than the liar is called out of line", node);
}

static void add_left_out(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = notes_of(w);
	struct apeer *evil = world_peer(w, n->evil);
	for (size_t i = 0; i < c->left_out_n && p->node == 0 && evil; i++)
		n->left_out += id_eq(&c->left_out[i], net_self(evil->net));
	for (size_t k = 0; k < LEN; k++)
		if (!isfinite(mean[k]))
			sim_fail(w->s, "node %d: a mean that is not finite", p->node);
	if (p->node == 0)
		n->epochs++;
}

static bool noticed(struct sim *s, void *arg) { return ((const struct notes *)arg)->odd > 0; }

/* One of five lies; the mean stays near the samples' (check.h, within the slack: gradients lie between -0.5 and 0.5),
 * its commits go on, and it is named. */
static void scn_liar(struct sim *s)
{
	struct notes n;
	struct world *w = coded_world(s, &n, sim_seed(s) % 2 ? "\"none\"" : "\"blockwise8\"", 0.6);
	w->conf.robust = (enum robust)(1 + sim_seed(s) % 3);
	w->twist = sim_seed(s) % 4 < 2 ? send_large : send_flipped;
	w->heard = hear;
	n.evil = (int)rng_below(sim_rng(s), PEERS);
	begin(w);
	world_run_to(w, 30, 60 * SEC);
	sim_await_or(s, noticed, &n, 0, "%s: nobody has noticed that node %d is out of line",
		robust_name(w->conf.robust), n.evil);
	world_same(w);
	over(&n);
}

/* NaN in one gradient: its owner is left out of the round and told, the others' samples count, the mean is finite. */
static void scn_not_a_number(struct sim *s)
{
	struct notes n;
	struct world *w = coded_world(s, &n, specs[sim_seed(s) % SPECS], 0);
	n.evil = (int)rng_below(sim_rng(s), PEERS);
	w->saw = add_left_out;
	w->heard = hear;
	begin(w);
	w->twist = send_nan;
	world_run_to(w, 15, 60 * SEC);
	sim_in_time(s, n.left_out >= 10);
	sim_in_time(s, n.nonfinite >= 10);
	w->twist = NULL;
	n.left_out = n.epochs = 0;
	world_run_to(w, world_peer(w, 0)->point.epoch + 10, 60 * SEC);
	sim_in_time(s, n.left_out <= 2);
	world_same(w);
	over(&n);
}

static void send_overflow(struct world *w, int node, float *x)
{
	for (size_t k = 0; k < LEN && node == notes_of(w)->evil; k++)
		x[k] = INFINITY;
}

static void add_infinite(struct world *w, struct apeer *p, const struct avg_commit *c, const float *mean)
{
	struct notes *n = notes_of(w);
	bool finite = isfinite(mean[700]);
	if (c->epoch > w->overflow_until) {
		add_left_out(w, p, c, mean);
		return;
	}
	n->epochs += p->node == 0 && !finite;
	if (c->left_out_n)
		sim_fail(w->s, "node %d: somebody is left out of epoch %llu, whose mean is meant to overflow", p->node,
			(unsigned long long)c->epoch);
}

/* Where a loss is scaled: what overflowed, or whoever says so by a number that is none, is in everybody's mean, and
 * nobody is blamed; once it cannot have overflowed any more, it is left out as ever. */
static void scn_overflow(struct sim *s)
{
	struct notes n;
	struct world *w = coded_world(s, &n, "\"none\"", 0);
	n.evil = (int)rng_below(sim_rng(s), PEERS);
	w->conf.error_feedback = false;
	w->overflow_until = 12;
	w->saw = add_infinite;
	w->heard = hear;
	begin(w);
	w->twist = sim_seed(s) % 2 ? send_overflow : send_nan;
	world_run_to(w, 12, 60 * SEC);
	sim_check(s, !n.nonfinite);
	sim_in_time(s, n.epochs >= 7);
	world_run_to(w, 25, 60 * SEC);
	sim_in_time(s, n.left_out >= 10 && n.nonfinite >= 10);
	world_same(w);
	over(&n);
}

static const struct scn list[] = { SCN_CELLS(deaths, SPECS), SCN_CELLS(lanes, SPECS), SCN(feedback), SCN(changed),
	SCN(liar),
	SCN_CELLS(not_a_number, SPECS), SCN(overflow), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

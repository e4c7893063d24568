/* What is changed while a run goes and begins it anew in place: the swarm's way of averaging, one peer's micro-batches;
 * whoever dies on the way comes back to what holds then. One history, every sample once (chain_check.h). */
#include <stdio.h>
#include <string.h>
#include "chain_check.h"
#include "common/jrpc.h"
#include "node_world.h"

#define PEERS 5

static bool asked(struct node_world *w, int node, json_t *values)
{
	struct err e;
	json_t *r = node_ask(w, node, node_set, json_pack("{s:s,s:o}", "run", "naps", "values", values), &e);
	if (!r)
		sim_fail(w->s, "refused: %s", e.text);
	json_decref(r);
	return r != NULL;
}

struct wish { struct node_world *w; int node; bool delayed; uint64_t target; uint32_t batch; };

/* Everybody trains as it was asked for. */
static bool granted(struct sim *s, void *arg)
{
	struct wish *q = arg;
	for (int i = 0; i < sim_nodes(s); i++) {
		struct run *r = sim_alive(s, i) ? node_run(q->w, i) : NULL;
		if (!r || r->state != RUN_TRAIN || r->again || !r->spec || (r->spec->mode.under_way != NULL) != q->delayed ||
		    run_target(r) != q->target || (i == q->node && r->spec->local.batch != q->batch))
			return false;
	}
	return true;
}

static void until(struct wish *q, const char *what)
{
	if (!sim_await_or(q->w->s, granted, q, 60 * SEC, "not everybody has it: %s", what))
		node_print(q->w);
}

/* By chance somebody dies at once, or within the moment that the change takes; after a while it is back. */
static int strike(struct node_world *w, int but)
{
	struct sim *s = w->s;
	int victim = but;
	if (rng_below(sim_rng(s), 3) == 0)
		return -1;
	while (victim == but)
		victim = node_any(w);
	sim_run_for(s, rng_below(sim_rng(s), 400 * MSEC));
	sim_kill(s, victim);
	return victim;
}

static void back(struct node_world *w, int victim)
{
	if (victim < 0)
		return;
	sim_run_for(w->s, rng_below(sim_rng(w->s), 2 * SEC));
	sim_restart(w->s, victim);
}

static void scn_modes(struct sim *s)
{
	struct node_world *w = node_begin(s, PEERS, 3);
	struct wish q = { w, -1, false, 16 * PEERS, 0 };
	w->forks_allowed = true;                /* all leave and come in one moment: halves may commit before they meet */
	for (int k = 0; k < 4 && !sim_failed(s); k++) {
		q.delayed = !q.delayed;
		asked(w, w->author, json_pack("{s:b,s:b}", "delay_grad", q.delayed, "delay_step", q.delayed));
		back(w, strike(w, -1));
		until(&q, q.delayed ? "delayed" : "at once");
		node_goes_on(w, 4, 60 * SEC);
	}
	node_same(w);
	node_end(w);
}

/* The target batch with no pause at all; then one peer takes other micro-batches while others die. */
static void scn_sizes(struct sim *s)
{
	struct node_world *w = node_begin(s, PEERS, 3);
	struct wish q = { w, -1, false, 32 * PEERS, 0 };
	uint64_t at = sim_now(s);
	asked(w, w->author, json_pack("{s:i}", "target_batch", 32 * PEERS));
	sim_in_time(s, sim_now(s) - at < 5 * SEC);
	until(&q, "twice the target batch");
	node_goes_on(w, 4, 60 * SEC);
	q.node = (int)rng_below(sim_rng(s), PEERS);
	q.batch = 4;
	asked(w, q.node, json_pack("{s:i}", "batch", 4));
	back(w, strike(w, q.node));
	until(&q, "micro-batches of four");
	node_goes_on(w, 4, 60 * SEC);
	node_same(w);
	node_end(w);
}

/* Before the first epoch there is no checkpoint to come back with: it begins as it did. */
static void scn_early(struct sim *s)
{
	struct node_world *w = node_begin(s, 1, 0);
	struct wish q = { w, 0, false, 16, 4 };
	struct err e;
	json_t *r = NULL;
	int k = 0;
	for (; k < 100 + 6000 && !r && !sim_failed(s); k++) {
		sim_run_for(s, 10 * MSEC);
		r = node_run(w, 0) ? node_ask(w, 0, node_set, json_pack("{s:s,s:{s:i}}", "run", "naps", "values", "batch", 4),
			&e) : NULL;
	}
	sim_check(s, r != NULL);
	sim_in_time(s, k <= 100);
	json_decref(r);
	until(&q, "micro-batches of four");
	node_goes_on(w, 3, 60 * SEC);
	node_end(w);
}

/* Who is no author says so behind its own daemon's back, and the author what cannot be: whoever leads takes neither. */
struct reply_of { bool over; uint64_t epoch, version; enum err_code code; };

static void told(void *arg, uint64_t epoch, uint64_t version, const struct err *e)
{
	struct reply_of *q = arg;
	*q = (struct reply_of){ true, epoch, version, e ? e->code : 0 };
}

static bool is_told(struct sim *s, void *arg)
{
	(void)s;
	return ((struct reply_of *)arg)->over;
}

static void refused(struct node_world *w, int node, json_t *patch, enum err_code code)
{
	struct reply_of q = { 0 };
	avg_propose(node_run(w, node)->avg, patch, 0, told, &q);
	if (sim_await(w->s, is_told, &q, 30 * SEC) && q.code != code)
		sim_fail(w->s, "peer %d's change: code %d instead of %d, epoch %llu", node, q.code, code,
			(unsigned long long)q.epoch);
}

static void scn_unlawful(struct sim *s)
{
	struct node_world *w = node_begin(s, PEERS, 3);
	for (int k = 0; k < PEERS && !sim_failed(s); k++)
		if (k != w->author)
			refused(w, k, json_pack("{s:f}", "lr", 1.5), ERR_AUTH);
	if (!sim_failed(s))
		refused(w, w->author, json_pack("{s:s}", "lr", "x"), ERR_INVALID);
	if (!sim_failed(s))
		refused(w, w->author, json_pack("{s:s}", "codec", "zip"), ERR_INVALID);
	node_goes_on(w, 4, 60 * SEC);
	for (int k = 0; k < PEERS && !sim_failed(s); k++) {
		struct run *r = node_run(w, k);
		if (r->state != RUN_TRAIN || r->point.params_version)
			sim_fail(s, "peer %d: version %llu", k, (unsigned long long)r->point.params_version);
	}
	node_same(w);
	node_end(w);
}

/* ---- words: pause, resume, stop ---- */

struct heard { bool over, ok; char text[320]; };

static void heard(void *arg, const struct frame *f, const struct err *e)
{
	struct heard *h = arg;
	h->over = true;
	h->ok = f != NULL;
	snprintf(h->text, sizeof h->text, "%s", e ? e->text : "");
}

static bool is_heard(struct sim *s, void *arg) { return ((struct heard *)arg)->over; }

/* Under `by`, with a signature that is none: what does it hear? */
static struct heard word(struct node_world *w, int from, int to, const struct id *by, uint64_t counter)
{
	struct net *net = node_run(w, from)->rs->ctx.net;
	uint8_t sig[SIG_BYTES];
	struct heard h = { 0 };
	for (size_t i = 0; i < sizeof sig; i++)
		sig[i] = (uint8_t)rng_u64(sim_rng(w->s));
	net_call(net, net_self(node_run(w, to)->rs->ctx.net), KIND_RUN_CTL, json_pack("{s:s,s:s,s:I,s:o,s:o}", "run",
		node_run(w, from)->hex, "op", "pause", "counter", (json_int_t)counter, "by", json_hex(by->b, 32), "sig",
		json_hex(sig, sizeof sig)), NO_BLOB, CLASS_control, 5 * SEC, heard, &h);
	sim_await(w->s, is_heard, &h, 10 * SEC);
	return h;
}

struct hearer { struct node_world *w; int node; };

static bool has_heard(struct sim *s, void *arg)
{
	const struct hearer *h = arg;
	return node_run(h->w, h->node) && node_run(h->w, h->node)->ctl_counter > 0;
}

/* Who may not say it is told so before its signature is looked at, which takes longer, and what was heard before is not
 * looked at again; a false signature of who may say it moves nobody. */
static void scn_words(struct sim *s)
{
	struct node_world *w = node_begin(s, PEERS, 3);
	struct err e;
	int from = (w->author + 1 + (int)rng_below(sim_rng(s), PEERS - 2)) % PEERS, to = (from + 1) % PEERS;
	const struct id author = node_run(w, from)->author, own = *net_self(node_run(w, from)->rs->ctx.net);
	uint64_t later = env_wall(node_peer(w, from)->env) + 1000000;
	struct heard h = word(w, from, to, &own, later);
	if (h.ok || strncmp(h.text, "only ", 5))
		sim_fail(s, "a word of one who may not: \"%s\"", h.text);
	h = word(w, from, to, &author, later);
	if (h.ok || !strstr(h.text, "signature"))
		sim_fail(s, "a word of the author that it has not signed: \"%s\"", h.text);
	node_goes_on(w, 2, 60 * SEC);
	json_decref(node_ask(w, w->author, node_run_pause, json_pack("{s:s}", "run", "naps"), &e));
	json_decref(node_ask(w, w->author, node_run_resume, json_pack("{s:s}", "run", "naps"), &e));
	sim_run_for(s, SEC);
	sim_await(s, has_heard, (&(struct hearer){ w, to }), 0);
	h = word(w, from, to, &author, node_run(w, to)->ctl_counter);
	sim_check(s, h.ok);
	node_goes_on(w, 2, 60 * SEC);
	node_same(w);
	node_end(w);
}

static bool all_paused(struct sim *s, void *arg)
{
	struct node_world *w = arg;
	for (int i = 0; i < sim_nodes(s); i++)
		if (!node_run(w, i) || !node_run(w, i)->paused)
			return false;
	return true;
}

/* What is under way when all pause ends the epoch, when that is enough, at once and with what everybody has; then
 * nothing moves. */
static void scn_paused(struct sim *s)
{
	struct node_world *w = node_begin(s, PEERS, 3);
	struct err e;
	for (int k = 0; k < 6; k++) {
		sim_run_for(s, rng_below(sim_rng(s), 450 * MSEC));
		json_decref(node_ask(w, w->author, node_run_pause, json_pack("{s:s}", "run", "naps"), &e));
		sim_await(s, all_paused, w, 5 * SEC);
		sim_run_for(s, 500 * MSEC);
		uint64_t epoch = node_newest(w);
		sim_run_for(s, 5 * SEC);
		if (node_newest(w) != epoch)
			sim_fail(s, "it is paused, and epoch %llu came after epoch %llu", (unsigned long long)node_newest(w),
				(unsigned long long)epoch);
		if (node_told(w, "minority"))
			sim_fail(s, "all are here: %s", node_told(w, "minority"));
		json_decref(node_ask(w, w->author, node_run_resume, json_pack("{s:s}", "run", "naps"), &e));
		node_goes_on(w, 1, 60 * SEC);
	}
	node_same(w);
	node_end(w);
}

/* Most of them are on hold: they are here, and nobody waits to see whether they have gone on elsewhere. */
static void scn_held(struct sim *s)
{
	struct node_world *w = node_begin(s, PEERS, 3);
	struct err e;
	int free = node_any(w);
	for (int i = 0; i < PEERS; i++)
		if (i != free)
			json_decref(node_ask(w, i, node_run_hold, json_pack("{s:s}", "run", "naps"), &e));
	sim_run_for(s, SEC);
	node_goes_on(w, 5, 60 * SEC);
	if (node_told(w, "minority"))
		sim_fail(s, "all are here: %s", node_told(w, "minority"));
	node_same(w);
	node_end(w);
}

/* What the answer says of a change, some epochs ahead or at once and beside another, holds when its epoch has come. */
static void scn_versions(struct sim *s)
{
	struct node_world *w = node_begin(s, PEERS, 3);
	struct reply_of later = { 0 }, now = { 0 };
	uint64_t at = node_newest(w) + 8 + rng_below(sim_rng(s), 4);
	avg_propose(node_run(w, w->author)->avg, json_pack("{s:f}", "lr", 0.02), at, told, &later);
	sim_check(s, sim_await(s, is_told, &later, 30 * SEC) && !later.code && later.epoch == at);
	if (rng_below(sim_rng(s), 2)) {
		avg_propose(node_run(w, w->author)->avg, json_pack("{s:f}", "weight_decay", 0.01), at, told, &now);
		sim_check(s, sim_await(s, is_told, &now, 30 * SEC) && !now.code && now.epoch == at);
		sim_check(s, now.version == later.version);     /* both with one BEGIN */
	}
	node_run_to(w, at + 2, 60 * SEC);
	for (int k = 0; k < PEERS && !sim_failed(s); k++) {
		const struct avg_point *before = run_point_at(node_run(w, k), at - 1), *p = run_point_at(node_run(w, k), at);
		if (!p || !before)
			continue;
		if (p->params_version != later.version || before->params_version == later.version)
			sim_fail(s, "version %llu at epoch %llu and %llu before, the answer said %llu",
				(unsigned long long)p->params_version, (unsigned long long)at,
				(unsigned long long)before->params_version, (unsigned long long)later.version);
	}
	node_end(w);
}

static const struct scn list[] = { SCN(modes), SCN(sizes), SCN(early), SCN(unlawful), SCN(words), SCN(paused),
	SCN(held), SCN(versions), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

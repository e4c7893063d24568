/* What scenarios ask of all peers together: who leads, do they agree, is everything the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "avg/fork.h"
#include "avg/int.h"
#include "avg_world.h"
#include "common/hash.h"

bool world_all_at(struct world *w, uint64_t epoch)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		if (p && !p->dead && (p->syncing || p->point.epoch < epoch))
			return false;
	}
	return true;
}

void world_lent(struct apeer *p, const struct avg_commit *c, const float *mean)
{
	uint8_t is[16];
	if (p->lent) {
		xxh128_of(p->mean, (size_t)((const char *)p->lent->p + p->lent->bytes - (const char *)p->mean), is);
		if (memcmp(is, p->mean_was, sizeof is))
			sim_fail(p->w->s, "node %d: the mean of epoch %llu was written to while it was kept", p->node,
				(unsigned long long)p->point.epoch);
	}
	lease_put(p->lent);
	p->lent = c ? lease_take(c->lease) : NULL;
	p->mean = mean;
	if (p->lent)
		xxh128_of(mean, (size_t)((const char *)p->lent->p + p->lent->bytes - (const char *)mean), p->mean_was);
}

struct goal { struct world *w; uint64_t epoch; };

static bool reached(struct sim *s, void *arg)
{
	struct goal *g = arg;
	return world_all_at(g->w, g->epoch);
}

bool world_run_to(struct world *w, uint64_t epoch, uint64_t limit_us)
{
	struct goal g = { w, epoch };
	uint64_t late;
	if (sim_comes(w->s, reached, &g, limit_us, &late)) {
		if (late)
			sim_late(w->s, "epoch %llu reached %llu ms late", (unsigned long long)epoch,
				(unsigned long long)(late / MSEC));
		return true;
	}
	char text[400] = "";
	size_t at = 0;
	for (int i = 0; i < sim_nodes(w->s) && at < sizeof text - 60; i++) {
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		struct avg_view v = { 0 };
		if (p)
			avg_view(p->avg, &v);
		at += (size_t)snprintf(text + at, sizeof text - at, " %d:%s@%llu%s", i, p ? v.state : "dead",
			p ? (unsigned long long)p->point.epoch : 0, p && p->syncing ? "(sync)" : "");
	}
	if (getenv("VERBOSE"))
		world_print(w);
	sim_fail(w->s, "epoch %llu not reached:%s", (unsigned long long)epoch, text);
	return false;
}

bool world_settled(struct world *w)
{
	struct id leader = { 0 };
	size_t alive = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		alive += sim_alive(w->s, i);
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		struct avg_view v;
		struct avg_member m[WORLD_MAX];
		if (!p)
			continue;
		avg_view(p->avg, &v);
		if (id_zero(&leader))
			leader = v.leader;
		if (id_zero(&v.leader) || !id_eq(&leader, &v.leader) || !strcmp(v.state, "joining"))
			return false;
		if (!id_eq(&v.leader, net_self(p->net)))
			continue;
		size_t n = avg_members(p->avg, m, WORLD_MAX), live = 0;
		for (size_t k = 0; k < n; k++)
			live += m[k].live;
		if (live != alive)
			return false;
	}
	return !id_zero(&leader);
}

static bool all_settled(struct sim *s, void *arg)
{
	return world_settled(arg);
}

void world_settle(struct world *w, uint64_t limit_us)
{
	if (!sim_await_or(w->s, all_settled, w, limit_us, "the peers have not found each other") && getenv("VERBOSE"))
		world_print(w);
}

struct had { const struct apeer *p; uint64_t total; };

static bool has_more(struct sim *s, void *arg)
{
	const struct had *h = arg;
	return h->p->my_total > h->total;
}

void world_brings(struct world *w, int node, uint64_t had)
{
	sim_await_or(w->s, has_more, &(struct had){ world_peer(w, node), had }, 0,
		"node %d: nothing that it brings counts, of %llu samples no more than %llu", node,
			(unsigned long long)world_peer(w, node)->my_total, (unsigned long long)had);
}

uint64_t world_newest(struct world *w)
{
	uint64_t at = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (sim_alive(w->s, i) && world_peer(w, i)->point.epoch > at)
			at = world_peer(w, i)->point.epoch;
	return at;
}

/* Where rounds in rows and in grids may be struck: at whoever comes there. */
static const char *const points[] = { "avg.progress.after", "avg.begin.before", "avg.begin.after", "avg.ready.before",
	"avg.ready.after", "avg.data.before", "avg.data.after", "avg.attempt.before", "avg.attempt.after",
	"avg.result.before", "avg.result.after", "avg.ack.before", "avg.ack.after", "avg.commit.before",
	"avg.commit.after" };

void world_strike(struct world *w, enum sim_fate fate)
{
	size_t n = sizeof points / sizeof *points;
	sim_failpoint(w->s, -1, points[rng_below(sim_rng(w->s), n)], fate, 1 + (int)rng_below(sim_rng(w->s), 40));
}

void world_go_on(struct world *w, uint64_t more)
{
	world_run_to(w, world_newest(w) + more, 60 * SEC);
	world_same(w);
}

int world_leader(struct world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		struct avg_view v;
		if (!p || p->syncing)
			continue;
		avg_view(p->avg, &v);
		for (int k = 0; k < sim_nodes(w->s); k++)
			if (sim_alive(w->s, k) && id_eq(&v.leader, net_self(world_peer(w, k)->net)))
				return k;
	}
	return -1;
}

void world_same(struct world *w)
{
	struct apeer *first = NULL;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		if (!p || p->dead)
			continue;
		if (!first)
			first = p;
		if (p->point.epoch == first->point.epoch && memcmp(p->point.prev, first->point.prev, DIGEST))
			sim_fail(w->s, "nodes %d and %d are at epoch %llu of two histories", first->node, i,
			(unsigned long long)p->point.epoch);
		if (p->point.epoch == first->point.epoch && memcmp(p->model, first->model, w->conf.len * sizeof(float)))
			sim_fail(w->s, "nodes %d and %d hold different models at epoch %llu", first->node, i,
			(unsigned long long)p->point.epoch);
	}
}

/* Does the point that one is at lead to where the other is? Who fetches a state is nowhere. */
static bool leads_to(const struct apeer *x, const struct apeer *y)
{
	const struct past *p = past_of(y->avg, x->point.epoch);
	return !x->syncing && !y->syncing && x->point.epoch <= y->point.epoch && p &&
		!memcmp(p->mark, x->point.prev, PAST_MARK);
}

static bool is_one(struct sim *s, void *arg)
{
	for (int i = 0; i < sim_nodes(s); i++)
		for (int k = 0; k < i; k++)
			if (sim_alive(s, i) && sim_alive(s, k) && !leads_to(world_peer(arg, i), world_peer(arg, k)) &&
					!leads_to(world_peer(arg, k), world_peer(arg, i)))
				return false;
	return true;
}

void world_one(struct world *w, uint64_t limit_us)
{
	sim_await_or(w->s, is_one, w, limit_us, "two histories");
}

void world_print(struct world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct apeer *p = sim_alive(w->s, i) ? world_peer(w, i) : NULL;
		struct avg_view v;
		char x[9], y[9];
		if (!p)
			continue;
		avg_view(p->avg, &v);
		fprintf(stderr,
			"  node %d (%s): %s epoch %llu (owner %llu) term %u leader %s samples %llu of %llu own %llu, grant %llu, "
				"%s%s\n", i, id_short(net_self(p->net), x), v.state, (unsigned long long)v.epoch,
			(unsigned long long)p->point.epoch, v.term, id_short(&v.leader, y), (unsigned long long)v.total_samples,
			(unsigned long long)v.target, (unsigned long long)p->samples, (unsigned long long)ranges_count(&p->grant),
			p->in_round ? "in round " : "", p->syncing ? "syncing" : "");
	}
}

void world_draw_roles(struct world *w, int n)
{
	w->forks_allowed = true;                /* clients cannot dial each other: one may believe that it is alone */
	for (int i = 0; i < 4; i++)
		w->client[3 + rng_below(sim_rng(w->s), (uint64_t)n - 3)] = true;
	for (int i = 0; i < n; i++)
		if (!w->client[i]) {
			w->aux[i] = true;
			break;
		}
}

void world_roles_hold(struct world *w, int n)
{
	world_run_to(w, 12, 60 * SEC);
	for (int i = 0; i < n; i++) {
		sim_check(w->s, !w->aux[i] || !world_peer(w, i)->my_total);
		sim_in_time(w->s, w->aux[i] || world_peer(w, i)->my_total > 0);
	}
	int slow = (int)rng_below(sim_rng(w->s), (uint64_t)n);
	w->slow_contribute_us[slow] = SEC;
	uint64_t at = world_newest(w);
	sim_run_for(w->s, 5 * SEC);
	sim_in_time(w->s, world_newest(w) > at + 12);
	w->slow_contribute_us[slow] = 0;
}

void world_truth(const struct apeer *p, const struct avg_commit *c, size_t len, double *truth)
{
	struct ranges fresh = { 0 };
	ranges_copy(&fresh, &c->point->done);
	ranges_sub_all(&fresh, &p->point.done);
	for (size_t k = 0; k < len; k += 5) {
		double sum = 0;
		for (size_t i = 0; i < fresh.n; i++)
			for (uint64_t pos = fresh.v[i].lo; pos < fresh.v[i].hi; pos++)
				sum += world_gradient(pos, k);
		truth[k] += sum / (double)c->weight;
	}
	ranges_free(&fresh);
}

void world_equivocation(struct apeer *p, const struct id *peer, const char *text)
{
	struct world *w = p->w;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct apeer *o = world_peer(w, i);
		if (w->liar[i] && o && id_eq(net_self(o->net), peer))
			return;
	}
	sim_fail(w->s, "an honest leader is said to have signed two COMMITs: %s", text);
}

bool world_overflows(void *peer)
{
	const struct apeer *p = peer;
	return p->point.epoch < p->w->overflow_until;
}

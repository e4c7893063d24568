/* The invariants of averaging, recorded by digest of the chain. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "common/hash.h"
#include "common/map.h"
#include "common/mem.h"
#include "promise.h"

#define ROUND_MAX_US (60 * SEC)                 /* every round ends */

struct link_ { uint8_t digest[DIGEST], prev[DIGEST], mean[16]; uint64_t epoch, samples, weight; struct ranges done;
	struct id *in; size_t nin;              /* members that it has not found gone */
	float *values; /* with world.apart: the first one's mean; of units: what any has had so far */
	bool *known; };
struct check { struct world *w; struct map *by_digest, *by_epoch; uint64_t n; };

static int every_event(struct sim *s, void *arg, struct err *e)
{
	struct check *c = arg;
	for (int i = 0; i < sim_nodes(s); i++) {
		struct apeer *p = world_peer(c->w, i);
		if (p && p->in_round && sim_alive(s, i) && sim_now(s) - p->begun_us > ROUND_MAX_US)
			return err_set(e, ERR_STATE, "node %d: a round of epoch %llu began %llu us ago and has not ended", i,
				(unsigned long long)p->round_epoch, (unsigned long long)(sim_now(s) - p->begun_us));
		if (p && sim_alive(s, i) && acks_another(p->avg))
			return err_set(e, ERR_STATE, "node %d: it answers an attempt, and has promised another", i);
	}
	return 0;
}

struct check *check_new(struct world *w)
{
	struct check *c = xcalloc(1, sizeof *c);
	c->w = w;
	c->by_digest = map_new(1);
	c->by_epoch = map_new(2);
	sim_after_event(w->s, every_event, c);
	return c;
}

void check_free(struct check *c)
{
	struct link_ *l;
	for (size_t i = 0; (l = map_next(c->by_digest, &i, NULL, NULL));) {
		ranges_free(&l->done);
		free(l->in);
		free(l->values);
		free(l->known);
		free(l);
	}
	map_free(c->by_digest);
	map_free(c->by_epoch);
	free(c);
}

/* The mean of element k over exactly the positions that this commit adds. */
static double wanted(const struct ranges *fresh, size_t k, uint64_t weight)
{
	double sum = 0;
	for (size_t i = 0; i < fresh->n; i++)
		for (uint64_t pos = fresh->v[i].lo; pos < fresh->v[i].hi; pos++)
			sum += world_gradient(pos, k);
	return sum / (double)weight;
}

/* Some elements: others in every epoch, so that all have their turn. Lossy means are looked at in more of them. */
static void check_mean(struct check *c, const struct ranges *fresh, const float *mean, const struct avg_commit *m,
	int node)
{
	uint64_t weight = m->weight, epoch = m->point->epoch;
	const struct world *w = c->w;
	size_t len = w->conf.len, looks = w->part > 0 ? 400 : 4, step = len / looks ? len / looks : 1;
	double apart = 0, all = 0;
	for (size_t k = epoch % step; k < len; k += step) {
		if (k < m->lo || k >= m->hi)
			continue;
		if (epoch <= w->overflow_until && !isfinite(mean[k - m->lo]))
			continue;
		double want = wanted(fresh, k, weight), d = want - mean[k - m->lo];
		apart += d * d;
		all += want * want;
		if (w->part > 0 ? !isfinite(d) : !(fabs(d) < (w->slack > 0 ? w->slack : 1e-4)))
			sim_fail(w->s, "node %d: element %zu of the mean is %.7g, the committed samples' is %.7g", node, k,
				mean[k - m->lo], want);
	}
	if (w->part > 0 && !(apart <= w->part * w->part * all))
		sim_fail(w->s, "node %d: the mean is %.3g of the committed samples' away, at most %g", node, sqrt(apart / all),
			w->part);
}

static void members_of(const struct apeer *p, struct link_ *l)
{
	struct body b;
	if (body_read(&b, p->avg->last_commit.p, p->avg->last_commit.len, NULL))
		return;
	l->in = xcalloc(b.n + 1, sizeof *l->in);
	for (size_t i = 0; i < b.n; i++)
		if (!(b.m[i].flags & MATE_GONE))
			l->in[l->nin++] = b.m[i].id;
	body_free(&b);
}

static void first_seen(struct check *c, struct apeer *p, const struct avg_point *before, const struct avg_commit *m,
	const float *mean, const uint8_t *hash)
{
	struct sim *s = c->w->s;
	const struct avg_point *at = m->point;
	struct link_ *l = xcalloc(1, sizeof *l);
	struct ranges fresh = { 0 };
	memcpy(l->digest, at->prev, DIGEST);
	memcpy(l->prev, before->prev, DIGEST);
	memcpy(l->mean, hash, 16);
	l->epoch = at->epoch;
	l->samples = at->samples;
	l->weight = m->weight;
	l->values = c->w->apart > 0 ? xmemdup(mean, c->w->conf.len * sizeof *mean) : NULL;
	members_of(p, l);
	ranges_copy(&l->done, &at->done);
	map_put(c->by_digest, l->digest, DIGEST, l);
	c->n++;
	if (!ranges_inside(&before->done, &at->done))
		sim_fail(s, "node %d: epoch %llu un-commits positions", p->node, (unsigned long long)at->epoch);
	ranges_copy(&fresh, &at->done);
	ranges_sub_all(&fresh, &before->done);
	if (ranges_count(&fresh) != m->weight)
		sim_fail(s, "node %d: epoch %llu has weight %llu, but %llu positions are new", p->node,
		(unsigned long long)at->epoch,
			(unsigned long long)m->weight, (unsigned long long)ranges_count(&fresh));
	if (ranges_count(&at->done) != at->samples)
		sim_fail(s, "node %d: %llu samples and %llu positions at epoch %llu", p->node, (unsigned long long)at->samples,
			(unsigned long long)ranges_count(&at->done), (unsigned long long)at->epoch);
	if (c->w->conf.data_limit && at->done.n && at->done.v[at->done.n - 1].hi > c->w->conf.data_limit)
		sim_fail(s, "node %d: a position behind the end of the data", p->node);
	check_mean(c, &fresh, mean, m, p->node);
	ranges_free(&fresh);
}

/* Whoever has the run's last epoch leaves at once. p was taken for dead, since its links broke, finds nobody any more,
 * and ends the run alone. */
static bool left_behind(const struct check *c, const struct apeer *p, const struct link_ *first, const struct link_ *l)
{
	for (size_t i = 0; i < first->nin; i++)
		if (id_eq(&first->in[i], net_self(p->net)) && !c->w->given_up[p->node])
			return false;
	for (int i = 0; i < sim_nodes(c->w->s); i++)
		if (i != p->node && sim_alive(c->w->s, i) && !world_peer(c->w, i)->syncing &&
				world_peer(c->w, i)->point.epoch < c->w->leave_at)
			return false;
	return c->w->leave_at && l->nin == 1 && id_eq(l->in, net_self(p->net));
}

/* One commit of an epoch, whoever adopts it; only who was alone, or was left behind, may have made another. */
static void check_one(struct check *c, const struct apeer *p, struct link_ *l)
{
	const struct link_ *first = map_get(c->by_epoch, &l->epoch, sizeof l->epoch);
	if (p->node == c->w->alone)
		return;
	if (!first)
		map_put(c->by_epoch, &l->epoch, sizeof l->epoch, l);
	else if (first != l && left_behind(c, p, first, l))
		c->w->left_behind[p->node] = true;
	else if (first != l && !c->w->forks_allowed)
		sim_fail(c->w->s, "node %d: a second commit of epoch %llu", p->node, (unsigned long long)l->epoch);
}

/* What members of units have of one mean is one vector. */
static bool fits(const struct check *c, struct link_ *l, const float *mean, const struct avg_commit *m)
{
	if (!l->known) {
		free(l->values);
		l->values = xcalloc(c->w->conf.len, sizeof *l->values);
		l->known = xcalloc(c->w->conf.len, sizeof *l->known);
	}
	for (uint64_t k = m->lo; k < m->hi; k++) {
		if (l->known[k] && memcmp(&l->values[k], &mean[k - m->lo], sizeof *mean))
			return false;
		l->values[k] = mean[k - m->lo];
		l->known[k] = true;
	}
	return true;
}

static bool same_mean(const struct check *c, const struct link_ *l, const float *mean, const uint8_t *hash)
{
	for (size_t k = 0; l->values && k < c->w->conf.len; k++)
		if (!(fabs((double)mean[k] - (double)l->values[k]) <= c->w->apart))
			return false;
	return l->values || !memcmp(l->mean, hash, 16);
}

void check_commit(struct check *c, struct apeer *p, const struct avg_point *before, const struct avg_commit *m,
	const float *mean)
{
	struct sim *s = c->w->s;
	const struct avg_point *at = m->point;
	uint8_t hash[16];
	xxh128_of(mean, (m->hi - m->lo) * sizeof *mean, hash);
	sim_trace(s, &at->epoch, sizeof at->epoch);
	sim_trace(s, at->prev, DIGEST);
	if (at->epoch != before->epoch + 1)
		sim_fail(s, "node %d: from epoch %llu to %llu", p->node, (unsigned long long)before->epoch,
		(unsigned long long)at->epoch);
	if (m->my_samples && m->my_samples != p->samples && p->contributed && !p->dead)
		sim_fail(s, "node %d: %llu of its samples count, it contributed %llu", p->node,
		(unsigned long long)m->my_samples, (unsigned long long)p->samples);
	struct link_ *l = map_get(c->by_digest, at->prev, DIGEST);
	if (!l) {
		first_seen(c, p, before, m, mean, hash);
		check_one(c, p, map_get(c->by_digest, at->prev, DIGEST));
		if (c->w->hold)
			fits(c, map_get(c->by_digest, at->prev, DIGEST), mean, m);
		return;
	}
	check_one(c, p, l);
	if (c->w->hold ? !fits(c, l, mean, m) : !same_mean(c, l, mean, hash))
		sim_fail(s, "node %d: another mean under the same digest at epoch %llu", p->node,
		(unsigned long long)at->epoch);
	if (memcmp(l->prev, before->prev, DIGEST))
		sim_fail(s, "node %d: epoch %llu on top of another history", p->node, (unsigned long long)at->epoch);
	if (l->epoch != at->epoch || l->samples != at->samples || l->weight != m->weight)
		sim_fail(s, "node %d: another state under the same digest at epoch %llu", p->node,
		(unsigned long long)at->epoch);
}

void check_begin(struct check *c, struct apeer *p, uint64_t epoch)
{
	if (p->in_round)
		sim_fail(c->w->s, "node %d: BEGIN of epoch %llu inside a round", p->node, (unsigned long long)epoch);
	if (epoch != p->point.epoch && !p->syncing)
		sim_fail(c->w->s, "node %d: BEGIN of epoch %llu at %llu", p->node, (unsigned long long)epoch,
		(unsigned long long)p->point.epoch);
}

/* The last epoch of both histories. */
static uint64_t common_of(const struct check *c, const struct avg_point *a, const struct avg_point *b)
{
	const struct link_ *x = map_get(c->by_digest, a->prev, DIGEST), *y = map_get(c->by_digest, b->prev, DIGEST);
	while (x && y && x != y)
		if (x->epoch >= y->epoch)
			x = map_get(c->by_digest, x->prev, DIGEST);
		else
			y = map_get(c->by_digest, y->prev, DIGEST);
	return x && y ? x->epoch : 0;
}

void check_taken(struct check *c, const struct apeer *p, const struct avg_point *before, uint64_t kept)
{
	uint64_t common = common_of(c, before, &p->point), keeps = kept < before->epoch ? kept : before->epoch;
	if (p->point.epoch >= common + HISTORY)
		return;                         /* nobody tells what is so far back */
	if (keeps > common || (keeps < common && p->turns == 1))       /* it may have gone over and come back */
		sim_fail(c->w->s, "node %d: of its %llu epochs %llu are in the history that it has joined, and it keeps %llu",
			p->node, (unsigned long long)before->epoch, (unsigned long long)common, (unsigned long long)keeps);
}

void check_history(const struct check *c, const struct avg_point *at,
	void (*each)(void *arg, uint64_t epoch, const uint8_t *digest), void *arg)
{
	const struct link_ *l = map_get(c->by_digest, at->prev, DIGEST), **v = NULL;
	size_t n = 0;
	for (v = l ? xcalloc(l->epoch, sizeof(void *)) : NULL; l && l->epoch; l = map_get(c->by_digest, l->prev, DIGEST))
		v[n++] = l;
	while (n--)
		each(arg, v[n]->epoch, v[n]->digest);
	free(v);
}

uint64_t check_commits(const struct check *c)
{
	return c->n;
}

uint64_t check_weight(const struct check *c, uint64_t epoch)
{
	const struct link_ *l = map_get(c->by_epoch, &epoch, sizeof epoch);
	return l ? l->weight : 0;
}

/* The invariants of runs, by digest of the chain; see chain_check.h. */
#include "chain_check.h"
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "common/hash.h"
#include "common/map.h"
#include "promise.h"
#include "train/trainer_int.h"

#define ROUND_MAX_US (60 * SEC)
#define ALL_EVERY 256                   /* events until those are looked at, too, in which none has happened */

struct commit_ { uint8_t digest[DIGEST], parent[DIGEST], state[16]; uint64_t epoch, samples; struct ranges done;
	bool has_parent, has_state, compared; };
struct seen { const struct run *run; const struct trainer *trainer; enum run_state state; uint64_t epoch, applied;
	uint8_t prev[DIGEST]; };
struct chain_check { struct node_world *w; struct map *by_digest, *by_epoch; struct seen seen[NODES_MAX];
	uint64_t commits, compared, events; };

/* A point that nobody held before. */
static struct commit_ *commit_new(struct chain_check *c, int node, const struct run *r)
{
	const struct avg_point *p = &r->point;
	struct commit_ *k = xcalloc(1, sizeof *k), *other;
	memcpy(k->digest, p->prev, DIGEST);
	k->epoch = p->epoch;
	k->samples = p->samples;
	ranges_copy(&k->done, &p->done);
	map_put(c->by_digest, k->digest, DIGEST, k);
	c->commits++;
	sim_trace(c->w->s, p->prev, DIGEST);
	if (ranges_count(&p->done) != (r->spec->independent ? 0 : p->samples))
		sim_fail(c->w->s, "node %d: %llu samples, but %llu positions at epoch %llu", node,
			(unsigned long long)p->samples, (unsigned long long)ranges_count(&p->done), (unsigned long long)p->epoch);
	if (node == c->w->alone)
		return k;
	other = map_get(c->by_epoch, &p->epoch, sizeof p->epoch);
	if (!other)
		map_put(c->by_epoch, &k->epoch, sizeof k->epoch, k);
	else if (!c->w->forks_allowed)
		sim_fail(c->w->s, "node %d: a second commit of epoch %llu", node, (unsigned long long)p->epoch);
	return k;
}

static void parent(struct chain_check *c, int node, struct commit_ *k, const struct seen *was)
{
	const struct commit_ *before = map_get(c->by_digest, was->prev, DIGEST);
	if (k->has_parent && memcmp(k->parent, was->prev, DIGEST))
		sim_fail(c->w->s, "node %d: epoch %llu on top of another history", node, (unsigned long long)k->epoch);
	k->has_parent = true;
	memcpy(k->parent, was->prev, DIGEST);
	if (before && !ranges_inside(&before->done, &k->done))
		sim_fail(c->w->s, "node %d: epoch %llu un-commits positions", node, (unsigned long long)k->epoch);
}

/* The point of a run has moved. */
static void moved(struct chain_check *c, int node, const struct run *r, const struct seen *was)
{
	const struct avg_point *p = &r->point;
	struct commit_ *k = p->epoch ? map_get(c->by_digest, p->prev, DIGEST) : NULL;
	bool fetches = was->state != RUN_TRAIN && was->state != RUN_FINISH;
	if (!p->epoch || !r->avg)               /* alone: there are no commits */
		return;
	if (!k)
		k = commit_new(c, node, r);
	if (k->epoch != p->epoch || k->samples != p->samples || ranges_count(&k->done) != ranges_count(&p->done) ||
			!ranges_inside(&k->done, &p->done))
		sim_fail(c->w->s, "node %d: another point under the same digest at epoch %llu", node,
			(unsigned long long)p->epoch);
	if (was->run == r && !fetches && p->epoch == was->epoch + 1)
		parent(c, node, k, was);
	else if (was->run == r && !fetches && !r->crew)
		sim_fail(c->w->s, "node %d: from epoch %llu to %llu without fetching state", node,
			(unsigned long long)was->epoch, (unsigned long long)p->epoch);
	if (was->run == r && p->epoch < was->epoch && !c->w->forks_allowed)
		sim_fail(c->w->s, "node %d: back from epoch %llu to %llu", node, (unsigned long long)was->epoch,
			(unsigned long long)p->epoch);
}

/* The parameters of an epoch are there: the same bits as everybody's. */
static void stepped(struct chain_check *c, int node, const struct run *r)
{
	const struct avg_point *p = run_point_at(r, r->trainer->epoch);
	struct commit_ *k = p ? map_get(c->by_digest, p->prev, DIGEST) : NULL;
	uint8_t hash[16];
	size_t bytes;
	void *state = trainer_state(r->trainer, &bytes);
	if (!k || !r->trainer->epoch || r->crew)        /* each holds parts of its own: scn_pipeline */
		return;
	if (!r->spec->mode.local)
		xxh128_of(state, bytes, hash);
	else if (r->avg && r->avg->digest_epoch == r->trainer->epoch)  /* of what was agreed: the rest is each peer's own */
		memcpy(hash, r->avg->digest, 16);
	else
		return;
	if (k->has_state && memcmp(hash, k->state, 16))
		sim_fail(c->w->s, "node %d: another state at epoch %llu than others have", node,
			(unsigned long long)r->trainer->epoch);
	c->compared += k->has_state && !k->compared;
	k->compared |= k->has_state;
	k->has_state = true;
	memcpy(k->state, hash, 16);
}

static int look(struct chain_check *c, int node, const struct run *r, struct err *e)
{
	struct seen *was = &c->seen[node];
	const struct round *round = r->avg ? r->avg->round : NULL;
	if (was->run != r || was->epoch != r->point.epoch || memcmp(was->prev, r->point.prev, DIGEST)) {
		moved(c, node, r, was);
		was->epoch = r->point.epoch;
		memcpy(was->prev, r->point.prev, DIGEST);
	}
	was->run = r;
	was->state = r->state;
	if (r->trainer && (was->trainer != r->trainer || was->applied != r->trainer->epoch)) {
		stepped(c, node, r);
		was->applied = r->trainer->epoch;
	}
	was->trainer = r->trainer;
	if (round && !round->closed && sim_now(c->w->s) > round->begun_us + ROUND_MAX_US)
		return err_set(e, ERR_STATE, "node %d: a round of epoch %llu began %llu us ago and has not ended", node,
			(unsigned long long)round->b.epoch, (unsigned long long)(sim_now(c->w->s) - round->begun_us));
	if (r->avg && acks_another(r->avg))
		return err_set(e, ERR_STATE, "node %d: it answers an attempt, and has promised another", node);
	return 0;
}

static int every_event(struct sim *s, void *arg, struct err *e)
{
	struct chain_check *c = arg;
	int i = sim_touched(s), end = i + 1;
	if (i == SIM_ANYBODY || c->events++ % ALL_EVERY == 0) {
		i = 0;
		end = sim_nodes(s);
	}
	for (; i >= 0 && i < end; i++) {
		const struct run *r = node_run(c->w, i);
		if (!r) {
			c->seen[i].run = NULL;
			c->seen[i].trainer = NULL;
		} else if (look(c, i, r, e)) {
			return -1;
		}
	}
	return 0;
}

struct chain_check *chain_check_new(struct node_world *w)
{
	struct chain_check *c = xcalloc(1, sizeof *c);
	c->w = w;
	c->by_digest = map_new(1);
	c->by_epoch = map_new(2);
	sim_after_event(w->s, every_event, c);
	return c;
}

void chain_check_free(struct chain_check *c)
{
	struct commit_ *k;
	if (!c)
		return;
	for (size_t i = 0; (k = map_next(c->by_digest, &i, NULL, NULL));) {
		ranges_free(&k->done);
		free(k);
	}
	map_free(c->by_digest);
	map_free(c->by_epoch);
	free(c);
}

uint64_t chain_commits(const struct chain_check *c) { return c->commits; }
uint64_t chain_states(const struct chain_check *c) { return c->compared; }

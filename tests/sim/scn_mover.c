/* Parts of a state between members (daemon/run/mover.h) when some who have them are of no use: what they give is bad,
 * or they are busy. What the newcomer has in the end are the bits of one peer alone. */
#include <math.h>
#include <string.h>
#include "common/planted.h"
#include "line_world.h"
#include "run/crew_int.h"
#include "train/trainer_int.h"

/* What a member keeps for its neighbours takes no part in what it computes. */
static void spoil(struct node_world *w, int node, real v)
{
	const struct run *r = node_run(w, node);
	const struct shard_part *own = &trainer_part(r->trainer)->own;
	uint32_t n;
	const struct shard *s = trainer_shards(r->trainer, &n);
	for (uint32_t k = 0; k < n; k++) {
		real *x = shard_w(&s[k]);
		uint64_t params = extent_len(s[k].param), all = params + extent_len(s[k].stat);
		if (s[k].param.lo == own->param.lo && s[k].param.hi == own->param.hi)
			continue;
		for (uint64_t i = 0; i < all; i += i + 1 < params ? params - 1 : 1)
			x[i] = v;
	}
}

/* One with a stage, and another whose place the spare takes without giving the first one another stage: members stand
 * in the order of their ids. */
static void pick_two(struct line *l, int *ret_stays, int *ret_dies)
{
	struct node_world *w = l->w;
	int n = sim_nodes(l->s), spare = 0;
	*ret_stays = *ret_dies = 0;
	sim_await(l->s, line_all_seated, l, 60 * SEC);
	for (int i = 0; i < n; i++)
		spare = line_seated(w, i) ? spare : i;
	int from = (int)rng_below(sim_rng(l->s), (uint64_t)n * (uint64_t)n);
	for (int k = 0; k < n * n; k++) {
		int a = (from + k) % (n * n) / n, b = (from + k) % n;
		const struct id *id = node_id(node_peer(w, a)->node);
		if (a == b || a == spare || b == spare)
			continue;
		if ((id_cmp(node_id(node_peer(w, b)->node), id) < 0) !=
				(id_cmp(node_id(node_peer(w, spare)->node), id) < 0))
			continue;
		*ret_stays = a;
		*ret_dies = b;
		return;
	}
	sim_fail(l->s, "there are no two");
}

/* Who is of no use may not have been asked: that is luck. */
static void want_told(struct node_world *w, const char *kind)
{
	if (!node_told(w, kind))
		sim_late(w->s, "nobody has said %s", kind);
}

static bool spoiled_told(struct sim *s, void *world) { return node_told(world, "crew.spoiled"); }
static bool differs_told(struct sim *s, void *world) { return node_told(world, "crew.differs"); }

static bool only_bad_told(struct sim *s, void *world)
{
	const char *text = node_told(world, "crew.fill");
	return text && strstr(text, "but for peers whose values were bad");
}

/* Whoever has been of no use goes, so that all that is held in the end is right. */
static void end_without(struct line *l, int bad, int dead)
{
	sim_restart(l->s, dead);
	line_goes_on(l, 3);
	sim_kill(l->s, bad);
	line_goes_on(l, 3);
	line_end(l);
}

/* All but a spare hold all of it. Of two of them what one keeps for others is spoilt, and the other dies. */
static struct line *begin_spoilt(struct sim *s, const char *keys, int n, real v, int *ret_bad, int *ret_dies)
{
	struct line *l = line_begin(s, keys, n);
	l->stages = n - 1;
	pick_two(l, ret_bad, ret_dies);
	spoil(l->w, *ret_bad, v);
	sim_kill(s, *ret_dies);
	return l;
}

static void want_no_end(struct line *l)
{
	for (int i = 0; i < sim_nodes(l->s); i++)
		if (node_run(l->w, i) && run_over(node_run(l->w, i)))
			sim_fail(l->s, "the run of node %d has ended", i);
}

/* Three have all of it. One dies, and of the two who could give it to a spare one has bytes that are no numbers. */
static void scn_bad_bytes(struct sim *s)
{
	int bad, dies;
	struct line *l = begin_spoilt(s, PIPELINE ", \"redundancy\": 3", 4, (real)NAN, &bad, &dies);
	line_goes_on(l, 3);
	want_told(l->w, "crew.spoiled");
	end_without(l, bad, dies);
}

/* Nobody has other ones: that is said, and no run ends for it. */
static void scn_only_bad(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE ", \"redundancy\": 3", 4);
	int stays, dies;
	pick_two(l, &stays, &dies);
	for (int i = 0; i < 4; i++)
		if (i != dies && line_seated(l->w, i))
			spoil(l->w, i, (real)INFINITY);
	sim_kill(s, dies);
	sim_run_for(s, 20 * SEC);
	sim_await(s, spoiled_told, l->w, 0);
	sim_await(s, only_bad_told, l->w, 0);
	want_no_end(l);
	line_free(l);
}

#define PLACES 32                               /* for pieces on their way from one peer (hivemind-protocol(7)) */

/* As if so many pieces more were on their way to others; and, or, as many digests were being made for them. */
static void take_places(struct node_world *w, int node, int n)
{
	struct mover *m = run_crew_mover(node_run(w, node));
	uint64_t which = sim_seed(w->s) / 2 % 3;
	m->ngifts += which != 1 ? (size_t)n : 0;
	m->nlooks += which != 0 ? (size_t)n : 0;
}

/* Two have all that a spare needs; one of them, or both, have no place for it for a while. Who was busy is asked ever
 * more seldom, and the other first. */
static void scn_busy(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE ", \"redundancy\": 3", 4);
	int busy[2], dies;
	bool both = sim_seed(s) % 2;
	pick_two(l, &busy[0], &dies);
	busy[1] = busy[0];
	for (int i = 0; i < 4 && both; i++)
		busy[1] = i != dies && line_seated(l->w, i) && i != busy[0] ? i : busy[1];
	for (int i = 0; i <= both; i++)
		take_places(l->w, busy[i], PLACES);
	uint64_t at = node_newest(l->w);
	sim_kill(s, dies);
	sim_run_for(s, 12 * SEC);
	if (both && node_newest(l->w) > at + 1)
		sim_fail(s, "both have no place, and the epoch is %llu after %llu", (unsigned long long)node_newest(l->w),
			(unsigned long long)at);
	if (!both && node_newest(l->w) <= at + 1)
		sim_late(s, "one has no place, and the epoch is %llu after %llu", (unsigned long long)node_newest(l->w),
			(unsigned long long)at);
	for (int i = 0; i <= both && !sim_failed(s); i++) {
		uint64_t asked = run_crew_mover(node_run(l->w, busy[i]))->busy;
		if (asked > 25 || (both && asked < 5))
			sim_late(s, "node %d was busy, and was asked %llu times", busy[i], (unsigned long long)asked);
		take_places(l->w, busy[i], -PLACES);
	}
	line_goes_on(l, 3);
	line_end(l);
}

/* Four have all of it, and one of the three who are left lies about what it keeps for others: two are more than one. */
static void scn_liar(struct sim *s)
{
	int liar, dies;
	struct line *l = begin_spoilt(s, ", \"stages\": 4, \"micro_batches\": 4, \"redundancy\": 4", 5, (real)0.5, &liar,
		&dies);
	line_goes_on(l, 3);
	if (!PLANTED(SHARD_UNLOOKED))
		want_told(l->w, "crew.spoiled");
	end_without(l, liar, dies);
}

/* One of two lies, and nobody can tell which: that is said, nothing is taken, and no run ends. When it has gone what
 * the other has is taken. */
static void scn_of_two(struct sim *s)
{
	int liar, dies;
	struct line *l = begin_spoilt(s, PIPELINE ", \"redundancy\": 3", 4, (real)0.5, &liar, &dies);
	uint64_t at = node_newest(l->w);
	sim_run_for(s, 8 * SEC);
	if (!PLANTED(SHARD_UNLOOKED))
		sim_await(s, differs_told, l->w, 0);
	if (node_newest(l->w) > at + 1)
		sim_fail(s, "one of two who have different values was believed");
	want_no_end(l);
	sim_restart(s, dies);
	sim_run_for(s, SEC);
	sim_kill(s, liar);
	line_goes_on(l, 3);
	line_end(l);
}

/* Somebody knows what all that it lacks must be. */
static bool all_agreed(struct line *l)
{
	for (int i = 0; i < 4; i++) {
		struct run *r = sim_alive(l->s, i) ? node_run(l->w, i) : NULL;
		struct mover *m = r && r->crew ? run_crew_mover(r) : NULL;
		bool all = m && m->left;
		for (struct list *it = all ? m->morsels.next : NULL; it && it != &m->morsels; it = it->next)
			all = all && list_entry(it, struct morsel, link)->agreed;
		if (all)
			return true;
	}
	return false;
}

/* What it gives is not what it has said that it has. */
static void scn_turns(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE ", \"redundancy\": 3", 4);
	int liar, dies;
	pick_two(l, &liar, &dies);
	sim_kill(s, dies);
	for (int k = 0; k < 1000000 && !all_agreed(l); k++)
		sim_run_for(s, 10);
	spoil(l->w, liar, (real)0.5);
	line_goes_on(l, 3);
	if (!PLANTED(SHARD_UNLOOKED) && !strstr(node_told(l->w, "crew.spoiled") ? node_told(l->w, "crew.spoiled") : "",
			"another digest"))
		sim_late(s, "nobody has said that it gives something else");
	end_without(l, liar, dies);
}

static bool is_between(const struct run *r)
{
	return r && r->crew && r->state == RUN_TRAIN && (r->crew->step == SEAT_WAITS || r->crew->step == SEAT_QUIET);
}

struct saver { struct node_world *w; int node; };

static bool saves_no_more(struct sim *s, void *arg)
{
	const struct saver *x = arg;
	return node_run(x->w, x->node) && !node_run(x->w, x->node)->saving;
}

/* Checkpoints that are asked for while a generation begins, in which others parts are whose: each is made, of what its
 * peer holds then. */
static void scn_checkpoint(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE, 4);
	struct node_world *w = l->w;
	uint64_t asked[4] = { 0 };
	int dead = line_kill_any(l, 100 * MSEC), n = 0;
	for (int k = 0; k < 1000000 && !n && !sim_failed(s); k++) {
		sim_run_for(s, 10);
		for (int i = 0; i < 4; i++) {
			struct run *r = i == dead ? NULL : node_run(w, i);
			if (!is_between(r) || r->saving)
				continue;
			run_save(r, NULL);
			asked[i] = r->point.epoch;
			n++;
		}
	}
	sim_in_time(s, n);
	line_goes_on(l, 3);
	for (int i = 0; i < 4 && !sim_failed(s); i++) {
		if (!asked[i])
			continue;
		if (sim_await(s, saves_no_more, (&(struct saver){ w, i }), 0) && node_run(w, i)->saved_epoch < asked[i])
			sim_fail(s, "node %d was to write a checkpoint at epoch %llu, and has not: %s", i,
				(unsigned long long)asked[i],
				node_told(w, "ckpt.failed") ? node_told(w, "ckpt.failed") : "without a word");
	}
	line_end(l);
}

#define LEAVERS 4
/* A daemon that was asked to end; what it held then, of which epoch. */
struct leaver { int node; bool left; uint64_t epoch, params, stats; struct ranges had[2]; char dir[300]; };

static void add_parts(struct ranges v[2], const struct leaver *x, const json_t *list)
{
	struct shard_part p;
	struct err e;
	for (size_t k = 0; k < json_array_size(list); k++)
		if (!mover_part_within(&p, x->params, x->stats, json_array_get(list, k), &e)) {
			ranges_add(&v[0], p.param.lo, p.param.hi);
			ranges_add(&v[1], p.stat.lo, p.stat.hi);
		}
}

/* In the checkpoint of its epoch on its disk. */
static void add_saved(struct line *l, const struct leaver *x, struct ranges has[2])
{
	struct ckpt_head h = { 0 };
	struct err e;
	char path[400];
	ckpt_path(x->dir, x->epoch, path, sizeof path);
	if (ckpt_head_read(&h, node_peer(l->w, x->node)->env->files, path, &e)) {
		sim_fail(l->s, "node %d has saved nothing of epoch %llu: %s", x->node, (unsigned long long)x->epoch, e.text);
	} else {
		json_t *parts = json_loads(json_string_value(json_object_get(h.meta, "crew_parts")), 0, NULL);
		add_parts(has, x, parts);
		json_decref(parts);
	}
	ckpt_head_done(&h);
}

/* By chance, somebody who has something beside its part, which has values, or has none yet; when there is anybody. */
static int keeps_some(struct line *l, int dead, bool whole)
{
	int n = sim_nodes(l->s), from = (int)rng_below(sim_rng(l->s), (uint64_t)n);
	for (int k = 0; k < n; k++) {
		int i = (from + k) % n;
		const struct run *r = i == dead ? NULL : node_run(l->w, i);
		if (!r || !r->crew || r->state != RUN_TRAIN || run_crew_whole(r) != whole)
			continue;
		list_each(it, &r->crew->mover->asides) {
			const struct aside *a = list_entry(it, struct aside, link);
			if (a->ready && a->epoch == r->point.epoch)
				return i;
		}
	}
	return -1;
}

static void has_left(void *leaver) { ((struct leaver *)leaver)->left = true; }

static void leave(struct line *l, int node, struct leaver *x)
{
	struct run *r = node_run(l->w, node);
	json_t *held = mover_held(r->crew->mover);
	const struct layout *layout = trainer_shard(r->trainer)->l;
	*x = (struct leaver){ .node = node, .epoch = r->point.epoch, .params = layout->params, .stats = layout->stats };
	add_parts(x->had, x, held);
	json_decref(held);
	run_dir(r, x->dir, sizeof x->dir);
	node_stop(node_peer(l->w, node)->node, sim_now(l->s) + 28 * SEC, has_left, x);
}

static bool all_left(struct sim *s, void *leavers)
{
	struct leaver *x = leavers;
	bool all = true;
	for (int k = 0; k < LEAVERS; k++)
		all = all && x[k].left;
	return all;
}

/* All that it held is on its disk, unless that epoch is over. */
static void want_saved(struct line *l, struct leaver *x, uint64_t newest)
{
	struct ranges has[2] = { { 0 }, { 0 } };
	bool wanted = x->epoch == newest && (x->had[0].n || x->had[1].n);
	if (wanted)
		add_saved(l, x, has);
	for (int k = 0; k < 2; k++) {
		ranges_sub_all(&x->had[k], &has[k]);
		if (wanted && x->had[k].n)
			sim_fail(l->s, "node %d had %s %llu to %llu of epoch %llu, and has not saved them", x->node, k ?
				"statistics" : "parameters", (unsigned long long)x->had[k].v[0].lo,
				(unsigned long long)x->had[k].v[0].hi, (unsigned long long)x->epoch);
		ranges_free(&x->had[k]);
		ranges_free(&has[k]);
	}
}

/* In the middle of a move daemons are asked to end, all within a tenth of a second: they do, and what they held, and no
 * COMMIT has outdated, is on their disks. From there they go on. */
static void scn_leaves(struct sim *s)
{
	struct line *l = line_begin(s, ", \"stages\": 4, \"micro_batches\": 4, \"replicas\": 1", LEAVERS + 1);
	static struct leaver x[LEAVERS];
	l->stages = 4;
	l->copies = 8;
	bool whole = sim_seed(s) % 2;
	int dead = line_kill_any(l, 100 * MSEC), i = -1;
	for (int k = 1; k < 3000000 && i < 0 && !sim_failed(s); k++) {
		sim_run_for(s, 10);
		i = rng_below(sim_rng(s), 40) ? -1 : keeps_some(l, dead, whole);
		if (k % 100000 || i >= 0)
			continue;
		sim_restart(s, dead);           /* nobody had to move, or it was soon over */
		line_goes_on(l, 3);
		dead = line_kill_any(l, 100 * MSEC);
	}
	if (i < 0) {
		sim_late(s, "nobody has moved");
		line_free(l);
		return;
	}
	leave(l, i, &x[0]);
	for (int k = 1, n = i; k < LEAVERS; k++) {
		n = (n + 1) % (LEAVERS + 1) == dead ? (n + 2) % (LEAVERS + 1) : (n + 1) % (LEAVERS + 1);
		sim_run_for(s, rng_below(sim_rng(s), 50 * MSEC));
		leave(l, n, &x[k]);
	}
	sim_await(s, all_left, x, 8 * SEC);
	uint64_t newest = 0;
	for (int k = 0; k < LEAVERS; k++)
		newest = x[k].epoch > newest ? x[k].epoch : newest;
	for (int k = 0; k < LEAVERS; k++)
		want_saved(l, &x[k], newest);
	l->w->forks_allowed = true;
	for (int k = 0; k <= LEAVERS; k++)
		sim_restart(s, k);
	line_goes_on(l, 3);
	line_end(l);
}

/* What has come lies where it belongs, and nowhere else. */
static void scn_memory(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE ", \"redundancy\": 3", 4);
	uint64_t came = 0;
	int stays, dies;
	pick_two(l, &stays, &dies);
	sim_kill(s, dies);
	for (int k = 0; k < 200000 && !sim_failed(s) && (!came || !line_all_seated(s, l)); k++) {
		sim_run_for(s, 10);
		for (int i = 0; i < 4; i++) {
			struct run *r = i == dies ? NULL : node_run(l->w, i);
			struct mover *m = r && r->crew ? run_crew_mover(r) : NULL;
			for (struct list *it = m ? m->morsels.next : NULL; m && it != &m->morsels; it = it->next) {
				const struct morsel *x = list_entry(it, struct morsel, link);
				came += x->here;
				if (x->here && x->s.block)
					sim_fail(s, "node %d has %zu bytes that have come in memory twice", i, x->s.bytes);
			}
		}
	}
	sim_in_time(s, came);
	line_goes_on(l, 3);
	line_end(l);
}

static const struct scn list[] = { SCN(memory), SCN(checkpoint), SCN(leaves), SCN(turns), SCN(liar), SCN(of_two),
	SCN(busy), SCN(bad_bytes), SCN(only_bad), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

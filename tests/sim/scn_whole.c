/* A pipeline whose members have all been away at once: what each has on its disk is of some epochs, and not of the same
 * ones. They go on from the newest that is whole on the disks together, or a newer one, with the bits of one alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"
#include "line_world.h"
#include "run/crew_int.h"
#include "train/trainer_int.h"

#define CLAIMS 256

/* What lay on the disks when their nodes started: each says it once, as it is born. */
struct disks { struct node_world *w; char dir[300]; const struct layout *l; struct claim v[CLAIMS]; size_t n;
	bool lost[16]; };
static struct disks disks;

static void note(struct disks *d, const json_t *meta)
{
	const char *text[] = { json_string_value(json_object_get(meta, "point")),
		json_string_value(json_object_get(meta, "crew_parts")) };
	json_t *point = text[0] ? json_loads(text[0], 0, NULL) : NULL;
	json_t *parts = text[1] ? json_loads(text[1], 0, NULL) : NULL;
	struct claim *c = &d->v[d->n];
	struct err e;
	if (point && parts && d->n < CLAIMS) {
		*c = (struct claim){ .n = 0 };
		if (json_get_u64(point, "epoch", &c->epoch, &e) || json_get_hex(point, "prev", c->prev, DIGEST, &e))
			sim_fail(d->w->s, "a checkpoint without a point: %s", e.text);
		c->v = mover_parts_read(&c->n, d->l, parts, &e);
		if (!c->v)
			sim_fail(d->w->s, "a checkpoint with other parts: %s", e.text);
		d->n++;
	}
	json_decref(point);
	json_decref(parts);
}

static void born(struct node_world *w, struct node_peer *p)
{
	struct disks *d = &disks;
	struct files *f = p->env->files;
	uint64_t epoch[64];
	struct err e;
	int n = ckpt_list(f, d->dir, epoch, 64, &e);
	for (int i = 0; i < n; i++) {
		struct ckpt_head h = { 0 };
		char path[400];
		ckpt_path(d->dir, epoch[i], path, sizeof path);
		if (d->lost[p->index])
			f->unlink(f, path, &e);
		else if (!ckpt_head_read(&h, f, path, &e))
			note(d, h.meta);
		ckpt_head_done(&h);
	}
	d->lost[p->index] = false;
}

/* The newest epoch that all disks together have whole; 0: there is none. */
static uint64_t newest_whole(const struct disks *d)
{
	uint64_t best = 0;
	for (size_t i = 0; i < d->n; i++) {
		struct shard_part *v = NULL;
		size_t n = 0;
		for (size_t k = 0; k < d->n; k++) {
			const struct claim *c = &d->v[k];
			if (c->epoch != d->v[i].epoch || memcmp(c->prev, d->v[i].prev, DIGEST))
				continue;
			v = xrealloc(v, (n + c->n + 1) * sizeof *v);
			memcpy(v + n, c->v, c->n * sizeof *v);
			n += c->n;
		}
		if (d->v[i].epoch > best && !rally_missing(d->l, v, n))
			best = d->v[i].epoch;
		free(v);
	}
	return best;
}

static void forget(struct disks *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->v[i].v);
	d->n = 0;
}

static struct line *begin(struct sim *s, const char *more, int n)
{
	struct line *l = line_begin(s, more, n);
	const struct run *r = node_run(l->w, 0);
	struct layout *copy = xmemdup(trainer_shard(r->trainer)->l, sizeof *copy);
	copy->tensor = xmemdup(copy->tensor, copy->ntensors * sizeof *copy->tensor);
	disks = (struct disks){ .w = l->w, .l = copy };
	run_dir(r, disks.dir, sizeof disks.dir);
	l->w->born = born;
	l->w->forks_allowed = true;             /* epochs are made once more */
	return l;
}

static void close_disks(void)
{
	forget(&disks);
	free(disks.l->tensor);
	free((void *)disks.l);
}

static void end(struct line *l)
{
	line_end(l);
	close_disks();
}

/* All of them, or all but one, go within three seconds, at moments of their own. */
static void all_off(struct line *l, int n, int stays)
{
	bool off[16] = { false };
	int left = stays >= 0 ? n - 1 : n;
	while (left) {
		int i = (int)rng_below(sim_rng(l->s), (uint64_t)n);
		if (off[i] || i == stays)
			continue;
		sim_run_for(l->s, rng_below(sim_rng(l->s), SEC));
		sim_power_off(l->s, i);
		off[i] = true;
		left--;
	}
	sim_run_for(l->s, rng_below(sim_rng(l->s), 5 * SEC));
}

/* One after the other, at most so much apart. */
static void all_on(struct line *l, int n, uint64_t us)
{
	for (int left = n; left;) {
		int i = (int)rng_below(sim_rng(l->s), (uint64_t)n);
		if (sim_alive(l->s, i)) {
			left = node_alive(l->w) == n ? 0 : left;
			continue;
		}
		sim_run_for(l->s, rng_below(sim_rng(l->s), us));
		sim_restart(l->s, i);
	}
}

/* From there or beyond, whoever is the first. */
static void goes_on_from(struct line *l, uint64_t whole)
{
	struct sim *s = l->s;
	uint64_t late;
	if (!sim_comes(s, line_all_seated, l, 120 * SEC, &late)) {
		sim_fail(s, "nobody goes on from epoch %llu, which is whole on the disks: %s", (unsigned long long)whole,
			node_told(l->w, "crew.lacks") ? node_told(l->w, "crew.lacks") : "without a word");
		return;
	}
	if (late)
		sim_late(s, "nobody goes on from epoch %llu in time: %llu ms late", (unsigned long long)whole,
			(unsigned long long)(late / MSEC));
	for (int i = 0; i < sim_nodes(s); i++)
		if (line_seated(l->w, i) && node_run(l->w, i)->point.epoch < whole)
			sim_fail(s, "node %d goes on from epoch %llu, and epoch %llu is whole on the disks", i,
				(unsigned long long)node_run(l->w, i)->point.epoch, (unsigned long long)whole);
	line_goes_on(l, 4);
}

static void outages(struct sim *s, int times, bool loses, bool lives)
{
	struct line *l = begin(s, PIPELINE, 4);
	for (int k = 0; k < times && !sim_failed(s); k++) {
		node_run_to(l->w, node_newest(l->w) + 45, 180 * SEC);
		int stays = lives ? line_any_seated(l->w) : -1;
		all_off(l, 4, stays);
		forget(&disks);
		if (loses)
			disks.lost[(stays + 1 + rng_below(sim_rng(s), 3)) % 4] = true;
		all_on(l, 4, 3 * SEC);
		uint64_t whole = newest_whole(&disks);
		if (!whole && !loses && !lives)
			sim_fail(s, "nothing is whole on the disks after more than 40 epochs");
		goes_on_from(l, whole);
	}
	end(l);
}

static void scn_power(struct sim *s) { outages(s, 2, false, false); }

/* And one disk is empty then: who held the same has it. */
static void scn_disk_lost(struct sim *s) { outages(s, 1, true, false); }

/* One lives, and stands beyond what is whole: with what it has in memory nobody goes on, and it goes back with them. */
static void scn_survivor(struct sim *s) { outages(s, 2, false, true); }

/* One cannot write for longer than the others keep theirs, and nobody else holds what it does: they keep the last epoch
 * that is whole. */
static void scn_kept(struct sim *s)
{
	struct line *l = begin(s, PIPELINE ", \"redundancy\": 1", 3);
	node_run_to(l->w, 45, 180 * SEC);
	sim_disk_full(s, line_any_seated(l->w), 0);
	node_run_to(l->w, 165, 300 * SEC);
	all_off(l, 3, -1);
	for (int i = 0; i < 3; i++)
		sim_disk_full(s, i, -1);
	all_on(l, 3, 3 * SEC);
	uint64_t whole = newest_whole(&disks);
	if (whole < 40)
		sim_fail(s, "all three had saved epoch 40, and epoch %llu is whole on the disks", (unsigned long long)whole);
	goes_on_from(l, whole);
	line_free(l);                           /* with one copy of each part there are not the two to compare */
	close_disks();
}

/* The first three that are there become members, and what the fourth has on its disk nobody else has. That one comes in
 * as a spare, of whom only the leader hears before the next COMMIT. */
static void scn_spare(struct sim *s)
{
	struct line *l = begin(s, PIPELINE ", \"redundancy\": 1", 4);
	for (int k = 0; k < 3 && !sim_failed(s); k++) {
		node_run_to(l->w, node_newest(l->w) + 45, 180 * SEC);
		all_off(l, 4, -1);
		forget(&disks);
		all_on(l, 4, SEC / 4);
		goes_on_from(l, newest_whole(&disks));
	}
	line_free(l);
	close_disks();
}

static bool lacks_told(struct sim *s, void *world) { return node_told(world, "crew.lacks"); }

/* What nobody has is lost: they say of which epoch how much. */
static void scn_none(struct sim *s)
{
	struct line *l = begin(s, PIPELINE ", \"redundancy\": 1", 3);
	node_run_to(l->w, 45, 180 * SEC);
	all_off(l, 3, -1);
	disks.lost[rng_below(sim_rng(s), 3)] = true;
	all_on(l, 3, 3 * SEC);
	sim_run_for(s, 40 * SEC);
	sim_await(s, lacks_told, l->w, 0);
	const char *text = node_told(l->w, "crew.lacks");
	if (newest_whole(&disks) || line_seats(l->w))
		sim_fail(s, "somebody goes on, though a third of the state is lost");
	else if (!text || !strstr(text, "bytes of the state are missing") || strstr(text, " 0 bytes"))
		sim_fail(s, "nobody says what is missing: %s", text ? text : "not a word");
	line_free(l);
	close_disks();
}

static const struct scn list[] = { SCN(power), SCN(disk_lost), SCN(survivor), SCN(kept), SCN(spare), SCN(none), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

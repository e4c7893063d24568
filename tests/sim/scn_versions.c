/* Peers of two versions in one run: some know only an older way of hashing what they hold (common/hash.h), and hash as
 * the others do only when those do as they. States and parts of them are taken from both, and an upgrade of one after
 * the other disturbs nobody. */
#include <stdio.h>
#include "line_world.h"

static void another_version(struct node_world *w, int node)
{
	enum hashes older = sim_seed(w->s) % 2 ? HASHES_SHA256 : HASHES_BLAKE2SP;
	w->hashes[node] = w->hashes[node] == HASHES_NEWEST ? older : HASHES_NEWEST;
}

static void draw_versions(struct node_world *w, int n)
{
	for (int i = 0; i < n; i++)
		if (rng_below(sim_rng(w->s), 2))
			another_version(w, i);
}

static bool trains(struct sim *s, void *arg)
{
	struct run *r = node_run(arg, sim_nodes(s) - 1);
	return r && r->state == RUN_TRAIN && r->own_samples;
}

/* A state of 600 kB. */
static struct node_world *begin(struct sim *s, int n)
{
	static const char spec[] = "{\"name\": \"naps\", \"input\": [100], "
		"\"model\": [{\"type\": \"sleep\", \"fwd_ms\": 100}, {\"type\": \"linear\", \"out\": 500}], "
		"\"loss\": \"cross_entropy\", \"target_batch\": 64, \"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, "
		"\"strategy\": \"hivemind\", \"validation\": {\"every\": 0}, "
		"\"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, "
		"\"stop\": {\"epochs\": 1000000}, \"local\": {\"batch\": 8}}";
	struct node_world *w = node_world_new(s, spec);
	draw_versions(w, n);
	node_world_add(w, n);
	node_run_to(w, 3, 60 * SEC);
	return w;
}

/* Newcomers take the state from who is there, of whatever version they and those are. */
static void scn_newcomers(struct sim *s)
{
	struct node_world *w = begin(s, 4);
	for (int i = 4; i < 7; i++) {
		if (rng_below(sim_rng(s), 2))
			another_version(w, i);
		node_world_add(w, 1);
		if (!sim_await(s, trains, w, 8 * SEC))
			node_print(w);
	}
	if (node_told(w, "sync.differs"))
		sim_fail(s, "%s", node_told(w, "sync.differs"));
	node_goes_on(w, 3, 20 * SEC);
	node_end(w);
}

/* One after the other comes back in the other version. */
static void scn_upgrade(struct sim *s)
{
	struct node_world *w = begin(s, 4);
	for (int i = 0; i < 4; i++) {
		sim_kill(s, i);
		node_run_to(w, node_newest(w) + 2, 20 * SEC);
		another_version(w, i);
		sim_restart(s, i);
		node_goes_on(w, 3, 20 * SEC);
	}
	node_end(w);
}

/* Of a run whose members hold parts. */
static void scn_parts(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE ", \"redundancy\": 3", 5);
	int first = (int)rng_below(sim_rng(s), 5);
	for (int i = 0; i < 4; i++) {
		int node = (first + i) % 5;
		sim_kill(s, node);
		another_version(l->w, node);
		line_goes_on(l, 2);
		sim_restart(s, node);
		line_goes_on(l, 3);
	}
	line_end(l);
}

static const struct scn list[] = { SCN(newcomers), SCN(upgrade), SCN(parts), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

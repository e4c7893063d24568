/* What the store keeps of changes and of commits when two operators want the same at once, when a change is agreed for
 * later, and when a partition has let two histories grow: every change has an end that is stated, and what a lost
 * history had processed stands apart from what the winning one proves. */
#include <string.h>
#include "avg/ranges.h"
#include "common/jrpc.h"
#include "node_world.h"
#include "store/store.h"

#define PEERS 5

static struct store *stores[PEERS];

/* Whole nodes of this world have no database: here each gets one in memory. */
static struct node_world *begin(struct sim *s)
{
	struct node_world *w = node_begin(s, PEERS, 3);
	struct store_opts o = { .path = ":memory:" };
	struct err e;
	for (int i = 0; i < PEERS && !sim_failed(s); i++) {
		stores[i] = store_open(node_peer(w, i)->env, &o, &e);
		if (!stores[i])
			sim_fail(s, "%s", e.text);
		node_run(w, i)->rs->ctx.store = stores[i];
	}
	return w;
}

static void end(struct node_world *w)
{
	for (int i = 0; i < PEERS; i++) {
		if (stores[i])
			node_run(w, i)->rs->ctx.store = NULL;
		store_free(stores[i]);
		stores[i] = NULL;
	}
	node_end(w);
}

struct wish { struct reply r; bool over; struct err e; uint64_t epoch; };

static void answered(struct reply *r, json_t *result, const struct err *e)
{
	struct wish *q = container_of(r, struct wish, r);
	q->over = true;
	q->e = e ? *e : (struct err){ 0 };
	if (result)
		json_get_u64(result, "epoch", &q->epoch, NULL);
	json_decref(result);
}

static void ask(struct node_world *w, struct wish *q, const char *key, double value, uint64_t at)
{
	json_t *p = json_pack("{s:s,s:{s:f}}", "run", "naps", "values", key, value);
	*q = (struct wish){ .r.done = answered };
	if (at)
		json_object_set_new(p, "at", json_integer((json_int_t)at));
	node_set(node_peer(w, w->author)->node, p, &q->r);
	json_decref(p);
}

static bool all_over(struct sim *s, void *arg)
{
	const struct wish *q = arg;
	return q[0].over && q[1].over;
}

static void both_answered(struct node_world *w, struct wish q[2])
{
	sim_await(w->s, all_over, q, 60 * SEC);
}

/* The state that the author's history says of that value of the key, NULL: nothing; and its note. */
static const char *state_of(struct node_world *w, const char *key, double value, char note[200])
{
	static char state[32];
	json_t *rows = store_list(stores[w->author], STORE_PARAMS, NULL, 100), *row;
	size_t i;
	bool found = false;
	*note = 0;
	json_array_foreach(rows, i, row) {
		const char *text = json_string_value(json_object_get(row, "note"));
		if (strcmp(json_string_value(json_object_get(row, "key")), key) ||
		    strtod(json_string_value(json_object_get(row, "new_value")), NULL) != value || found)
			continue;
		snprintf(state, sizeof state, "%s", json_string_value(json_object_get(row, "state")));
		snprintf(note, 200, "%s", text ? text : "");
		found = true;
	}
	json_decref(rows);
	return found ? state : NULL;
}

static void expect(struct node_world *w, const char *key, double value, const char *state, const char *in_note)
{
	char note[200];
	const char *is = state_of(w, key, value, note);
	if (!is || strcmp(is, state) || !strstr(note, in_note))
		sim_fail(w->s, "%s=%g is %s (%s) and not %s (%s)", key, value, is ? is : "not there", note, state, in_note);
}

struct expected { struct node_world *w; const char *key; double value; const char *state; };

static bool is_so(struct sim *s, void *arg)
{
	const struct expected *x = arg;
	char note[200];
	const char *is = state_of(x->w, x->key, x->value, note);
	return is && !strcmp(is, x->state);
}

/* Two want the same key at once: one holds, the other is told by whom it is superseded, and that is kept. */
static void scn_both(struct sim *s)
{
	struct node_world *w = begin(s);
	struct wish q[2];
	ask(w, &q[0], "lr", 0.5, 0);
	ask(w, &q[1], "lr", 0.25, 0);
	both_answered(w, q);
	int won = q[0].e.code != 0;
	sim_check(s, !q[won].e.code && q[!won].e.code == ERR_EXISTS && strstr(q[!won].e.text, "lr: superseded by"));
	node_run_to(w, q[won].epoch + 1, 60 * SEC);
	expect(w, "lr", won ? 0.25 : 0.5, "applied", "");
	expect(w, "lr", won ? 0.5 : 0.25, "superseded", "lr: superseded by");
	end(w);
}

/* Agreed for later, then the version that it was promised is taken by another; and what changes nothing. */
static void scn_later(struct sim *s)
{
	struct node_world *w = begin(s);
	struct wish q[2];
	uint64_t at = node_newest(w) + 10;
	ask(w, &q[0], "lr", 0.5, at);
	q[1] = q[0];
	q[1].over = true;
	both_answered(w, q);
	expect(w, "lr", 0.5, "proposed", "");
	ask(w, &q[0], "weight_decay", 0.125, 0);
	q[1].over = true;
	both_answered(w, q);
	node_run_to(w, q[0].epoch + 1, 60 * SEC);
	ask(w, &q[0], "weight_decay", 0.125, 0);
	both_answered(w, q);
	node_run_to(w, at + 1, 60 * SEC);
	json_t *rows = store_list(stores[w->author], STORE_PARAMS, NULL, 100), *row;
	size_t i;
	json_array_foreach(rows, i, row)
		if (strcmp(json_string_value(json_object_get(row, "state")), "applied"))
			sim_fail(s, "%s=%s is still %s", json_string_value(json_object_get(row, "key")),
				json_string_value(json_object_get(row, "new_value")),
				json_string_value(json_object_get(row, "state")));
	json_decref(rows);
	end(w);
}

static struct ranges ranges_of(const json_t *o, const char *key)
{
	struct ranges r = { 0 };
	struct err e;
	(void)ranges_parse(&r, json_object_get(o, key), &e);
	return r;
}

/* The newest commit that both have made. */
static const struct avg_point *common(struct run *a, struct run *b)
{
	for (uint64_t k = a->point.epoch; k; k--) {
		const struct avg_point *p = run_point_at(a, k), *q = run_point_at(b, k);
		if (p && q && !memcmp(p->prev, q->prev, DIGEST))
			return p;
	}
	return NULL;
}

static bool lost(struct sim *s, void *arg)
{
	struct node_world *w = arg;
	json_t *rows = store_list(stores[w->author], STORE_DISCARDED, NULL, 1);
	bool ret = json_array_size(rows) > 0;
	json_decref(rows);
	return ret;
}

/* The proof is of the winning commits alone; beside it all that the lost ones had taken since the two parted. */
static void check_ledger(struct node_world *w, const struct ranges *shared, const struct ranges *taken)
{
	struct run *r = node_run(w, w->author);
	json_t *o = json_object();
	run_put_ledger(r, o);
	const json_t *ledger = json_object_get(o, "ledger"), *d = json_object_get(ledger, "discarded");
	struct ranges positions = ranges_of(d, "positions"), epochs = ranges_of(d, "epochs");
	if (!json_is_true(json_object_get(json_object_get(ledger, "proof"), "exactly_once")))
		sim_fail(w->s, "no proof after the fork");
	if (!epochs.n || !ranges_inside(taken, &positions))
		sim_fail(w->s, "%llu positions were taken by the lost commits, %llu of %llu epochs are shown",
			(unsigned long long)ranges_count(taken), (unsigned long long)ranges_count(&positions),
			(unsigned long long)ranges_count(&epochs));
	if (ranges_overlap(&positions, shared))
		sim_fail(w->s, "what both histories have taken is shown as discarded");
	if ((uint64_t)json_integer_value(json_object_get(d, "samples")) != ranges_count(&positions))
		sim_fail(w->s, "%lld samples are discarded and %llu positions",
			json_integer_value(json_object_get(d, "samples")), (unsigned long long)ranges_count(&positions));
	ranges_free(&positions);
	ranges_free(&epochs);
	json_decref(o);
}

static void scn_lost(struct sim *s)
{
	struct node_world *w = begin(s);
	struct ranges shared = { 0 }, taken = { 0 };
	struct wish q[2];
	int side[PEERS] = { 0 }, other = (w->author + 1) % PEERS;
	w->forks_allowed = true;
	side[w->author] = side[(w->author + 2) % PEERS] = 1;
	sim_partition(s, side, PEERS);
	sim_run_for(s, 8 * SEC);
	uint64_t at = node_newest(w) + 40;
	ask(w, &q[0], "lr", 0.5, 0);
	ask(w, &q[1], "weight_decay", 0.125, at);
	both_answered(w, q);
	sim_check(s, !q[0].e.code && !q[1].e.code);
	sim_run_for(s, 8 * SEC);
	sim_await(s, is_so, (&(struct expected){ w, "lr", 0.5, "applied" }), 0);
	struct run *a = node_run(w, w->author);
	const struct avg_point *both = common(a, node_run(w, other));
	if (!both || a->point.samples >= node_run(w, other)->point.samples || at <= a->point.epoch) {
		sim_late(s, "the author's side is not the one that loses, or is too far");
		end(w);
		return;
	}
	expect(w, "weight_decay", 0.125, "proposed", "");
	ranges_copy(&shared, &both->done);
	ranges_copy(&taken, &a->point.done);
	ranges_sub_all(&taken, &shared);
	sim_heal(s);
	sim_await_or(s, lost, w, 60 * SEC, "nothing is discarded");
	node_goes_on(w, 3, 60 * SEC);
	if (!sim_failed(s))
		check_ledger(w, &shared, &taken);
	expect(w, "lr", 0.5, "discarded", "lost a fork");
	node_run_to(w, at + 1, 120 * SEC);
	expect(w, "weight_decay", 0.125, "discarded", "lost a fork");
	ranges_free(&shared);
	ranges_free(&taken);
	end(w);
}

static const struct scn list[] = { SCN(both), SCN(later), SCN(lost), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

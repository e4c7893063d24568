/* What scenarios ask of all nodes together: who leads, how far they are, whether they hold the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "node_world.h"

struct node_peer *node_peer(struct node_world *w, int node)
{
	return sim_alive(w->s, node) ? sim_app(w->s, node) : NULL;
}

struct run *node_run(struct node_world *w, int node)
{
	struct node_peer *p = node_peer(w, node);
	struct runs *rs = p ? node_runs(p->node) : NULL;
	if (!rs || list_empty(&rs->list))
		return NULL;
	return list_entry(rs->list.prev, struct run, link);
}

const char *node_told(const struct node_world *w, const char *kind)
{
	for (unsigned i = 0; i < w->ntold; i++)
		if (!strcmp(w->told[i], kind))
			return w->text[i];
	return NULL;
}

int node_any(struct node_world *w)
{
	for (;;) {
		int i = (int)rng_below(sim_rng(w->s), (uint64_t)sim_nodes(w->s));
		if (sim_alive(w->s, i))
			return i;
	}
}

int node_alive(struct node_world *w)
{
	int n = 0;
	for (int i = 0; i < sim_nodes(w->s); i++)
		n += sim_alive(w->s, i);
	return n;
}

static bool trains(struct node_world *w, int i)
{
	struct run *r = node_run(w, i);
	return r && r->state == RUN_TRAIN && r->trainer;
}

/* What is applied to the parameters; the point is ahead of it while a step is being made. */
static uint64_t applied(struct node_world *w, int i)
{
	struct run *r = node_run(w, i);
	struct trainer_view v;
	if (!r || !r->trainer)
		return 0;
	trainer_view(r->trainer, &v);
	return v.epoch;
}

uint64_t node_newest(struct node_world *w)
{
	uint64_t at = 0;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		uint64_t e = trains(w, i) ? applied(w, i) : 0;
		at = e > at ? e : at;
	}
	return at;
}

int node_leader(struct node_world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct avg_view v;
		if (!trains(w, i) || !node_run(w, i)->avg)
			continue;
		avg_view(node_run(w, i)->avg, &v);
		for (int k = 0; k < sim_nodes(w->s); k++)
			if (sim_alive(w->s, k) && id_eq(&v.leader, node_id(node_peer(w, k)->node)))
				return k;
	}
	return -1;
}

bool node_all_joined(struct sim *s, void *world)
{
	for (int i = 0; i < sim_nodes(s); i++) {
		struct node_peer *p = node_peer(world, i);
		struct dht_state d;
		if (!p)
			continue;
		dht_state(node_dht(p->node), &d);
		if (!d.joined || d.lookups_open)
			return false;
	}
	return true;
}

bool node_all_at(struct node_world *w, uint64_t epoch)
{
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (sim_alive(w->s, i) && !w->idle[i] && (!trains(w, i) || applied(w, i) < epoch))
			return false;
	return true;
}

struct goal { struct node_world *w; uint64_t epoch; };

static bool reached(struct sim *s, void *arg)
{
	struct goal *g = arg;
	return node_all_at(g->w, g->epoch);
}

bool node_run_to(struct node_world *w, uint64_t epoch, uint64_t limit_us)
{
	struct goal g = { w, epoch };
	char text[400] = "";
	uint64_t late;
	size_t at = 0;
	if (sim_comes(w->s, reached, &g, limit_us, &late)) {
		if (late)
			sim_late(w->s, "epoch %llu reached %llu ms late", (unsigned long long)epoch,
				(unsigned long long)(late / MSEC));
		return true;
	}
	for (int i = 0; i < sim_nodes(w->s) && at < sizeof text - 40; i++) {
		struct run *r = node_run(w, i);
		at += (size_t)snprintf(text + at, sizeof text - at, " %d:%s@%llu", i, !sim_alive(w->s, i) ? "dead" :
			r ? run_state_name(r) : "-", (unsigned long long)applied(w, i));
	}
	if (getenv("VERBOSE"))
		node_print(w);
	sim_fail(w->s, "epoch %llu not reached:%s", (unsigned long long)epoch, text);
	return false;
}

/* What is in the memory of two members of one epoch is the same, bit for bit: parameters and optimizer. */
void node_same(struct node_world *w)
{
	for (int i = 0, first = -1; i < sim_nodes(w->s); i++) {
		size_t bytes, others;
		if (!trains(w, i) || applied(w, i) != node_run(w, i)->point.epoch)
			continue;
		if (first < 0 || applied(w, i) != applied(w, first)) {
			first = i;
			continue;
		}
		const struct run *a = node_run(w, first), *b = node_run(w, i);
		void *x = trainer_state(a->trainer, &bytes), *y = trainer_state(b->trainer, &others);
		if (memcmp(a->point.prev, b->point.prev, DIGEST))
			sim_fail(w->s, "nodes %d and %d are at epoch %llu of two histories", first, i,
				(unsigned long long)a->point.epoch);
		else if (!a->spec->mode.local && !a->crew && (bytes != others || memcmp(x, y, bytes)))
			sim_fail(w->s, "nodes %d and %d hold different states at epoch %llu", first, i,
				(unsigned long long)a->point.epoch);
	}
}

void node_goes_on(struct node_world *w, uint64_t epochs, uint64_t limit_us)
{
	node_run_to(w, node_newest(w) + epochs, limit_us);
	node_same(w);
}

void node_in_time(struct node_world *w)
{
	struct sim_stats st;
	sim_stats(w->s, &st);
	if (st.loop_alarms || w->late_us >= 50 * MSEC)
		sim_late(w->s, "a loop was held up for %llu us", (unsigned long long)w->late_us);
}

/* ---- asking ---- */

struct question { struct reply r; int node; bool over; json_t *result; struct err e; };

static void replied(struct reply *r, json_t *result, const struct err *e)
{
	struct question *q = container_of(r, struct question, r);
	q->over = true;
	q->result = result;
	if (e)
		q->e = *e;
}

static bool is_over(struct sim *s, void *arg) { return ((struct question *)arg)->over; }

struct question *node_ask_soon(struct node_world *w, int node, node_ask_fn *fn, json_t *params)
{
	struct question *q = xcalloc(1, sizeof *q);
	q->r.done = replied;
	q->node = node;
	fn(node_peer(w, node)->node, params, &q->r);
	json_decref(params);
	return q;
}

json_t *node_answer(struct node_world *w, struct question *q, uint64_t limit_us, struct err *e)
{
	json_t *ret;
	if (!sim_await_or(w->s, is_over, q, limit_us, "node %d does not answer its operator", q->node))
		return NULL;                    /* q lives on: the answer may still come */
	ret = q->result;
	*e = q->e;
	free(q);
	return ret;
}

json_t *node_ask(struct node_world *w, int node, node_ask_fn *fn, json_t *params, struct err *e)
{
	return node_answer(w, node_ask_soon(w, node, fn, params), 60 * SEC, e);
}

struct found { bool over; size_t n; };

static void on_found(void *arg, const struct record *r, size_t n, const struct err *e)
{
	*(struct found *)arg = (struct found){ true, n };
}

static bool has_found(struct sim *s, void *arg) { return ((struct found *)arg)->over; }

size_t node_find_records(struct node_world *w, int node, const char *key)
{
	struct found *f = xcalloc(1, sizeof *f);
	size_t n;
	dht_get(node_dht(node_peer(w, node)->node), key, true, on_found, f);
	if (!sim_await_or(w->s, has_found, f, 20 * SEC, "node %d: no end of the search for %s", node, key))
		return 0;
	n = f->n;
	free(f);
	return n;
}

void node_finds(struct node_world *w, int node, size_t least, size_t most)
{
	size_t found = node_find_records(w, node, "peers");
	if (found < least || found > most)
		sim_late(w->s, "node %d finds %zu peers, not %zu", node, found, least);
	for (int k = 0; k < 60 && (found < least || found > most) && !sim_failed(w->s); k++) {
		sim_run_for(w->s, SEC);
		found = node_find_records(w, node, "peers");
	}
	if (found < least || found > most)
		sim_fail(w->s, "node %d never finds all peers: %zu, not %zu", node, found, least);
}

void node_print(struct node_world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct run *r = node_run(w, i);
		struct avg_view v = { 0 };
		char x[9], y[9];
		if (!node_peer(w, i))
			continue;
		if (r && r->avg)
			avg_view(r->avg, &v);
		fprintf(stderr, "  node %d (%s): %s epoch %llu applied %llu; %s term %u leader %s samples %llu of %llu; %s\n",
			i, id_short(node_id(node_peer(w, i)->node), x), r ? run_state_name(r) : "no run",
			r ? (unsigned long long)r->point.epoch : 0, (unsigned long long)applied(w, i), v.state ? v.state : "-",
			v.term, id_short(&v.leader, y), (unsigned long long)v.total_samples, (unsigned long long)v.target,
			node_peer(w, i)->why);
	}
}

const char *node_naps(char out[700], unsigned nap_ms, unsigned target_batch)
{
	return node_naps_of(out, 3, nap_ms, target_batch);
}

const char *node_naps_of(char out[700], unsigned width, unsigned nap_ms, unsigned target_batch)
{
	snprintf(out, 700, "{\"name\": \"naps\", \"input\": [4], \"model\": [{\"type\": \"sleep\", \"fwd_ms\": %u}, "
		"{\"type\": \"linear\", \"out\": %u}], \"loss\": \"cross_entropy\", \"target_batch\": %u, "
		"\"optimizer\": {\"name\": \"adam\", \"lr\": 0.01}, \"strategy\": \"hivemind\", "
		"\"validation\": {\"every\": 0}, \"data\": {\"name\": \"x\", \"kind\": \"synthetic\", \"count\": 1000}, "
		"\"stop\": {\"epochs\": 1000000}, \"local\": {\"batch\": 8}}", nap_ms, width, target_batch);
	return out;
}

struct node_world *node_begin(struct sim *s, int n, uint64_t epochs)
{
	static char spec[700];                  /* one scenario at a time */
	struct node_world *w = node_world_new(s, node_naps(spec, 200, 16 * (unsigned)n));
	node_world_add(w, n);
	node_run_to(w, epochs, 60 * SEC);
	return w;
}

void node_end(struct node_world *w)
{
	node_in_time(w);
	node_world_free(w);
}

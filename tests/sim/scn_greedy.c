/* State downloads (scn_state.c) while somebody asks for much of it and takes nothing. */
#include <stdio.h>
#include <string.h>
#include "chain_check.h"
#include "common/jrpc.h"
#include "net/inner.h"
#include "line_world.h"
#include "run/give.h"
#include "train/trainer_int.h"

#define GREEDY 2                                /* that peer, which is in no run */
struct greedy { struct node_world *w; struct net *net; struct id of; char list[2][65];
	uint64_t lists, pieces, busy, tags; };

static void greedy_listed(void *arg, const struct frame *f, const struct err *e)
{
	struct greedy *g = arg;
	const char *list = f ? json_string_value(json_object_get(f->json, "list")) : NULL;
	if (!list || !strcmp(list, g->list[0]) || !strcmp(list, g->list[1]))
		return;
	memcpy(g->list[0], g->list[1], sizeof g->list[0]);
	snprintf(g->list[1], sizeof g->list[1], "%s", list);
	g->lists++;
}

static void greedy_asked(void *arg, const struct frame *f, const struct err *e)
{
	struct greedy *g = arg;
	g->pieces += f != NULL;
	g->busy += !f && e->code == ERR_BUSY;
}

static void greedy_call(struct greedy *g, json_t *j, net_done_fn *done)
{
	json_object_set_new(j, "run", json_string(node_run(g->w, 0)->hex));
	net_call(g->net, &g->of, KIND_RUN_STATE, j, NO_BLOB, CLASS_weight, 5 * SEC, done, g);
}

static bool newcomer_trains(struct node_world *w)
{
	struct run *r = node_run(w, GREEDY + 1);
	return r && r->state == RUN_TRAIN && r->own_samples;
}

/* An old copy, the newest, one that cannot be; and pieces of the last two. */
static void greedy_step(struct greedy *g, bool pieces)
{
	json_int_t from[] = { 0, (json_int_t)node_newest(g->w), 1000000000 };
	for (int i = 0; i < 3; i++)
		greedy_call(g, json_pack("{s:I}", "from", from[i]), greedy_listed);
	for (int i = 0; i < 2 && pieces; i++)
		for (int k = 0; k < 20 && g->list[i][0]; k++) {
			struct id tag = { .b = { 7 } };
			memcpy(tag.b + 8, &g->tags, sizeof g->tags);
			g->tags++;
			greedy_call(g, json_pack("{s:s,s:i,s:o}", "list", g->list[i], "piece", k, "tag",
				json_hex(tag.b, 32)), greedy_asked);
		}
}

/* What hivemind-protocol(7) says that a donor lends at most. */
#define COPIES 2
#define MOVING 4                                /* and as many again that have stood still for 10 s */
#define MOVING_OF_ONE 2
#define LINE 512
#define LINE_OF_ONE 16
#define WAITERS_OF_ONE 8
#define WAITERS 1024
struct lent { size_t copies, moving, of_one, line, line_of_one, waiters; uint64_t first_us, back_us; };

static size_t most(size_t x, size_t y) { return x > y ? x : y; }

static void look(struct node_world *w, int node, struct lent *l)
{
	const struct donors *d = node_run(w, node) ? node_run(w, node)->rs->donors : NULL;
	if (!d)
		return;
	l->copies = most(l->copies, list_len(&d->held));
	l->moving = most(l->moving, d->nsending);
	l->line = most(l->line, d->nline);
	l->waiters = most(l->waiters, d->nwaiters);
	l->first_us = l->first_us || !d->nsending ? l->first_us : sim_now(w->s);
	l->back_us = l->back_us || !d->stalled ? l->back_us : sim_now(w->s);
	list_each(it, &d->takers) {
		const struct taker *t = list_entry(it, struct taker, link);
		l->of_one = most(l->of_one, t->sending);
		l->line_of_one = most(l->line_of_one, t->waiting);
	}
	if (l->copies > COPIES || l->moving > 2 * MOVING || l->of_one > MOVING_OF_ONE || l->line > LINE ||
			l->line_of_one > LINE_OF_ONE)
		sim_fail(w->s, "node %d holds %zu copies, %zu pieces move (%zu to one), %zu are in line (%zu of one)", node,
			l->copies, l->moving, l->of_one, l->line, l->line_of_one);
}

static void want_waiters(struct node_world *w, size_t n)
{
	struct lent l = { 0 };
	for (int k = 0; k < 400; k++) {
		sim_run_for(w->s, MSEC);
		look(w, 0, &l);
	}
	if (l.waiters > n)
		sim_fail(w->s, "%zu questions for a copy wait, more than %zu", l.waiters, n);
	if (l.waiters < n)
		sim_late(w->s, "only %zu questions for a copy wait of %zu", l.waiters, n);
}

/* As if the pieces that are on their way had stood still for so long. */
static void stand_still(struct donors *d, uint64_t us)
{
	list_each(it, &d->sending)
		list_entry(it, struct given, link)->moved_us -= us;
}

static size_t struck(struct node_world *w, int from, int n)
{
	size_t have = 0;
	for (int i = 0; i < n; i++) {
		struct peer *p = peer_find(node_net(node_peer(w, 0)->node), node_id(node_peer(w, from + i)->node));
		have += p && p->guard.strikes.at_us;
	}
	return have;
}

/* To how many the pieces go that have got their places now. */
static size_t served(const struct donors *d)
{
	const struct taker *to[2 * MOVING];
	size_t n = 0;
	list_each(it, &d->sending) {
		const struct given *g = list_entry(it, struct given, link);
		bool again = g->moved_us != donors_now(d);
		for (size_t i = 0; i < n; i++)
			again |= to[i] == g->t;
		if (!again && n < 2 * MOVING)
			to[n++] = g->t;
	}
	return n;
}

/* Four that do not move keep no others waiting, eight do; who expects a piece has 10 s for it, and as long as its first
 * bytes take, who does not has less. */
static void stuck(struct node_world *w)
{
	struct sim *s = w->s;
	struct donors *d = node_run(w, 0)->rs->donors;
	uint64_t before = d->stalled;
	if (d->nsending < MOVING) {             /* by chance; the rest is made by hand */
		sim_late(s, "%zu pieces are on their way just then", d->nsending);
		return;
	}
	sim_check(s, d->nsending == MOVING);
	give_some(d);
	sim_check(s, d->nsending == MOVING);
	stand_still(d, 10 * SEC);
	give_some(d);
	sim_check(s, d->nsending == 2 * MOVING && served(d) == MOVING);         /* in turn */
	stand_still(d, 10 * SEC);
	give_some(d);
	if (d->nsending != 2 * MOVING)
		sim_fail(s, "%zu pieces are on their way", d->nsending);
	give_tick(d);                           /* of the last four nobody has said yet that they are not expected */
	sim_check(s, d->stalled == before + MOVING && d->nsending == 2 * MOVING);
	stand_still(d, 5 * SEC / 2);            /* 16 KiB at 30 kB/s, of four at once */
	give_tick(d);
	if (d->stalled != before + 2 * MOVING)
		sim_fail(s, "%llu places are taken back", (unsigned long long)(d->stalled - before));
}

static bool holds_none(struct sim *s, void *world)
{
	return node_run(world, 0) && list_empty(&node_run(world, 0)->rs->donors->held);
}

/* More of them than have room in the line together, each with more than has room of one; and whoever asks for a copy
 * that is not made yet waits in few places. */
#define CROWD 36

static void scn_crowd(struct sim *s)
{
	char spec[700];
	struct node_world *w = node_world_new(s, node_naps_of(spec, 10000, 1000, 32));
	static struct greedy g[CROWD];
	struct lent l = { 0 };
	node_world_add(w, 2);
	node_run_to(w, 2, 60 * SEC);
	for (int i = 0; i < CROWD; i++)
		w->idle[GREEDY + i] = true;
	node_world_add(w, CROWD);
	sim_run_for(s, 2 * SEC);
	for (int i = 0; i < CROWD; i++) {
		struct net *net = node_net(node_peer(w, GREEDY + i)->node);
		g[i] = (struct greedy){ .w = w, .net = net, .of = *node_id(node_peer(w, 0)->node) };
		net_learn(net, &g[i].of, sim_endpoint(s, 0));
	}
	sim_lane_slow(s, 0, "hash", 1000);      /* so that they wait for a copy */
	for (int k = 0; k < 20; k++)
		greedy_call(&g[0], json_pack("{s:I}", "from", (json_int_t)0), greedy_listed);
	want_waiters(w, WAITERS_OF_ONE);
	node_run(w, 0)->rs->donors->nwaiters += WAITERS - WAITERS_OF_ONE - 3;   /* as if those of others waited, too */
	for (int k = 0; k < 5; k++)
		greedy_call(&g[1], json_pack("{s:I}", "from", (json_int_t)0), greedy_listed);
	want_waiters(w, WAITERS);
	node_run(w, 0)->rs->donors->nwaiters -= WAITERS - WAITERS_OF_ONE - 3;
	sim_lane_slow(s, 0, "hash", 1);
	for (int step = 0; step < 150 && !sim_failed(s); step++) {
		for (int i = 0; i < (step < 30 ? 1 : CROWD); i++)       /* one alone has no more places */
			greedy_step(&g[i], true);
		for (int k = 0; k < 10; k++) {
			sim_run_for(s, 10 * MSEC);
			look(w, 0, &l);
		}
	}
	const struct donors *d = node_run(w, 0)->rs->donors;
	uint64_t held = l.back_us - l.first_us;
	if (held < 5 * SEC || held > 6 * SEC + SEC / 5)
		sim_late(s, "places of who takes nothing are taken back after %llu ms", (unsigned long long)held / 1000);
	sim_in_time(s, l.copies == COPIES && struck(w, GREEDY, CROWD));
	sim_check(s, !struck(w, 1, 1));
	stuck(w);
	sim_check(s, l.moving <= MOVING);       /* none has stood still for 10 s */
	if (l.line != LINE || l.line_of_one != LINE_OF_ONE || l.moving != MOVING || l.of_one != MOVING_OF_ONE ||
			!d->stalled)
		sim_late(s, "%zu pieces in line, %zu of one, %zu on their way, %zu to one, %llu taken back", l.line,
			l.line_of_one, l.moving, l.of_one, (unsigned long long)d->stalled);
	for (int i = 0; i < CROWD; i++)
		sim_kill(s, GREEDY + i);
	node_goes_on(w, 2, 60 * SEC);
	sim_run_for(s, 25 * SEC);
	sim_await(s, holds_none, w, 0);
	node_end(w);
}

/* One that is no member asks for copies and pieces all the time, and takes none: another, who comes meanwhile, has the
 * state soon, nothing is copied twice for it, and it does not wait for more than two pieces and a short line. */
static void scn_greedy(struct sim *s)
{
	char spec[700];                         /* 50 000 parameters, an epoch in two seconds */
	struct node_world *w = node_world_new(s, node_naps_of(spec, 10000, 1000, 32));
	static struct greedy g[2];
	node_world_add(w, 2);
	node_run_to(w, 2, 60 * SEC);
	w->idle[GREEDY] = true;
	node_world_add(w, 1);
	sim_run_for(s, 2 * SEC);
	struct net *net = node_net(node_peer(w, GREEDY)->node);
	for (int i = 0; i < 2; i++) {
		g[i] = (struct greedy){ .w = w, .net = net, .of = *node_id(node_peer(w, i)->node) };
		net_learn(net, &g[i].of, sim_endpoint(s, i));
	}
	uint64_t began = 0, trains = 0;
	int step = 0;
	for (; step < 600 + 600 && (step < 200 || !trains) && !sim_failed(s); step++) {
		if (step == 100) {
			node_world_add(w, 1);
			began = sim_now(s);
		}
		greedy_step(&g[0], step >= 50);
		greedy_step(&g[1], step >= 50);
		sim_run_for(s, 100 * MSEC);
		trains = began && !trains && newcomer_trains(w) ? sim_now(s) : trains;
	}
	if (!trains) {
		node_print(w);
		sim_fail(s, "the newcomer waits for the state");
	} else if (step > 600) {
		sim_late(s, "the newcomer waits for the state: %d steps", step);
	}
	for (int i = 0; i < 2 && !sim_failed(s); i++) {
		struct donors *d = node_run(w, i)->rs->donors;
		sim_in_time(s, g[i].pieces && g[i].busy && d->stalled);
		if (d->made > node_run(w, i)->point.epoch)
			sim_fail(s, "%llu copies of %llu epochs", (unsigned long long)d->made,
				(unsigned long long)node_run(w, i)->point.epoch);
	}
	sim_kill(s, GREEDY);
	node_goes_on(w, 2, 20 * SEC);
	node_end(w);
}

/* ---- parts of a state ---- */

#define PEERS 4                                 /* three stages and a spare; the strangers behind them */
#define STRANGERS 4
struct stranger { struct node_world *w; int node, of; uint64_t refused, tags; };

static void stranger_asked(void *arg, const struct frame *f, const struct err *e)
{
	struct stranger *x = arg;
	x->refused += !f && e->code == ERR_AUTH;
	if (f)
		sim_fail(x->w->s, "node %d is given some of a state that it has no part in by node %d", x->node, x->of);
}

static void stranger_call(struct stranger *x, json_t *part)
{
	const struct run *r = node_run(x->w, x->of);
	struct net *net = node_net(node_peer(x->w, x->node)->node);
	struct id tag = { .b = { 9, (uint8_t)x->node, (uint8_t)x->of } };
	json_t *j = json_pack("{s:s,s:I,s:o}", "run", r->hex, "epoch", (json_int_t)r->point.epoch, "prev",
		json_hex(r->point.prev, DIGEST));
	memcpy(tag.b + 8, &x->tags, sizeof x->tags);
	x->tags++;
	if (part) {
		json_object_set_new(j, "part", part);
		json_object_set_new(j, "tag", json_hex(tag.b, 32));
	}
	net_call(net, node_id(node_peer(x->w, x->of)->node), KIND_RUN_SHARD, j, NO_BLOB, CLASS_weight, 5 * SEC,
		stranger_asked, x);
}

/* What its checkpoint has of it. */
static void stranger_saved(struct stranger *x)
{
	const struct run *r = node_run(x->w, x->of);
	net_call(node_net(node_peer(x->w, x->node)->node), node_id(node_peer(x->w, x->of)->node), KIND_RUN_SAVED,
		json_pack("{s:s}", "run", r->hex), NO_BLOB, CLASS_control, 5 * SEC, stranger_asked, x);
}

/* What there is; and all of it, as often as one may have pieces on their way. */
static void stranger_step(struct stranger *x)
{
	const struct run *r = sim_alive(x->w->s, x->of) ? node_run(x->w, x->of) : NULL;
	uint32_t n;
	if (!r || !r->crew || !r->trainer)
		return;
	const struct shard *s = trainer_shards(r->trainer, &n);
	stranger_call(x, NULL);
	stranger_saved(x);
	for (uint32_t k = 0; k < 8 && n; k++)
		stranger_call(x, json_pack("[I,I,I,I]", (json_int_t)s[k % n].param.lo, (json_int_t)s[k % n].param.hi,
			(json_int_t)0, (json_int_t)0));
}

/* Four that are in no generation ask all members for parts, all the time, and take none: nothing is kept for them, and
 * a spare has what it needs when a stage dies. */
static void scn_strangers(struct sim *s)
{
	struct line *l = line_begin(s, PIPELINE, PEERS);
	struct node_world *w = l->w;
	static struct stranger x[STRANGERS][PEERS];
	for (int i = 0; i < STRANGERS; i++)
		w->idle[PEERS + i] = true;
	node_world_add(w, STRANGERS);
	sim_run_for(s, 2 * SEC);
	for (int i = 0; i < STRANGERS; i++)
		for (int k = 0; k < PEERS; k++) {
			x[i][k] = (struct stranger){ .w = w, .node = PEERS + i, .of = k };
			net_learn(node_net(node_peer(w, PEERS + i)->node), node_id(node_peer(w, k)->node),
				sim_endpoint(s, k));
		}
	uint64_t died = 0, before = 0;
	int step = 0;
	for (; step < 200 + 600 && !sim_failed(s); step++) {
		for (int i = 0; i < STRANGERS * PEERS; i++)
			stranger_step(&x[i / PEERS][i % PEERS]);
		if (step == 20) {
			(void)line_kill_any(l, 100 * MSEC);
			before = node_newest(w);
			died = sim_now(s);
		}
		sim_run_for(s, 100 * MSEC);
		if (died && node_newest(w) >= before + 3)
			break;
	}
	if (node_newest(w) < before + 3)
		sim_fail(s, "without a stage for %llu ms", (unsigned long long)(sim_now(s) - died) / 1000);
	else if (step >= 200)
		sim_late(s, "a stage is there again after %llu ms", (unsigned long long)(sim_now(s) - died) / 1000);
	for (int i = 0; i < STRANGERS; i++)
		sim_in_time(s, x[i][0].refused + x[i][1].refused + x[i][2].refused > 10);
	line_end(l);
}

static const struct scn list[] = { SCN(greedy), SCN(crowd), SCN(strangers), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }

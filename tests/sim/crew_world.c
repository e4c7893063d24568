/* See crew_world.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/mem.h"
#include "crew_world.h"

#define WORD_US (30 * MSEC)             /* a word of the hall takes up to so long, an eighth of them ten times that */

/* ---- peers ---- */

static struct endpoint place(int node)
{
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10 }, .port = { 4237, 4238, 4239 } };
	at.ip[15] = (uint8_t)(node + 1);
	return at;
}

static void make_crew(struct cpeer *p)
{
	struct cworld *w = p->w;
	struct crew_conf conf = { .run = { { 7 } }, .strategy = w->strategy[p->node], .speed = w->speed[p->node],
		.memory_bytes = w->memory[p->node],
		.view = { .profile = &p->profile, .redundancy = w->redundancy, .target_batch = 8 } };
	struct err e;
	w->lives[p->node] = ++w->crews[p->node];
	w->born_us[p->node] = sim_now(w->s);
	memset(p->live, 0, sizeof p->live);
	p->running = p->newest = 0;
	p->crew = crew_new(p->env, p->net, &conf, &cworld_cb, p, &e);
	if (!p->crew)
		sim_fail(w->s, "node %d: %s", p->node, e.text);
}

static void *start(struct env *env, int node, void *arg)
{
	struct cworld *w = arg;
	struct cpeer *p = xcalloc(1, sizeof *p);
	struct net_conf c = { .has_swarm_key = true, .self = place(node), .seed = { (uint8_t)(node + 1) } };
	struct err e;
	*p = (struct cpeer){ .w = w, .node = node, .env = env };
	env->ops->secure(env, &c.boot_id, sizeof c.boot_id);
	cut_profile(&p->profile, w->layers, w->layer_us, w->act_bytes, w->layer_bytes);
	p->profile.need_arg = p;
	p->net = net_new(env, &c, &e);
	w->id[node] = *net_self(p->net);
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (i != node && !id_zero(&w->id[i])) {
			struct endpoint at = place(i);
			net_learn(p->net, &w->id[i], &at);
		}
	make_crew(p);
	return p;
}

static void stop_node(void *app)
{
	struct cpeer *p = app;
	p->env->ops->detach(p->env);
	if (p->crew)
		crew_free(p->crew, NULL, NULL);
	net_free(p->net);
	profile_free(&p->profile);
	free(p);
}

struct cpeer *cworld_peer(struct cworld *w, int node)
{
	return sim_alive(w->s, node) ? sim_app(w->s, node) : NULL;
}

/* ---- the hall ---- */

struct word { struct list link; struct cworld *w; int node, leader; uint32_t term, n;
	uint64_t number, life, epoch, base;
	struct id live[CREW_MAX]; int node_of[CREW_MAX]; };

static void deliver(struct sim *s, void *arg)
{
	struct word *x = arg;
	struct cpeer *p = cworld_peer(x->w, x->node);
	(void)s;
	if (p && p->crew && x->w->crews[x->node] == x->life && x->number > p->heard) {
		struct crew_roster r = { .epoch = x->epoch, .term = x->term, .n = x->n, .live = x->live };
		struct id few[2] = { x->w->id[x->node] }, gone[CREW_MAX];
		bool live[CREW_MAX] = { 0 };
		if (x->leader >= 0)
			r.leader = few[1] = x->w->id[x->leader];
		if (x->w->newcomers && x->w->commits == x->w->since && x->leader >= 0 && x->leader != x->node) {
			r.live = few;
			r.n = 2;
		}
		p->heard = x->number;
		for (uint32_t i = 0; i < x->n; i++)
			live[x->node_of[i]] = true;
		for (int i = 0; i < CREW_MAX; i++) {
			p->gone[i] = !live[i] && (p->live[i] || (p->gone[i] && x->epoch == p->epoch));
			p->live[i] = live[i];
			if (p->gone[i])
				gone[r.ngone++] = x->w->id[i];
		}
		p->epoch = x->epoch;
		r.gone = gone;
		if (x->base)
			crew_commit(p->crew, x->base, x->epoch);
		crew_roster(p->crew, &r);
	}
	list_del(&x->link);
	free(x);
}

static void tell(struct cworld *w, int side)
{
	struct cside *d = &w->sides[side];
	d->word++;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		if (!d->live[i] || !sim_alive(w->s, i))
			continue;
		struct word *x = xcalloc(1, sizeof *x);
		*x = (struct word){ .w = w, .node = i, .number = d->word, .life = w->crews[i], .epoch = d->epoch,
			.base = d->base, .term = d->term, .leader = d->leader };
		list_push(&w->on_their_way, &x->link);
		for (int k = 0; k < sim_nodes(w->s); k++)
			if (d->live[k]) {
				x->node_of[x->n] = k;
				x->live[x->n++] = w->id[k];
			}
		uint64_t late = WORD_US * (rng_below(sim_rng(w->s), 8) ? 1 : 10);
		sim_at(w->s, sim_now(w->s) + 1 + rng_below(sim_rng(w->s), late), deliver, x);
	}
}

/* Of who is not new here the first in an order that every epoch has anew; else of all. */
static int elect(const struct cworld *w, const struct cside *d)
{
	int best = -1;
	uint8_t least[32], x[32];
	if (w->prefer >= 0 && d->live[w->prefer])
		return w->prefer;
	for (int fresh = 0; fresh < 2 && best < 0; fresh++)
		for (int i = 0; i < sim_nodes(w->s); i++) {
			struct { uint64_t epoch; struct id id; } v = { d->epoch, w->id[i] };
			if (!d->live[i] || d->fresh[i] != (bool)fresh)
				continue;
			sha256_of(&v, sizeof v, x);
			if (best < 0 || memcmp(x, least, 32) < 0) {
				best = i;
				memcpy(least, x, 32);
			}
		}
	return best;
}

int cworld_leader(struct cworld *w, int side)
{
	return w->sides[side].leader;
}

static void changed(struct cworld *w, int side)
{
	struct cside *d = &w->sides[side];
	if (d->leader < 0 || !d->live[d->leader]) {
		d->term += d->leader >= 0;
		d->leader = elect(w, d);
	}
	tell(w, side);
}

void cworld_forget(struct cworld *w)
{
	w->newcomers = true;
	w->since = w->commits;
	tell(w, 0);
}

void cworld_new_term(struct cworld *w)
{
	w->sides[0].term++;
	tell(w, 0);
}

struct about { struct list link; struct cworld *w; int node, side; uint64_t life; };

static struct about *about(struct cworld *w, int node)
{
	struct about *a = xcalloc(1, sizeof *a);
	*a = (struct about){ .w = w, .node = node, .side = w->side[node], .life = w->crews[node] };
	list_push(&w->on_their_way, &a->link);
	return a;
}

static void missed(struct sim *s, void *arg)
{
	struct about *a = arg;
	struct cside *d = &a->w->sides[a->side];
	bool here = sim_alive(s, a->node) && a->w->side[a->node] == a->side && a->w->crews[a->node] != a->life;
	if (d->live[a->node] && !here) {
		d->live[a->node] = false;
		changed(a->w, a->side);
	}
	list_del(&a->link);
	free(a);
}

static void joins(struct sim *s, void *arg)
{
	struct about *a = arg;
	struct cworld *w = a->w;
	struct cside *d = &w->sides[w->side[a->node]];
	if (sim_alive(s, a->node) && w->crews[a->node] == a->life) {
		d->live[a->node] = d->fresh[a->node] = true;
		changed(w, w->side[a->node]);
	}
	list_del(&a->link);
	free(a);
}

static uint64_t soon(struct cworld *w, uint64_t most)
{
	return sim_now(w->s) + 1 + rng_below(sim_rng(w->s), most);
}

void cworld_gone(struct cworld *w, int node)
{
	sim_at(w->s, soon(w, 50 * MSEC), missed, about(w, node));
}

void cworld_kill(struct cworld *w, int node)
{
	cworld_gone(w, node);
	sim_kill(w->s, node);
}

void cworld_restart(struct cworld *w, int node)
{
	sim_restart(w->s, node);
	sim_at(w->s, soon(w, 100 * MSEC), joins, about(w, node));
}

void cworld_add(struct cworld *w, int n)
{
	static const struct sim_app app_of = { start, stop_node, NULL };
	for (int i = 0; i < n; i++) {
		int node = sim_nodes(w->s);
		struct endpoint at = place(node);
		struct sim_app app = app_of;
		app.arg = w;
		w->strategy[node] = w->strategy[node] ? w->strategy[node] : &cut_ops;
		w->speed[node] = w->speed[node] > 0 ? w->speed[node] : 1;
		sim_node_add(w->s, &at, &app);
		for (int k = 0; k < node; k++) {
			struct cpeer *p = cworld_peer(w, k);
			if (p)
				net_learn(p->net, &w->id[node], &at);
		}
		sim_at(w->s, soon(w, 200 * MSEC), joins, about(w, node));
	}
}

/* All members of a generation run it, on one side: a COMMIT of it may come. */
static uint64_t whole(struct cworld *w, int side)
{
	for (unsigned i = w->gens; i-- > 0; ) {
		const struct cgen *g = &w->gen[i];
		bool all = true;
		for (uint32_t r = 0; r < g->n && all; r++) {
			struct cpeer *p = cworld_peer(w, g->node[r]);
			all = p && p->running == g->number && w->side[p->node] == side;
		}
		if (all)
			return g->number;
	}
	return 0;
}

static void commit_of(struct cworld *w, int side, uint64_t number)
{
	struct cside *d = &w->sides[side];
	d->base = number;
	d->epoch++;
	d->term = 0;
	memset(d->fresh, 0, sizeof d->fresh);
	d->leader = elect(w, d);
	w->commits++;
	tell(w, side);
}

void cworld_commit(struct cworld *w, uint64_t number)
{
	commit_of(w, 0, number);
}

static void commit(struct sim *s, void *arg)
{
	struct cworld *w = arg;
	for (int side = 0; side < 2 && w->commit_us; side++) {
		const struct cside *d = &w->sides[side];
		uint64_t number = d->is ? whole(w, side) : 0;
		const struct cpeer *leader = d->leader >= 0 && sim_alive(s, d->leader) ? cworld_peer(w, d->leader) : NULL;
		if (number && leader && leader->holds_us <= sim_now(s))
			commit_of(w, side, number);
	}
	sim_at(s, sim_now(s) + 1 + (w->commit_us ? w->commit_us / 2 + rng_below(sim_rng(s), w->commit_us) : 100 * MSEC),
		commit, w);
}

void cworld_split(struct cworld *w, const int *side)
{
	w->sides[1] = w->sides[0];              /* the same history so far */
	sim_partition(w->s, side, sim_nodes(w->s));
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct about *a = about(w, i);
		a->side = !side[i];                     /* missed there */
		w->side[i] = side[i];
		sim_at(w->s, soon(w, 50 * MSEC), missed, a);
	}
}

/* The side whose history is longer has it; who has committed on the other one begins anew. */
void cworld_heal(struct cworld *w)
{
	struct cside *a = &w->sides[0], *b = &w->sides[1];
	bool forked = a->epoch != b->epoch || a->base != b->base;
	int lost = a->epoch >= b->epoch ? 1 : 0;
	uint64_t word = (a->word > b->word ? a->word : b->word) + 1;
	sim_heal(w->s);
	struct cside both = lost ? *a : *b;
	both.word = word;
	both.term = (a->term > b->term ? a->term : b->term) + 1;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		bool over = w->side[i] == lost;
		both.live[i] = sim_alive(w->s, i);
		if (forked && over && cworld_peer(w, i)) {
			struct cpeer *p = cworld_peer(w, i);
			crew_free(p->crew, NULL, NULL);
			make_crew(p);
			both.fresh[i] = true;
		}
		w->side[i] = 0;
	}
	both.leader = elect(w, &both);
	w->sides[0] = both;
	w->sides[1] = (struct cside){ .leader = -1 };
	tell(w, 0);
}

struct cworld *cworld_new(struct sim *s)
{
	struct cworld *w = xcalloc(1, sizeof *w);
	*w = (struct cworld){ .s = s, .prefer = -1, .liar = -1, .layer_us = 1000, .layer_bytes = 1 << 20, .act_bytes = 4096,
		.layers = 8,
		.redundancy = 2, .commit_us = 200 * MSEC };
	w->sides[0] = (struct cside){ .is = true, .leader = -1 };
	w->sides[1] = (struct cside){ .leader = -1 };
	list_init(&w->on_their_way);
	cut_watch(cworld_made);
	sim_at(s, sim_now(s) + 200 * MSEC, commit, w);
	return w;
}

void cworld_free(struct cworld *w)
{
	cut_watch(NULL);
	while (!list_empty(&w->on_their_way))
		free(list_pop(&w->on_their_way));        /* a word, or what it is about: the link is its first member */
	free(w);
}

/* ---- how far they are ---- */

static uint64_t known_count(struct crew *c)
{
	json_t *j = crew_json(c);
	uint64_t n = (uint64_t)json_integer_value(json_object_get(j, "generation"));
	json_decref(j);
	return n;
}

static bool side_settled(struct cworld *w, int side)
{
	uint64_t number = 0;
	int n = 0;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct cpeer *p = cworld_peer(w, i);
		if (!p || w->side[i] != side)
			continue;
		if (p->running && number && p->running != number)
			return false;
		number = p->running ? p->running : number;
		n++;
	}
	const struct cgen *g = cworld_gen(w, number);
	for (uint32_t r = 0; g && r < g->n; r++) {
		struct cpeer *p = cworld_peer(w, g->node[r]);
		if (!p || p->running != number)
			return false;
	}
	for (int i = 0; g && i < sim_nodes(w->s); i++) {
		struct cpeer *p = cworld_peer(w, i);
		if (p && w->side[i] == side && !p->running && known_count(p->crew) != CREW_COUNT(number))
			return false;
	}
	return !n || g;
}

bool cworld_settled(struct cworld *w)
{
	return side_settled(w, 0) && (!w->sides[1].is || side_settled(w, 1));
}

static bool is_settled(struct sim *s, void *arg)
{
	(void)s;
	return cworld_settled(arg);
}

void cworld_settle(struct cworld *w, uint64_t limit_us)
{
	uint64_t late;
	if (sim_comes(w->s, is_settled, w, limit_us, &late) || sim_failed(w->s)) {
		if (late)
			sim_late(w->s, "a generation of all %llu ms late", (unsigned long long)(late / MSEC));
		return;
	}
	char text[300];
	size_t n = 0;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct cpeer *p = cworld_peer(w, i);
		if (p)
			n += (size_t)snprintf(text + n, sizeof text - n, " %d:%llu/%llu", i, (unsigned long long)
				CREW_COUNT(p->running), (unsigned long long)known_count(p->crew));
	}
	sim_fail(w->s, "no generation of all within %llu ms and a minute:%s", (unsigned long long)(limit_us / MSEC), text);
}

bool cworld_waits(struct cworld *w, const char *text)
{
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct cpeer *p = cworld_peer(w, i);
		if (p && (p->running || !strstr(p->waits, text)))
			return false;
	}
	return true;
}

bool cworld_safe(struct sim *s, void *arg)
{
	struct cworld *w = arg;
	const struct cgen *g = cworld_gen(w, w->sides[0].base);
	(void)s;
	return g && g->n >= w->redundancy && cworld_running(w) == g->number && cworld_settled(w);
}

uint64_t cworld_running(struct cworld *w)
{
	uint64_t number = 0;
	for (int i = 0; i < sim_nodes(w->s); i++) {
		struct cpeer *p = cworld_peer(w, i);
		if (p && p->running && number && p->running != number)
			return 0;
		number = p && p->running ? p->running : number;
	}
	return number;
}

bool cworld_has(struct cworld *w, int node)
{
	const struct cgen *g = cworld_gen(w, cworld_running(w));
	for (uint32_t r = 0; g && r < g->n; r++)
		if (g->node[r] == node)
			return true;
	return false;
}

/* See dht_world.h. What a call ends with is on the heap: after a failure the end comes when the caller has gone. */
#include "dht_world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "table_check.h"

#define CHECKED_PER_EVENT 8             /* small tables at once */

static struct endpoint where(int node)
{
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10 }, .port = { 4237, 4238, 4239 } };
	at.ip[14] = (uint8_t)(node >> 8);
	at.ip[15] = (uint8_t)(node + 1);
	return at;
}

struct endpoint dht_second(int node)
{
	struct endpoint at = where(node);
	at.ip[12] = 11;
	return at;
}

static void *start(struct env *env, int node, void *arg)
{
	struct dht_world *w = arg;
	struct dht_peer *a = xcalloc(1, sizeof *a);
	bool client = w->clients && node >= w->clients;
	struct net_conf c = { .has_swarm_key = true, .client = client };
	struct dht_conf conf = w->conf;
	struct err e;
	struct rng r;
	rng_seed(&r, 1000 + (uint64_t)node);
	if (!client)
		c.self = where(node);
	if (node < 64 && w->second[node])
		c.also[c.nalso++] = dht_second(node);
	conf.client |= client;
	for (int i = 0; i < 32; i++)
		c.seed[i] = (uint8_t)rng_u64(&r);
	env->ops->secure(env, &c.boot_id, sizeof c.boot_id);
	a->env = env;
	a->net = net_new(env, &c, &e);
	a->dht = dht_new(env, a->net, &conf, &e);
	if (!a->dht)
		abort();
	if (node > 0 && !w->no_boot)
		dht_join(a->dht, &w->boot, 1);
	return a;
}

static void stop(void *app)
{
	struct dht_peer *a = app;
	a->env->ops->detach(a->env);
	dht_free(a->dht);
	net_free(a->net);
	free(a);
}

static struct dht *table_of(void *sim, int node)
{
	struct dht_peer *a = sim_app(sim, node);
	return a ? a->dht : NULL;
}

static void check_end(void *check) { table_check_free(check); }

static void check_begin(struct sim *s, struct dht_world *w)
{
	w->check = table_check_new(s, table_of, s, CHECKED_PER_EVENT);
	sim_at_end(s, check_end, w->check);
}

void dht_add(struct sim *s, struct dht_world *w, int n)
{
	static const struct endpoint nowhere;
	struct sim_app app = { start, stop, w };
	w->boot = where(0);
	if (!w->check && !w->unchecked)
		check_begin(s, w);
	for (int i = 0; i < n; i++) {
		int node = sim_nodes(s);
		struct endpoint at = where(node);
		sim_node_add(s, w->clients && node >= w->clients ? &nowhere : &at, &app);
		at = dht_second(node);
		if (node < 64 && w->second[node])
			sim_address(s, node, &at, true);
		if (node < 64 && w->clock_ms[node])
			sim_wall_jump(s, node, w->clock_ms[node]);
	}
}

struct dht *dht_of(struct sim *s, int node)
{
	return ((struct dht_peer *)sim_app(s, node))->dht;
}

struct net *dht_net(struct sim *s, int node)
{
	return ((struct dht_peer *)sim_app(s, node))->net;
}

int dht_any(struct sim *s)
{
	for (;;) {
		int i = (int)rng_below(sim_rng(s), (uint64_t)sim_nodes(s));
		if (sim_alive(s, i))
			return i;
	}
}

bool dht_all_joined(struct sim *s, void *arg)
{
	for (int i = 0; i < sim_nodes(s); i++) {
		struct dht_state d;
		if (!sim_alive(s, i))
			continue;
		dht_state(dht_of(s, i), &d);
		if (!d.joined || d.lookups_open)
			return false;
	}
	return true;
}

bool dht_flag(struct sim *s, void *arg)
{
	return *(bool *)arg;
}

void dht_joined(struct sim *s)
{
	sim_await(s, dht_all_joined, NULL, 60 * SEC);
}

/* ---- asking and waiting ---- */

static void on_stored(void *arg, uint32_t accepted, uint32_t wanted, const struct err *e)
{
	struct dht_put_end *p = arg;
	*p = (struct dht_put_end){ true, accepted, wanted, e ? e->code : ERR_NONE, "" };
	snprintf(p->text, sizeof p->text, "%.150s", e ? e->text : "");
}

struct dht_put_end dht_put_wait(struct sim *s, int node, const char *key, const char *sub, json_t *value,
	uint64_t life_ms, bool sign)
{
	struct dht_put_end *p = xcalloc(1, sizeof *p), ret;
	dht_put(dht_of(s, node), key, sub, value, life_ms, sign, on_stored, p);
	sim_await(s, dht_flag, &p->done, 60 * SEC);
	ret = *p;
	if (ret.done)
		free(p);
	return ret;
}

static void on_got(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct dht_get_end *g = arg;
	g->done = true;
	g->n = n;
	if (e)
		g->e = *e;
	if (!n)
		return;
	char *t = json_dumps(r[0].value, JSON_ENCODE_ANY | JSON_COMPACT);
	snprintf(g->value, sizeof g->value, "%.63s", t);
	free(t);
	g->life_ms = r[0].life_ms;
	g->owner = r[0].owner;
}

struct dht_get_end dht_get_wait(struct sim *s, int node, const char *key, bool latest)
{
	struct dht_get_end *g = xcalloc(1, sizeof *g), ret;
	dht_get(dht_of(s, node), key, latest, on_got, g);
	sim_await(s, dht_flag, &g->done, 60 * SEC);
	ret = *g;
	if (ret.done)
		free(g);
	return ret;
}

void dht_want(struct sim *s, int node, const char *key, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	struct dht_get_end g = dht_get_wait(s, node, key, true);
	if (g.n != 1 || strcmp(g.value, text))
		sim_fail(s, "key %s from node %d: %zu records, value %s instead of %s", key, node, g.n, g.value, text);
}

static void on_found(void *arg, const struct id *peers, size_t n, const struct err *e)
{
	struct dht_find_end *f = arg;
	f->done = true;
	f->n = n;
	memcpy(f->id, peers, n * sizeof *peers);
}

struct dht_find_end dht_find_wait(struct sim *s, int node, const struct id *target)
{
	struct dht_find_end *f = xcalloc(1, sizeof *f), ret;
	dht_find(dht_of(s, node), target, on_found, f);
	sim_await(s, dht_flag, &f->done, 60 * SEC);
	ret = *f;
	if (ret.done)
		free(f);
	return ret;
}

static void on_trace(void *arg, const struct dht_trace *t, const struct err *e)
{
	struct dht_looked *l = arg;
	uint32_t hop = UINT32_MAX;
	l->open--;
	for (size_t i = 0; t && i < t->nhop; i++)
		if (t->hop[i].records && t->hop[i].hop < hop)
			hop = t->hop[i].hop;
	if (t && t->here)
		hop = 0;
	if (hop == UINT32_MAX)
		return;
	l->found++;
	l->hops += hop;
	l->hops_max = hop > l->hops_max ? hop : l->hops_max;
}

static void on_put(void *arg, uint32_t accepted, uint32_t wanted, const struct err *e)
{
	struct dht_looked *l = arg;
	l->open--;
	l->found += accepted == wanted;
	l->fewest = wanted < l->fewest ? wanted : l->fewest;
}

static bool all_back(struct sim *s, void *arg) { return !((struct dht_looked *)arg)->open; }

struct dht_looked dht_look(struct sim *s, int keys, uint64_t life_ms)
{
	struct dht_looked *l = xcalloc(1, sizeof *l), ret;
	l->fewest = UINT32_MAX;
	for (int i = 0; i < keys && !sim_failed(s); i++) {
		char key[32];
		snprintf(key, sizeof key, "key%d", i);
		l->open++;
		if (life_ms)
			dht_put(dht_of(s, dht_any(s)), key, NULL, json_integer(i), life_ms, false, on_put, l);
		else
			dht_trace(dht_of(s, dht_any(s)), key, false, on_trace, l);
		if (i % 100 == 99 || i == keys - 1)
			sim_await(s, all_back, l, 600 * SEC);
	}
	ret = *l;
	if (!ret.open)
		free(l);
	return ret;
}

uint32_t dht_records(struct sim *s, int node)
{
	struct dht_state d;
	dht_state(dht_of(s, node), &d);
	return d.records;
}

uint32_t dht_copies(struct sim *s)
{
	uint32_t n = 0;
	for (int i = 0; i < sim_nodes(s); i++)
		n += sim_alive(s, i) ? dht_records(s, i) : 0;
	return n;
}

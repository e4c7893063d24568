/* The peers of the averager's scenarios, as a world of nodes (what each of them does: avg_world_train.c). */
#include <stdlib.h>
#include <string.h>
#include "avg_world.h"
#include "check.h"
#include "common/hash.h"
#include "common/mem.h"

float world_gradient(uint64_t position, size_t k)
{
	return (float)(rng_at(position + 1, k) >> 40) / (float)(1 << 24) - 0.5f;
}

struct apeer *world_peer(struct world *w, int node)
{
	return sim_app(w->s, node);
}

static struct endpoint where(int node)
{
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10 }, .port = { 4237, 4238, 4239 } };
	at.ip[14] = (uint8_t)(node >> 8);
	at.ip[15] = (uint8_t)(node + 1);
	return at;
}

static void seed_of(int node, uint8_t seed[32])
{
	struct rng r;
	rng_seed(&r, 7000 + (uint64_t)node);
	for (int i = 0; i < 32; i++)
		seed[i] = (uint8_t)rng_u64(&r);
}

/* In a large world each knows a few of those that are there. */
static void meet_others(struct apeer *p)
{
	int n = sim_nodes(p->w->s), known = n > 12 ? 6 : n;
	for (int i = 0; i < WORLD_MAX && i < n && known; i++) {
		uint8_t seed[32];
		struct endpoint at = where(i);
		struct apeer *o = i == p->node ? p : world_peer(p->w, i);
		if (!o)
			continue;
		known--;
		if (o == p)
			continue;
		seed_of(i, seed);
		net_learn(p->net, net_self(o->net), &at);
		avg_meet(p->avg, net_self(o->net));
	}
}

static void remember(void *avg, uint64_t epoch, const uint8_t *digest)
{
	avg_remember(avg, epoch, digest);
}

static void *start(struct env *env, int node, void *arg)
{
	struct world *w = arg;
	struct apeer *p = xcalloc(1, sizeof *p);
	struct net_conf c = { .has_swarm_key = true, .self = where(node), .client = w->client[node] };
	struct avg_conf conf = w->conf;
	struct err e;
	*p = (struct apeer){ .env = env, .w = w, .node = node, .step_us = w->step_us[node], .judged = true };
	seed_of(node, c.seed);
	if (w->client[node])
		memset(c.self.port, 0, sizeof c.self.port);
	env->ops->secure(env, &c.boot_id, sizeof c.boot_id);
	world_timers(p);
	p->net = net_new(env, &c, &e);
	p->chunks = p->net ? chunks_new(env, p->net) : NULL;
	conf.client = w->client[node];
	conf.aux = w->aux[node];
	conf.micro_batch = w->micro_of ? (uint32_t)w->micro_of(w, node) : w->micro;
	p->avg = p->chunks ? avg_new(env, p->net, p->chunks, NULL, &conf, &world_callbacks, p, &e) : NULL;
	if (!p->avg)
		abort();
	p->model = xcalloc(conf.len, sizeof *p->model);
	p->x = xcalloc(conf.len, sizeof *p->x);
	avg_point_init(&p->point);
	avg_point_init(&p->gave_up);
	p->point.params = json_pack("{s:f}", "lr", 0.1);
	if (w->keep_state && w->saved[node].epoch) {
		avg_point_copy(&p->point, &w->saved[node]);
		memcpy(p->model, w->saved_model[node], conf.len * sizeof *p->model);
		check_history(w->check, &p->point, remember, p->avg);
	}
	if (w->hold)
		world_tell_units(p);
	meet_others(p);
	if (avg_enter(p->avg, &p->point, false, &e))
		abort();
	return p;
}

static void stop(void *app)
{
	struct apeer *p = app;
	p->env->ops->detach(p->env);
	env_timer(p->env, &p->step, 0);
	env_timer(p->env, &p->sync, 0);
	env_timer(p->env, &p->grow, 0);
	env_timer(p->env, &p->leave, 0);
	avg_free(p->avg, NULL, NULL);
	chunks_free(p->chunks);
	net_free(p->net);
	world_drop_kept(p);
	world_lent(p, NULL, NULL);
	avg_point_done(&p->point);
	avg_point_done(&p->gave_up);
	ranges_free(&p->grant);
	ranges_free(&p->claimed);
	ranges_free(&p->flying);
	free(p->model);
	free(p->x);
	free(p);
}

struct world *world_new(struct sim *s, size_t len, uint64_t target, uint32_t micro, uint64_t step_us)
{
	struct world *w = xcalloc(1, sizeof *w);
	w->s = s;
	w->micro = micro;
	w->alone = w->lawless = -1;
	w->conf = (struct avg_conf){ .target_batch = target, .len = len, .part_min = 64 };
	for (int i = 0; i < WORLD_MAX; i++) {
		w->step_us[i] = step_us;
		w->saved_model[i] = xcalloc(len, sizeof(float));
	}
	memset(w->conf.run.b, 0x42, 32);
	w->check = check_new(w);
	return w;
}

void world_free(struct world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (sim_alive(w->s, i))
			sim_kill(w->s, i);
	check_free(w->check);
	free(w->hold);
	for (int i = 0; i < WORLD_MAX; i++) {
		avg_point_done(&w->saved[i]);
		free(w->saved_model[i]);
	}
	free(w);
}

void world_add(struct world *w, int n)
{
	struct sim_app app = { start, stop, w };
	for (int i = 0; i < n; i++) {
		struct endpoint at = where(sim_nodes(w->s)), none = at;
		memset(none.port, 0, sizeof none.port);
		sim_node_add(w->s, w->client[sim_nodes(w->s)] ? &none : &at, &app);
	}
}

/* See node_world.h: how a peer is built and what its operator does. node_world_see.c is what scenarios ask. */
#include "node_world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chain_check.h"
#include "common/mem.h"
#include "rows.h"
#include "table_check.h"

#define ASK_AGAIN_US (500 * MSEC)

static struct endpoint where(int node)
{
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10 }, .port = { 4237, 4238, 4239 } };
	at.ip[14] = (uint8_t)(node >> 8);
	at.ip[15] = (uint8_t)node;
	return at;
}

void node_seed(int node, uint8_t seed[32])
{
	struct rng r;
	rng_seed(&r, 5000 + (uint64_t)node);
	for (int i = 0; i < 32; i++)
		seed[i] = (uint8_t)rng_u64(&r);
}

/* ---- the machine ---- */

static const struct par *par_of(void *arg, int threads, struct err *e)
{
	return &((struct node_world *)arg)->par;
}

static void wait_nothing(void *arg, uint64_t us, bool backward) { }
static void stop_nothing(struct rest *r) { }
static void rest_free(struct rest *r) { free(r); }

/* Sleep layers take their time as the modelled cost of a job. */
static struct rest *rest_new(void *arg)
{
	struct rest *r = xcalloc(1, sizeof *r);
	*r = (struct rest){ .host = { .wait = wait_nothing }, .stop = stop_nothing, .free = rest_free };
	return r;
}

static void news(void *arg, const char *topic, const char *key, const json_t *j)
{
	struct node_peer *p = arg;
	struct node_world *w = p->w;
	const char *text = json_string_value(json_object_get(j, "text"));
	unsigned i = 0;
	if (strcmp(topic, "event"))
		return;
	p->events++;
	while (i < w->ntold && strcmp(w->told[i], key))
		i++;
	if (i == 64)
		return;
	snprintf(w->told[i], sizeof w->told[i], "%s", key);
	snprintf(w->text[i], sizeof w->text[i], "%s", text ? text : "");
	w->ntold += i == w->ntold;
}

/* ---- the operator ---- */

static void answered(struct reply *r, json_t *result, const struct err *e)
{
	struct node_peer *p = container_of(r, struct node_peer, reply);
	p->asking = false;
	p->w->started |= p->starting && !e;
	snprintf(p->why, sizeof p->why, "%.199s", e ? e->text : "");
	json_decref(result);
}

static void ask(struct node_peer *p)
{
	struct node_world *w = p->w;
	json_t *spec = json_loads(w->spec, 0, NULL), *params;
	bool start = p->index == w->author && !w->started;
	p->asking = true;
	p->starting = start;
	if (start)
		params = json_pack("{s:O}", "spec", spec);
	else
		params = json_pack("{s:O}", "run", json_object_get(spec, "name"));
	if (w->batch_of[p->index])
		json_object_set_new(params, "batch", json_integer(w->batch_of[p->index]));
	else if (w->batch)
		json_object_set_new(params, "batch", json_integer(w->batch));
	else if (!start)
		json_object_set(params, "batch", json_object_get(json_object_get(spec, "local"), "batch"));
	if (w->remat_of[p->index])
		json_object_set_new(params, "remat", json_string(w->remat_of[p->index]));
	if (start)
		node_run_start(p->node, params, &p->reply);
	else
		node_run_join(p->node, params, &p->reply);
	json_decref(params);
	json_decref(spec);
}

static void look_in(struct node_peer *p, uint64_t us)
{
	p->operator_us = env_now(p->env) + us;
	env_timer(p->env, &p->operator, p->operator_us);
}

static void operate(struct timer *t)
{
	struct node_peer *p = container_of(t, struct node_peer, operator);
	struct run *r = node_run(p->w, p->index);
	uint64_t now = env_now(p->env);
	if (now > p->operator_us + p->w->late_us)
		p->w->late_us = now - p->operator_us;
	look_in(p, ASK_AGAIN_US);
	if (!p->w->spec || p->asking || (r && !run_over(r)) || p->w->idle[p->index])
		return;
	ask(p);
}

/* ---- birth and death ---- */

static void set(struct conf *c, const char *section, const char *key, const char *value)
{
	struct err e;
	if (conf_set(c, section, key, value, "--test", &e)) {
		fprintf(stderr, "%s\n", e.text);
		abort();
	}
}

static struct conf *conf_of(struct node_world *w, int index)
{
	struct conf *c = conf_new(conf_rows);
	char text[32 * NODE_SEEDS] = "";
	for (int i = 0; i < NODE_SEEDS; i++)
		if (i != index)
			snprintf(text + strlen(text), sizeof text - strlen(text), "10.0.0.%d:4237 ", i);
	set(c, "network", "join", text);
	set(c, "network", "client", w->client[index] ? "yes" : "no");
	if (w->peer_frames) {
		snprintf(text, sizeof text, "%u", w->peer_frames);
		set(c, "network", "peer_frames_max", text);
	}
	return c;
}

static void *start(struct env *env, int index, void *arg)
{
	struct node_world *w = arg;
	struct node_peer *p = xcalloc(1, sizeof *p);
	struct err e;
	*p = (struct node_peer){ .env = env, .w = w, .index = index, .conf = conf_of(w, index), .reply = { answered } };
	struct node_opts o = { .conf = p->conf, .state_dir = "/state", .has_swarm_key = true, .version = "sim",
		.hashes = w->hashes[index],
		.version_min = w->version_min[index], .version_max = w->version_max[index], .news = news, .news_arg = p,
		.compute = { .par = par_of, .rest = rest_new, .arg = w } };
	memset(o.swarm_key, w->stranger[index] == NODE_OTHER_SWARM ? 0xa5 : 0x5a, sizeof o.swarm_key);
	if (w->stranger[index]) {
		o.state_dir = "/stranger";
		node_seed(NODES_MAX + index, o.seed);
	} else if (w->has_seed[index]) {
		memcpy(o.seed, w->seed[index], sizeof o.seed);
	} else {
		node_seed(index, o.seed);
	}
	if (!w->client[index])
		o.self = where(index);
	o.njoin = conf_list(p->conf, "network", "join", &o.join);
	p->node = node_new(env, &o, &e);
	if (!p->node) {
		fprintf(stderr, "node %d: %s\n", index, e.text);
		abort();
	}
	p->operator = (struct timer){ .fire = operate, .name = "test.operator" };
	look_in(p, 1 + env_rand(env) % (100 * MSEC));
	if (w->born)
		w->born(w, p);
	return p;
}

static void stop(void *app)
{
	struct node_peer *p = app;
	env_timer(p->env, &p->operator, 0);
	node_free(p->node);
	conf_free(p->conf);
	free(p);
}

static struct dht *table_of(void *world, int node)
{
	struct node_peer *p = node_peer(world, node);
	return p ? node_dht(p->node) : NULL;
}

struct node_world *node_world_new(struct sim *s, const char *spec)
{
	struct node_world *w = xcalloc(1, sizeof *w);
	w->s = s;
	w->spec = spec;
	w->alone = -1;
	enum cpu cpu;                           /* the fastest: each instruction set gives the same bytes (kernels/isa.h) */
	w->par = par_serial(cpu_pick(getenv("HIVEMIND_CPU"), &cpu, NULL) < 0 ? CPU_PLAIN : cpu, NULL);
	w->chain = spec ? chain_check_new(w) : NULL;
	w->table = table_check_new(s, table_of, w, 1);
	return w;
}

void node_world_free(struct node_world *w)
{
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (sim_alive(w->s, i))
			sim_kill(w->s, i);
	chain_check_free(w->chain);
	table_check_free(w->table);
	free(w);
}

void node_world_add(struct node_world *w, int n)
{
	struct sim_app app = { start, stop, w };
	for (int k = 0; k < n; k++) {
		int i = sim_nodes(w->s);
		struct endpoint at = where(i), none = at;
		memset(none.port, 0, sizeof none.port);
		sim_node_add(w->s, w->client[i] ? &none : &at, &app);
	}
}

/* Peers that run plans with RECV of any, REPLY and ALLTOALL, executor and carry real, on whatever env they are given;
 * what each has taken is read from the run log. */
#ifndef TESTS_SIM_ANY_KIT_H
#define TESTS_SIM_ANY_KIT_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/rng.h"
#include "exec/carry.h"
#include "exec/exec.h"
#include "train/spec/spec.h"

#define NODES_MAX 6
#define LOG_MAX 4096

static const char text[] = "{\"name\":\"c\",\"input\":[2],\"model\":[{\"type\":\"linear\",\"out\":2}],\"loss\":\"mse\","
	"\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"target_batch\":8,"
	"\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":50}}";

struct world;
struct bound { char name[PLAN_NAME]; float *p; size_t bytes; };
/* An end in the run log that names senders; at: of the instruction. */
struct took { bool recv; uint32_t stream, n; int64_t at; uint32_t peer[NODES_MAX]; int64_t index[NODES_MAX]; };
struct peer {
	struct world *world; struct env *env; struct net *net; struct chunks *chunks; struct carry *carry;
	struct exec *x; int node;
	struct bound bound[8]; int nbound;
	bool planned, broken, liar;
	uint64_t commits, troubles; struct err error;
	struct took took[LOG_MAX]; uint32_t ntook;
	void *lies; void (*unlie)(struct peer *p);
};
struct world {
	struct id id[NODES_MAX]; uint32_t n;
	uint64_t generation, steps, commits;    /* commits of a step */
	struct spec *spec; struct model *model; struct par par;
	void (*plan)(const struct world *w, struct plan *p, uint32_t rank);
	void (*bind)(struct peer *p);           /* buffers of its own */
	void (*before)(struct peer *p, const struct exec_net *n, const struct exec_span *in, uint32_t nin);
	void (*lie)(struct peer *p);            /* instead of an executor, for those of whom liar says so */
	void (*unlie)(struct peer *p);
	bool liar[NODES_MAX];
	uint32_t workers, waits;
	uint64_t seed, within_us, deadline_us;
	uint64_t silent;                        /* how long a server waits for too few */
	uint32_t quorum, most;
	bool outsider, odd_length, unique, strict;      /* worker 0 is one, has one */
};

static inline float *bind_floats(struct peer *p, const char *name, size_t n)
{
	struct bound *b = &p->bound[p->nbound++];

	(void)snprintf(b->name, sizeof(b->name), "%s", name);
	b->bytes = n * sizeof(float);
	b->p = xcalloc(n, sizeof(float));
	exec_bind(p->x, b->name, b->p, b->bytes);
	return b->p;
}

static inline float *bound(const struct peer *p, const char *name)
{
	for (int k = 0; k < p->nbound; k++)
		if (!strcmp(p->bound[k].name, name))
			return p->bound[k].p;
	abort();
}

static inline void net_op(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in,
	uint32_t nin, const struct exec_span *out, uint32_t nout)
{
	struct peer *p = arg;

	if (p->world->before)
		p->world->before(p, n, in, nin);
	carry_ops.net(p->carry, w, n, in, nin, out, nout);
}

static inline void cancel(void *arg, struct exec_wait *w) { carry_ops.cancel(((struct peer *)arg)->carry, w); }
static inline bool busy(void *arg, struct exec_wait *w) { return carry_ops.busy(((struct peer *)arg)->carry, w); }
static inline void load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index) { abort(); }
static inline void unload(void *arg, struct batch *b) { abort(); }

static inline int make_plan(void *arg, const struct plan_results *r, uint64_t first, struct plan *ret, struct err *e)
{
	struct peer *p = arg;

	if (p->planned)
		plan_init(ret, "wait", 0, 1, &p->world->id[p->node]);
	else
		p->world->plan(p->world, ret, (uint32_t)p->node);
	p->planned = true;
	return 0;
}

static inline void on_commit(void *arg, const struct plan_instr *i, int64_t index, const struct batch *b)
{
	((struct peer *)arg)->commits++;
}

static inline void on_broken(void *arg, const struct err *e)
{
	((struct peer *)arg)->broken = true;
	((struct peer *)arg)->error = *e;
}

static inline enum exec_outcome on_failed(void *arg, const struct plan *plan, const struct plan_instr *i,
	enum exec_outcome meant, const struct err *e)
{
	struct peer *p = arg;

	p->troubles++;
	p->error = *e;
	return meant;
}

static inline void on_log(void *arg, const char *line, size_t len)
{
	struct peer *p = arg;
	json_t *j, *from, *v;
	struct took *t;
	size_t k;

	if (!memmem(line, len, "\"from\"", 6) || p->ntook == LOG_MAX)
		return;
	j = json_loadb(line, len, 0, NULL);
	from = json_object_get(j, "from");
	t = &p->took[p->ntook++];
	*t = (struct took){ .recv = !strcmp(json_string_value(json_object_get(j, "kind")), "RECV"),
		.at = json_integer_value(json_object_get(j, "index")),
		.stream = (uint32_t)json_integer_value(json_object_get(j, "stream")),
		.n = (uint32_t)json_array_size(from) };
	json_array_foreach(from, k, v) {
		t->peer[k] = (uint32_t)json_integer_value(json_array_get(v, 0));
		t->index[k] = json_integer_value(json_array_get(v, 2));
	}
	json_decref(j);
}

static inline void vec_env(void *arg, struct vec_env *ret) { }

static inline void init(const struct world *w, struct plan *p, const char *name, uint32_t rank)
{
	plan_init(p, name, rank, w->n, w->id);
	p->generation = w->generation;
	p->redundancy = 1;
}

static inline void buf(struct plan *p, enum plan_class class, const char *name, uint64_t bytes, uint32_t depth,
	bool initial, bool bounded)
{
	plan_buf(p, &(struct plan_buf){ .class = class, .dtype = PLAN_F32, .bytes = bytes, .depth = depth,
		.initial = initial, .bounded = bounded }, "%s", name);
}

static inline struct plan_instr *any(struct plan *p, const struct world *w, uint32_t g, const char *what)
{
	struct plan_instr *r = plan_recv(p, 0, 0, "%s", what);

	r->with = PLAN_ANY;
	r->group = g;
	r->quorum = w->quorum ? w->quorum : 1;
	r->most = w->most ? w->most : 1;
	r->within_us = w->within_us;
	return r;
}

static inline uint32_t group(struct plan *p, const char *name, uint32_t lo, uint32_t hi)
{
	uint32_t g = plan_group(p, name, PLAN_OP_SUM, false, false);

	for (uint32_t k = lo; k < hi; k++)
		plan_join(p, g, k, 0);
	return g;
}

static inline void peer_open(struct peer *p, const struct net_conf *c)
{
	static const struct exec_ops ops = { .load = load, .unload = unload, .net = net_op, .cancel = cancel,
		.busy = busy };
	const struct exec_cb cb = { .plan = make_plan, .commit = on_commit, .env = vec_env, .failed = on_failed,
		.broken = on_broken, .log = on_log };
	struct world *w = p->world;
	struct exec_conf conf = { .env = p->env, .model = w->model, .par = &w->par, .ops = &ops, .ops_arg = p,
		.check = true };
	struct err e;

	p->net = net_new(p->env, c, &e);
	p->chunks = chunks_new(p->env, p->net);
	w->id[p->node] = *net_self(p->net);
	p->unlie = w->unlie;
	if (w->liar[p->node])
		return;
	p->carry = carry_new(&(struct carry_conf){ .env = p->env, .net = p->net, .chunks = p->chunks, .run = { { 5 } } });
	p->x = exec_new(&conf, &cb, p);
	if (w->bind)
		w->bind(p);
}

static inline void peer_close(struct peer *p)
{
	if (p->unlie && p->lies)                /* the world may be gone */
		p->unlie(p);
	p->env->ops->detach(p->env);
	if (p->x)
		exec_free(p->x, NULL, NULL);
	carry_free(p->carry);
	chunks_free(p->chunks);
	net_free(p->net);
	for (int k = 0; k < p->nbound; k++)
		free(p->bound[k].p);
	free(p->lies);
}

static inline void world_open(struct world *w, uint64_t seed)
{
	struct err e;

	w->generation = 1;
	w->seed = seed;
	w->spec = spec_parse(text, strlen(text), &e);
	w->model = spec_model(w->spec, NULL, &e);
	w->par = par_serial(CPU_PLAIN, NULL);
}

static inline void close_world(struct world *w)
{
	model_free(w->model);
	spec_free(w->spec);
}

static inline void floats(float *v, size_t n, uint64_t seed)
{
	for (size_t k = 0; k < n; k++)
		v[k] = (float)(rng_at(seed, k) % 1000) / 256;
}

#endif

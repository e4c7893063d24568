/* Plans with RECV of any, REPLY and ALLTOALL and what one process computes of them, for any_kit.h's peers. */
#ifndef TESTS_SIM_ANY_PLANS_H
#define TESTS_SIM_ANY_PLANS_H
#include "any_kit.h"
#include "kernels/vec.h"

#define WORKERS 3
#define SHARDS 2
#define SHARD 30000                             /* floats: work of the lane, and several frames */
#define PUSH (-0.1f)
#define STEP 0.5f

/* --- downpour: d = c - 0.1 w is pushed, w' = w + 0.5 d comes back, of each shard from its server */

static inline void downpour(const struct world *w, struct plan *p, uint32_t rank)
{
	uint32_t bytes = SHARD * sizeof(float);
	bool worker = rank < w->workers;

	init(w, p, "downpour", rank);
	for (uint32_t s = 0; s < SHARDS; s++) {
		char name[3][8];

		if (!worker && s != rank - w->workers)
			continue;
		(void)snprintf(name[0], 8, "w%u", s);
		(void)snprintf(name[1], 8, "d%u", s);
		(void)snprintf(name[2], 8, "c%u", s);
		buf(p, PLAN_WEIGHT, name[0], bytes, 1, true, false);
		buf(p, PLAN_WEIGHT_GRAD, name[1], bytes, 2, false, false);
		if (worker)
			buf(p, PLAN_WEIGHT, name[2], bytes, 1, true, false);
	}
	plan_section(p, PLAN_BODY);
	p->iterations = worker ? w->steps : 100000;
	for (uint32_t s = 0; s < SHARDS && worker; s++) {
		plan_vec(p, 0, "axpy", "w%u c%u<=* -> d%u", s, s, s)->scale = PUSH;
		plan_send(p, 0, w->workers + s, "d%u!", s);
	}
	for (uint32_t s = 0; s < SHARDS && worker; s++) {
		plan_recv(p, 0, w->workers + s, "w%u'", s);
		plan_do(p, PLAN_COMMIT, 0, "w%u'", s);
	}
	if (worker)
		return;
	rank -= w->workers;
	any(p, w, group(p, "workers", 0, w->workers), rank ? "d1" : "d0");
	plan_vec(p, 0, "axpy", "d%u w%u -> w%u'", rank, rank, rank)->scale = STEP;
	plan_do(p, PLAN_COMMIT, 0, "w%u'", rank)->scope = PLAN_SHARD;
	plan_send(p, 0, 0, "w%u' d%u!", rank, rank)->with = PLAN_REPLY;
}

static inline void downpour_bind(struct peer *p)
{
	uint32_t rank = (uint32_t)p->node;
	char name[8];

	for (uint32_t s = 0; s < SHARDS; s++) {
		if (rank >= p->world->workers && s != rank - p->world->workers)
			continue;
		(void)snprintf(name, sizeof(name), "w%u", s);
		floats(bind_floats(p, name, SHARD), SHARD, s);
		(void)snprintf(name, sizeof(name), "c%u", s);
		if (rank < p->world->workers)
			floats(bind_floats(p, name, SHARD), SHARD, 10 + rank);
	}
}

/* What the server has logged, once more: its weights and those of the workers that live must be these. v: NULL is dead.
 * Returns what is wrong, or NULL. */
static inline const char *replay_error(const struct world *w, struct peer *const *v, uint32_t shard)
{
	const struct peer *server = v[w->workers + shard];
	float *have = xcalloc(SHARD, sizeof(float)), *c = xcalloc(SHARD, sizeof(float)), *d = xcalloc(SHARD, sizeof(float));
	float *view[NODES_MAX];
	int64_t next[NODES_MAX] = { 0 };
	const char *wrong = NULL;
	char name[8];

	floats(have, SHARD, shard);
	for (uint32_t k = 0; k < w->workers; k++) {
		view[k] = xcalloc(SHARD, sizeof(float));
		memcpy(view[k], have, SHARD * sizeof(float));
	}
	for (uint32_t k = 0; k < server->ntook; k++) {
		uint32_t from = server->took[k].peer[0];

		if (server->took[k].n != 1 || from >= w->workers || server->took[k].index[0] != next[from]++)
			wrong = "a server has taken what is not next";
		floats(c, SHARD, 10 + from);
		vec_copy(&w->par, SHARD, c, d);
		vec_axpy(&w->par, SHARD, PUSH, view[from], d);
		vec_axpy(&w->par, SHARD, STEP, d, have);
		memcpy(view[from], have, SHARD * sizeof(float));
	}
	(void)snprintf(name, sizeof(name), "w%u", shard);
	if (memcmp(bound(server, name), have, SHARD * sizeof(float)))
		wrong = "a server has other weights than a replay of its log";
	for (uint32_t k = 0; k < w->workers; k++) {
		if (v[k] && memcmp(bound(v[k], name), view[k], SHARD * sizeof(float)))
			wrong = "a worker has other weights than it was answered";
		if (v[k] && next[k] != (int64_t)w->steps)
			wrong = "a worker has not pushed as often as it has steps";
		free(view[k]);
	}
	free(have);
	free(c);
	free(d);
	return wrong;
}

/* --- experts: h' = h + 0.5 y, where row r of y is 2 h + bias of the server that the route says, or nothing */

#define ROWS 240
#define ROW 48                                  /* floats */

static inline uint32_t routed(const struct world *w, uint32_t who, int64_t index, uint32_t row, uint32_t members)
{
	return (uint32_t)(rng_at(rng_mix(w->seed + who, (uint64_t)index), row) % (members + 1));
}

static inline void gate(struct peer *p, const struct exec_net *n, const struct exec_span *in, uint32_t nin)
{
	uint32_t *route;

	if (n->instr->kind != PLAN_ALLTOALL || nin != 2)
		return;
	route = in[1].p;
	for (uint32_t k = 0; k < ROWS; k++) {
		uint32_t m = routed(p->world, (uint32_t)p->node, n->index, k, n->group->n);

		route[k] = m < n->group->n ? m : CARRY_NOBODY;
	}
}

static inline void trainer(const struct world *w, struct plan *p, uint32_t bytes)
{
	uint32_t g = group(p, "experts", w->workers, w->n);
	struct plan_instr *i;

	buf(p, PLAN_WEIGHT, "h", bytes, 1, true, false);
	buf(p, PLAN_ACTIVATION, "y", bytes, 1, false, true);
	buf(p, PLAN_ROUTE, "route", ROWS * sizeof(uint32_t), 1, true, false);
	plan_section(p, PLAN_BODY);
	p->iterations = w->steps;
	plan_coll(p, PLAN_ALLTOALL, 0, g, "h route<=* ->");
	i = plan_coll(p, PLAN_ALLTOALL, 0, g, "route<=* -> y");
	i->on_missing = PLAN_WITHOUT;
	i->deadline_us = w->deadline_us;
	plan_vec(p, 0, "axpy", "y! h -> h'")->scale = STEP;
	p->instr[p->ninstrs - 1].on_missing = PLAN_WITHOUT;
	plan_do(p, PLAN_COMMIT, 0, "h'");
}

static inline void experts(const struct world *w, struct plan *p, uint32_t rank)
{
	uint32_t bytes = ROWS * ROW * sizeof(float);

	init(w, p, "dmoe", rank);
	if (rank < w->workers) {
		trainer(w, p, bytes);
		return;
	}
	buf(p, PLAN_ACTIVATION, "h", bytes * w->most, 1, false, true);
	buf(p, PLAN_ACTIVATION, "y", bytes * w->most, 1, false, true);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .dtype = PLAN_F32, .bytes = bytes * w->most, .initial = true,
		.shared = true }, "bias");
	p->streams = w->waits;
	plan_section(p, PLAN_BODY);
	p->iterations = 100000;
	any(p, w, group(p, "trainers", 0, w->workers), "h");
	plan_vec(p, 0, "axpy", "h bias<=* -> y")->scale = 2;
	plan_send(p, 0, 0, "y! h!")->with = PLAN_REPLY;
}

static inline void experts_bind(struct peer *p)
{
	const struct world *w = p->world;
	float *v;

	if ((uint32_t)p->node < w->workers) {
		floats(bind_floats(p, "h", ROWS * ROW), ROWS * ROW, (uint64_t)p->node);
		bind_floats(p, "route", ROWS);
		return;
	}
	v = bind_floats(p, "bias", (size_t)ROWS * ROW * w->most);
	for (uint32_t k = 0; k < ROWS * ROW * w->most; k++)
		v[k] = (float)(p->node + 1);
}

static inline bool answered(const struct peer *p, int64_t index, uint32_t rank)
{
	for (uint32_t k = 0; k < p->ntook; k++)
		for (uint32_t n = 0; n < p->took[k].n && p->took[k].at == index; n++)
			if (p->took[k].peer[n] == rank)
				return true;
	return false;
}

/* One process that has all experts, where the trainer's log says that they have answered; without: how often not. */
static inline bool computed(const struct world *w, const struct peer *p, uint32_t *without)
{
	float *h = xcalloc(ROWS * ROW, sizeof(float)), y[ROW];
	bool equal;

	floats(h, ROWS * ROW, (uint64_t)p->node);
	for (int64_t j = 0; j < (int64_t)w->steps; j++)
		for (uint32_t k = 0; k < ROWS; k++) {
			uint32_t m = routed(w, (uint32_t)p->node, j, k, w->n - w->workers);

			if (m == w->n - w->workers)
				continue;
			if (!answered(p, j, w->workers + m)) {
				++*without;
				continue;
			}
			for (uint32_t i = 0; i < ROW; i++)
				y[i] = (float)(w->workers + m + 1);
			vec_axpy(&w->par, ROW, 2, h + k * ROW, y);
			vec_axpy(&w->par, ROW, STEP, y, h + k * ROW);
		}
	equal = !memcmp(h, bound(p, "h"), ROWS * ROW * sizeof(float));
	free(h);
	return equal;
}

#endif

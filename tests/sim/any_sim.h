/* any_kit.h's peers in the simulator. */
#ifndef TESTS_SIM_ANY_SIM_H
#define TESTS_SIM_ANY_SIM_H
#include "any_kit.h"
#include "plan/check.h"
#include "sim.h"

static inline void *start(struct env *env, int node, void *arg)
{
	struct net_conf c = { .has_swarm_key = true, .seed = { (uint8_t)(node + 1) },
		.self = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(node + 1) },
			.port = { 4237, 4238, 4239 } } };
	struct peer *p = xcalloc(1, sizeof(*p));

	env->ops->secure(env, &c.boot_id, sizeof(c.boot_id));
	p->world = arg;
	p->env = env;
	p->node = node;
	peer_open(p, &c);
	return p;
}

static inline void stop(void *app)
{
	peer_close(app);
	free(app);
}

static inline struct peer *at(struct sim *s, uint32_t node) { return sim_app(s, (int)node); }

static inline void open_world(struct sim *s, struct world *w)
{
	struct sim_app app = { start, stop, w };

	world_open(w, sim_seed(s));
	for (uint32_t k = 0; k < w->n; k++) {
		struct endpoint where = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(k + 1) },
			.port = { 4237, 4238, 4239 } };

		(void)sim_node_add(s, &where, &app);
	}
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t j = 0; j < w->n; j++)
			net_learn(at(s, k)->net, &w->id[j], sim_endpoint(s, (int)j));
}

/* All plans together, as who plans for all would; then everybody begins. */
static inline void go(struct sim *s, const struct world *w)
{
	struct plan plan[NODES_MAX];
	const struct plan *v[NODES_MAX] = { NULL };
	uint32_t n = 0;
	struct err e;

	for (uint32_t k = 0; k < w->n; k++)
		if (!w->liar[k]) {
			w->plan(w, &plan[n], k);
			v[n] = &plan[n];
			n++;
		}
	if (n == w->n && !w->outsider && !w->silent /* wrong on purpose */ && plan_check(v, n, NULL, NULL, &e) < 0)
		sim_fail(s, "%s", e.text);
	while (n-- > 0)
		plan_free(&plan[n]);
	for (uint32_t k = 0; k < w->n; k++)
		if (w->liar[k])
			w->lie(at(s, k));
		else
			exec_wake(at(s, k)->x);
}

#endif

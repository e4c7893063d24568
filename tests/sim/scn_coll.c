/* Collectives in a fixed group: every member ends with the same bytes, in member order; a dead member is an error for
 * all. */
#include <stdlib.h>
#include <string.h>
#include "avg/coll.h"
#include "common/mem.h"
#include "sim.h"

#define SEC 1000000ull
#define N_MAX 8

struct peer { struct env *env; struct net *net; struct chunks *chunks; struct coll *coll; float *x; int ended, failed;
	};
struct world { struct id id[N_MAX]; };

static struct endpoint where(int node)
{
	struct endpoint at = { .ip = { [10] = 0xff, [11] = 0xff, [12] = 10 }, .port = { 4237, 4238, 4239 } };
	at.ip[15] = (uint8_t)(node + 1);
	return at;
}

static void *start(struct env *env, int node, void *arg)
{
	struct world *w = arg;
	struct peer *p = xcalloc(1, sizeof *p);
	struct net_conf c = { .has_swarm_key = true, .self = where(node), .seed = { (uint8_t)(node + 1) } };
	struct err e;
	env->ops->secure(env, &c.boot_id, sizeof c.boot_id);
	p->env = env;
	p->net = net_new(env, &c, &e);
	p->chunks = chunks_new(env, p->net);
	p->coll = coll_new(env, p->net, p->chunks);
	w->id[node] = *net_self(p->net);
	return p;
}

static void stop(void *app)
{
	struct peer *p = app;
	p->env->ops->detach(p->env);
	coll_free(p->coll);
	chunks_free(p->chunks);
	net_free(p->net);
	free(p->x);
	free(p);
}

static void over(void *arg, const struct err *e)
{
	struct peer *p = arg;
	p->ended++;
	p->failed += e != NULL;
}

static float value(int node, size_t k)
{
	return (float)(rng_at((uint64_t)node + 1, k) >> 40) / 1e6f - 7;
}

static bool all_over(struct sim *s, void *arg)
{
	for (int i = 0; i < sim_nodes(s); i++)
		if (sim_alive(s, i) && !((struct peer *)sim_app(s, i))->ended)
			return false;
	return true;
}

static void begin(struct sim *s, struct world *w, int n, size_t len, enum coll_op op, uint64_t seq)
{
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		struct coll_group g = { .members = w->id, .n = (uint32_t)n, .me = (uint32_t)i, .tag = { { 9 } } };
		for (int k = 0; k < n; k++) {
			struct endpoint at = where(k);
			net_learn(p->net, &w->id[k], &at);
		}
		free(p->x);
		p->x = xcalloc(len + 1, sizeof *p->x);
		p->ended = p->failed = 0;
		for (size_t k = 0; k < len; k++)
			p->x[k] = value(i, k);
		coll_allreduce(p->coll, &g, seq, p->x, len, op, sim_now(s) + 5 * SEC, over, p);
	}
}

static void check(struct sim *s, int n, size_t len, enum coll_op op)
{
	for (size_t k = 0; k < len; k++) {
		float want = value(0, k);
		for (int i = 1; i < n; i++)
			want = op == COLL_MAX ? (value(i, k) > want ? value(i, k) : want) : want + value(i, k);
		if (op == COLL_MEAN)
			want /= (float)n;
		for (int i = 0; i < n; i++)
			if (memcmp(&((struct peer *)sim_app(s, i))->x[k], &want, sizeof want)) {
				sim_fail(s, "n %d len %zu op %d: element %zu of node %d is %.9g, not %.9g", n, len, op, k, i,
					((struct peer *)sim_app(s, i))->x[k], want);
				return;
			}
	}
}

static void run(struct sim *s, int n, struct world *w)
{
	struct sim_app app = { start, stop, w };
	for (int i = 0; i < n; i++) {
		struct endpoint at = where(i);
		sim_node_add(s, &at, &app);
	}
}

static void scn_allreduce(struct sim *s)
{
	static const size_t lens[] = { 0, 1, 3, 1000, 4097, 50001, 100000 };
	struct world w;
	int n = 1 + (int)(sim_seed(s) % 5);
	run(s, n, &w);
	for (size_t k = 0; k < sizeof lens / sizeof *lens; k++)
		for (int op = COLL_SUM; op <= COLL_MEAN; op++) {
			begin(s, &w, n, lens[k], op, 3 * k + (size_t)op);
			sim_check(s, sim_run_until(s, all_over, NULL, 10 * SEC));
			for (int i = 0; i < n; i++)
				sim_check(s, ((struct peer *)sim_app(s, i))->ended == 1 && !((struct peer *)sim_app(s, i))->failed);
			check(s, n, lens[k], op);
		}
}

static void scn_dead_member(struct sim *s)
{
	struct world w;
	size_t len = sim_seed(s) % 2 ? 300 : 40000;
	run(s, 4, &w);
	begin(s, &w, 4, len, COLL_SUM, 1);
	sim_run_until(s, all_over, NULL, 10 * SEC);
	begin(s, &w, 4, len, COLL_SUM, 2);
	sim_kill(s, 2);
	sim_check(s, sim_run_until(s, all_over, NULL, 10 * SEC));
	for (int i = 0; i < 4; i++)
		if (i != 2)
			sim_check(s, ((struct peer *)sim_app(s, i))->ended == 1 && ((struct peer *)sim_app(s, i))->failed == 1);
}

static const struct scn list[] = { SCN(allreduce), SCN(dead_member), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

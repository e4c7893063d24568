/* Collectives in a fixed group: every member ends with the same bytes, in member order; a dead member is an error for
 * all. */
#include <stdlib.h>
#include <string.h>
#include "avg/coll.h"
#include "common/mem.h"
#include "kernels/vec.h"
#include "sim.h"

#define SEC 1000000ull
#define N_MAX 8

struct peer { struct env *env; struct net *net; struct chunks *chunks; struct coll *coll; float *x; int ended, failed;
	bool in_vain; };                        /* its time was over, or a peer out of reach */
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
	p->in_vain = e && (e->code == ERR_TIMEOUT || e->code == ERR_UNREACHABLE);
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
		coll_allreduce(p->coll, &g, seq, COLL_F32, p->x, len, op, sim_now(s) + 5 * SEC, over, p);
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

/* Everybody has ended, once, and well; one who ended in vain is late. */
static bool ended_well(struct sim *s, int n, const char *what, size_t len)
{
	bool well = true;
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		if (p->ended == 1 && p->failed == 1 && p->in_vain)
			sim_late(s, "%s of %zu over %d: node %d ended in vain", what, len, n, i);
		else if (p->ended != 1 || p->failed)
			sim_fail(s, "%s of %zu over %d: node %d ended %d times, %d with an error", what, len, n, i,
				p->ended, p->failed);
		well = well && p->ended == 1 && !p->failed;
		p->ended = p->failed = 0;
	}
	return well;
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
	static const size_t lens[] = { 0, 1, 3, 1000, 4097, 50021, 100000 };
	struct world w;
	int n = 1 + (int)(sim_seed(s) % 5);
	run(s, n, &w);
	for (size_t k = 0; k < sizeof lens / sizeof *lens; k++)
		for (int op = COLL_SUM; op <= COLL_MEAN; op++) {
			begin(s, &w, n, lens[k], op, 3 * k + (size_t)op);
			sim_await(s, all_over, NULL, 10 * SEC);
			if (ended_well(s, n, "all-reduce", lens[k]))
				check(s, n, lens[k], op);
		}
}

static struct coll_group group_of(struct world *w, int n, int i)
{
	return (struct coll_group){ .members = w->id, .n = (uint32_t)n, .me = (uint32_t)i, .tag = { { 9 } } };
}

static bool finish(struct sim *s, int n, const char *what, size_t len)
{
	sim_await_or(s, all_over, NULL, 20 * SEC, "%s of %zu over %d: no end", what, len, n);
	return ended_well(s, n, what, len);
}

static void equal(struct sim *s, const char *what, size_t len, int i, float got, float want)
{
	if (memcmp(&got, &want, sizeof got))
		sim_fail(s, "%s of %zu: node %d has %.9g, not %.9g", what, len, i, got, want);
}

static void fresh(struct sim *s, int n, size_t len)
{
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		p->ended = p->failed = 0;
		p->x = realloc(p->x, (2 * (size_t)n + 2) * (len + (size_t)n) * sizeof *p->x);
		for (size_t k = 0; k < len; k++)
			p->x[k] = value(i, k);
	}
}

/* Sums go to their place in x, or behind x, which is as before. */
static void scatter_gather(struct sim *s, struct world *w, int n, size_t len, uint64_t seq)
{
	bool apart = rng_below(sim_rng(s), 2);
	size_t lo, hi;
	fresh(s, n, len);
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		struct coll_group g = group_of(w, n, i);
		coll_part((uint32_t)n, (uint32_t)i, len, &lo, &hi);
		coll_reduce_scatter(p->coll, &g, seq, COLL_F32, p->x, len, COLL_SUM, p->x + (apart ? len : lo),
			sim_now(s) + 9 * SEC, over, p);
	}
	if (!finish(s, n, "reduce-scatter", len))
		return;
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		coll_part((uint32_t)n, (uint32_t)i, len, &lo, &hi);
		for (size_t k = 0; k < len; k++) {
			float want = k >= lo && k < hi && !apart ? value(0, k) : value(i, k);
			for (int m = 1; m < n && k >= lo && k < hi && !apart; m++)
				want += value(m, k);
			equal(s, "reduce-scatter", len, i, p->x[k], want);
		}
		if (apart)                      /* then both are seen at the end */
			memcpy(p->x + lo, p->x + len, (hi - lo) * sizeof(*p->x));
		struct coll_group g = group_of(w, n, i);
		coll_allgather(p->coll, &g, seq + 1, COLL_F32, p->x, len, sim_now(s) + 9 * SEC, over, p);
	}
	if (finish(s, n, "all-gather", len))
		check(s, n, len, COLL_SUM);
}

static void spread(struct sim *s, struct world *w, int n, size_t len, uint64_t seq)
{
	uint32_t root = (uint32_t)(len % (size_t)n);
	fresh(s, n, len);
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		struct coll_group g = group_of(w, n, i);
		coll_alltoall(p->coll, &g, seq, COLL_F32, p->x, len, p->x + len, sim_now(s) + 9 * SEC, over, p);
	}
	if (!finish(s, n, "all-to-all", len))
		return;
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		struct coll_group g = group_of(w, n, i);
		size_t lo, hi;
		coll_part((uint32_t)n, (uint32_t)i, len, &lo, &hi);
		for (int m = 0; m < n; m++)
			for (size_t k = lo; k < hi; k++)
				equal(s, "all-to-all", len, i, p->x[len + (size_t)m * (hi - lo) + k - lo], value(m, k));
		coll_broadcast(p->coll, &g, seq + 1, root, COLL_F32, p->x, len, sim_now(s) + 9 * SEC, over, p);
	}
	if (!finish(s, n, "broadcast", len))
		return;
	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < len; k++)
			equal(s, "broadcast", len, i, ((struct peer *)sim_app(s, i))->x[k], value((int)root, k));
}

static bool two_over(struct sim *s, void *arg)
{
	struct peer **two = arg;
	return two[0]->ended && two[1]->ended;
}

/* Every other collective, every size: what came is what the definition says. */
static void scn_others(struct sim *s)
{
	static const size_t lens[] = { 0, 1, 7, 10007, 150001 };
	struct world w;
	int n = 1 + (int)(sim_seed(s) % 6);
	uint64_t seq = 0;
	run(s, n, &w);
	begin(s, &w, n, 5, COLL_SUM, 1000);
	finish(s, n, "all-reduce", 5);
	for (size_t k = 0; k < sizeof lens / sizeof *lens; k++, seq += 4) {
		scatter_gather(s, &w, n, lens[k], seq);
		spread(s, &w, n, lens[k], seq + 2);
	}
	if (n < 2)
		return;
	fresh(s, n, 5000);
	struct peer *a = sim_app(s, 0), *b = sim_app(s, n - 1);
	struct coll_group ga = group_of(&w, n, 0), gb = group_of(&w, n, n - 1);
	coll_send(a->coll, &ga, seq, (uint32_t)n - 1, COLL_F32, a->x, 5000, sim_now(s) + 9 * SEC, over, a);
	sim_run_for(s, SEC);
	sim_check(s, !a->ended);                /* nobody takes it yet */
	coll_recv(b->coll, &gb, seq, 0, COLL_F32, b->x, 5000, sim_now(s) + 9 * SEC, over, b);
	sim_run_for(s, 3 * SEC);
	sim_await(s, two_over, ((struct peer *[]){ a, b }), 0);
	sim_check(s, a->ended == 1 && b->ended == 1 && (!a->failed || a->in_vain) && (!b->failed || b->in_vain));
	sim_in_time(s, !a->failed && !b->failed);
	for (size_t k = 0; k < 5000 && !a->failed && !b->failed; k++)
		equal(s, "send", 5000, n - 1, b->x[k], value(0, k));
}

/* Nobody is through before the last has come. */
static void scn_barrier(struct sim *s)
{
	struct world w;
	int n = 2 + (int)(sim_seed(s) % 4);
	run(s, n, &w);
	begin(s, &w, n, 5, COLL_SUM, 1000);
	finish(s, n, "all-reduce", 5);
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		struct coll_group g = group_of(&w, n, i);
		coll_barrier(p->coll, &g, 1, sim_now(s) + 9 * SEC, over, p);
		sim_run_for(s, SEC / 2);
		for (int k = 0; k <= i && i + 1 < n; k++)
			sim_check(s, !((struct peer *)sim_app(s, k))->ended);
	}
	finish(s, n, "barrier", 0);
}

struct given { uint64_t bytes; int n; };

/* What has come from the first one, at whoever has most of it. */
static uint64_t came(struct sim *s, int n)
{
	uint64_t most = 0;
	for (int i = 1; i < n; i++) {
		uint64_t sum = 0;
		struct peer_info v;
		if (net_peer(((struct peer *)sim_app(s, i))->net, net_self(((struct peer *)sim_app(s, 0))->net), &v))
			for (int c = 0; c < CLASS_COUNT_; c++)
				sum += v.bytes.in[c];
		most = sum > most ? sum : most;
	}
	return most;
}

static bool has_given(struct sim *s, void *arg)
{
	const struct given *g = arg;
	return came(s, g->n) >= g->bytes;
}

/* Long enough for several steps at once; in the second, one is stopped for longer than the deadline: an error for all
 * others, and the group is usable again when it is back. */
static void scn_stopped(struct sim *s)
{
	struct world w;
	int n = 2 + (int)(sim_seed(s) % 2);
	size_t len = (size_t)n * 262144 * 3 + 77;
	run(s, n, &w);
	begin(s, &w, n, 5, COLL_SUM, 1000);
	finish(s, n, "all-reduce", 5);
	uint64_t bytes = came(s, n);
	begin(s, &w, n, len, COLL_SUM, 1);
	if (!finish(s, n, "all-reduce", len))
		return;                         /* nothing says then how much half of it is */
	check(s, n, len, COLL_SUM);
	bytes = came(s, n) - bytes;
	struct given half = { came(s, n) + rng_below(sim_rng(s), bytes / 2), n };
	begin(s, &w, n, len, COLL_MAX, 2);
	sim_await(s, has_given, &half, SEC);
	sim_run_for(s, 1);
	sim_pause(s, 0);
	sim_run_for(s, 8 * SEC);
	for (int i = 1; i < n; i++)
		sim_check(s, ((struct peer *)sim_app(s, i))->ended == 1 && ((struct peer *)sim_app(s, i))->failed == 1);
	sim_resume(s, 0);
	sim_await(s, all_over, NULL, 10 * SEC);
	sim_run_for(s, 10 * SEC);
	begin(s, &w, n, 40000, COLL_SUM, 3);
	if (finish(s, n, "all-reduce after a stop", 40000))
		check(s, n, 40000, COLL_SUM);
}

/* ---- every type of element ---- */

/* Small whole numbers, which every type holds exactly; the sum of eight of them, too. */
static int small(int node, size_t k)
{
	return (int)(rng_at((uint64_t)node + 77, k) % 31) - 15;
}

static void put(enum coll_type type, void *x, size_t k, int v)
{
	struct par par = par_serial(CPU_PLAIN, NULL);
	float f = (float)v;
	switch (type) {
	case COLL_F32: ((float *)x)[k] = f; break;
	case COLL_F64: ((double *)x)[k] = v; break;
	case COLL_I32: ((int32_t *)x)[k] = v; break;
	case COLL_I64: ((int64_t *)x)[k] = v; break;
	case COLL_F16: vec_to_f16(&par, 1, &f, (uint16_t *)x + k); break;
	case COLL_BF16: vec_to_bf16(&par, 1, &f, (uint16_t *)x + k); break;
	}
}

/* What node i ends with: an all-reduce ('a'), a reduction to the root ('r') or in parts ('s'), a broadcast ('b'). */
static int wanted(int n, int i, size_t k, size_t len, enum coll_op op, char what, uint32_t root)
{
	int v = small(0, k);
	size_t lo, hi;
	coll_part((uint32_t)n, (uint32_t)i, len, &lo, &hi);
	if ((what == 'r' && (uint32_t)i != root) || (what == 's' && (k < lo || k >= hi)))
		return small(i, k);
	if (what == 'b')
		return small((int)root, k);
	for (int m = 1; m < n; m++)
		v = op == COLL_MAX ? (small(m, k) > v ? small(m, k) : v) : v + small(m, k);
	return v;
}

static void typed(struct sim *s, struct world *w, int n, enum coll_type type, size_t len, enum coll_op op, char what,
	uint64_t seq)
{
	uint32_t root = (uint32_t)(seq % (uint64_t)n);
	uint8_t want[8], *got;
	fresh(s, n, 2 * len + 1);
	for (int i = 0; i < n; i++) {
		struct peer *p = sim_app(s, i);
		struct coll_group g = group_of(w, n, i);
		uint64_t end = sim_now(s) + 9 * SEC;
		size_t lo, hi;
		coll_part((uint32_t)n, (uint32_t)i, len, &lo, &hi);
		void *part = (char *)p->x + lo * coll_size(type);
		for (size_t k = 0; k < len; k++)
			put(type, p->x, k, small(i, k));
		switch (what) {
		case 'a': coll_allreduce(p->coll, &g, seq, type, p->x, len, op, end, over, p); break;
		case 'r': coll_reduce(p->coll, &g, seq, root, type, p->x, len, op, end, over, p); break;
		case 's': coll_reduce_scatter(p->coll, &g, seq, type, p->x, len, op, part, end, over, p); break;
		case 'b': coll_broadcast(p->coll, &g, seq, root, type, p->x, len, end, over, p); break;
		}
	}
	if (!finish(s, n, "a collective of a type", len))
		return;
	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < len; k++) {
			got = (uint8_t *)((struct peer *)sim_app(s, i))->x + k * coll_size(type);
			put(type, want, 0, wanted(n, i, k, len, op, what, root));
			if (memcmp(got, want, coll_size(type)))
				sim_fail(s, "%c of type %d, op %d, %zu over %d, root %u: element %zu of node %d is wrong", what,
					type, op, len, n, root, k, i);
		}
}

/* Sums and maxima at everybody, at one and in parts, and broadcasts, of all types, below and above the sizes at which
 * the way of exchange changes. */
static void scn_types(struct sim *s)
{
	static const size_t lens[] = { 0, 1, 1021, 9001 };
	static const char whats[] = { 'a', 'r', 's', 'b' };
	struct world w;
	int n = 1 + (int)(sim_seed(s) % 6);
	uint64_t seq = 0;
	run(s, n, &w);
	begin(s, &w, n, 5, COLL_SUM, 1000);
	finish(s, n, "all-reduce", 5);
	for (enum coll_type type = COLL_F32; type <= COLL_BF16; type++)
		for (size_t k = 0; k < sizeof lens / sizeof *lens; k++)
			for (size_t i = 0; i < sizeof whats; i++, seq++)
				typed(s, &w, n, type, lens[k], seq % 3 ? COLL_SUM : COLL_MAX, whats[i], seq);
}

/* Row B02's largest: 2^24 whole numbers at three members, every operation. */
static void scn_large(struct sim *s)
{
	static const char whats[] = { 'a', 'r', 's', 'b' };
	struct world w;
	run(s, 3, &w);
	begin(s, &w, 3, 5, COLL_SUM, 1000);
	finish(s, 3, "all-reduce", 5);
	for (size_t i = 0; i < sizeof whats; i++)
		typed(s, &w, 3, COLL_I32, (size_t)1 << 24, COLL_SUM, whats[i], i);
}

static void scn_dead_member(struct sim *s)
{
	struct world w;
	size_t len = sim_seed(s) % 2 ? 300 : 40000;
	run(s, 4, &w);
	begin(s, &w, 4, len, COLL_SUM, 1);
	sim_await(s, all_over, NULL, 10 * SEC);
	begin(s, &w, 4, len, COLL_SUM, 2);
	sim_kill(s, 2);
	sim_await(s, all_over, NULL, 10 * SEC);
	for (int i = 0; i < 4; i++)
		if (i != 2)
			sim_check(s, ((struct peer *)sim_app(s, i))->ended == 1 && ((struct peer *)sim_app(s, i))->failed == 1);
}

static const struct scn list[] = { SCN_CELLS(allreduce, 5), SCN_CELLS(others, 6), SCN(barrier), SCN_CELLS(types, 6),
	SCN(large), SCN(stopped),
	SCN(dead_member), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

/* Peers that average with each other, of whom one hears what the others say changed on the way (crooked.h): JOIN
 * and its answers with point, members and history, reports, BEGIN, READY, ATTEMPT, ACK, MISSING, COMMIT, RECOVER,
 * LEAVE, proposals. First byte of the input: how many peers (bits 0 and 1), rows of two (bit 2), a grid (bit 3),
 * who hears it (bits 4 and 5), that one comes later and follows (bit 6), the leader dies in the middle (bit 7).
 * Whatever is said: what it holds stays whole, and everybody can be asked and freed. */
#include <stdlib.h>
#include <string.h>
#include "avg/int.h"
#include "crooked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SLICE_US 50000
#define PEERS_MAX 4
#define FLOATS 96
#define MICRO 4u
#define STEP_US 20000

struct world;
struct apeer {
	struct world *w; struct env *env; struct net *net; struct chunks *chunks; struct avg *avg; int node;
	struct avg_point point; float x[FLOATS]; struct ranges grant, claimed; uint64_t samples;
	bool follower;
	struct timer step;
};
struct world { struct sim *s; struct apeer *p[PEERS_MAX]; struct avg_conf conf; int n, late; };

static void check(bool ok)
{
	if (!ok)
		abort();
}

static struct endpoint place(int node)
{
	return (struct endpoint){ .ip = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(node + 1) },
		.port = { 4237, 4238, 4239 } };
}

/* ---- one who trains ---- */

static void step(struct timer *t)
{
	struct apeer *p = container_of(t, struct apeer, step);
	struct ranges some = { 0 };

	env_after(p->env, &p->step, STEP_US);
	ranges_take(&p->grant, MICRO, &some);
	if (!some.n)
		return;
	p->samples += ranges_count(&some);
	ranges_add_all(&p->claimed, &some);
	ranges_free(&some);
	avg_progress(p->avg, p->samples, 1e6 * MICRO / STEP_US, &p->claimed);
}

static void begun(void *arg, const struct avg_begin *b)
{
	struct apeer *p = arg;

	for (int i = 0; i < FLOATS; i++)
		p->x[i] = (float)(i + p->node);
	avg_contribute(p->avg, b->epoch, p->samples ? p->x : NULL, p->samples, &p->claimed);
}

static void committed(void *arg, const struct avg_commit *c, const float *mean)
{
	struct apeer *p = arg;

	p->samples = 0;
	ranges_clear(&p->claimed);
	ranges_copy(&p->grant, c->grant);
	avg_point_copy(&p->point, c->point);
	avg_applied(p->avg, c->epoch, (const uint8_t[16]){ (uint8_t)c->epoch });
	if (c->epoch == 2 && p->node == 1)
		avg_propose(p->avg, json_pack("{s:f}", "lr", 0.5), 0, NULL, NULL);
	check(mean[0] == mean[0]);
}

static void failed(void *arg, uint64_t epoch, const struct err *e) { check(e->text[0]); }

static void granted(void *arg, const struct ranges *g)
{
	struct apeer *p = arg;

	ranges_copy(&p->grant, g);
	ranges_sub_all(&p->grant, &p->claimed);
}

static void lost_it(void *arg, enum avg_why why, const struct id *donor, uint64_t epoch)
{
	struct apeer *p = arg;
	struct err e;

	p->follower = true;
	p->samples = 0;
	ranges_clear(&p->claimed);
	ranges_clear(&p->grant);
	check(!avg_enter(p->avg, &p->point, true, &e));
}

static void told(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text) { }
static void forked(void *arg, uint64_t common, uint64_t last) { check(common <= last); }

static void *start(struct env *env, int node, void *arg)
{
	static const struct avg_cb cb = { begun, committed, failed, lost_it, granted, told, forked };
	struct world *w = arg;
	struct apeer *p = xcalloc(1, sizeof *p);
	struct net_conf c = { .seed = { (uint8_t)(node + 1) }, .has_swarm_key = true, .boot_id = (uint64_t)node + 1,
		.self = place(node) };
	struct err e;

	*p = (struct apeer){ .w = w, .env = env, .node = node, .follower = node == w->late };
	p->step = (struct timer){ .fire = step, .name = "test.step" };
	p->net = net_new(env, &c, &e);
	p->chunks = p->net ? chunks_new(env, p->net) : NULL;
	p->avg = p->chunks ? avg_new(env, p->net, p->chunks, NULL, &w->conf, &cb, p, &e) : NULL;
	check(p->avg != NULL);
	avg_point_init(&p->point);
	p->point.params = json_pack("{s:f}", "lr", 0.1);
	for (int i = 0; i < node; i++)
		if (w->p[i]) {
			struct endpoint at = place(i);

			net_learn(p->net, net_self(w->p[i]->net), &at);
			avg_meet(p->avg, net_self(w->p[i]->net));
		}
	check(!avg_enter(p->avg, &p->point, p->follower, &e));
	env_after(env, &p->step, STEP_US);
	w->p[node] = p;
	return p;
}

static void stop(void *app)
{
	struct apeer *p = app;

	p->w->p[p->node] = NULL;
	p->env->ops->detach(p->env);
	env_timer(p->env, &p->step, 0);
	avg_free(p->avg, NULL, NULL);
	chunks_free(p->chunks);
	net_free(p->net);
	avg_point_done(&p->point);
	ranges_free(&p->grant);
	ranges_free(&p->claimed);
	free(p);
}

/* ---- what must hold ---- */

static void ordered(const struct ranges *r)
{
	for (size_t i = 0; i < r->n; i++)
		check(r->v[i].lo < r->v[i].hi && (!i || r->v[i - 1].hi < r->v[i].lo));
}

static void whole(struct apeer *p)
{
	const struct avg *a = p->avg;
	struct avg_view v;
	struct avg_member m[PEERS_MAX];
	json_t *shape = avg_shape(a), *ledger = avg_ledger(p->avg), *point = avg_point_json(&a->point);
	size_t mates = 0;

	check(shape && ledger && point);
	json_decref(shape);
	json_decref(ledger);
	json_decref(point);
	avg_view(p->avg, &v);
	avg_members(p->avg, m, PEERS_MAX);
	ordered(&a->point.done);
	list_each(it, &a->mates) {
		const struct mate *x = list_entry(it, struct mate, link);

		mates++;
		ordered(&x->grant);
		check(x->rate >= 0 && x->rate < 1e300);
	}
	check(mates == a->nmates && mates <= MATES_MAX && v.state);
	check(a->state != AVG_IN || a->me->member);
}

static struct net *net_of(void *arg)
{
	struct apeer *const *p = arg;

	return *p ? (*p)->net : NULL;
}

static void look(struct world *w)
{
	for (int i = 0; i < PEERS_MAX; i++)
		if (w->p[i])
			whole(w->p[i]);
}

static void leader_dies(struct world *w)
{
	for (int i = 0; i < w->n; i++)
		if (w->p[i] && w->p[i]->avg->leader == w->p[i]->avg->me) {
			sim_kill(w->s, i);
			return;
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t how = size ? data[0] : 0;
	struct sim *s = sim_new(1);
	struct world w = { .s = s, .n = 2 + how % 3, .late = -1 };
	struct sim_app app = { start, stop, &w };

	w.conf = (struct avg_conf){ .run = { .b = { 0x42 } }, .target_batch = 16, .len = FLOATS, .data_samples = 1000,
		.part_min = 16, .micro_batch = MICRO, .group_size = how & 4 ? 2 : 0, .slice = 32,
		.topology = how & 8 ? topo_find("moshpit") : NULL };
	if (how & 64)
		w.late = w.n - 1;
	for (int i = 0; i < w.n - (w.late >= 0); i++)
		sim_node_add(s, NULL, &app);
	struct crooked *c = crooked_new(s, net_of, &w.p[(how >> 4 & 3) % w.n], KIND_AVG_JOIN, KIND_AVG_AUDIT,
		size ? data + 1 : data, size ? size - 1 : 0);
	for (int i = 0; i < 20; i++) {
		sim_run_for(s, SLICE_US);
		look(&w);
		if (i == 2 && w.late >= 0)
			sim_node_add(s, NULL, &app);
		if (i == 5 && how & 128)
			leader_dies(&w);
		if (i > 8 && crooked_over(c))
			break;
	}
	sim_free(s);
	crooked_free(c);
	return 0;
}

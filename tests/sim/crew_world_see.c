/* What must hold of crews, whatever dies and whoever lies; looked at whenever a peer begins or stops. Each rule has a
 * planted bug that breaks it (tests/bugs). */
#include <stdio.h>
#include <string.h>
#include "crew/int.h"
#include "crew_world.h"

static int node_of(const struct cworld *w, const struct id *id)
{
	for (int i = 0; i < sim_nodes(w->s); i++)
		if (id_eq(&w->id[i], id))
			return i;
	return -1;
}

const struct cgen *cworld_gen(struct cworld *w, uint64_t number)
{
	for (unsigned i = 0; i < w->gens; i++)
		if (w->gen[i].number == number)
			return &w->gen[i];
	return NULL;
}

/* What this peer's version makes of the view. */
static void digest_of(const struct cworld *w, int node, const struct view *v, uint8_t ret[32])
{
	struct plan plan[CREW_MAX];
	const struct plan *list[CREW_MAX];
	struct profile m = *v->profile;
	struct view mine = *v;
	struct err e;
	m.need_arg = NULL;
	mine.profile = &m;
	memset(ret, 0, 32);
	for (uint32_t r = 0; r < v->nmembers; r++) {
		mine.me = r;
		list[r] = &plan[r];
		if (w->strategy[node]->plan(&mine, NULL, &plan[r], &e)) {
			sim_fail(w->s, "node %d begins what it cannot plan: %s", node, e.text);
			for (uint32_t k = 0; k < r; k++)
				plan_free(&plan[k]);
			return;
		}
	}
	plan_digest_all(list, v->nmembers, ret);
	for (uint32_t r = 0; r < v->nmembers; r++)
		plan_free(&plan[r]);
}

static void one_plan(struct cworld *w, struct cpeer *p, uint64_t number, const struct view *v)
{
	struct cgen g = { .number = number, .n = v->nmembers };
	const struct cgen *known = cworld_gen(w, number);
	digest_of(w, p->node, v, g.digest);
	for (uint32_t r = 0; r < v->nmembers; r++) {
		g.node[r] = node_of(w, &v->member[r].id);
		g.life[r] = g.node[r] >= 0 ? w->lives[g.node[r]] : 0;
	}
	if (known && memcmp(known->digest, g.digest, 32))
		sim_fail(w->s, "node %d begins generation %llu with other plans than others run", p->node,
			(unsigned long long)CREW_COUNT(number));
	if (!known && w->gens < GENS_MAX)
		w->gen[w->gens++] = g;
}

static void computed(struct cworld *w, struct cpeer *p, uint64_t number, uint32_t n)
{
	for (int i = 0; i < 8; i++)
		if (p->generation[i] == number && p->of[i] == n && p->made[i] == (1u << n) - 1)
			return;
	sim_fail(w->s, "node %d begins generation %llu, whose plans it has not computed", p->node,
		(unsigned long long)CREW_COUNT(number));
}

/* Whoever is in it has promised it, and so runs nothing older any more. */
static void nobody_else(struct cworld *w, struct cpeer *p, uint64_t number, const struct view *v)
{
	for (uint32_t r = 0; r < v->nmembers; r++) {
		int node = node_of(w, &v->member[r].id);
		struct cpeer *x = node >= 0 ? cworld_peer(w, node) : NULL;
		if (x && x->running && x->running < number && x != p && node != w->liar)
			sim_fail(w->s, "node %d begins generation %llu while node %d, a member of it, still runs %llu", p->node,
				(unsigned long long)CREW_COUNT(number), node, (unsigned long long)CREW_COUNT(x->running));
	}
}

static void promised_by_all(struct cworld *w, struct cpeer *p, uint64_t number)
{
	const struct deal *d = p->crew->running;
	if (!d || d->o.generation != number || !d->sig || !deal_all_signed(d))
		sim_fail(w->s, "node %d begins generation %llu, which not all its members have promised", p->node,
			(unsigned long long)CREW_COUNT(number));
}

/* Every cut of what was committed last has a holder of whom this peer does not know that it is gone. That somebody has
 * started anew it may not have heard for a second. */
static void all_shards(struct cworld *w, struct cpeer *p, uint64_t number)
{
	const struct cside *side = &w->sides[w->side[p->node]];
	const struct cgen *base = cworld_gen(w, side->base);
	for (uint32_t s = 0; base && s < base->n; s++) {
		bool held = false;
		for (uint32_t k = 0; k < w->redundancy && k < base->n; k++) {
			int node = base->node[(s + k) % base->n];
			bool anew = w->lives[node] != base->life[(s + k) % base->n];
			held = held || (p->live[node] && (!anew || sim_now(w->s) - w->born_us[node] < SEC));
		}
		if (!held)
			sim_fail(w->s, "node %d begins generation %llu, and nobody on its side holds cut %u of %llu", p->node,
				(unsigned long long)CREW_COUNT(number), s, (unsigned long long)CREW_COUNT(side->base));
	}
}

static void begin(void *arg, uint64_t generation, const struct view *v, uint32_t rank)
{
	struct cpeer *p = arg;
	struct cworld *w = p->w;
	if (p->running)
		sim_fail(w->s, "node %d begins generation %llu and still runs %llu", p->node,
			(unsigned long long)CREW_COUNT(generation), (unsigned long long)CREW_COUNT(p->running));
	if (generation <= p->newest)
		sim_fail(w->s, "node %d begins generation %llu after %llu", p->node,
			(unsigned long long)CREW_COUNT(generation), (unsigned long long)CREW_COUNT(p->newest));
	if (v->me != rank || v->generation != generation || !id_eq(&v->member[rank].id, net_self(p->net)))
		sim_fail(w->s, "node %d is told that it is somebody else", p->node);
	computed(w, p, generation, v->nmembers);
	one_plan(w, p, generation, v);
	promised_by_all(w, p, generation);
	nobody_else(w, p, generation, v);
	all_shards(w, p, generation);
	p->running = p->newest = generation;
	p->waits[0] = 0;
	sim_trace(w->s, &generation, sizeof generation);
}

static void stop(void *arg, uint64_t generation)
{
	struct cpeer *p = arg;
	if (p->running != generation)
		sim_fail(p->w->s, "node %d stops generation %llu, which it does not run", p->node,
			(unsigned long long)CREW_COUNT(generation));
	p->running = 0;
	p->stops++;
}

static void waits(void *arg, const struct err *why)
{
	struct cpeer *p = arg;
	snprintf(p->waits, sizeof p->waits, "%s", why->text);
	log_write(p->env->log, LOG_INFO_, "crew", "waits: %s", why->text);
}

static void event(void *arg, enum log_level level, const char *code, const struct id *peer, const char *text)
{
	struct cpeer *p = arg;
	int of = peer ? node_of(p->w, peer) : -1;
	if (of >= 0) {
		p->named[of]++;
		p->odd[of] += !strcmp(code, "crew_other_plans") || !strcmp(code, "crew_cannot");
	}
	log_write(p->env->log, level, "crew", "%s: node %d: %s", code, of, text);
}

void cworld_made(void *who, uint64_t generation, uint32_t rank, uint32_t n)
{
	struct cpeer *p = who;
	if (!p)
		return;
	for (int i = 0; i < 8; i++)
		if (p->generation[i] == generation && p->of[i] == n) {
			p->made[i] = rank ? p->made[i] | 1u << rank : 1;
			return;
		}
	p->generation[p->at % 8] = generation;
	p->of[p->at % 8] = n;
	p->made[p->at++ % 8] = 1u << rank;
}

static void holds(void *arg, uint64_t until_us) { ((struct cpeer *)arg)->holds_us = until_us; }

const struct crew_cb cworld_cb = { .begin = begin, .stop = stop, .waits = waits, .holds = holds, .event = event };

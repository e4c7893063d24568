/* The face: what the owner says is noted and followed at once, from a timer; what follows from it is told. */
#include <stdlib.h>
#include "crew/int.h"

#define FLOOR_US (200 * MS)
#define ROSTER_MAX 4096
#define HOLD_US (1 * SECOND)            /* and what plans take, several times: so long a round waits for an answer */

static void hold_until(struct crew *c, uint64_t us)
{
	if (us != c->holds_us && c->cb.holds)
		c->cb.holds(c->arg, us);
	c->holds_us = us;
}

static bool somebody_waits(const struct crew *c)
{
	list_each(it, &c->mates)
		if (!c->decided || offer_find(&c->decided->o, &list_entry(it, struct mate, link)->id) < 0)
			return true;
	return false;
}

/* Where an epoch takes less time than to ask all members nobody would ever come in. The more often it has come to
 * nothing, with the same peers, the seldomer. */
static void hold(struct crew *c)
{
	bool asks = leads(c) && c->overtaken >> c->futile && somebody_waits(c) && (c->lead || crew_work_under_way(c,
		WORK_CHOOSE)) && !PLANTED(CREW_NO_HOLD);
	hold_until(c, !asks ? 0 : c->holds_us ? c->holds_us : now_of(c) + HOLD_US + 4 * c->plan_us);
}

/* ---- what its owner says ---- */

/* What it has promised will not begin here; whether it has elsewhere, only who leads can say. */
static void promise_void(struct crew *c)
{
	c->unsure = c->unsure || c->promised;
	deal_drop(&c->promised);
}

static void take_roster(struct crew *c)
{
	if (!c->told.is)
		return;
	c->told.is = false;
	if (c->told.epoch != c->epoch) {
		promise_void(c);                /* it stands on another COMMIT */
		hold_until(c, 0);               /* and is over with that epoch */
	}
	if (!id_eq(&c->leader, &c->told.leader)) {
		c->asks = 0;
		memset(c->judged.set, 0, CREW_DIGEST);
	}
	roster_follow(c);
}

/* It stands on what was before a COMMIT of one that it was to follow. All see that, and nobody goes on in it. */
static void outrun(struct crew *c, uint64_t number)
{
	const struct deal *d = c->decided;
	if (!d || number >= d->o.generation || c->told_commit_epoch <= d->o.epoch || PLANTED(CREW_OUTRUN))
		return;
	c->unsure = true;
	if (c->running == d)
		crew_stop_running(c, "the one before has committed since");
}

static void take_commit(struct crew *c)
{
	uint64_t number = c->told_commit;
	c->told_commit = 0;
	if (!number || number < c->base_number)
		return;
	outrun(c, number);
	c->commits++;
	c->committed = true;
	c->commit_us = now_of(c);
	bench_calmer(c);
	if (number == c->base_number)
		return;
	c->base_number = number;
	c->seen = number > c->seen && !PLANTED(CREW_BASE_UNSEEN) ? number : c->seen;
	deal_set(&c->base, deal_known(c, number));
}

static void step(struct crew *c)
{
	struct err e;
	take_commit(c);
	take_roster(c);
	if (c->running && !deal_unit_of(c, c->running, (uint32_t)offer_find(&c->running->o, &c->me)))
		crew_stop_running(c, c->in ? "a member of it is gone" : "this peer takes no part any more");
	if (c->promised && !deal_whole(c, c->promised))
		promise_void(c);
	if (c->in && !(c->decided && deal_goes_on(c, c->decided)))
		crew_since(c);
	need_step(c);
	crew_ask_step(c);
	hold(c);
	if (c->in && id_zero(&c->leader) && !c->running) {
		err_set(&e, ERR_STATE, "nobody leads");
		crew_waits(c, &e);
	}
}

static void kicked(struct timer *t)
{
	step(container_of(t, struct crew, kick));
}

static void ticked(struct timer *t)
{
	struct crew *c = container_of(t, struct crew, tick);
	c->tick_us = 0;
	step(c);
}

/* ---- the face ---- */

static void draw_life(struct crew *c)
{
	c->life = 0;
	while (!c->life)
		c->env->ops->secure(c->env, &c->life, sizeof c->life);
}

struct crew *crew_new(struct env *env, struct net *net, const struct crew_conf *conf, const struct crew_cb *cb,
	void *arg, struct err *e)
{
	struct crew *c = xcalloc(1, sizeof *c);
	c->env = env;
	c->net = net;
	c->conf = *conf;
	c->cb = *cb;
	c->arg = arg;
	c->me = *net_self(net);
	id_hex(&conf->run, c->hex);
	list_init(&c->mates);
	list_init(&c->gos);
	c->by_id = map_new(env_rand(env));
	c->kick = (struct timer){ .fire = kicked, .name = "crew.kick" };
	c->tick = (struct timer){ .fire = ticked, .name = "crew.tick" };
	draw_life(c);
	c->conf.speed = conf->speed > 0 ? conf->speed : 1;
	c->conf.floor_us = conf->floor_us ? conf->floor_us : FLOOR_US;
	c->redundancy = conf->view.redundancy ? conf->view.redundancy : conf->strategy->redundancy;
	c->redundancy = c->redundancy ? c->redundancy : 1;
	if (c->redundancy > CREW_REDUNDANCY_MAX || c->conf.speed > CREW_SPEED_MAX || c->conf.speed < 1 / CREW_SPEED_MAX)
		err_set(e, ERR_INVALID, "redundancy is at most %d, a speed between 1e-6 and 1e6", CREW_REDUNDANCY_MAX);
	else if (!crew_hub_enter(c, e))
		return c;
	map_free(c->by_id);
	free(c);
	return NULL;
}

void crew_free(struct crew *c, void (*gone)(void *arg), void *arg)
{
	env_timer(c->env, &c->kick, 0);
	env_timer(c->env, &c->tick, 0);
	member_drop(c);
	crew_lead_free(c);
	crew_hub_leave(c);
	roster_free(c);
	crew_work_leave(c, gone, arg);
	running_free(c);
	deal_drop(&c->base);
	deal_drop(&c->decided);
	deal_drop(&c->promised);
	deal_drop(&c->computed);
	for (unsigned i = 0; i < PAST; i++)
		deal_drop(&c->past[i]);
	free(c->told.live);
	free(c->told.gone);
	free(c);
}

void crew_live_on(struct crew *c, uint64_t life)
{
	crew_stop_running(c, "this peer holds nothing any more");
	if (c->promised)
		promise_void(c);
	if (life)
		c->life = life;
	else
		draw_life(c);
	crew_kick(c);
}

uint64_t crew_base(const struct crew *c) { return c->base_number; }

size_t crew_base_members(const struct crew *c, struct id *ret, size_t max)
{
	const struct deal *d = c->base_number ? deal_known(c, c->base_number) : NULL;
	size_t n = d && d->o.n < max ? d->o.n : d ? max : 0;
	for (size_t i = 0; i < n; i++)
		ret[i] = d->o.m[i].id;
	return n;
}

bool crew_names(const struct crew *c, const struct id *id)
{
	const struct deal *of[] = { c->running, c->decided, c->promised, c->base };
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (of[i] && offer_find(&of[i]->o, id) >= 0)
			return true;
	return false;
}

uint64_t crew_life(const struct crew *c) { return c->life; }

void crew_roster(struct crew *c, const struct crew_roster *r)
{
	uint32_t n = r->n < ROSTER_MAX ? r->n : ROSTER_MAX;
	free(c->told.live);
	c->told.is = true;
	c->told.epoch = r->epoch;
	c->told.target = r->target;
	c->told.term = r->term;
	c->told.leader = r->leader;
	c->told.n = n;
	c->told.live = n ? xmemdup(r->live, n * sizeof *r->live) : NULL;
	free(c->told.gone);
	c->told.ngone = r->ngone < ROSTER_MAX ? r->ngone : ROSTER_MAX;
	c->told.gone = c->told.ngone ? xmemdup(r->gone, c->told.ngone * sizeof *r->gone) : NULL;
	crew_kick(c);
}

void crew_commit(struct crew *c, uint64_t generation, uint64_t epoch)
{
	c->told_commit = generation;
	c->told_commit_epoch = epoch;
	crew_kick(c);
}

void crew_fail(struct crew *c, uint64_t generation)
{
	if (deal_number(c->running) != generation || !generation)
		return;
	crew_stop_running(c, "this peer cannot go on in it");
	crew_kick(c);                           /* who leads hears of it from this peer's next question */
}

static json_t *members_json(const struct crew *c, const struct deal *d)
{
	const struct offer *o = &d->o;
	uint32_t unit[CREW_MEMBERS_MAX];
	json_t *list = json_array();
	char hex[ID_HEX];
	deal_units(c, d, unit);
	for (uint32_t i = 0; i < o->n; i++) {
		id_hex(&o->m[i].id, hex);
		json_array_append_new(list, json_pack("{s:s,s:I,s:o,s:f,s:I}", "peer", hex, "rank", (json_int_t)i, "unit",
			unit[i] == PLAN_NO_UNIT ? json_null() : json_integer(unit[i]), "speed", o->m[i].speed, "memory_bytes",
			(json_int_t)o->m[i].memory_bytes));
	}
	return list;
}

json_t *crew_json(const struct crew *c)
{
	static const char *const why[] = {
#define X(n) #n,
		CREW_REFUSALS(X)
#undef X
	};
	const struct deal *d = c->decided;
	int rank = d ? deal_rank(c, d) : -1;
	json_t *refused = json_object();
	for (int i = 0; i < REFUSALS; i++)
		json_object_set_new(refused, why[i], json_integer((json_int_t)c->refused[i]));
	uint32_t others = 0;
	list_each(it, &c->mates)
		others += !d || offer_find(&d->o, &list_entry(it, struct mate, link)->id) < 0;
	return json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:o,s:o}",
		"generation", d ? json_integer((json_int_t)CREW_COUNT(d->o.generation)) : json_null(),
		"members", d ? members_json(c, d) : json_array(),
		"rank", rank >= 0 && c->running == d ? json_integer(rank) : json_null(),
		"redundancy", d ? json_integer(d->o.redundancy) : json_null(),
		"spares", (json_int_t)(others + (c->in && rank < 0)),
		"replans", (json_int_t)c->replans, "replan_us", (json_int_t)c->replan_us,
		"replan_us_longest", (json_int_t)c->replan_longest_us, "plan_us", (json_int_t)c->plan_us,
		"waits", c->waits ? json_string(c->why.text) : json_null(), "refused", refused);
}


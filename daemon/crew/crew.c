/* The face: what the owner says is noted and followed at once, from a timer; what follows from it is told. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/text.h"
#include "crew/int.h"

#define FLOOR_US (200 * MS)
#define ROSTER_MAX 4096
#define CARE_MOST 8                     /* in either direction */

/* ---- what the owner hears ---- */

void crew_say(struct crew *c, enum log_level level, const char *code, const struct id *peer, const char *fmt, ...)
{
	char text[320];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	text_clean(text);                       /* perhaps some of it is another peer's */
	if (c->cb.event)
		c->cb.event(c->arg, level, code, peer, text);
}

void crew_waits(struct crew *c, const struct err *why)
{
	bool news = why && (!c->waits || strcmp(why->text, c->why.text));
	c->waits = why != NULL;
	if (why)
		c->why = *why;
	if (news && c->cb.waits)
		c->cb.waits(c->arg, why);
}

void crew_since(struct crew *c)
{
	if (!c->since_us)
		c->since_us = now_of(c);
}

static void decided(struct crew *c, struct deal *d)
{
	deal_set(&c->decided, d);
	deal_set(&c->past[c->npast++ % PAST], d);
	c->decided_us = now_of(c);
	if (d->o.generation == c->base_number)
		deal_set(&c->base, d);
	c->unsure = c->unsure && d->o.generation < c->seen;
}

/* The time that it has taken to agree, from the death or the COMMIT to the go. */
static void agreed(struct crew *c)
{
	c->replans++;
	c->replan_us = c->since_us ? now_of(c) - c->since_us : 0;
	c->replan_longest_us = c->replan_us > c->replan_longest_us ? c->replan_us : c->replan_longest_us;
	c->since_us = 0;
	c->tries = 0;
	crew_waits(c, NULL);
}

/* ---- generations begin and end ---- */

/* Nothing goes on without any of them, and silence must be noticed: by those who stand next to it in order. */
static void care(const struct crew *c, const struct deal *d, int delta)
{
	uint32_t n = d->o.n, me = (uint32_t)offer_find(&d->o, &c->me);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t off = i > me ? i - me : me - i;
		if (off && (off <= CARE_MOST || n - off <= CARE_MOST))
			net_care(c->net, &d->o.m[i].id, delta);
	}
}

void crew_stop_running(struct crew *c, const char *why)
{
	struct deal *d = c->running;
	if (!d)
		return;
	c->running = NULL;
	care(c, d, -1);
	crew_since(c);
	crew_say(c, LOG_INFO_, "crew_stops", NULL, "generation %llu is over here: %s", (unsigned long long)CREW_COUNT(
		d->o.generation), why);
	c->cb.stop(c->arg, d->o.generation);
	free(c->members);
	c->members = NULL;
	deal_drop(&d);
}

void crew_begin_deal(struct crew *c, struct deal *d)
{
	int rank = deal_rank(c, d);
	if (rank < 0 || !c->in || !deal_whole(c, d) || c->promised != d)
		return;
	MARK(c, "crew.begin.before");
	if (!PLANTED(CREW_RUNS_ON))
		crew_stop_running(c, "the next one begins");
	decided(c, d);
	deal_set(&c->running, d);
	care(c, d, 1);
	deal_drop(&c->promised);
	c->members = view_members(&d->o);
	if (PLANTED(CREW_OWN_ORDER) && d->o.n > 2) {
		struct view_member *x = &c->members[(rank + 1) % (int)d->o.n], was = *x;
		*x = c->members[(rank + 2) % (int)d->o.n];
		c->members[(rank + 2) % (int)d->o.n] = was;
	}
	c->view = view_of(&c->conf.view, &d->o, c->members, (uint32_t)rank);
	c->view.values = d->found.values ? d->found.values : c->view.values;
	agreed(c);
	crew_say(c, d->o.redundancy < c->redundancy ? LOG_WARN_ : LOG_INFO_, "crew_begins", NULL, "generation %llu of %u "
		"members, this peer is number %d%s", (unsigned long long)CREW_COUNT(d->o.generation), d->o.n, rank,
		d->o.redundancy < c->redundancy ? "; degraded: fewer copies of the state than wished" : "");
	c->cb.begin(c->arg, d->o.generation, &c->view, (uint32_t)rank);
	MARK(c, "crew.begin.after");
	crew_kick(c);
}

void crew_adopt(struct crew *c, struct deal *d)
{
	if (d->o.generation <= deal_number(c->decided))
		return;
	if (c->promised && c->promised->o.generation <= d->o.generation)
		deal_drop(&c->promised);
	c->seen = d->o.generation > c->seen ? d->o.generation : c->seen;
	crew_stop_running(c, "others have begun the next one");
	decided(c, d);
	agreed(c);
	if (c->cb.others) {
		struct view_member *m = view_members(&d->o);
		struct view v = view_of(&c->conf.view, &d->o, m, 0);
		c->cb.others(c->arg, d->o.generation, &v);
		free(m);
	}
	crew_kick(c);
}

/* ---- the roster ---- */

struct mate *mate_of(const struct crew *c, const struct id *id)
{
	return map_get(c->by_id, id->b, sizeof id->b);
}

static void mate_free(struct crew *c, struct mate *m)
{
	map_del(c->by_id, m->id.b, sizeof m->id.b);
	list_del(&m->link);
	c->nmates--;
	crew_ask_free(m);
	free(m);
}

static struct mate *mate_lives(struct crew *c, const struct id *id)
{
	struct mate *m = mate_of(c, id);
	if (!m) {
		m = xcalloc(1, sizeof *m);
		m->c = c;
		m->id = *id;
		list_push(&c->mates, &m->link);
		map_put(c->by_id, m->id.b, sizeof m->id.b, m);
		c->nmates++;
	}
	m->live = true;
	return m;
}

static bool known_gone(const struct crew *c, const struct id *id)
{
	for (uint32_t i = 0; i < c->told.ngone; i++)
		if (id_eq(&c->told.gone[i], id))
			return true;
	return false;
}

void crew_hearsay(struct crew *c, const struct deal *d)
{
	for (uint32_t i = 0; i < d->o.n && !c->running; i++) {       /* nobody stops for somebody it does not know */
		const struct id *id = &d->o.m[i].id;
		if (!id_eq(id, &c->me) && !mate_of(c, id) && !known_gone(c, id))
			mate_lives(c, id)->hearsay = true;
	}
}

/* Until the next COMMIT, which names everybody, and as long as it is the same who says so; or since it has signed what
 * runs here, whoever leads. */
static bool still_said(const struct crew *c, const struct mate *m, bool led)
{
	bool signs = c->running && offer_find(&c->running->o, &m->id) >= 0;
	return m->hearsay && c->told.epoch == c->epoch && (led || signs) && !known_gone(c, &m->id);
}

/* Whoever leads next hears of who starts anew; what is known here grows old. */
static void forget_cards(struct crew *c)
{
	list_each(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->known = false;
		m->asked_us = m->bench = 0;
		m->late = 0;
	}
}

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
	bool led = id_eq(&c->leader, &c->told.leader);
	if (c->told.epoch != c->epoch)
		promise_void(c);                /* it stands on another COMMIT */
	if (!led) {
		c->asks = 0;
		memset(c->judged.set, 0, CREW_DIGEST);
	}
	c->epoch = c->told.epoch;
	c->term = c->told.term;
	c->target = c->told.target;
	c->leader = c->told.leader;
	c->in = false;
	list_each(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->live = still_said(c, m, led);
	}
	for (uint32_t i = 0; i < c->told.n; i++) {
		if (id_eq(&c->told.live[i], &c->me))
			c->in = true;
		else
			mate_lives(c, &c->told.live[i])->hearsay = false;
	}
	list_each_safe(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (!m->live)
			mate_free(c, m);
	}
	if (!leads(c))
		forget_cards(c);
}

static void take_commit(struct crew *c)
{
	uint64_t number = c->told_commit;
	c->told_commit = 0;
	if (!number || number < c->base_number)
		return;
	c->commits++;
	c->committed = true;
	c->commit_us = now_of(c);
	need_calmer(c);
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

void crew_kick(struct crew *c)
{
	env_after(c->env, &c->kick, 1);
}

void crew_tick_at(struct crew *c, uint64_t us)
{
	uint64_t at = now_of(c) + us;
	if (c->tick_us && c->tick_us <= at)
		return;
	c->tick_us = at;
	env_timer(c->env, &c->tick, at);
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
	list_each_safe(it, &c->mates)
		mate_free(c, list_entry(it, struct mate, link));
	map_free(c->by_id);
	crew_work_leave(c, gone, arg);
	if (c->running)
		care(c, c->running, -1);
	deal_drop(&c->base);
	deal_drop(&c->decided);
	deal_drop(&c->promised);
	deal_drop(&c->running);
	deal_drop(&c->computed);
	for (unsigned i = 0; i < PAST; i++)
		deal_drop(&c->past[i]);
	free(c->members);
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

void crew_commit(struct crew *c, uint64_t generation)
{
	c->told_commit = generation;
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


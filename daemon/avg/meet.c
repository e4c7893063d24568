/* Rendezvous: who may be in the run comes from the DHT record run:<hex>:peers (one signed subkey a peer), from welcomes
 * and from avg_meet. A joiner asks one after the other; a leader asks those that it has lost, so that halves find
 * each other again. A peer that finds nobody leads itself at once. */
#include <string.h>
#include <stdlib.h>
#include "avg/int.h"
#include "common/jrpc.h"

#define RECORD_MS 60000
#define TICK_US (100 * MS)
#define PUT_US SECOND
#define LOOK_FIRST_US (20 * MS)                 /* of one who finds nobody: then twice as long each time, up to */
#define LOOK_ALONE_US SECOND
#define LOOK_US (10 * SECOND)
#define PATIENCE_US (20 * SECOND)               /* of a peer that others answer but nobody takes in */
#define SLOW_US (200 * MS)
#define EXPECT_US (10 * SECOND)
#define PROBES 4                                /* JOINs of a leader at one time */

struct look { struct avg *a; };

bool avg_peer_of(struct net *net, const struct record *r, struct id *ret)
{
	struct endpoint at;
	json_t *other;
	size_t i;
	if (!r->is_signed || id_eq(&r->owner, net_self(net)) || !endpoint_of(r->value, "at", &at))
		return false;
	*ret = r->owner;
	if (at.port[0] || at.port[CHAN_DOOR])
		net_learn(net, ret, &at);
	json_array_foreach(json_object_get(r->value, "also"), i, other)
		if (i < NET_ALSO && endpoint_of(other, "at", &at))
			net_learn_also(net, ret, &at);
	return true;
}

static void learn(struct avg *a, const struct record *r)
{
	struct id id;
	if (!avg_peer_of(a->net, r, &id))
		return;
	struct mate *m = mate_make(a, &id);
	if (m && !m->member && !m->live && !m->probe_us) {
		m->live = true;
		m->absent[0] = 0;
	}
}

static void looked(void *arg, const struct record *r, size_t n, const struct err *e)
{
	struct look *l = arg;
	struct avg *a = l->a;
	free(l);
	if (!a)
		return;
	a->look = NULL;
	a->looks++;
	for (size_t i = 0; i < n; i++)
		learn(a, &r[i]);
	kick(a);
	env_after(a->env, &a->meet, 1);
}

static void publish(struct avg *a)
{
	struct endpoint also[NET_ALSO];
	char self[ID_HEX];
	if (!a->dht || now_of(a) < a->put_us)
		return;
	a->put_us = now_of(a) + PUT_US;
	if (a->put_epoch == a->point.epoch + 1 && a->put_samples == a->samples)
		return;                         /* nothing new; the DHT keeps the last one alive */
	a->put_epoch = a->point.epoch + 1;
	a->put_samples = a->samples;
	id_hex(&a->me->id, self);
	json_t *v = json_pack("{s:I,s:I,s:f}", "epoch", (json_int_t)a->point.epoch, "samples", (json_int_t)a->samples,
		"rate", a->rate);
	json_object_set_new(v, "at", json_endpoint(net_endpoint(a->net)));
	unsigned n = net_also(a->net, &a->me->id, also);
	if (n)
		json_object_set_new(v, "also", json_array());
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(json_object_get(v, "also"), json_pack("{s:o}", "at", json_endpoint(&also[i])));
	dht_keep(a->dht, a->key, self, v, RECORD_MS, true);
}

static void look(struct avg *a)
{
	if (!a->dht || a->look || now_of(a) < a->look_us)
		return;
	bool lonely = a->state == AVG_JOINING || roster_others(a, false) == 0;
	uint64_t us = LOOK_FIRST_US << (a->lonely < 8 ? a->lonely : 8);
	a->lonely = lonely ? a->lonely + 1 : 0;
	a->look_us = now_of(a) + (!lonely ? LOOK_US : us < LOOK_ALONE_US ? us : LOOK_ALONE_US);
	a->look = xcalloc(1, sizeof *a->look);
	a->look->a = a;
	dht_get(a->dht, a->key, !a->looks, looked, a->look);
}

/* The dead come later, but their turn comes: they may be back. */
static uint64_t turn_us(const struct mate *m)
{
	return m->live ? m->probe_us : m->probe_us + SECOND;
}

/* The best one to ask now: not asked already, not waiting for its back-off; who has waited longest, else who would
 * lead, comes first. A member that lives and does not report may report to another leader: it is as good as a
 * stranger. */
static struct mate *candidate(struct avg *a, bool strangers_only)
{
	struct mate *best = NULL;
	uint64_t now = now_of(a);
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m == a->me || m->join || m->probe_us > now || (strangers_only && m->member && m->live && !m->silent))
			continue;
		uint64_t turn = turn_us(m), first = best ? turn_us(best) : UINT64_MAX;
		if (turn < first || (turn == first && memcmp(m->order, best->order, 32) < 0))
			best = m;
	}
	return best;
}

static void join_some(struct avg *a)
{
	size_t asked = 0, slow = 0, known = 0, untried = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		asked += m->join != NULL;
		slow += m->join && now_of(a) - m->asked_us > SLOW_US;
		known += m != a->me;
		untried += m != a->me && !m->backoff_us;
	}
	bool may_lead = !a->follower && !untried && !(a->dht && !a->looks) && !a->turned_away && !door_full(a);
	bool patient = may_lead && now_of(a) - a->enter_us <= PATIENCE_US;
	/* One at a time, unless it takes long: the dead must not keep the living from being asked. */
	struct mate *m = (patient || !may_lead) && asked == slow && asked < PROBES ? candidate(a, false) : NULL;
	if (m) {
		a->hops = 0;
		join_start(a, m);
		return;
	}
	if (!may_lead || (patient && asked))
		return;
	/* Everybody known was asked and none of them took us in: unreachable, in another run, or not ready. While anybody
	 * of the run answers, going on alone would only make a second history. */
	uint64_t now = now_of(a), since = a->heard_us > a->enter_us ? a->heard_us : a->enter_us;
	if (!known || a->unreachable >= known || now - since > SECOND || !patient)
		become_leader_alone(a);
}

/* It has just come, and is asking another, who may lead already: whoever leads meanwhile makes a second history. Of
 * peers that come together and ask each other in a ring, the first to have been here for long enough leads. */
bool meet_asks(const struct avg *a, const struct mate *but)
{
	if (now_of(a) - a->enter_us > SLOW_US || PLANTED(LEADS_ASKING))
		return false;
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		if (m != but && m->join)
			return true;
	}
	return false;
}

static void probe(struct avg *a)
{
	size_t asked = 0;
	list_each(it, &a->mates)
		asked += list_entry(it, struct mate, link)->join != NULL;
	while (asked++ < PROBES) {
		struct mate *m = candidate(a, true);
		if (!m)
			return;
		join_start(a, m);
	}
}

void avg_expect(struct avg *a, uint32_t members)
{
	a->expects = members > 1 ? members : 0;
	a->expects_until_us = now_of(a) + EXPECT_US;
}

bool meet_expects(struct avg *a)
{
	size_t here = roster_others(a, true) + 1;
	if (!a->expects || a->n_last || here >= a->expects || now_of(a) >= a->expects_until_us) {
		a->expects = 0;
		return false;
	}
	if (a->expects_until_us - now_of(a) + SECOND < EXPECT_US && a->expects_told_us < a->expects_until_us) {
		a->expects_told_us = a->expects_until_us;
		hub_event(a, LOG_INFO_, "restart", NULL, "%zu of the last epoch's %u members are here: the others are waited "
			"for, one of them may have a newer state", here, a->expects);
	}
	return true;
}

void meet_fire(struct timer *t)
{
	struct avg *a = container_of(t, struct avg, meet);
	if (now_of(a) - a->awake_us > SLEPT_US)
		a->woke_us = now_of(a);
	a->awake_us = now_of(a);
	env_after(a->env, &a->meet, TICK_US + env_rand(a->env) % (TICK_US / 4));
	if (a->state == AVG_OUT || a->state == AVG_LOST || a->leaving)
		return;
	publish(a);
	look(a);
	if (a->dht && a->lonely && a->look_us > now_of(a) && a->look_us < a->meet.at_us)
		env_timer(a->env, &a->meet, a->look_us);
	if (a->state == AVG_JOINING) {
		join_some(a);
		if (a->state == AVG_JOINING)    /* answers come in milliseconds: do not sleep over them */
			env_after(a->env, &a->meet, 10 * MS);
		return;
	}
	if (!a->round && !a->recover && is_leader(a))
		probe(a);
	join_caught_up(a);
	if (!a->leader || (a->follower && is_leader(a)))
		a->state = AVG_JOINING;
}

static const struct dht_field peers_fields[] = { { "epoch", DHT_COUNT, false }, { "samples", DHT_COUNT, false },
	{ "rate", DHT_NUMBER, false }, { 0 } };
static const struct dht_schema peers_rule = { "peers of a run", true, RECORD_MS, peers_fields };

void meet_init(struct avg *a)
{
	if (a->dht)
		dht_expect(a->dht, a->key, &peers_rule);
}

void meet_stop(struct avg *a)
{
	char self[ID_HEX];
	env_timer(a->env, &a->meet, 0);
	if (a->look)
		a->look->a = NULL;
	a->look = NULL;
	if (a->dht && a->me) {
		id_hex(&a->me->id, self);
		dht_unkeep(a->dht, a->key, self);
		dht_unexpect(a->dht, a->key, &peers_rule);
	}
}

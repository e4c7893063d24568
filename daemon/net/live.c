/* Is a peer there? Silence alone says little: a socket that breaks is a hint (maybe_dead), a ping that is not answered
 * within three round trips settles it. Peers that somebody cares about are looked at every 5 ms and pinged
 * when they have been silent, because power loss and partitions say nothing at all. */
#include <stdlib.h>
#include <string.h>
#include "net/inner.h"

#define CARE_US (5 * MS)
#define PROBE_MIN_US (60 * MS)                  /* room for one reconnect */
#define SECOND_MIN_US (500 * MS)                /* the second ping, on a socket that is connected again */
#define LINK_AGAIN_US (1 * SECOND)
#define SILENCE_US (500 * MS)                   /* then a cared-for peer is pinged */
#define SILENCE_PROBE_US (1 * SECOND)
#define LOOK_US (5 * SECOND)                    /* an operator looks: who has been silent so long is asked */
#define LEAVING_US (3 * SECOND)
#define MISSES_FRESH 2
#define MEND_US (300 * MS)                      /* what TCP needs to send a frame again, and that again: */
#define MEND_TRIPS 7                            /* so many round trips more; */
#define MEND_UNKNOWN_US (1 * SECOND)            /* or this, as long as none has been measured */
#define MISSES_DEAD 5

/* ---- news ---- */

void live_news(struct peer *p, enum net_news what)
{
	struct net *n = p->net;
	struct id id = p->id;

	p->pins++;                              /* a watcher may learn of other peers */
	for (size_t i = 0; i < n->nwatches; i++)
		if (n->watches[i].fn)
			n->watches[i].fn(n->watches[i].arg, &id, what);
	p->pins--;
}

void live_heard(struct peer *p)
{
	enum life was = p->life;

	if (was == LIFE_LEFT && env_now(p->net->env) - p->left_us < LEAVING_US)
		return;                         /* its last answers, behind its goodbye */
	p->heard_us = env_now(p->net->env);
	p->misses = 0;
	p->fresh_backoff_us = FRESH_MIN_US;
	p->life = LIFE_ALIVE;
	if (was == LIFE_DEAD || was == LIFE_LEFT)
		live_news(p, NEWS_ALIVE);
}

void live_dead(struct peer *p, const char *why)
{
	struct err e;
	char who[9];

	if (p->life == LIFE_DEAD || p->life == LIFE_LEFT)
		return;
	p->life = LIFE_DEAD;
	p->failures++;
	list_each(it, &p->sessions)             /* whoever comes back may be a new process: HELLO first */
		list_entry(it, struct session, link)->doubted = true;
	log_write(p->net->env->log, LOG_INFO_, "net", "peer %s looks dead: %s", id_short(&p->id, who), why);
	err_set(&e, ERR_UNREACHABLE, "peer %s looks dead: %s", who, why);
	rpc_end_peer(p, false, &e);
	live_news(p, NEWS_DEAD);
}

void live_left(struct peer *p)
{
	struct err e;
	char who[9];

	if (p->life == LIFE_LEFT)
		return;
	p->life = LIFE_LEFT;
	p->left_us = env_now(p->net->env);
	err_set(&e, ERR_UNREACHABLE, "peer %s has said goodbye", id_short(&p->id, who));
	rpc_end_peer(p, false, &e);
	live_news(p, NEWS_GOODBYE);
}

void peer_cut(struct peer *p, const struct err *e, const char *why)
{
	p->pins++;
	rpc_end_peer(p, false, e);
	out_drop_waiting(p, UINT64_MAX);
	peer_drop_sessions(p);
	live_dead(p, why);
	p->pins--;
}

/* ---- asking ---- */

static bool link_now(struct peer *p, struct linkinfo *ret)
{
	memset(ret, 0, sizeof *ret);
	/* Of an address that it only claims nothing is to be seen in what we say to it. */
	if (p->at_level == AT_NONE || p->at_level == AT_CLAIMED || !p->net->env->ops->linkinfo(p->net->env, &p->at, ret))
		return false;
	if (ret->connected)
		p->up_us = env_now(p->net->env);
	return true;
}

static bool looks_broken(struct peer *p)
{
	struct linkinfo li;

	return link_now(p, &li) && li.maybe_dead;
}

void live_probe_done(void *arg, const struct frame *answer, const struct err *e)
{
	struct probe *q = arg, was = *q;
	struct peer *p = peer_find(q->net, &q->id);
	struct linkinfo li;

	if (p)
		p->probe_of = NULL;
	free(q);
	/* Anything heard since counts as an answer; so does a refusal. Another end of the call (ban, restart) says
	 * nothing. */
	if (!p || !e || (e->code != ERR_TIMEOUT && e->code != ERR_UNREACHABLE) || p->heard_us > was.asked_us)
		return;
	/* A socket has been connected since, so a process is there: the ping may have died with the next connection. */
	link_now(p, &li);
	if (!was.second && p->up_us > was.asked_us) {
		uint64_t us = 6 * p->rtt[0].smooth_us;

		hello_start(p);
		rpc_probe_second(p, us > SECOND_MIN_US ? us : SECOND_MIN_US);
		return;
	}
	live_dead(p, "a ping was not answered");
}

/* Three round trips of an idle link: what waited in front of the ping has gone with the connection. */
static uint64_t probe_deadline(const struct peer *p)
{
	uint64_t us = 3 * p->rtt_min_us;

	return us > PROBE_MIN_US ? us : PROBE_MIN_US;
}

/* A lost frame holds up all behind it: a probe goes after two round trips (RFC 8985, 7.2), a retransmission when the
 * estimate is over (RFC 6298), twice as long after the next. Who tears the connection down meanwhile loses all that is
 * in it, other calls and bulk. Less when there are other addresses to try. */
static uint64_t mending(const struct peer *p)
{
	if (!p->rtt[0].samples)
		return MEND_UNKNOWN_US;
	return (p->also.n ? 0 : MEND_US) + MEND_TRIPS * p->rtt[0].smooth_us;
}

/* With a new HELLO by them. */
static void fresh_sockets(struct peer *p, uint64_t now)
{
	p->fresh_us = now + (p->fresh_backoff_us > mending(p) ? p->fresh_backoff_us : mending(p));
	p->fresh_backoff_us = 2 * p->fresh_backoff_us < FRESH_MAX_US ? 2 * p->fresh_backoff_us : FRESH_MAX_US;
	/* Else it takes fresh ones itself, and may have just spoken by these. */
	if (!p->hello || p->hello->what == FOR_PROOF) {
		p->torn = true;
		if (p->at_level != AT_NONE)
			p->net->env->ops->close_link(p->net->env, &p->at, false);
	}
	hello_start(p);
}

/* It speaks, by another connection: what waits for one that was begun while it could not be reached would wait for
 * TCP's next SYN. */
static void unstick(struct peer *p, uint64_t now)
{
	struct linkinfo li;

	if (now >= p->fresh_us && link_now(p, &li) && li.waits_us >= STUCK_US)
		fresh_sockets(p, now);
}

/* A frame had no answer in its time. Two of them, and TCP has had the time to mend what can be mended: the peer gets
 * fresh sockets and a new HELLO. */
void live_missed(struct peer *p, uint64_t since_us)
{
	uint64_t now = env_now(p->net->env);

	if (p->heard_us >= since_us && p->heard_us) {
		unstick(p, now);
		return;
	}
	if (!p->misses++)
		p->missed_us = since_us;
	if (looks_broken(p)) {
		rpc_probe(p, probe_deadline(p));
		hello_start(p);                 /* it may be a new process that knows nothing of our session */
	}
	if (p->misses < MISSES_FRESH)
		return;
	/* The door connection that it had made may be gone: dial it instead. One answer may have been dropped by a door. */
	if (!p->client)
		p->door_token = 0;
	/* Taken for one that only dials out because it could not be reached for a while; it may think the same of us. */
	if (p->client && p->at.port[CHAN_CTRL]) {
		p->client = p->mailbox = false;
		p->door_token = 0;
	}
	if (now < p->fresh_us || now < p->missed_us + mending(p))
		return;
	fresh_sockets(p, now);
	if (p->misses >= MISSES_DEAD && p->missed_us + 3 * SECOND < now)
		live_dead(p, "nothing has come from it for more than 3 s");
}

/* Without a socket of ours to it nothing would show its death: a ping makes one. */
static bool needs_link(struct peer *p, uint64_t now)
{
	struct linkinfo li;

	if (p->client || p->net->conf.client || p->at_level == AT_NONE || now < p->link_next_us || link_now(p, &li))
		return false;
	p->link_next_us = now + LINK_AGAIN_US;
	return true;
}

static void look_at(struct peer *p, uint64_t now)
{
	bool broken = looks_broken(p), mended = p->broken && !broken;

	p->broken = broken;
	if (p->life == LIFE_DEAD || p->life == LIFE_LEFT)
		return;
	if (mended)
		rpc_hurry(p, true);
	if (broken)
		rpc_probe(p, probe_deadline(p));
	else if (needs_link(p, now) || now - p->heard_us > SILENCE_US)
		rpc_probe(p, SILENCE_PROBE_US > 3 * p->rtt[0].smooth_us ? SILENCE_PROBE_US : 3 * p->rtt[0].smooth_us);
}

void live_care_fire(struct timer *t)
{
	struct net *n = container_of(t, struct net, care_timer);
	uint64_t now = env_now(n->env);

	if (list_empty(&n->care_list))
		return;
	list_each_safe(it, &n->care_list)       /* looking tells nobody anything at once: the list stays as it is */
		look_at(list_entry(it, struct peer, care_link), now);
	env_after(n->env, &n->care_timer, CARE_US);
}

void net_look(struct net *n, const struct id *peer)
{
	struct peer *p = peer_find(n, peer);

	if (p && !p->care && env_now(n->env) - p->heard_us > LOOK_US)
		rpc_probe(p, SILENCE_PROBE_US > 3 * p->rtt[0].smooth_us ? SILENCE_PROBE_US : 3 * p->rtt[0].smooth_us);
}

void net_care(struct net *n, const struct id *peer, int delta)
{
	struct peer *p = delta > 0 ? peer_make(n, peer) : peer_find(n, peer);

	if (!p)
		return;
	p->care += delta;
	list_del(&p->care_link);
	if (p->care > 0)
		list_push(&n->care_list, &p->care_link);
	if (!list_empty(&n->care_list) && !n->care_timer.at_us)
		env_after(n->env, &n->care_timer, CARE_US);
}

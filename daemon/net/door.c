/* Through this daemon's own door, to peers that only dial out. Raw REP drops what finds its pipe busy, so what is
 * pushed through one connection waits for a sign of the client's: any frame of its. Calls have the connection that the
 * client has dialled first; bulk has others of its own, lanes, which the client dials when it is asked to (FLAG_LANE).
 * One is enough where a frame takes much longer than a round trip; a second one carries the next frame while the first
 * one's sign is on its way; there are more while a frame takes less than a round trip (n doors per
 * client for bulk). Not more than that: the kernel holds 64 KiB for each, however small its window is. */
#include "common/mem.h"
#include "net/inner.h"

#define WAIT_MIN_US (5 * MS)
#define BYTE_US 8                               /* 1 Mbit/s */
#define SMALL_BYTES 1024                        /* so small a frame fits into the socket's buffer: */
#define SMALL_MAX 4                             /* so many of them may be without a sign, */
#define SMALL_GAP_US (1 * MS)                   /* so far apart that nanomsg has given each to the socket */
#define ASK_MIN_US (1 * SECOND)                  /* for lanes: then again, */
#define ASKS_MAX 3                              /* so often in vain: an older client has no lanes, the door must do */
#define SILENT_MAX 2                            /* frames without a sign: that connection is gone */

/* ---- the connection for calls ---- */

/* The client's sign ends the wait (door_heard). Without one the next frame goes when a thin link must be through with
 * this one: earlier it would find the pipe busy, and be lost. */
static void push(struct out *o)
{
	struct peer *p = o->peer;
	uint64_t us = 2 * p->rtt[0].smooth_us + BYTE_US * o->p.wire_len;

	us = us > WAIT_MIN_US ? us : WAIT_MIN_US;
	if (o->p.wire_len <= SMALL_BYTES && ++p->door_small < SMALL_MAX)
		us = SMALL_GAP_US;
	else
		p->door_small = 0;
	p->door_busy = true;
	env_after(p->net->env, &p->door_timer, us);
	o->submitted = true;
	p->net->env->ops->send(p->net->env, &p->at, CHAN_DOOR, p->door_token, &o->p);
}

static void next(struct peer *p)
{
	struct out *o;

	p->door_busy = false;
	env_timer(p->net->env, &p->door_timer, 0);
	o = door_take(p, &p->door_queue);
	if (!o)
		o = door_take(p, &p->door_bulk);
	if (o && p->door_token)
		push(o);
	else if (o)
		out_finish(o, false);
}

void door_fire(struct timer *t) { next(container_of(t, struct peer, door_timer)); }

/* Only who has more to push needs a sign that the pipe is free: one answer alone costs no third frame. What comes a
 * moment later waits for the client's next frame or for the timer, whichever is first. */
uint16_t door_flags(const struct out *o)
{
	if (!o->at_door)
		return 0;
	if (o->lane)
		return FLAG_ACK | FLAG_LANE;
	return list_empty(&o->peer->door_queue) && list_empty(&o->peer->door_bulk) ? FLAG_ACK | FLAG_QUIET : FLAG_ACK;
}

static void push_by_door(struct out *o)
{
	struct peer *p = o->peer;

	if (p->door_busy) {
		door_enqueue(msg_bulk(o->m) ? &p->door_bulk : &p->door_queue, o);
		return;
	}
	door_unqueue(o);
	push(o);
}

/* ---- lanes ---- */

static void pump(struct lanes *l);

static void lane_fire(struct timer *t)
{
	struct lane *x = container_of(t, struct lane, timer);

	x->busy = false;
	if (++x->silent >= SILENT_MAX)
		x->token = x->silent = 0;
	pump(x->peer->lanes);
}

static void lane_push(struct lane *x, struct out *o)
{
	struct peer *p = x->peer;

	x->busy = true;
	x->sent_us = env_now(p->net->env);
	env_after(p->net->env, &x->timer, WAIT_MIN_US + 2 * p->rtt[0].smooth_us + BYTE_US * o->p.wire_len);
	o->lane = x->token;
	o->submitted = true;
	p->net->env->ops->send(p->net->env, &p->at, CHAN_DOOR, x->token, &o->p);
}

static void lane_say(struct peer *p, uint64_t token, uint64_t number, uint16_t flags);

static void ask(struct lanes *l)
{
	struct peer *p = l->peer;
	uint64_t us = 4 * p->rtt[0].smooth_us;

	lane_say(p, 0, l->wanted, FLAG_LANE);
	if (!p->rtt[0].samples)
		rpc_probe(p, 2 * SECOND);
	env_after(p->net->env, &l->ask, us > ASK_MIN_US ? us : ASK_MIN_US);
}

static unsigned lanes_there(const struct lanes *l)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LANES_MAX; i++)
		n += l->v[i].token && !l->v[i].doubted;
	return n;
}

static void ask_fire(struct timer *t)
{
	struct lanes *l = container_of(t, struct lanes, ask);
	struct list *i;

	if (lanes_there(l) || list_empty(&l->queue))
		return;
	if (++l->asked < ASKS_MAX) {
		ask(l);
		return;
	}
	l->useless = true;
	while ((i = list_pop(&l->queue)))
		push_by_door(list_entry(i, struct out, wait));
}

static void pump(struct lanes *l)
{
	for (unsigned i = 0; i < LANES_MAX && !list_empty(&l->queue); i++) {
		struct lane *x = &l->v[i];
		struct out *o = x->token && !x->doubted && !x->busy ? door_take(l->peer, &l->queue) : NULL;

		if (o)
			lane_push(x, o);
	}
	if (!list_empty(&l->queue) && !l->ask.at_us && lanes_there(l) < l->wanted)
		ask(l);
}

static struct lanes *lanes_of(struct peer *p)
{
	struct lanes *l = p->lanes;

	if (l)
		return l;
	l = p->lanes = xcalloc(1, sizeof *l);
	l->peer = p;
	l->wanted = 1;
	l->ask = (struct timer){ .fire = ask_fire, .name = "net lanes" };
	list_init(&l->queue);
	for (unsigned i = 0; i < LANES_MAX; i++) {
		l->v[i].peer = p;
		l->v[i].timer = (struct timer){ .fire = lane_fire, .name = "net lane" };
	}
	return l;
}

void door_push(struct out *o)
{
	struct peer *p = o->peer;

	o->at_door = true;
	if (!msg_bulk(o->m) || (p->lanes && p->lanes->useless)) {
		push_by_door(o);
		return;
	}
	if (door_enqueue(&lanes_of(p)->queue, o))
		pump(p->lanes);
}

/* A bare frame about lanes, by the connection token, or as frames to the peer go. */
static void lane_say(struct peer *p, uint64_t token, uint64_t number, uint16_t flags)
{
	struct msg *m = msg_new(KIND_PING, CLASS_control, NULL, NO_BLOB);

	m->request = number;
	out_send(p, m, flags, token, env_now(p->net->env) + SECOND, NULL, NULL);
	msg_unref(m);
}

/* The client speaks by a lane: it announces it (number, from 1), or what was pushed through it has come. */
static void lane_heard(struct peer *p, uint64_t token, uint64_t number)
{
	struct lanes *l = lanes_of(p);
	struct lane *x = NULL;
	uint64_t now = env_now(p->net->env), trip = p->rtt[0].samples ? p->rtt_min_us : 0;

	for (unsigned i = 0; i < LANES_MAX && !x; i++)
		if (l->v[i].token == token)
			x = &l->v[i];
	if (!x && number && number <= LANES_MAX)
		x = &l->v[number - 1];
	if (!x || (number && x->token == token && !x->doubted))
		return;
	l->beside = p->door_token;
	if (number && x->token == token) {              /* announced before; what is on its way is still there */
		x->doubted = false;
		pump(l);
		return;
	}
	if (x->busy && x->token == token) {
		/* The wire was free for much of that time: it takes more frames at once. */
		if (!list_empty(&l->queue) && now - x->sent_us < (l->wanted > 1 ? 2 : 4) * trip &&
		    l->wanted < LANES_MAX && lanes_there(l) == l->wanted)
			l->wanted = 2 * l->wanted < LANES_MAX ? 2 * l->wanted : LANES_MAX;
	}
	x->token = token;
	x->busy = x->doubted = false;
	x->silent = 0;
	env_timer(p->net->env, &x->timer, 0);
	l->asked = 0;
	l->useless = false;
	if (lanes_there(l) >= l->wanted)
		env_timer(p->net->env, &l->ask, 0);
	pump(l);
}

/* The client has dialled anew: if it has torn down what it had, its lanes are gone with that, and who pushes through
 * one of them hears nothing. They are asked for again; one that is still there is used on. */
static void doubt_lanes(struct peer *p, uint64_t token)
{
	struct lanes *l = p->lanes;
	uint64_t was = l ? l->beside : 0;

	if (l)
		l->beside = token;
	if (!was || was == token)
		return;
	for (unsigned i = 0; i < LANES_MAX; i++)
		l->v[i].doubted = l->v[i].token != 0;
	pump(l);
}

/* The other side asks for lanes: each dials its door once more, and says so. */
static void lanes_open(struct peer *p, uint64_t wanted)
{
	if (!p->net->conf.client && !p->as_client)
		return;
	for (uint64_t k = 1; k <= wanted && k <= LANES_MAX; k++)
		lane_say(p, DOOR_LANE(k), k, FLAG_LANE);
}

/* The client's connection for calls is that by which this frame has come; false: that is one which it has replaced, and
 * the frame was on its way for long. */
bool door_is(struct peer *p, struct via via, const struct header *h)
{
	if (p->door_boot == h->boot && h->connection < p->door_connection)
		return false;
	p->door_boot = h->boot;
	p->door_connection = h->connection;
	p->door_token = via.door_token;
	return true;
}

/* A frame has come through a door, ours or the other side's. */
void door_heard(struct peer *p, struct via via, const struct header *h)
{
	bool lane = h->pre.flags & FLAG_LANE, pushed = h->pre.flags & FLAG_ACK;

	if (lane && !pushed) {
		lane_heard(p, via.door_token, h->request);
	} else if (lane && h->blob_len) {
		lane_say(p, via.door_token, 0, FLAG_LANE);
	} else if (pushed) {
		p->owes_ack = !(h->pre.flags & FLAG_QUIET) || p->owes_ack;
		if (lane)
			lanes_open(p, h->request);
	} else if (door_is(p, via, h)) {
		p->door_small = 0;
		doubt_lanes(p, via.door_token);
		next(p);
	}
}

/* A frame has come back from the transport: its connection is over; the client dials again when it needs one. Not when
 * there was nothing to be said any more: its call had ended, or its session. */
void door_lost(struct out *o)
{
	struct peer *p = o->peer;
	bool unsaid = o->m->dead || (o->s && o->s->dead);

	if (!unsaid && !o->lane && p->door_token == o->p.door_token)
		p->door_token = 0;
	for (unsigned i = 0; o->lane && p->lanes && i < LANES_MAX; i++) {
		struct lane *x = &p->lanes->v[i];

		if (x->token != o->lane)
			continue;
		x->token = unsaid ? x->token : 0;
		x->busy = false;
		env_timer(p->net->env, &x->timer, 0);
	}
}

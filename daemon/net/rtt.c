/* Round trips (RFC 6298), apart for control and bulk, and what hangs on them: when a call is sent again. */
#include "common/planted.h"
#include "net/inner.h"

#define RTO_UNKNOWN_US (250 * MS)
#define RTO_UNKNOWN_BULK_US (2500 * MS)         /* a frame at 1 Mbit/s (B18 says 1 MB/s and 2 s) */
#define RTO_MIN_US (100 * MS)
#define RTO_MIN_BULK_US RTO_UNKNOWN_BULK_US
#define RTO_WATCHED_BULK_US (10 * SECOND)
#define RTO_MAX_US (5 * SECOND)
#define RTO_MAX_BULK_US (30 * SECOND)
#define AGAIN_MAX_US (5 * SECOND)

void rtt_sample(struct peer *p, bool bulk, uint64_t us)
{
	struct rtt *r = &p->rtt[bulk];
	uint64_t off = us > r->smooth_us ? us - r->smooth_us : r->smooth_us - us;

	r->backoff = 0;
	if (!p->rtt_min_us || us < p->rtt_min_us)
		p->rtt_min_us = us ? us : 1;
	if (!r->samples++) {
		r->smooth_us = us;
		r->var_us = us / 2;
		return;
	}
	r->var_us = (3 * r->var_us + off) / 4;
	r->smooth_us = (7 * r->smooth_us + us) / 8;
}

/* A frame had to be sent again, so nothing can be measured by its answer: wait longer until one comes at the first try
 * (else a link that is slower than the estimate would be flooded with re-sends for ever). */
void rtt_backoff(struct peer *p, bool bulk)
{
	if (p->rtt[bulk].backoff < 6)
		p->rtt[bulk].backoff++;
}

/* A break of its connection would show: it is looked at (net_care), and is no door, which drops what finds no room. */
static bool watched(const struct peer *p)
{
	return p->care > 0 && !p->client && !p->as_client && !p->net->conf.client;
}

/* Bulk waits in queues and for limits that change from one frame to the next, and every frame that is sent again
 * without need takes the place of another; what a broken connection has lost is sent again when it shows (live.c). So
 * time alone says little of bulk for a peer that is watched: a dozen senders take turns at one download limit. */
uint64_t rtt_rto(const struct peer *p, bool bulk)
{
	const struct rtt *r = &p->rtt[bulk];
	uint64_t us = r->smooth_us + 4 * r->var_us;
	uint64_t least = !bulk ? RTO_MIN_US : watched(p) ? RTO_WATCHED_BULK_US : RTO_MIN_BULK_US;
	uint64_t most = bulk ? RTO_MAX_BULK_US : RTO_MAX_US;

	if (!r->samples)
		us = bulk ? least : RTO_UNKNOWN_US;
	else if (bulk && us < 3 * r->smooth_us)
		us = 3 * r->smooth_us;
	us = (us < least ? least : us) << r->backoff;
	return us < most ? us : most;
}

uint64_t net_deadline(struct net *n, const struct id *peer, uint64_t floor_us)
{
	struct peer *p = peer_find(n, peer);
	uint64_t us = 2 * SECOND;               /* B18: until something has been measured */

	if (p && p->rtt[0].samples)
		us = 3 * p->rtt[0].smooth_us;
	return us > floor_us ? us : floor_us;
}

/* ---- calls ---- */

void call_arm(struct call *c)
{
	uint64_t at = c->deadline_us;

	if (c->cur ? c->stuck_us < at : c->retry_us < at)
		at = c->cur ? c->stuck_us : c->retry_us;
	env_timer(c->net->env, &c->timer, at ? at : 1);
}

static uint64_t backed_off(uint64_t us, uint32_t times, uint64_t max)
{
	us <<= times > 6 ? 6 : times;
	return us < max ? us : max;
}

void call_unsent(struct call *c)
{
	c->retry_us = env_now(c->net->env) + backed_off(50 * MS, c->timeout_tries, AGAIN_MAX_US);
}

void call_gone(void *arg, bool sent)
{
	struct call *c = arg;
	uint64_t now = env_now(c->net->env);

	c->cur = NULL;
	if (sent) {
		c->sent_us = now;
		c->retry_us = now + backed_off(rtt_rto(c->peer, msg_bulk(c->m)), c->timeout_tries, AGAIN_MAX_US);
	} else {
		call_unsent(c);
	}
	if (!PLANTED(CALL_NO_TIMER))
		call_arm(c);
}

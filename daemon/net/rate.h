/* A limit of bytes/s as a bucket of tokens, for the real transport and the simulated one: it fills with time up to a
 * burst; what is sent or read takes its bytes out, below zero too; what has to wait waits until none are owed. All
 * bytes are counted, but only bulk waits: a heartbeat goes at once, and what it took is missing for the bulk behind. */
#ifndef NET_RATE_H
#define NET_RATE_H
#include "common/heap.h"
#include "env.h"

#define RATE_BURST_S 0.05
#define RATE_SMALL 16384                /* through a door everything goes: what is smaller than this does not wait */

struct rate { uint64_t per_s /* 0: no limit */, at_us; double tokens; struct timer timer /* its owner's */; };

static inline double rate_burst(const struct rate *r)
{
	double b = (double)r->per_s * RATE_BURST_S;
	return b > WIRE_MAX ? b : WIRE_MAX;
}

static inline void rate_set(struct rate *r, uint64_t per_s, uint64_t now_us)
{
	r->per_s = per_s;
	r->at_us = now_us;
	r->tokens = rate_burst(r);
}

/* 0: the next may go now; else when to ask again. */
static inline uint64_t rate_wait(struct rate *r, uint64_t now_us)
{
	double burst = rate_burst(r);
	if (!r->per_s)
		return 0;
	r->tokens += (double)(now_us - r->at_us) * 1e-6 * (double)r->per_s;
	r->at_us = now_us;
	if (r->tokens > burst)
		r->tokens = burst;
	return r->tokens > 0 ? 0 : now_us + (uint64_t)(-r->tokens / (double)r->per_s * 1e6) + 1000;
}

static inline void rate_spend(struct rate *r, size_t bytes)
{
	if (r->per_s)
		r->tokens -= (double)bytes;
}

/* Is it bulk? */
static inline bool rate_waits(enum chan chan, size_t bytes)
{
	return chan == CHAN_BULK || (chan == CHAN_DOOR && bytes > RATE_SMALL);
}

#endif

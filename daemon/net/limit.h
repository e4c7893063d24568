/* A limit of events as a bucket of tokens; {0} is a full one. (Of bytes: rate.h.) */
#ifndef NET_LIMIT_H
#define NET_LIMIT_H
#include <stdbool.h>
#include <stdint.h>

struct limit { uint64_t at_us; double tokens; };

static inline bool limit_take(struct limit *l, uint64_t now_us, double per_s, double burst)
{
	if (!l->at_us) {
		l->tokens = burst;
	} else {
		l->tokens += (double)(now_us - l->at_us) * 1e-6 * per_s;
		if (l->tokens > burst)
			l->tokens = burst;
	}
	l->at_us = now_us;
	if (l->tokens < 1)
		return false;
	l->tokens -= 1;
	return true;
}

#endif

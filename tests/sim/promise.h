/* Who has promised a higher term acknowledges no attempt of a lower one (hivemind-protocol(7), Authority). */
#ifndef TESTS_SIM_PROMISE_H
#define TESTS_SIM_PROMISE_H
#include "avg/int.h"

/* This peer would still acknowledge an attempt of one whom it has promised another. */
static inline bool acks_another(const struct avg *a)
{
	const struct round *r = a->round;
	return r && !r->closed && r->ack_req && a->term && a->claim.term == a->term && !id_zero(&a->claim.by) &&
		!id_eq(&r->ack_req->f.from, &a->claim.by);
}

#endif

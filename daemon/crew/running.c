/* Generations begin and end here: what is decided is noted, what runs is told. */
#include <stdlib.h>
#include "crew/int.h"

#define CARE_MOST 8                     /* in either direction */

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

void running_free(struct crew *c)
{
	if (c->running)
		care(c, c->running, -1);
	deal_drop(&c->running);
	free(c->members);
}

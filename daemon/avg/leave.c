/* An orderly goodbye: never in the middle of a round, and everybody is told, so that promised positions return to the
 * pool and the next leader takes over at once. */
#include <stdlib.h>
#include "avg/lead.h"

#define LEAVE_US (500 * MS)
#define ROUND_US (5 * SECOND)

static void over(struct avg *a)
{
	avg_left_fn *done = a->left;
	void *arg = a->left_arg;
	env_timer(a->env, &a->leave_timer, 0);
	a->left = NULL;
	a->state = AVG_OUT;
	roster_clear(a);
	if (done)
		done(arg);
}

static void told(void *arg, const struct frame *f, const struct err *e)
{
	struct mate *m = arg;
	struct avg *a = m->owner;
	m->leave = NULL;
	if (a->leave_calls && --a->leave_calls == 0)
		env_after(a->env, &a->leave_timer, 1);
}

static void tell_all(struct avg *a)
{
	recover_free(a);
	meet_stop(a);
	a->leave_told = true;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m == a->me || !m->member || !m->live)
			continue;
		a->leave_calls++;
		MARK(a, "avg.leave.before");
		m->leave = net_call(a->net, &m->id, KIND_AVG_LEAVE, hub_json(a), NO_BLOB, CLASS_control, LEAVE_US, told, m);
		MARK(a, "avg.leave.after");
	}
	env_after(a->env, &a->leave_timer, a->leave_calls ? LEAVE_US + 100 * MS : 1);
}

static void fire(struct timer *t)
{
	struct avg *a = container_of(t, struct avg, leave_timer);
	if (a->leave_told)
		over(a);
	else
		leave_step(a);
}

/* The round is over for this peer; others may still need its COMMIT or its parts of the mean. */
static bool owes(const struct avg *a)
{
	return a->round || !list_empty(&a->commits) || !list_empty(&a->tails);
}

/* From the kick: the round is over here and with the others, or has had its time. */
void leave_step(struct avg *a)
{
	if (!a->leaving || a->leave_told)
		return;
	if (owes(a) && now_of(a) < a->leave_by_us)
		return;
	if (a->round)
		round_close(a->round);
	tell_all(a);
}

void avg_leave(struct avg *a, avg_left_fn *done, void *arg)
{
	a->left = done;
	a->left_arg = arg;
	a->leaving = true;
	a->leave_by_us = now_of(a) + ROUND_US;
	a->leave_timer = (struct timer){ .fire = fire, .name = "avg.leave" };
	env_after(a->env, &a->leave_timer, owes(a) ? ROUND_US : 1);
}

void leave_on(struct avg *a, struct request *req)
{
	struct mate *m = mate_find(a, &req->f.from);
	if (req->wants_reply)
		net_reply(req, NULL, NO_BLOB);
	if (!m || m == a->me || !m->member)
		return;
	if (a->n_last && !m->fresh && !(m->flags & MATE_FOLLOWER)) {    /* newcomers do not count there */
		a->n_last--;
		m->left = a->gen;
	}
	if (m->flags & MATE_FOLLOWER || commit_missed(a, m))    /* it comes again for what it lacks */
		a->follower_left_us = now_of(a);
	mate_gone(a, m, "left");
	m->member = false;
	ranges_clear(&m->grant);
	m->probe_us = now_of(a) + 10 * SECOND;  /* it knows where to find us */
	kick(a);
}

/* Who says what is not its to say: takes a term that it cannot have, ends a round that another leads, asks for what it
 * may not. All of that is refused; once or twice it happens to an honest peer whose picture of the swarm is old. Who
 * goes on is named. What no honest peer says, since it looks at a signature before it passes anything on, is a strike
 * each time as well, and net bans whoever has many of them (guard.c). */
#include <string.h>
#include "avg/int.h"

#define WINDOW_US (10 * SECOND)
#define MANY 8                                  /* in a window */
#define TELL_US (60 * SECOND)                   /* the same one again */

/* Its place, or that of whoever was heard in this longest ago. */
static struct forger *forger_of(struct avg *a, const struct id *who)
{
	struct forger *old = &a->forger[0];
	for (size_t i = 0; i < FORGERS; i++) {
		struct forger *f = &a->forger[i];
		if (id_eq(&f->id, who))
			return f;
		old = f->last_us < old->last_us ? f : old;
	}
	*old = (struct forger){ .id = *who };
	return old;
}

void note_forged(struct avg *a, const struct id *who, const struct err *e)
{
	struct forger *f = forger_of(a, who);
	uint64_t now = now_of(a);
	if (now - f->since_us > WINDOW_US) {
		f->since_us = now;
		f->n = 0;
	}
	f->last_us = now;
	if (PLANTED(FORGED_UNNAMED) || ++f->n != MANY || (f->told_us && now - f->told_us < TELL_US))
		return;
	f->told_us = now;
	hub_event(a, LOG_WARN_, "forges", &f->id, "epoch %llu: %d times within 10 s it has said what is not its to say, "
		"and was refused; the last: %s", (unsigned long long)a->point.epoch, MANY, e->text);
}

void refuse_forged(struct avg *a, struct request *req, const struct err *e, bool wrong)
{
	bool counts = e->code == ERR_AUTH || e->code == ERR_INVALID;
	struct id from = req->f.from;
	if (counts)
		note_forged(a, &from, e);
	if (req->wants_reply)
		net_refuse(req, e);
	if (counts && wrong)
		net_strike(a->net, &from, e->text);     /* the last: it may be cut off here and now */
}

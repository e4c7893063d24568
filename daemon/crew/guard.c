/* Who says what it may not: refused, counted, and named when it goes on. Once or twice an honest peer's roster is old;
 * what no honest peer says is a strike as well, and names it at once. What a peer may ask for is bounded, before any
 * memory or time is spent on it. */
#include "crew/int.h"

#define WINDOW_US (10 * SECOND)
#define MANY 8                                  /* in a window */
#define TELL_US (60 * SECOND)                   /* the same one again */
#define BURST 32.0                              /* proposals, gos and questions for gos of one peer at once ... */
#define A_SECOND 8.0                            /* ... and in a second */

bool guard_pays(struct crew *c, struct mate *m)
{
	uint64_t now = now_of(c);
	if (!m->tokens_us)                      /* it has said nothing yet */
		m->tokens = BURST;
	m->tokens += (double)(now - m->tokens_us) * A_SECOND / 1e6;
	m->tokens = m->tokens > BURST ? BURST : m->tokens;
	m->tokens_us = now;
	if (m->tokens < 1 && !PLANTED(CREW_UNBOUNDED))
		return false;
	m->tokens -= 1;
	return true;
}

static struct crew_forger *forger_of(struct crew *c, const struct id *who)
{
	struct crew_forger *old = &c->forger[0];
	for (size_t i = 0; i < FORGERS; i++) {
		struct crew_forger *f = &c->forger[i];
		if (id_eq(&f->id, who))
			return f;
		old = f->last_us < old->last_us ? f : old;
	}
	*old = (struct crew_forger){ .id = *who };
	return old;
}

void guard_refused(struct crew *c, const struct id *from, enum refusal_why why, const struct err *e, bool strong)
{
	struct crew_forger *f = forger_of(c, from);
	uint64_t now = now_of(c);
	c->refused[why]++;
	if (!strong && (why == REFUSED_members || why == REFUSED_base))
		return;                         /* rosters differ for a while, whoever speaks */
	if (now - f->since_us > WINDOW_US) {
		f->since_us = now;
		f->n = 0;
	}
	f->last_us = now;
	f->n += strong ? MANY : 1;
	if (f->n >= MANY && (!f->told_us || now - f->told_us >= TELL_US)) {
		f->told_us = now;
		crew_say(c, LOG_WARN_, "crew_forges", from, "it says of generations what is not its to say, and is refused; "
			"the last: %s", e->text);
	}
	if (strong)
		net_strike(c->net, from, e->text);
}

/* What the owner is told, and when the crew looks again: whatever is found out, a timer is armed, and crew.c steps. */
#include <stdarg.h>
#include <stdio.h>
#include "crew/int.h"

void crew_say(struct crew *c, enum log_level level, const char *code, const struct id *peer, const char *fmt, ...)
{
	char text[320];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (c->cb.event)
		c->cb.event(c->arg, level, code, peer, text);
}

void crew_waits(struct crew *c, const struct err *why)
{
	bool news = why && (!c->waits || strcmp(why->text, c->why.text));
	c->waits = why != NULL;
	if (why)
		c->why = *why;
	if (news && c->cb.waits)
		c->cb.waits(c->arg, why);
}

void crew_since(struct crew *c)
{
	if (!c->since_us)
		c->since_us = now_of(c);
}

void crew_kick(struct crew *c)
{
	env_after(c->env, &c->kick, 1);
}

void crew_tick_at(struct crew *c, uint64_t us)
{
	uint64_t at = now_of(c) + us;
	if (c->tick_us && c->tick_us <= at)
		return;
	c->tick_us = at;
	env_timer(c->env, &c->tick, at);
}

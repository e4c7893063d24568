/* What all of this room say and arm: events for the owner, the small change of messages, and the timers that fire at
 * once. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "avg/int.h"

json_t *hub_json(const struct avg *a)
{
	return json_pack("{s:s}", "run", a->hex);
}

void hub_event(struct avg *a, enum log_level level, const char *code, const struct id *peer, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (a->cb.event)
		a->cb.event(a->arg, level, code, peer, text);
}

bool hub_overflows(const struct avg *a)
{
	return !PLANTED(OVERFLOW_BLAMED) && a->cb.overflows && a->cb.overflows(a->arg);
}

json_t *json_endpoint(const struct endpoint *at)
{
	uint8_t v[22];
	memcpy(v, at->ip, 16);
	for (int i = 0; i < 3; i++) {
		v[16 + 2 * i] = (uint8_t)(at->port[i] >> 8);
		v[17 + 2 * i] = (uint8_t)at->port[i];
	}
	return json_hex(v, sizeof v);
}

bool endpoint_of(const json_t *o, const char *key, struct endpoint *ret)
{
	uint8_t v[22];
	if (json_get_hex(o, key, v, sizeof v, NULL))
		return false;
	memcpy(ret->ip, v, 16);
	for (int i = 0; i < 3; i++)
		ret->port[i] = (uint16_t)(v[16 + 2 * i] << 8 | v[17 + 2 * i]);
	return true;
}

bool id_of_json(const json_t *o, const char *key, struct id *ret)
{
	return !json_get_hex(o, key, ret->b, 32, NULL);
}

void kick(struct avg *a)
{
	if (a->kicked || a->freeing)
		return;
	a->kicked = true;
	env_after(a->env, &a->kick, 1);
}

void forked_tell(struct avg *a)
{
	if (!a->forked_pending || a->lost_pending)
		return;
	a->forked_pending = false;
	if (a->cb.forked)
		a->cb.forked(a->arg, a->forked, a->forked_last);
}

void meet_now(struct avg *a)
{
	env_after(a->env, &a->meet, 1);
}

/* Who above hears of what: one handler for a kind of frame, watchers of peers (told in live.c), and the operator. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "net/inner.h"

#define EVENT_EVERY_US (1 * SECOND)

void net_on(struct net *n, enum kind k, net_handler_fn *fn, void *arg)
{
	n->handlers[k].fn = fn;
	n->handlers[k].arg = arg;
}

void *net_on_arg(const struct net *n, enum kind k, net_handler_fn *fn)
{
	return n->handlers[k].fn == fn ? n->handlers[k].arg : NULL;
}

void net_watch(struct net *n, net_news_fn *fn, void *arg)
{
	for (size_t i = 0; i < n->nwatches; i++)
		if (!n->watches[i].fn) {
			n->watches[i] = (struct watcher){ fn, arg };
			return;
		}
	n->watches = xrealloc(n->watches, (n->nwatches + 1) * sizeof *n->watches);
	n->watches[n->nwatches++] = (struct watcher){ fn, arg };
}

/* The slot stays, so that a watcher may go while news are told. */
void net_unwatch(struct net *n, net_news_fn *fn, void *arg)
{
	for (size_t i = 0; i < n->nwatches; i++)
		if (n->watches[i].fn == fn && n->watches[i].arg == arg) {
			n->watches[i].fn = NULL;
			return;
		}
}

/* One a second per code: a flood of bad frames must not become a flood of events. The counters count them all. */
void net_tell(struct net *n, enum log_level level, const char *code, const struct id *peer, const char *fmt, ...)
{
	uint64_t now = env_now(n->env);
	char text[400], who[9] = "";
	size_t slot = 0;
	va_list ap;

	for (; slot < EVENT_CODES - 1 && n->told[slot].code && strcmp(n->told[slot].code, code); slot++)
		;
	if (n->told[slot].code && now < n->told[slot].at_us + EVENT_EVERY_US)
		return;
	n->told[slot].code = code;
	n->told[slot].at_us = now;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	text_clean(text);
	if (peer)
		id_short(peer, who);
	if (n->event)
		n->event(n->event_arg, level, code, peer, text);
	else
		log_write(n->env->log, level, "net", "%s %s%s%s", code, who, peer ? " " : "", text);
}

void net_events(struct net *n, net_event_fn *fn, void *arg)
{
	n->event = fn;
	n->event_arg = arg;
}

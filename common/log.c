/* Log: one line goes to the ring, to the sink and to the followers. Everything is owned by the loop thread. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/log.h"
#include "common/mem.h"
#include "common/text.h"

#define WATCH_MAX 64

struct watch { log_sink_fn *fn; void *arg; };
struct log {
	struct log_line *ring;
	size_t cap;
	uint64_t seq;                       /* of the newest line; line s is at ring[s % cap] */
	enum log_level min;
	uint64_t (*wall_ms)(void *);
	void *clock_arg;
	struct watch sink, watch[WATCH_MAX];
	bool delivering;                    /* what a sink or follower logs goes to the ring only: no endless circle */
};

static const char *const names[LOG_LEVELS_] = { "debug", "info", "warning", "error" };

struct log *log_new(size_t ring_lines, enum log_level min, uint64_t (*wall_ms)(void *), void *clock_arg)
{
	struct log *l = xcalloc(1, sizeof *l);

	l->cap = ring_lines ? ring_lines : 1;
	l->ring = xcalloc(l->cap, sizeof *l->ring);
	l->min = min;
	l->wall_ms = wall_ms;
	l->clock_arg = clock_arg;
	return l;
}

void log_free(struct log *l)
{
	if (!l)
		return;
	free(l->ring);
	free(l);
}

void log_set_min(struct log *l, enum log_level min)
{
	l->min = min;
}

void log_sink(struct log *l, log_sink_fn *fn, void *arg)
{
	l->sink = (struct watch){ fn, arg };
}

int log_watch(struct log *l, log_sink_fn *fn, void *arg)
{
	for (int i = 0; i < WATCH_MAX; i++)
		if (!l->watch[i].fn) {
			l->watch[i] = (struct watch){ fn, arg };
			return i;
		}
	return -1;
}

void log_unwatch(struct log *l, int handle)
{
	if (handle >= 0 && handle < WATCH_MAX)
		l->watch[handle] = (struct watch){0};
}

void log_write(struct log *l, enum log_level level, const char *prefix, const char *fmt, ...)
{
	struct log_line *x, copy;
	size_t at = 0;
	va_list ap;

	if (level < l->min)
		return;
	x = &l->ring[++l->seq % l->cap];
	x->seq = l->seq;
	x->wall_ms = l->wall_ms ? l->wall_ms(l->clock_arg) : 0;
	x->level = level;
	if (prefix && *prefix) {
		snprintf(x->text, sizeof x->text, "%s: ", prefix);
		at = strlen(x->text);
	}
	va_start(ap, fmt);
	vsnprintf(x->text + at, sizeof x->text - at, fmt, ap);
	va_end(ap);
	text_clean(x->text);
	if (l->delivering)
		return;
	copy = *x;                              /* the ring may turn while a follower writes */
	l->delivering = true;
	if (l->sink.fn)
		l->sink.fn(l->sink.arg, &copy);
	for (int i = 0; i < WATCH_MAX; i++)
		if (l->watch[i].fn)
			l->watch[i].fn(l->watch[i].arg, &copy);
	l->delivering = false;
}

size_t log_recent(const struct log *l, uint64_t after, struct log_line *out, size_t max)
{
	uint64_t kept = l->seq < l->cap ? l->seq : l->cap, from, n;

	if (after > l->seq)
		after = l->seq;
	n = l->seq - after < kept ? l->seq - after : kept;
	if (n > max)
		n = max;
	from = l->seq - n + 1;
	for (uint64_t i = 0; i < n; i++)
		out[i] = l->ring[(from + i) % l->cap];
	return n;
}

const char *log_level_name(enum log_level level)
{
	return (unsigned)level < LOG_LEVELS_ ? names[level] : "unknown";
}

int log_level_parse(const char *name)
{
	for (int i = 0; i < LOG_LEVELS_; i++)
		if (!strcmp(names[i], name))
			return i;
	return strcmp(name, "warn") ? -1 : LOG_WARN_;
}

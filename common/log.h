/* Log: levels, a prefix per logger, a sink, and a ring of recent lines that `hivectl log` reads. No globals. */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG_, LOG_INFO_, LOG_WARN_, LOG_ERROR_, LOG_LEVELS_ };
struct log;                                             /* the core: ring + sink + minimum level */
struct log_line { uint64_t seq; uint64_t wall_ms; enum log_level level; char text[400]; };
typedef void log_sink_fn(void *arg, const struct log_line *l);

struct log *log_new(size_t ring_lines, enum log_level min, uint64_t (*wall_ms)(void *), void *clock_arg);
void log_free(struct log *l);
void log_set_min(struct log *l, enum log_level min);
void log_sink(struct log *l, log_sink_fn *fn, void *arg);       /* one sink (stderr, journal); NULL removes it */
/* followers: returns a handle >= 0, or -1 when 64 are there */
int log_watch(struct log *l, log_sink_fn *fn, void *arg);
void log_unwatch(struct log *l, int handle);
void log_write(struct log *l, enum log_level level, const char *prefix, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Copies the newest at most max lines with seq > after, oldest first; returns how many. */
size_t log_recent(const struct log *l, uint64_t after, struct log_line *out, size_t max);
const char *log_level_name(enum log_level level);
int log_level_parse(const char *name);                          /* -1 when unknown */

#endif

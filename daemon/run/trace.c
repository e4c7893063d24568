/* The run log on disk (instrument T10): what the executor and the trainer say, one JSON object a line, in run.log of
 * the run's folder, when the local part asks for it (local.log, `run start --log`). Lines are gathered on the loop and
 * written by one job of the disk lane at a time. Training never waits for it: a log that has reached its size, a disk
 * that is full or too slow end it with an event: a log with holes cannot be replayed. Those of the nine lives before
 * are run.log.1 to run.log.9. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/mem.h"
#include "common/text.h"
#include "run/int.h"

#define FLUSH_BYTES 65536               /* handed over at once when so much has come ... */
#define FLUSH_US 500000                 /* ... or after this */
#define LIVES 9                         /* before this one, whose logs are kept: a replay needs those of all */
#define BEHIND_MAX (8u << 20)           /* bytes that wait for the disk */
#define TRACE_PATH 4200

struct trace {
	struct run *r;                          /* NULL: the run has gone */
	struct env *env;
	struct files *files;
	struct job job;
	struct timer flush;
	struct buf lines, writing;              /* the loop's; the job's */
	uint64_t max, taken, at;                /* bytes: allowed, taken from the run, on disk */
	int fd;
	bool busy, closing, over;               /* over: takes no more lines */
	bool soon;                              /* what has come is to be written at once */
	struct err error;
	char dir[4096], path[TRACE_PATH];
};

/* run.log is run.log.1 from now on, and so on; the oldest goes. */
static int set_aside(struct trace *t)
{
	char from[4300], to[4300];
	struct files *f = t->files;

	(void)snprintf(to, sizeof to, "%s.%d", t->path, LIVES);
	for (int k = LIVES - 1; k >= 0; k--) {
		if (k)
			(void)snprintf(from, sizeof from, "%s.%d", t->path, k);
		else
			(void)snprintf(from, sizeof from, "%s", t->path);
		if (f->size(f, from, &t->error) >= 0 && f->rename(f, from, to, &t->error))
			return -1;
		memcpy(to, from, sizeof to);
	}
	return 0;
}

static int open_file(struct trace *t)
{
	char up[4096];
	struct files *f = t->files;
	char *slash;

	memcpy(up, t->dir, sizeof up);
	if ((slash = strrchr(up, '/')))
		*slash = 0;
	if (f->mkdir(f, up, 0750, &t->error) || f->mkdir(f, t->dir, 0750, &t->error))
		return -1;
	if (f->size(f, t->path, &t->error) > 0 && set_aside(t))
		return -1;
	t->error = (struct err){ 0 };
	t->fd = f->open(f, t->path, O_WRONLY | O_CREAT | O_TRUNC, 0640, &t->error);
	return t->fd < 0 ? -1 : 0;
}

static void write_run(struct job *j)
{
	struct trace *t = container_of(j, struct trace, job);
	struct files *f = t->files;

	if (t->error.code || (t->fd < 0 && open_file(t)))
		return;
	if (t->writing.len && f->pwrite(f, t->fd, t->writing.p, t->writing.len, t->at, &t->error))
		return;
	t->at += t->writing.len;
}

static void close_run(struct job *j)
{
	struct trace *t = container_of(j, struct trace, job);
	struct err e;

	if (t->fd >= 0)
		(void)t->files->close(t->files, t->fd, &e);
}

static void close_done(struct job *j)
{
	struct trace *t = container_of(j, struct trace, job);

	buf_free(&t->lines);
	buf_free(&t->writing);
	free(t);
}

static void end(struct trace *t, const char *why)
{
	char size[32];

	if (t->over)
		return;
	t->over = true;
	if (t->r)
		run_log(t->r, LOG_WARN_, "run.log", "the run log ends here, at %s: %s; training goes on",
			text_print_size(t->taken, size, sizeof size), why);
}

static void hand_over(struct trace *t);

static void write_done(struct job *j)
{
	struct trace *t = container_of(j, struct trace, job);

	t->busy = false;
	buf_clear(&t->writing);
	if (t->error.code) {
		buf_clear(&t->lines);
		end(t, t->error.text);
	}
	if (t->lines.len >= FLUSH_BYTES || t->closing || (t->soon && t->lines.len))
		hand_over(t);
}

/* The last thing it does may free t: with a detached env the job is done when env_work returns. */
static void hand_over(struct trace *t)
{
	bool last = t->closing && !t->lines.len;
	struct buf b = t->writing;

	if (t->busy)
		return;
	t->busy = true;
	t->soon = false;
	env_timer(t->env, &t->flush, 0);
	t->writing = t->lines;
	t->lines = b;
	t->job = (struct job){ .name = "run.log", .lane = env_lane(t->env, "disk"), .run = last ? close_run : write_run,
		.done = last ? close_done : write_done, .cost_us = 100 };
	env_work(t->env, &t->job);
}

static void flush_fire(struct timer *tm)
{
	hand_over(container_of(tm, struct trace, flush));
}

void trace_line(void *run, const char *line, size_t len)
{
	struct trace *t = ((struct run *)run)->trace;

	if (!t || t->over)
		return;
	if (t->taken + len + 1 > t->max) {
		end(t, "it has the size that local.log allows");
		hand_over(t);
		return;
	}
	if (t->lines.len > BEHIND_MAX) {
		buf_clear(&t->lines);
		end(t, "the disk is too slow for it");
		return;
	}
	t->taken += len + 1;
	buf_put(&t->lines, line, len);
	buf_u8(&t->lines, '\n');
	if (t->lines.len >= FLUSH_BYTES || t->soon)
		hand_over(t);
	else if (!t->flush.at_us)
		env_after(t->env, &t->flush, FLUSH_US);
}

/* Others go on with what it gives, also if it is killed now: the replay needs how it was made. */
void trace_now(struct run *r)
{
	struct trace *t = r->trace;

	if (!t || t->over || !t->lines.len)
		return;
	t->soon = true;
	hand_over(t);
}

/* Where the run is in its life: a reader of the log sees restarts and downloads of state. */
void trace_state(struct run *r)
{
	char line[200];
	int n;

	if (!r->trace)
		return;
	n = snprintf(line, sizeof line, "{\"t\":%llu,\"ev\":\"state\",\"state\":\"%s\",\"epoch\":%llu}",
		(unsigned long long)env_now(r->rs->ctx.env), run_state_name(r), (unsigned long long)r->point.epoch);
	trace_line(r, line, (size_t)n);
}

/* Who this is, in rounds, and what is run here, and how: the first lines. */
static void introduce(struct run *r)
{
	uint64_t now = env_now(r->rs->ctx.env);
	char line[120], hex[ID_HEX], *text;
	json_t *j;
	int n;

	id_hex(net_self(r->rs->ctx.net), hex);
	n = snprintf(line, sizeof line, "{\"t\":%llu,\"ev\":\"peer\",\"id\":\"%.16s\"}", (unsigned long long)now, hex);
	trace_line(r, line, (size_t)n);
	j = json_pack("{s:I,s:s,s:s,s:s,s:O,s:o}", "t", (json_int_t)now, "ev", "run", "id", r->hex, "name", r->name,
		"spec", r->spec->shared, "local", spec_local_json(r->spec));
	text = json_dumps(j, JSON_COMPACT);
	trace_line(r, text, strlen(text));
	free(text);
	json_decref(j);
}

static void path_of(const struct run *r, char out[TRACE_PATH])
{
	char dir[4096];

	run_dir(r, dir, sizeof dir);
	(void)snprintf(out, TRACE_PATH, "%s/run.log", dir);
}

static struct trace *trace_new(struct run *r)
{
	struct trace *t = xcalloc(1, sizeof *t);

	t->r = r;
	t->env = r->rs->ctx.env;
	t->files = t->env->files;
	t->max = r->spec->local.log_bytes;
	t->fd = -1;
	t->flush = (struct timer){ .fire = flush_fire, .name = "run.log" };
	run_dir(r, t->dir, sizeof t->dir);
	path_of(r, t->path);
	return t;
}

void trace_open(struct run *r)
{
	if (!r->spec->local.log_bytes || !r->rs->ctx.state_dir)
		return;
	r->trace = trace_new(r);
	introduce(r);
}

/* Which round, for histories of a run may differ until they meet; who was in it, with how many samples, in the order in
 * which these were summed: before its commit is taken. */
void trace_round(struct run *r, const struct avg_commit *c)
{
	struct buf b = { 0 };
	char hex[ID_HEX];

	if (!r->trace)
		return;
	(void)text_hex(c->point->prev, DIGEST, hex);
	buf_printf(&b, "{\"t\":%llu,\"ev\":\"round\",\"epoch\":%llu,\"id\":\"%.16s\",\"shares\":[",
		(unsigned long long)env_now(r->rs->ctx.env), (unsigned long long)c->epoch, hex);
	for (size_t i = 0; i < c->shares; i++) {
		id_hex(&c->share[i].id, hex);
		buf_printf(&b, "%s[\"%.16s\",%llu]", i ? "," : "", hex, (unsigned long long)c->share[i].samples);
	}
	buf_printf(&b, "]}");
	trace_line(r, (const char *)b.p, b.len);
	buf_free(&b);
}

/* What has come is written; t frees itself. */
void trace_close(struct run *r)
{
	struct trace *t = r->trace;

	if (!t)
		return;
	r->trace = NULL;
	r->traced.bytes = t->taken;
	r->traced.ended = t->over;
	t->r = NULL;
	t->over = t->closing = true;
	env_timer(t->env, &t->flush, 0);
	hand_over(t);
}

json_t *trace_json(const struct run *r)
{
	char path[TRACE_PATH];
	json_t *o;

	if (!r->trace && !r->traced.bytes)
		return json_null();
	path_of(r, path);
	o = json_pack("{s:s,s:I,s:I}", "path", path, "bytes", (json_int_t)(r->trace ? r->trace->taken : r->traced.bytes),
		"bytes_max", (json_int_t)r->spec->local.log_bytes);
	if (!r->past)
		(void)json_object_set_new(o, "ended", json_boolean(r->trace ? r->trace->over : r->traced.ended));
	return o;
}

void trace_past(struct run *r)
{
	struct files *f = r->rs->ctx.env->files;
	char path[TRACE_PATH];
	int64_t n;

	if (!r->rs->ctx.state_dir || !r->spec->local.log_bytes)
		return;
	path_of(r, path);
	n = f->size(f, path, NULL);
	r->traced.bytes = n > 0 ? (uint64_t)n : 0;
}

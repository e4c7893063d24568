/* status: the daemon's own facts, and the node's under them. */
#include "control/cmd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/list.h"
#include "common/mem.h"
#include "loop.h"
#include "store.h"

static const struct cmd_param params[] = { { NULL, 0, 0, NULL } };

/* Resident bytes of this process; 0 when the system does not tell. */
static uint64_t resident(struct env *env)
{
	struct files *f = env->files;
	unsigned long total, pages;
	char text[128];
	int64_t n;
	int fd;

	if (!f || (fd = f->open(f, "/proc/self/statm", O_RDONLY | O_CLOEXEC, 0, NULL)) < 0)
		return 0;
	n = f->pread(f, fd, text, sizeof text - 1, 0, NULL);
	f->close(f, fd, NULL);
	text[n < 0 ? 0 : n] = '\0';
	return sscanf(text, "%lu %lu", &total, &pages) == 2 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Upper bound of what so many of a thousand callbacks took at most. */
static json_int_t took_at_most(const struct loop_stats *s, unsigned per_mille)
{
	uint64_t seen = 0;
	int i;

	for (i = 0; i < LOOP_BUCKETS - 1; i++) {
		seen += s->bucket[i];
		if (seen * 1000 >= s->callbacks * per_mille)
			break;
	}
	return (uint64_t)1 << i < s->worst_us ? (json_int_t)1 << i : (json_int_t)s->worst_us;
}

/* How long callbacks held the loop: nothing else is done meanwhile. */
static json_t *loop_json(const struct cmd_ctx *x)
{
	struct loop_stats s;

	x->loop(x->main, &s);
	return json_pack("{s:I,s:I,s:I,s:I,s:s,s:I}", "callbacks", (json_int_t)s.callbacks, "half_under_us",
		took_at_most(&s, 500), "p999_under_us", took_at_most(&s, 999), "longest_us", (json_int_t)s.worst_us,
		"longest_in", s.worst, "slow", (json_int_t)s.slow);
}

static json_t *own(const struct cmd_ctx *x)
{
	json_t *j = json_pack("{s:s, s:i, s:f, s:s, s:s}", "version", x->version, "pid", (int)getpid(), "uptime_s",
		(double)(env_now(x->env) - x->started_us) / 1e6, "state_dir", x->state_dir, "socket", x->socket);
	uint64_t bytes = resident(x->env);

	if (bytes)
		json_object_set_new(j, "memory_bytes", json_integer((json_int_t)bytes));
	if (x->loop)
		json_object_set_new(j, "loop", loop_json(x));
	if (x->store)
		json_object_set_new(j, "store", store_json(x->store));
	return j;
}

struct asking { struct reply reply; struct reply *outer; json_t *own; };

static void answered(struct reply *r, json_t *result, const struct err *e)
{
	struct asking *a = container_of(r, struct asking, reply);

	if (e)
		json_object_set_new(a->own, "error", json_string(e->text));
	else
		json_object_update(a->own, result);
	json_decref(result);
	reply_ok(a->outer, a->own);
	free(a);
}

static void run(struct cmd_call *c)
{
	struct asking *a;

	if (!c->ctx->api || !c->ctx->api->status) {
		reply_ok(c->reply, own(c->ctx));
		return;
	}
	a = xcalloc(1, sizeof *a);
	a->reply.done = answered;
	a->outer = c->reply;
	a->own = own(c->ctx);
	c->ctx->api->status(c->ctx->api->arg, c->params, &a->reply);
}

const struct cmd cmd_status = { "status", "how this peer is doing", params, CMD_VIEW, NULL, run };

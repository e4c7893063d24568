/* status: the daemon's own facts, and the node's under them. */
#include "control/cmd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/list.h"
#include "common/mem.h"
#include "store/store.h"

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

static json_t *own(const struct cmd_ctx *x)
{
	json_t *j = json_pack("{s:s, s:i, s:f, s:s, s:s}", "version", x->version, "pid", (int)getpid(), "uptime_s",
		(double)(env_now(x->env) - x->started_us) / 1e6, "state_dir", x->state_dir, "socket", x->socket);
	uint64_t bytes = resident(x->env);

	if (bytes)
		json_object_set_new(j, "memory_bytes", json_integer((json_int_t)bytes));
	if (x->loop)
		json_object_set_new(j, "loop", x->loop(x->main));
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

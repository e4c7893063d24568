/* run watch: the run as it is now, and then its news until it ends. */
#include "control/cmd.h"

#include <stdlib.h>

#include "common/list.h"
#include "common/mem.h"
#include "control/control.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ NULL, 0, 0, NULL }
};

/* Stands between the node's answer and the client's: the answer says which run the typed word meant. */
struct watching { struct reply reply; struct reply *outer; struct control *control; };

static void answered(struct reply *r, json_t *result, const struct err *e)
{
	struct watching *w = container_of(r, struct watching, reply);
	const char *run = json_string_value(json_object_get(result, "run"));
	struct err why;

	if (e)
		reply_fail(w->outer, e);
	else if (run && control_follow(w->control, w->outer, "run", run, &why) < 0) {
		json_decref(result);
		reply_fail(w->outer, &why);
	} else
		reply_ok(w->outer, result);
	free(w);
}

static void run(struct cmd_call *c)
{
	struct watching *w;

	if (!c->ctx->api || !c->ctx->api->run_watch) {
		cmd_forward(c, NULL);
		return;
	}
	w = xcalloc(1, sizeof *w);
	w->reply.done = answered;
	w->outer = c->reply;
	w->control = c->ctx->control;
	c->ctx->api->run_watch(c->ctx->api->arg, c->params, &w->reply);
}

const struct cmd cmd_run_watch = { "run watch", "follow a run until it ends", params, CMD_VIEW | CMD_STREAM, NULL,
	run };

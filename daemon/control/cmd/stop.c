/* stop: drains and ends the daemon, as SIGTERM does. The reply comes at once; the connection closes at the end. */
#include "control/cmd.h"

static const struct cmd_param params[] = { { NULL, 0, 0, NULL } };

static void run(struct cmd_call *c)
{
	const struct cmd_ctx *x = c->ctx;

	reply_ok(c->reply, json_pack("{s:b}", "stopping", 1));
	if (x->stop)
		x->stop(x->main);
}

const struct cmd cmd_stop = { "stop", "checkpoint, say goodbye and end the daemon", params, CMD_STREAM, NULL, run };

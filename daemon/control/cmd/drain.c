/* drain: for a machine that is about to go away. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "in_s", CMD_DURATION, CMD_OPTION, "at most this long" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->drain : NULL);
}

const struct cmd cmd_drain = { "drain", "finish the step, hand back what was promised, say goodbye; the daemon "
	"stays", params, 0, NULL, run };

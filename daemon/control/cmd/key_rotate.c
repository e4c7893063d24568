/* key rotate: takes over a new swarm key; the old one stays good for a while. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "file", CMD_PATHS, CMD_REQUIRED, "file with the new key, mode 0600, that the daemon can read" },
	{ "window", CMD_DURATION, CMD_OPTION, "how long the old key stays good (default 1h; 0: not at all)" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->key_rotate : NULL);
}

const struct cmd cmd_key_rotate = { "key rotate", "replace the swarm key while everybody goes on", params, 0,
	"text", run };

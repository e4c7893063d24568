/* config: every key with its value, where it comes from and whether it may change while the daemon runs. */
#include "control/cmd.h"

static const struct cmd_param params[] = { { NULL, 0, 0, NULL } };

static void run(struct cmd_call *c)
{
	reply_ok(c->reply, json_pack("{s:o}", "config", conf_json(c->ctx->conf)));
}

const struct cmd cmd_config = { "config", "the settings in force and where they come from", params, CMD_VIEW,
	"config", run };

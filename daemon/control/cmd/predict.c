/* predict: what is on pictures, by a run's weights of the moment. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "files", CMD_PATHS, CMD_REQUIRED | CMD_REST, "JPEG or PNG files that the daemon can read" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->predict : NULL);
}

const struct cmd cmd_predict = { "predict", "say what is on pictures, with a run's weights of the moment", params, 0,
	"predictions:file,class,name,probability,also,error", run };

/* run list: one line per run. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "all", CMD_BOOL, 0, "also those that were over before the daemon started" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_list : NULL);
}

const struct cmd cmd_run_list = { "run list", "the runs of this peer", params, CMD_VIEW,
	"runs:run,name,author,state,strategy,epoch,epochs,samples,samples_per_s,members,loss,val_accuracy,eta_s,error",
	run };

/* run join: take part in a run of the swarm. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_STR, CMD_REQUIRED, "name of the run, or its id or the first digits of it" },
	{ "local", CMD_FILE, CMD_OPTION, "JSON file with the local part: paths, batch, threads, memory" },
	{ "data", CMD_STR, CMD_OPTION, "where this machine keeps the data: an absolute path, or a name of [data]" },
	{ "vocab", CMD_STR, CMD_OPTION, "of text: the absolute path of a tokenizer.json; without it bytes" },
	{ "weights", CMD_STR, CMD_OPTION, "absolute path of a safetensors file with the parameters to begin with" },
	{ "batch", CMD_INT, CMD_OPTION, "samples per micro-batch on this machine" },
	{ "remat", CMD_STR, CMD_OPTION, "activations that are computed twice, not kept, on this machine: periodic, "
		"boundary, periodic:SEGMENTS, periodic:BYTES, user:LAYER,..." },
	{ "threads", CMD_INT, CMD_OPTION, "threads of the train lane for this run" },
	{ "aux", CMD_BOOL, 0, "takes part without computing: reduces the others' vectors, keeps and gives the state; "
		"needs no data" },
	{ "log", CMD_STR, CMD_OPTION, "keep a run log of at most this size (64MiB) in the run's state folder" },
	{ "author", CMD_STR, CMD_OPTION, "first digits of the author, when two runs have one name" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_join : NULL);
}

const struct cmd cmd_run_join = { "run join", "take part in a run that another peer started", params, 0,
	":run,name,author,state,epoch,samples", run };

/* run plan: what the strategy planned, printed or drawn; of a run, or of a spec that does not run. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "run", CMD_SPEC, CMD_REQUIRED, "name of the run, or its id or the first digits of it; or a spec's JSON file; or, "
		"with --model, any name" },
	{ "with", CMD_PAIRS, CMD_REST, "parameters of --model as key=value words, such as layers=24" },
	{ "draw", CMD_BOOL, 0, "the chart of who does what when, instead of the instructions" },
	{ "members", CMD_INT, CMD_OPTION, "of a spec or a model: so many peers (default 1)" },
	{ "memory", CMD_STR, CMD_OPTION, "of each of them, such as 3.5GiB (default: local.memory)" },
	{ "mbit", CMD_NUM, CMD_OPTION, "megabits a second between any two (default: no time)" },
	{ "latency", CMD_DURATION, CMD_OPTION, "between any two (default 0)" },
	{ "profile", CMD_FILE, CMD_OPTION, "times of the layers, as hivectl --json model profile prints them (default: by "
		"the speed of matrix products)" },
	{ "model", CMD_STR, CMD_OPTION, "a model of the zoo (hivectl model list) instead of a spec" },
	{ "batch", CMD_INT, CMD_OPTION, "samples per micro-batch (default: the spec's, else 1)" },
	{ "remat", CMD_STR, CMD_OPTION, "activations that are computed twice, not kept, such as periodic:8" },
	{ "tbs", CMD_INT, CMD_OPTION, "target batch size: samples of an epoch (default: the spec's, else 256)" },
	{ "optimizer", CMD_STR, CMD_OPTION, "such as adamw (default: the spec's, else sgd)" },
	{ "strategy", CMD_STR, CMD_OPTION, "who computes what, such as pipeline" },
	{ "stages", CMD_JSON, CMD_OPTION, "of strategy pipeline: into how many the model is cut, a list of them, or auto" },
	{ "replicas", CMD_INT, CMD_OPTION, "of strategy pipeline: so many side by side at most" },
	{ "schedule", CMD_STR, CMD_OPTION, "of strategy pipeline: naive, gpipe, 1f1b or 2bw" },
	{ "micro_batch_size", CMD_JSON, CMD_OPTION, "of strategy pipeline: samples of each, or auto" },
	{ "micro_batches", CMD_INT, CMD_OPTION, "of strategy pipeline: of a flush" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_plan : NULL);
}

const struct cmd cmd_run_plan = { "run plan", "the instructions of the next step, as the planner gave them",
	params, CMD_VIEW | CMD_ALONE, "text", run };

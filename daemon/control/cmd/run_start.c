/* run start: the spec was read by hivectl and arrives as an object, or it is made by the node from a name, --model and
 * --data; the node judges it. */
#include "control/cmd.h"

static const struct cmd_param params[] = {
	{ "spec", CMD_SPEC, CMD_REQUIRED, "JSON file with the shared part (model, data, optimizer, ...) and perhaps a "
		"local part; or, with --model, the name of the run" },
	{ "with", CMD_PAIRS, CMD_REST, "parameters of --model as key=value words, such as stem=cifar" },
	{ "model", CMD_STR, CMD_OPTION, "a model of the zoo (hivectl model list) instead of a spec" },
	{ "tbs", CMD_INT, CMD_OPTION, "target batch size: samples per epoch of the swarm" },
	{ "lr", CMD_NUM, CMD_OPTION, "learning rate" },
	{ "optimizer", CMD_STR, CMD_OPTION, "such as sgd or adamw" },
	{ "strategy", CMD_STR, CMD_OPTION, "who computes what, such as pipeline" },
	{ "stages", CMD_JSON, CMD_OPTION, "of strategy pipeline: into how many the model is cut, a list of them, or auto" },
	{ "replicas", CMD_INT, CMD_OPTION, "of strategy pipeline: so many side by side at most" },
	{ "schedule", CMD_STR, CMD_OPTION, "of strategy pipeline: naive, gpipe, 1f1b or 2bw" },
	{ "micro_batch_size", CMD_JSON, CMD_OPTION, "of strategy pipeline: samples of each (run plan finds the best)" },
	{ "micro_batches", CMD_INT, CMD_OPTION, "of strategy pipeline: of a flush" },
	{ "epochs", CMD_INT, CMD_OPTION, "stop after so many; without it the run is endless" },
	{ "admins", CMD_STR, CMD_OPTION, "peer ids, with commas between, that may set, pause and stop the run, as its "
		"author may" },
	{ "open", CMD_BOOL, 0, "everybody in the swarm may" },
	{ "seed", CMD_INT, CMD_OPTION, "of parameters, order and augmentation" },
	{ "conv", CMD_STR, CMD_OPTION, "how convolutions compute: auto, winograd4, winograd2 or direct" },
	{ "precision", CMD_STR, CMD_OPTION, "of what products multiply: fp32, bf16 or fp16" },
	{ "name", CMD_STR, CMD_OPTION, "another name than the one in the spec" },
	{ "local", CMD_FILE, CMD_OPTION, "JSON file with the local part: paths, batch, threads, memory" },
	{ "data", CMD_STR, CMD_OPTION, "KIND:PATH, or where this machine keeps the data that the spec "
		"names: an absolute path, or a name of [data]" },
	{ "vocab", CMD_STR, CMD_OPTION, "of text: the absolute path of a tokenizer.json; without it bytes" },
	{ "weights", CMD_STR, CMD_OPTION, "absolute path of a safetensors file with the parameters to begin with" },
	{ "batch", CMD_INT, CMD_OPTION, "samples per micro-batch on this machine" },
	{ "remat", CMD_STR, CMD_OPTION, "activations that are computed twice, not kept, on this machine: periodic, "
		"boundary, periodic:SEGMENTS, periodic:BYTES, user:LAYER,..." },
	{ "threads", CMD_INT, CMD_OPTION, "threads of the train lane for this run" },
	{ "aux", CMD_BOOL, 0, "this machine computes nothing: it reduces the others' vectors, keeps and gives the "
		"state" },
	{ "log", CMD_STR, CMD_OPTION, "keep a run log of at most this size (64MiB) in the run's state folder" },
	{ "dry_run", CMD_BOOL, 0, "only say what it would need" },
	{ NULL, 0, 0, NULL }
};

static void run(struct cmd_call *c)
{
	cmd_forward(c, c->ctx->api ? c->ctx->api->run_start : NULL);
}

const struct cmd cmd_run_start = { "run start", "start a run from a spec and announce it to the swarm", params, 0,
	":run,name,author,state,dry_run,training_samples,parameters,"
	"state_bytes,arena_bytes,loader_bytes,network_bytes_per_epoch,predicted", run };

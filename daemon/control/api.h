/* What the control room asks of the node: one table of functions, given at creation, so that control knows no other
 * room's insides and can be tested with a fake. main fills it (node_api() of node.h).
 *
 * Every function gets params that already passed the command's parameter table (borrowed; take a reference to keep it)
 * and a reply that must be answered exactly once, now or later, with reply_ok or reply_fail. The connection may be gone
 * by then; answering is still right and harmless. */
#ifndef CONTROL_API_H
#define CONTROL_API_H
#include <stdbool.h>
#include <jansson.h>
#include "common/err.h"
#include "common/reply.h"

typedef void api_fn(void *arg, const json_t *params, struct reply *r);

/* A function that is NULL answers "this hivemindd cannot do that" (ERR_NO_METHOD). RUN in params is a run's name,
 * or its id or the first digits of it, as the operator typed it: resolve it, ERR_NOT_FOUND / ERR_STATE (ambiguous)
 * otherwise. */
struct api {
	void *arg;
	/* {} -> merged into control's own {version, pid, uptime_s, config, socket, store}. By convention: id, mode,
	 * listen: [..], peers: {live, known, client}, join: [{address, state, error, next_s}], runs: [run object, short],
	 * blas: {core, threads, gflops}, memory_bytes, limits, equality */
	api_fn *status;
	api_fn *peers;          /* {all: bool} -> {peers: [{id, address, state, reachable, participating, rtt_us,
	                           sent_bytes, received_bytes, samples_per_s, absent: reason}]} */
	/* {peer, time?: s, why?} -> {peer, until, seconds}; {peer} -> {peer}. peer: an id or its first digits */
	api_fn *peers_ban, *peers_unban;
	/* {} -> {id, swarm_key, fingerprint, file, old_fingerprint?, old_good_for_s?, peers_with_old_key?: [id]} */
	api_fn *key_show;
	api_fn *key_new_swarm_key;      /* {} -> {key, fingerprint} */
	api_fn *key_rotate;     /* {file: [path], window?: s} -> {fingerprint, old_fingerprint?, window_s, text} */
	api_fn *net_check;      /* {} -> {ok, findings: [{level: ok | warning | error, what, text}], text} */
	/* {spec: object, name?: string, local?: object, dry_run?: bool} -> {run, name, state, ...} */
	api_fn *run_start;
	api_fn *run_join;       /* {run, local?: object, author?: string} -> {run, name, state} */
	api_fn *run_list;       /* {all?: bool} -> {runs: [run object]}; all: those that were over before the start, too */
	api_fn *run_show;       /* {run, data?: bool} -> run object, long: spec, equality, deadlines, last rounds */
	api_fn *run_watch;      /* {run} -> run object; later news with topic "run" and this id follow until it ends */
	/* {run}: the swarm -> {run, state, peers_told}; stop {run, check?: bool} only says whether -> {run, name, state} */
	api_fn *run_pause, *run_resume, *run_stop;
	api_fn *run_leave, *run_hold;                   /* {run}: this peer; hold {run, off?: bool} */
	/* {run, draw?: bool} -> {text, plans, predicted: [...]}; {run: object, or model, ...} -> {text, members, predicted:
	 * {...}, digest, plans?} */
	api_fn *run_plan;
	/* {run} -> {batch, samples, layers_us, layers: [{name, type, forward_us, backward_us, share, gflops_per_s}],
	 * micro_batch_us, step_us, time: {wall_us, layers_us, micro_batch_us, step_us, validation_us, other_us, waiting_us,
	 * load_wait_us}, text}: times of this peer; time: all of it since its first micro-batch */
	api_fn *run_layers;
	api_fn *run_rm;         /* {run, check?: bool} -> {removed: [paths]}; check likewise */
	api_fn *set;            /* {run, values: {key: value}, at?: epoch} -> {version, epoch, peers_told} */
	api_fn *model_list;     /* {} -> {models: [{name, parameters, help}]} */
	/* {model?: name, with?: {..}, spec?: object, batch?: n} -> {name, input, output, layers: [..], parameters, macs,
	 * text} */
	api_fn *model_show;
	/* {model?, with?, spec?, batch?, passes?} -> {batch, passes, threads, forward_us, backward_us, layers_us,
	 * saved_bytes, layers: [those of model_show with forward_us, backward_us, in?], runs_training: n, text}: measured
	 * here */
	api_fn *model_profile;
	/* {model?, with?, spec?, batch?, optimizer?} -> {parameter_bytes, statistics_bytes, optimizer_bytes, kept_bytes,
	 * rest_bytes, loaded_bytes, training_bytes, use_bytes, ..., text}; {parameters} -> the same for a bare number */
	api_fn *memory;
	/* {model?, with?, spec?, batch?} -> {macs, flops, backward_macs, backward_flops, step_flops, layers, text} */
	api_fn *flops;
	/* {run, prompt?, tokens?, temperature?, top_k?, seed?} -> {generate: id, run, name, epoch, seed, prompt_tokens,
	 * answers? (it does not continue the prompt)}; then news with topic "generate" and this id: {generate, text,
	 * tokens, final?, tokens_per_s?, error?} */
	api_fn *generate;
	/* {run, files: [absolute paths]} -> {run, name, epoch, predictions: [{file, class, name?, probability,
	 * top: [{class, name?, probability}], also: [text]} or {file, error}]} */
	api_fn *predict;
	/* {run, key?} -> {values: {..}, version, history: [{key, old, new, by, wall_ms, epoch, state}]} */
	api_fn *get;
	/* {key, latest?: bool} -> {key, value | subkeys: {..}, expires_s, replicas};
	 * {keys: [..]} -> {keys: [the same], asked, found} */
	api_fn *dht_get;
	/* {key, value, subkey?, life_s?} -> {accepted, replicas}; {records: {key: value}} -> {records, accepted_at_least,
	 * refused: {key: why}} */
	api_fn *dht_put;
	/* {key, latest?: bool} -> {key, id, took_us, found, here, hops, steps: [{hop, peer, address, asked_us, took_us?,
	 * state, nodes, records}], text} */
	api_fn *dht_trace;
	/* {run, dir: [absolute path]} -> {run, name, path, epoch, parameters, tensors, bytes, peers} when it is written */
	api_fn *model_export;
	api_fn *checkpoint;     /* {run?} -> {checkpoints: [{run, epoch, path, bytes}]} when they are on the disk */
	/* {in_s?} -> finish the micro-batch, hand back ranges, goodbye; {} when done; the daemon stays */
	api_fn *drain;
};

/* A run object, as in run_list, run_watch, run_show and in news with topic "run" (absent keys: not known):
 *   run (hex id), name, author, state, strategy, epoch, epochs (target; 0: none), samples, samples_epoch,
 *   target_batch, samples_per_s (swarm), own_samples_per_s, loss, accuracy, val_loss, val_accuracy, progress (0..1),
 *   perplexity, val_perplexity (of text),
 *   eta_s, members, peers: [{id, samples_per_s, samples_epoch, state}], error, final (true: nothing more follows) */

/* News from the node, fanned out to followers. topic "run": key is the run's hex id and news a run object;
 * topic "event": key is the event's kind. news is borrowed. main passes this callback to the node. */
typedef void api_news_fn(void *arg, const char *topic, const char *key, const json_t *news);

#endif

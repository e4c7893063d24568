/* The specification of a run: one JSON object, a shared part (all peers must agree; it has a digest) and a local part
 * ("local", this machine only, never in the digest).
 *
 *   { "name": "digits",                                letters, digits, - _ . ; at most 63
 *     "input": [1, 8, 8],                              per-sample shape, images channels first
 *     "model": [{"type":"conv2d","out":8,"kernel":3,"padding":1}, {"type":"relu"}, {"type":"flatten"},
 *               {"type":"linear","out":10,"name":"fc"}],   attributes as in kernels/layer/; "name" is optional.
 *                                                      A layer reads the one before it, or "inputs":["NAME", ...] of
 *                                                      earlier layers ("input": the model's own); "share":"NAME" uses
 *                                                      that layer's parameters. Not named: its number, from "0".
 *                                                      Or one of the zoo: "resnet18", {"zoo":"gpt2","layers":6}
 *     "conv": "auto",                                  how convolutions compute: also winograd4, winograd2 or direct; a
 *                                                      layer's own "winograd" goes first
 *     "precision": "bf16",                             of what products multiply (kernels/mixed.h); absent: fp32
 *     "loss_scale": {"init_scale":65536, "growth_interval":2000},     of "fp16" (kernels/scale.h)
 *     "loss": "cross_entropy",                         kernels/loss/; a model whose output is [T, V] gives one answer a
 *                                                      position, and the data has T labels a sample. With options:
 *                                                      {"type":"cross_entropy", "label_smoothing":0.1, "ignore":-100},
 *                                                      {"type":"parts", "weights":{"text":1,"image":1000},
 *                                                       "parts":[{"name":"text","length":16},{"name":"image"}]}: the
 *                                                      positions in order, the last part takes the rest
 *     "optimizer": {"name":"adam","lr":0.001},         kernels/optim/ with its hyperparameters
 *                                                      and "decay": "weights" (default: no weight decay of biases
 *                                                      and norms) or "all"
 *     "clip_norm": 1.0,                                0 or absent: none
 *     "schedule": {"name":"cosine","total":200,"warmup":10,"min":0.01},   of lr, by epochs; absent: constant. Others:
 *                                                      step (every, gamma), linear, warmup_decay ("warmup_form":"log")
 *                                                      "unit":390: counts are in units of so many epochs, such as one
 *                                                      pass over the data; "granularity":"epoch": changes between units
 *                                                      "base_batch":256: lr is scaled by target_batch / base_batch;
 *                                                      "warmup_from":"base": from lr to that, "constant": lr, then that
 *     "target_batch": 256, "strategy": "hivemind",     samples per epoch of the swarm; train/strategy/
 *     "averaging": {"local_updates":false, "average_optimizer":false, "group_max":1024,
 *         "group_size":64, "topology":"auto", "minority_wait":3,
 *         "agree_every":16},                           topology moshpit only
 *     "plan": {"schedule":"1f1b", "stages":4, "micro_batches":8},     what a strategy is told beside numbers
 *     "data": {"name":"digits", "kind":"idx", "digest":"64 hex digits (filled in by the author's daemon)",
 *              "count":4096,                           synthetic data only: samples
 *              "broken_max":100,                       samples that may be unreadable before the peer holds
 *              "order":"ledger",                       positions come from the swarm's ledger, each to one peer; or
 *                                                      "independent": every peer walks through an order of its own
 *              "steps":[{"type":"resize","size":256}, {"type":"crop","size":[224,224],"padding":0}, {"type":"flip"},
 *                       {"type":"resized_crop","size":224,"scale":[0.08,1],"ratio":[0.75,1.333]},
 *                       {"type":"center_crop","size":224}, {"type":"shift","pixels":1},
 *                       {"type":"normalize","mean":[124,116,104],"std":58}],
 *                                                      a step without numbers may be just its name; "read", "decode"
 *                                                      first and "batch" last may be listed
 *              "materialize_after":1},                 what the first so many steps of the list make of each sample is
 *                                                      kept in a file (train/cache.h): none of them by chance
 *     "validation": {"split":0.1, "every":5},          share of the data held out (absent or 0: the data set's own
 *                                                      validation files, if any); every n epochs, 0: only at the end;
 *                                                      absent: when training has taken 20 times the last one's time
 *     "seed": 1,                                       parameters, order, augmentation
 *     "weights": {"digest":"64 hex digits"},           begin with the author's local.weights
 *     "stop": {"epochs":300, "samples":100000, "accuracy":0.97},  whichever comes first; absent: endless
 *     "nonfinite_max": 3,                              steps in a row with NaN or infinity before the run holds
 *     "redundancy": 1, "admins": ["64 hex digits"], "open": false,
 *     "local": {"data":"PATH or name", "vocab":"PATH", "cache":"DIR", "batch":32, "threads":0, "workers":1,
 *               "prefetch":0, "memory":"1GiB", "deterministic":false, "checkpoint_every":20,
 *               "checkpoint_keep":3, "log":"64MiB", "aux":false, "hold":false,
 *               "remat":{"policy":"periodic", "segments":8}} }   train/memory/; also "memory":"3GiB",
 *                                                      "checkpoints":["NAME", ...]; short: "periodic:8"
 *
 * For operators, with every range: man/hivemind-spec.5, which tests/unit/test_man_spec.c holds against the code.
 * Unknown keys are errors. Every error names its place: "model[2].kernel: ...". */
#ifndef TRAIN_SPEC_H
#define TRAIN_SPEC_H
#include <stdbool.h>
#include <jansson.h>
#include "avg/reduce.h"
#include "avg/topo.h"
#include "common/err.h"
#include "common/id.h"
#include "kernels/layer.h"
#include "kernels/model.h"
#include "kernels/optim.h"
#include "plan/planner.h"
#include "train/spec/schedule.h"

#define SPEC_NAME 64
#define SPEC_STEPS_MAX 8
#define SPEC_LAYERS_MAX 1024
#define SPEC_ADMINS_MAX 16
/* Among the live values of a run whose plans have many members: the accuracy that has ended it, which a COMMIT says. */
#define SPEC_REACHED "reached"
#define SPEC_VALIDATION_AUTO UINT64_MAX         /* so seldom that it takes a twentieth of the time */

#define STEP_CHANNELS 4
/* One step of preparation (train/step/): which, and its numbers. */
struct step_ops;
struct spec_step { const struct step_ops *ops; double mean[STEP_CHANNELS], std[STEP_CHANNELS];
	uint32_t channels, pixels, h, w;
	double area[2], ratio[2], log_ratio[2]; };      /* resized_crop */

/* Which memory pass (train/memory.h); segments or memory_bytes 0: not said. mark: layers, ascending. */
struct spec_remat { char policy[16]; uint32_t segments; uint64_t memory_bytes; uint32_t nmarks,
	mark[SPEC_LAYERS_MAX]; };

struct spec_local {
	char data[512];                         /* "" = the data's name */
	char vocab[512];                        /* of text: a tokenizer.json; "" = the folder's own, else bytes */
	char weights[512];                      /* "" or the path of a safetensors file to begin with */
	char cache[512];                        /* folder of prepared data; "" = as the daemon is configured */
	uint32_t batch;                         /* samples per micro-batch */
	uint32_t threads;                       /* of the train team; 0 = as the daemon is configured */
	uint32_t workers, prefetch;             /* data lane jobs at once; batches prepared ahead */
	uint64_t memory_bytes;                  /* budget of state and step arena; 0 = none stated */
	bool aux;                               /* computes nothing and needs no data: it reduces and keeps the state */
	bool hold;                              /* takes part, and computes nothing until it is told to */
	bool deterministic;                     /* reference matrix products, one thread: the same bytes on every machine */
	uint32_t checkpoint_every, checkpoint_keep;     /* epochs; 0 = only at the end */
	uint64_t log_bytes;                     /* of the run log at most; 0 = none is kept */
	struct spec_remat remat;
};

struct spec {
	char name[SPEC_NAME];
	json_t *shared;                         /* as written, checked, without "name" and "local"; owned */
	uint8_t digest[32];                     /* SHA-256 of its canonical text */
	struct shape input;
	enum precision precision;               /* of the model's products */
	double scale_init; uint32_t scale_interval;     /* of the loss, where precision is fp16; else 0 */
	int nlayers; struct layer_desc *layer;  /* strings live in shared; their arrays are owned */
	const struct loss_ops *loss;
	struct loss objective;                  /* that loss with its options, for the model's output */
	const struct optim_ops *optim; double hyper[OPTIM_KEYS_MAX];    /* at epoch 0, before the schedule */
	bool decay_all;                         /* vectors (biases, norms) take weight decay too */
	double clip_norm;
	struct schedule schedule;
	uint64_t target_batch;
	char strategy[32];
	const json_t *codec; enum robust robust; bool error_feedback;   /* "averaging": how vectors travel */
	struct planner_mode mode;               /* what the strategy's settings come to */
	uint32_t nsettings; struct plan_result setting[PLANNER_KEYS_MAX];       /* "averaging": the strategy's keys */
	const json_t *plan;                     /* the strategy's keys that are no numbers; NULL: none are given */
	uint32_t group_max, group_size; double minority_wait;
	const struct topo_ops *topology;        /* NULL: auto */
	uint32_t agree_every;                   /* epochs, with a topology whose members end apart */
	char data_name[SPEC_NAME], data_kind[32];
	bool has_data_digest; uint8_t data_digest[32];
	uint64_t data_samples;                  /* to train on, as the author counted them; 0: not said */
	/* The run begins with weights from a file that its author had, not from the seed; who has no such file gets them
	 * from a member. The digest is SHA-256 of parameters and running statistics as F32. */
	bool has_weights, has_weights_digest; uint8_t weights_digest[32];
	uint64_t data_count;                    /* of synthetic data */
	/* Every peer draws an order of its own from the seed and order_key, which its owner makes of its id. */
	bool independent; uint64_t order_key;
	uint64_t broken_max;
	int nsteps; struct spec_step step[SPEC_STEPS_MAX];
	int materialize; size_t materialize_listed;     /* steps that are kept (-1: none are); entries of the list */
	double validation_split; uint64_t validation_every;    /* epochs; 0: only at the end; SPEC_VALIDATION_AUTO */
	uint64_t seed;
	uint64_t stop_epochs, stop_samples;     /* 0 = none */
	double stop_accuracy;                   /* 0 = none */
	uint32_t nonfinite_max, redundancy;
	size_t nadmins; struct id admin[SPEC_ADMINS_MAX];
	bool open;                              /* whoever is in the swarm may do what admins may */
	struct spec_local local;
	/* where prepared data goes when local.cache does not say; set by the owner */
	char cache_dir[512];
	uint64_t cache_max;                     /* bytes that it may take; 0: no limit; set by the owner, too */
};

/* A whole spec from text (a file that an operator wrote). NULL and e. */
struct spec *spec_parse(const char *text, size_t n, struct err *e);
/* From parts: shared is what another peer published, local this machine's (NULL: defaults). Both borrowed. */
struct spec *spec_of(const char *name, const json_t *shared, const json_t *local, struct err *e);
struct spec *spec_of_json(const json_t *whole, struct err *e);          /* as spec_parse; borrowed */
/* Other names of settings become ours, in place: the first thing that is done with what an operator wrote. */
int spec_aliases(json_t *whole, struct err *e);
void spec_free(struct spec *s);                                         /* NULL is fine */

/* replaces the local part; unchanged on error */
int spec_set_local(struct spec *s, const json_t *local, struct err *e);
void spec_set_weights_digest(struct spec *s, const uint8_t digest[32]);        /* likewise */
/* author only, before the run id is made; samples: to train on */
void spec_set_data_digest(struct spec *s, const uint8_t digest[32], uint64_t samples);
json_t *spec_local_json(const struct spec *s);                          /* new reference */
struct memory_pass spec_memory(const struct spec_local *l);             /* of its remat; valid as long as *l */
/* RFC 8785's idea: keys sorted by bytes, no blanks, whole numbers without a point, other reals with 17 digits.
 * free(). */
char *spec_canonical(const json_t *j);
/* SHA-256(author key || name || canonical shared part). */
void spec_run_id(const struct spec *s, const struct id *author, struct id *ret_run);
/* The first place where two shared parts differ: "optimizer.lr: 0.01 here, 0.1 there". false: equal. */
bool spec_diff(const json_t *here, const json_t *there, char *ret_text, size_t cap);

/* model_free() it. host NULL: nobody waits in sleep layers. The second: for an input of another shape. */
struct model *spec_model(const struct spec *s, const struct layer_host *host, struct err *e);
struct model *spec_model_of(const struct spec *s, const struct shape *input, const struct layer_host *host,
	struct err *e);
uint64_t spec_epoch_samples(const struct spec *s, uint64_t target_batch);      /* of the whole swarm */
double spec_lr_factor(const struct spec *s, uint64_t epoch);            /* equal bits on every machine */
double spec_lr_factor_of(const struct spec *s, uint64_t target_batch, uint64_t epoch);  /* when that was changed live */
/* The strategy's settings may be changed live, too: is s what live (all that holds) says; may it become that (the same
 * vectors of state, the same contribution); it becomes that. Who carries the run then begins anew with it. */
bool spec_mode_fits(const struct spec *s, const json_t *live);
int spec_mode_check(const struct spec *s, const json_t *live, struct err *e);
int spec_mode_take(struct spec *s, const json_t *live, struct err *e);
/* The target batch that live says, else the spec's; live may be NULL. */
uint64_t spec_live_target(const struct spec *s, const json_t *live);

/* Ids as "admins" has them: an array of texts, or one text with commas between. At most SPEC_ADMINS_MAX. */
int spec_admins(const json_t *v, struct id ret[SPEC_ADMINS_MAX], size_t *ret_n, struct err *e);
/* Live hyperparameters: the optimizer's keys, clip_norm, of "averaging" codec, robust and error_feedback, and admins.
 * The object that COMMITs carry starts as spec_live(). */
json_t *spec_live(const struct spec *s);                                /* new reference */
int spec_live_check(const struct spec *s, const json_t *patch, struct err *e);  /* a patch for `set` */
/* Applies a whole live object (as from a COMMIT) to values; unknown keys are errors. */
int spec_live_apply(const struct spec *s, const json_t *live, double *ret_hyper, double *ret_clip_norm, struct err *e);

#endif

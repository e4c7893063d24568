/* Runs: training jobs of this peer, and the life of each as a table of states. A run ties the trainer (numbers), the
 * averager (the swarm), checkpoints and the store together; it decides nothing about strategies or protocols. */
#ifndef DAEMON_RUN_H
#define DAEMON_RUN_H
#include <jansson.h>
#include "common/conf.h"
#include "common/hash.h"
#include "common/reply.h"
#include "dht/dht.h"
#include "kernels/layer.h"
#include "net/chunk.h"
#include "store/store.h"

/* Where kernels execute. load() is called in a lane before the first run is built: it opens OpenBLAS and times it, 10
 * to 160 ms, once; par() then only hands out what is there, on the loop (and loads by itself where load is NULL or was
 * not called). The simulator gives the serial reference. The par lives as long as the daemon. */
struct compute {
	const struct par *(*par)(void *arg, int threads /* 0 = as configured */, struct err *e);
	void (*load)(void *arg);                /* in any lane; may be NULL */
	json_t *(*describe)(void *arg);         /* {core, threads, gflops, ...} for status; may be NULL */
	/* Who waits for the sleep layers of one run; NULL: nobody, as in virtual time, where jobs have modelled costs. */
	struct rest *(*rest)(void *arg);
	void *arg;
};
/* host.wait blocks the lane that runs the layer. stop wakes who waits now and ends every later wait at once, so that
 * closing a run never takes as long as its layers; free once no job of the run is left. */
struct rest { struct layer_host host; void (*stop)(struct rest *t); void (*free)(struct rest *t); };

struct runs_ctx {
	struct env *env; struct net *net; struct chunks *chunks; struct dht *dht; struct store *store; /* may be NULL */
	const struct conf *conf; const char *state_dir; struct compute compute; const char *version;
	void (*news)(void *arg, const char *topic, const char *key, const json_t *news); void *news_arg;
	bool (*heard)(void *arg, const char *topic, const char *key);   /* does anybody follow this? NULL: yes */
	uint64_t memory_bytes;                  /* of this machine; 0: not known */
	enum hashes hashes;                     /* of states and means: the newest that this peer knows; 0: the first */
	bool asks_names;                        /* whoever starts a run hears of others' of that name */
};
struct runs;
struct runs *runs_new(const struct runs_ctx *ctx, struct err *e);       /* resumes what the store says was running */
void runs_free(struct runs *rs);                                        /* at once */
/* Every run leaves its round, hands back its ranges, checkpoints; done once all have or at deadline_us. */
void runs_twin(struct runs *rs);                /* another process has this daemon's key: it leaves them all */
void runs_drain(struct runs *rs, uint64_t deadline_us, void (*done)(void *arg), void *arg);
/* Nobody waits for sleep layers any more; before the env is detached, which waits for every job. */
void runs_wake(struct runs *rs);
json_t *runs_json(struct runs *rs);     /* array of run objects (control/api.h), of those that are not over */
size_t runs_active(const struct runs *rs);
/* Whether the peer takes part in a run, and why not: fills keys of a peer object of `peers`. */
void runs_describe_peer(struct runs *rs, const struct id *peer, json_t *obj);

typedef void run_op(struct runs *rs, const json_t *params, struct reply *r);
run_op runs_start, runs_join, runs_list, runs_show, runs_watch, runs_pause, runs_resume, runs_stop, runs_leave,
	runs_hold,
	runs_plan, runs_layers, runs_rm, runs_memory, runs_generate, runs_predict, runs_set, runs_get, runs_checkpoint,
	runs_export, runs_model_profile;

#endif

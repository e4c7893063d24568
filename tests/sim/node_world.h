/* Peers that are whole nodes: node_new of node/node.c, as main builds it, on the simulated env, its files and its
 * shelf. What a machine has beside that is stood in for: no store (SQLite), the serial reference instead of OpenBLAS,
 * and sleep layers whose time is virtual. An operator who never tires (a timer) starts the run on one peer and lets the
 * others join it, again after every restart. chain_check.h and table_check.h watch all of them. */
#ifndef TESTS_SIM_NODE_WORLD_H
#define TESTS_SIM_NODE_WORLD_H
#include "kernels/par.h"
#include "node/node.h"
#include "run/int.h"
#include "sim.h"

#define SEC 1000000ull
#define MSEC 1000ull
#define NODES_MAX 1024                          /* in the world */
#define NODE_SEEDS 3                            /* peers whose addresses everybody is configured with */

enum node_who { NODE_ITSELF, NODE_OTHER_SWARM, NODE_OTHER_PEER };
struct node_world;
struct node_peer {
	struct env *env; struct node_world *w; int index;
	struct node *node; struct conf *conf;
	struct timer operator; uint64_t operator_us; struct reply reply; bool asking, starting;
	char why[200];                          /* the last refusal that its operator read */
	uint64_t events;                        /* of LOG_WARN_ or worse */
};
struct node_world {
	struct sim *s; struct par par;
	const char *spec;                       /* of the run; NULL: there is none */
	int author; bool started;               /* the peer that starts it; has it? */
	uint32_t batch;                         /* of every peer; 0: as in the spec */
	uint32_t batch_of[NODES_MAX];           /* of one; 0: as of every peer */
	const char *remat_of[NODES_MAX];        /* its --remat; NULL: as in the spec */
	uint16_t version_min[NODES_MAX], version_max[NODES_MAX];        /* 0: what this program speaks */
	enum hashes hashes[NODES_MAX];          /* that it knows from its next start on; 0: the first */
	bool client[NODES_MAX], idle[NODES_MAX] /* its operator joins nothing */;
	enum node_who stranger[NODES_MAX];      /* who has its address from its next start on; another should be idle */
	uint8_t seed[NODES_MAX][32]; bool has_seed[NODES_MAX];          /* chosen identities */
	uint32_t peer_frames;                   /* [network] peer_frames_max; 0: as everywhere */
	void (*born)(struct node_world *w, struct node_peer *p);        /* told of every start; may be NULL */
	bool forks_allowed;                     /* two histories may exist for a while: the swarm was divided */
	int alone;                              /* a peer that may commit what nobody else adopts; -1 */
	char told[64][32]; unsigned ntold;      /* kinds of events that operators could read, each once */
	char text[64][200];                     /* the latest text of each */
	uint64_t late_us;                       /* longest that an operator's timer waited for its loop */
	struct chain_check *chain; struct table_check *table;
};

struct node_world *node_world_new(struct sim *s, const char *spec /* NULL: no run; must live as long */);
void node_world_free(struct node_world *w);     /* kills who still lives */
void node_world_add(struct node_world *w, int n);
struct node_peer *node_peer(struct node_world *w, int node);    /* NULL while it is dead */
/* Its run, the newest: NULL while it is in none. */
struct run *node_run(struct node_world *w, int node);
const char *node_told(const struct node_world *w, const char *kind);   /* the latest text; NULL: nobody was told */

int node_any(struct node_world *w);             /* a living peer, by chance */
int node_alive(struct node_world *w);           /* how many live */
uint64_t node_newest(struct node_world *w);     /* the greatest epoch of a living peer */
int node_leader(struct node_world *w);          /* whom a living member believes to lead; -1 */
bool node_all_joined(struct sim *s, void *world);       /* into the table, and at rest */
/* Every living peer whose operator wants it trains in the run, and has applied at least this epoch. */
bool node_all_at(struct node_world *w, uint64_t epoch);
bool node_run_to(struct node_world *w, uint64_t epoch, uint64_t limit_us);      /* late, or failed, when not reached */
/* That many epochs more than the newest, all of them; then all hold the same at the same epoch. */
void node_goes_on(struct node_world *w, uint64_t epochs, uint64_t limit_us);
void node_same(struct node_world *w);
void node_in_time(struct node_world *w);        /* late when a loop was held up for 50 ms or more */
void node_seed(int node, uint8_t ret_seed[32]); /* of its identity, unless the world has chosen another */

/* Questions as an operator asks them; the answer is the caller's to json_decref, NULL: refused, *e says why. */
typedef void node_ask_fn(void *node, const json_t *params, struct reply *r);
json_t *node_ask(struct node_world *w, int node, node_ask_fn *fn, json_t *params /* stolen */, struct err *e);
/* The same while something happens to others; node_answer waits, and frees it. */
struct question *node_ask_soon(struct node_world *w, int node, node_ask_fn *fn, json_t *params /* stolen */);
json_t *node_answer(struct node_world *w, struct question *q, uint64_t limit_us, struct err *e);
/* One record under the key, from that peer, after at most 20 s: how many there are. */
size_t node_find_records(struct node_world *w, int node, const char *key);
/* From least to most peers' records are found from there, now; late when they are within a minute, failed when
 * never. */
void node_finds(struct node_world *w, int node, size_t least, size_t most);
void node_print(struct node_world *w);          /* to stderr */

/* A run of naps: each micro-batch takes that many virtual ms, each epoch that many samples. */
const char *node_naps(char out[700], unsigned nap_ms, unsigned target_batch);
/* 5 x width parameters; 15 else */
const char *node_naps_of(char out[700], unsigned width, unsigned nap_ms, unsigned target_batch);
/* n peers in a run of naps of 200 ms, two of each peer an epoch, all of them at that epoch. */
struct node_world *node_begin(struct sim *s, int n, uint64_t epochs);
void node_end(struct node_world *w);            /* no loop was late; frees it */

#endif

/* A world of peers that are a network room and a table and nothing more, and the waiting forms of its calls.
 * After every event table_check.h has its say. */
#ifndef TESTS_SIM_DHT_WORLD_H
#define TESTS_SIM_DHT_WORLD_H
#include "dht/dht.h"
#include "sim.h"

#define SEC 1000000ull

struct dht_world { struct dht_conf conf; struct endpoint boot; bool no_boot;
	int clients;                                    /* nodes from this number on only dial out; 0: none do */
	bool second[64];                                /* can be dialled at dht_second, too, and says so in HELLO */
	int64_t clock_ms[64];                           /* how wrong the clock of that node is from its start on */
	bool unchecked;                                 /* a figure: of the table alone */
	struct table_check *check; };
struct dht_peer { struct env *env; struct net *net; struct dht *dht; };

void dht_add(struct sim *s, struct dht_world *w, int n);        /* w outlives the nodes */
struct endpoint dht_second(int node);
struct dht *dht_of(struct sim *s, int node);
struct net *dht_net(struct sim *s, int node);
int dht_any(struct sim *s);                             /* one that lives, by chance */
bool dht_all_joined(struct sim *s, void *arg);
bool dht_flag(struct sim *s, void *arg);                /* arg: a bool */
void dht_joined(struct sim *s);                         /* waits until all are, and are at rest */

uint32_t dht_records(struct sim *s, int node);          /* that lie there */
uint32_t dht_copies(struct sim *s);                     /* of all, with all who live */

struct dht_put_end { bool done; uint32_t accepted, wanted; enum err_code code; char text[160]; };
struct dht_put_end dht_put_wait(struct sim *s, int node, const char *key, const char *sub, json_t *value,
	uint64_t life_ms, bool sign);
struct dht_get_end { bool done; struct err e; size_t n; char value[64]; uint64_t life_ms; struct id owner; };
struct dht_get_end dht_get_wait(struct sim *s, int node, const char *key, bool latest);
/* one record with this value */
void dht_want(struct sim *s, int node, const char *key, int value);
struct dht_find_end { bool done; size_t n; struct id id[32]; };
struct dht_find_end dht_find_wait(struct sim *s, int node, const struct id *target);
/* So many keys, a hundred at a time, each by a node of chance that lives. life_ms: they are stored, and found are those
 * that are on as many nodes as wanted, fewest is how many at least; 0: they are looked for. */
struct dht_looked { int open, found; uint64_t hops; uint32_t hops_max, fewest; };
struct dht_looked dht_look(struct sim *s, int keys, uint64_t life_ms);

#endif

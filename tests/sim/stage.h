/* One stage, two worlds: the same scripted protocol runs on the simulated env and on the real one (libevent, nanomsg on
 * loopback), and must give the same trace: which messages each node received and how each thing it asked for ended, in
 * order, times ignored. A node is the net room with a few handlers. */
#ifndef TESTS_SIM_STAGE_H
#define TESTS_SIM_STAGE_H
#include <stdbool.h>
#include "common/buf.h"
#include "env.h"
#include "net/chunk.h"
#include "net/net.h"

#define CAST_MAX 5
struct stage;
struct actor {
	struct stage *stage;
	int index;
	bool client, alive;
	struct env *env;
	struct net *net;
	struct id id;                           /* stays through kills */
	struct chunks *chunks;
	struct endpoint at;
	struct buf trace;                       /* lines; survives kills */
	void (*recv)(void *arg, struct via via, uint8_t *msg, size_t len);       /* net's own */
	void *recv_arg;
	unsigned handled, dead[CAST_MAX];
};

/* The world under the stage. */
struct world_ops {
	int (*raise)(struct stage *s, int node);        /* starts it: fills env and at, calls stage_enter */
	void (*fell)(struct stage *s, int node);        /* kills it: calls stage_leave on the way */
	bool (*until)(struct stage *s, bool (*cond)(void *arg), void *arg, uint64_t limit_us);
	void (*close)(struct stage *s);
};
struct stage { const struct world_ops *ops; void *world; int n; struct actor cast[CAST_MAX]; };

struct stage *stage_sim(int n, const char *clients, uint64_t seed);
struct stage *stage_real(int n, const char *clients);           /* clients: 'c' for a client, anything else not */
void stage_free(struct stage *s);
void stage_enter(struct actor *a, struct env *env);             /* builds the rooms */
void stage_leave(struct actor *a);
bool stage_play(struct stage *s, const char *script);           /* false: a step did not end, or is unknown */
void stage_note(struct actor *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif

/* THE SIMULATED WORLD: struct env for N nodes in one process on one event heap ordered by (time, sequence), a virtual
 * clock and one seed. The same seed gives the same events; sim_hash() proves it.
 *
 * What the network does to you: connections are made on the first send and take two round trips; a
 * packet that was taken (`gone(sent = true)`) may still be lost: when a connection breaks, a random suffix of what is
 * in the two socket buffers is lost, and the rest arrives late, interleaved with the new connection's messages; a cut
 * link says nothing at all and delivers at TCP's next retransmission after it has healed; a dead process shows only in
 * linkinfo, 0.7 to 3.3 ms later; an answer sent through a door whose pipe is busy vanishes. Order holds in one
 * connection only.
 *
 * What time does: a node's loop is one server: each handled message costs 10 us of it, every timer or completion
 * 1 us; a job runs in its lane when the lane is free, and its done comes job->cost_us later.
 *
 * Nodes are numbered 0.. in the order of sim_node_add; -1 means all of them where it says so. Times are in us. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"
#include "common/rng.h"
#include "env.h"

#define SIM_NODES_MAX 1024
struct sim;
struct sim *sim_new(uint64_t seed);
void sim_free(struct sim *s);                           /* stops all nodes; NULL is fine */
/* Called by sim_free, when all of them have stopped. */
void sim_at_end(struct sim *s, void (*fn)(void *arg), void *arg);
uint64_t sim_seed(const struct sim *s);
uint64_t sim_now(const struct sim *s);                  /* starts at 1 s */
struct rng *sim_rng(struct sim *s);                     /* the scenario's own chance */

/* ---- nodes ---- start builds the node on env and returns it (not NULL); stop frees it: it is called by sim_kill and
 * sim_free with an env that no longer reaches the world. stop should call env->ops->detach first. */
/* start may return NULL only when a fault struck it: the node is dead then. */
struct sim_app { void *(*start)(struct env *env, int node, void *arg); void (*stop)(void *app); void *arg; };
/* Starts it at once. at NULL = 10.0.x.y with ports 4237, 4238, 4239; ports 0 = a client, whom nobody can dial. */
int sim_node_add(struct sim *s, const struct endpoint *at, const struct sim_app *app);
/* The node can be dialled at this address, too, or (up: false) at this one no longer: what is on its way there is lost
 * without a word. Before anybody dials it. */
void sim_address(struct sim *s, int node, const struct endpoint *at, bool up);
int sim_nodes(const struct sim *s);
void *sim_app(struct sim *s, int node);                 /* what start returned; NULL while it is dead */
struct env *sim_env(struct sim *s, int node);
const struct endpoint *sim_endpoint(const struct sim *s, int node);
int sim_node_of(const struct sim *s, const struct env *env);

/* ---- running ---- both end early when the scenario has failed */
/* limit: from now */
bool sim_run_until(struct sim *s, bool (*cond)(struct sim *s, void *arg), void *arg, uint64_t limit_us);
void sim_run_for(struct sim *s, uint64_t us);
void sim_at(struct sim *s, uint64_t at_us, void (*fn)(struct sim *s, void *arg), void *arg);
/* Whose code has run in the last event: a node's, nobody's, or anybody's may have (several, or the scenario's). */
#define SIM_NOBODY (-1)
#define SIM_ANYBODY (-2)
int sim_touched(const struct sim *s);
/* Asked after every event: 0, or -1 and why. Several may be set. */
void sim_after_event(struct sim *s, int (*check)(struct sim *s, void *arg, struct err *e), void *arg);

/* ---- two verdicts ---- the first of each stays.
 * Failed: what may never be (two histories, samples lost or counted twice, unequal bits, a forged record believed, a
 * call that never ends, a crash, nothing goes on). The world stops there.
 * Late: a bound of time, counts or luck was missed. The world goes on; scn_main judges how many seeds are late. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *sim_failed(const struct sim *s);            /* NULL = fine */
void sim_late(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *sim_was_late(const struct sim *s);          /* NULL = in time */
const char *sim_trouble(const struct sim *s);           /* either of them, for who prints it */
#define sim_check(s, cond) do { if (!(cond)) sim_fail((s), "%s:%d: %s", __FILE__, __LINE__, #cond); } while (0)
#define sim_in_time(s, cond) do { if (!(cond)) sim_late((s), "%s:%d: %s", __FILE__, __LINE__, #cond); } while (0)
/* Takes over the verdicts of another world; the second with these words in front of them. */
void sim_told(struct sim *s, const struct sim *own);
void sim_told_of(struct sim *s, const struct sim *own, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Does it come? What comes after the limit, and within SIM_NEVER_US more, is late: *late_us says by how much (0: in
 * time). */
#define SIM_NEVER_US (60 * 1000000ull)
bool sim_comes(struct sim *s, bool (*cond)(struct sim *s, void *arg), void *arg, uint64_t limit_us, uint64_t *late_us);
/* The same, judged: late, or failed when it never comes. */
#define sim_await(s, cond, arg, limit_us) sim_await_at((s), (cond), (arg), (limit_us), __FILE__, __LINE__, #cond)
/* In words of one's own: what is wrong until it comes. */
bool sim_await_or(struct sim *s, bool (*cond)(struct sim *s, void *arg), void *arg, uint64_t limit_us,
	const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
bool sim_await_at(struct sim *s, bool (*cond)(struct sim *s, void *arg), void *arg, uint64_t limit_us, const char *file,
	int line, const char *what);

/* ---- faults: processes ---- */
/* SIGKILL: peers' links break; unsynced file writes may be lost */
void sim_kill(struct sim *s, int node);
void sim_power_off(struct sim *s, int node);            /* the same, but the links say nothing */
/* start again on the same files and shelf (kills it if alive) */
void sim_restart(struct sim *s, int node);
void sim_pause(struct sim *s, int node);                /* SIGSTOP */
void sim_resume(struct sim *s, int node);
bool sim_alive(const struct sim *s, int node);

/* ---- faults: links ---- */
struct sim_link { uint64_t latency_us, jitter_us, bytes_per_s /* 0 = unlimited */,
	break_every /* mean messages; 0 = never */; };
/* -1 = any; later calls win. Default 100 us, 20 us */
void sim_link(struct sim *s, int from, int to, const struct sim_link *l);
/* One line between these nodes and all others, which they share: bytes/s and latency each way. A node is behind one. */
#define SIM_LINES_MAX 8
void sim_line(struct sim *s, const int *nodes, int n, uint64_t latency_us, uint64_t bytes_per_s);
void sim_break(struct sim *s, int a, int b);            /* resets the connections between them now */
void sim_cut(struct sim *s, int from, int to);          /* one direction carries nothing (-1 = any); asymmetric */
void sim_cut_both(struct sim *s, int a, int b);
/* cuts both ways between nodes of different sides; n nodes */
void sim_partition(struct sim *s, const int *side, int n);
void sim_heal(struct sim *s);                           /* all cuts */
/* [network] rate_limit_up and _down of the node, bytes/s, in force at once, also after its restart; 0 = none */
void sim_rates(struct sim *s, int node, uint64_t up, uint64_t down);

/* ---- faults: disk, chance, clock ---- */
/* the nth file call from now, 1 = next; 0 = never */
void sim_files_fail(struct sim *s, int node, int nth, enum err_code code);
/* Jobs of that lane take so many times as long, until the node starts anew. */
void sim_lane_slow(struct sim *s, int node, const char *lane, unsigned times);
void sim_disk_full(struct sim *s, int node, int64_t free_bytes);                /* writes beyond fail; -1 = endless */
/* at the nth file call from now the process is killed, inside that call */
void sim_files_kill(struct sim *s, int node, int nth);
void sim_shelf_fail(struct sim *s, int node, int nth, enum err_code code);
/* The nth allocation from now of those that may fail (big_alloc in common/mem.h) finds no memory; 0 = never. One node
 * at a time; small ones abort a process by design, and a simulated process shares its memory with the others. */
void sim_memory_fail(struct sim *s, int node, int nth);
bool sim_struck(const struct sim *s, int node);         /* has a fault hit it since it was started or armed last? */
void sim_wall_jump(struct sim *s, int node, int64_t ms);
enum sim_fate { SIM_ERROR, SIM_KILL, SIM_PAUSE };
/* At the nth time that the node (-1 = any) passes the point (1 = next). A killed node does nothing more that anybody
 * could see, and is freed when its callback has returned. */
void sim_failpoint(struct sim *s, int node, const char *point, enum sim_fate fate, int nth);
/* The same of any node for which `who` says so at that moment; it is not asked again once this has struck. */
typedef bool sim_who_fn(void *arg, int node);
void sim_failpoint_of(struct sim *s, sim_who_fn *who, void *arg, const char *point, enum sim_fate fate, int nth);
bool sim_failpoint_hit(const struct sim *s, const char *point);                 /* has one of that name struck? */

/* ---- costs and limits ---- */
struct sim_costs {
	uint64_t recv_us, callback_us, slow_us;         /* 10, 1, 50 000 */
	/* calls wait so long behind bulk on a thin link at most (nano_pace.c aims at 25 ms); 0 = for all of it */
	uint64_t call_queue_us;
	uint32_t ctrl_buf, bulk_buf, queue_max;         /* SNDBUF = RCVBUF; bytes that wait before a socket */
	uint32_t door_drop;                             /* 1 of so many answers finds the pipe busy; 0 = none. 500 */
	uint32_t stall_every;                           /* mean callbacks until a loop is held up for up to 5 ms, and finds
	                                                 * what came meanwhile in any order of connections; 0 = never */
	uint64_t events_max;                            /* more have failed: it does not end. 30 million; 0 = no limit */
};
struct sim_costs *sim_costs(struct sim *s);             /* may be changed before nodes are added */
void sim_burn(struct env *env, uint64_t us);            /* the running callback costs that much more loop time */

/* ---- traces and figures ---- */
void sim_trace(struct sim *s, const void *p, size_t n); /* adds the scenario's own facts to the hash */
uint64_t sim_hash(const struct sim *s);
/* Called for every message handed to a connection; for protocol traces. head: the first bytes on the wire (the plain
 * header). */
void sim_tap(struct sim *s, void (*fn)(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len),
	void *arg);
struct sim_stats {
	uint64_t events, sent, delivered, lost, bytes_sent, bytes_read, breaks, refused, door_drops, jobs, fail_points;
	uint64_t loop_alarms /* callbacks over slow_us */, lag_us_max /* longest wait of a due event for its loop */;
};
void sim_stats(const struct sim *s, struct sim_stats *ret);

/* ---- scenario programs ---- a file scn_x.c ends with
 *	static const struct scn list[] = { SCN(join), SCN(churn), {0} };
 *	int main(int argc, char **argv) { return scn_main(list, argc, argv); }
 * and is one row in tests/sim/meson.build. Each scenario runs with 10 seeds (SEEDS=n, SEED=first in the
 * environment), each in a process of its own and twice with equal hashes; arguments name scenarios. A failure prints
 * "SEED=n name: why", a seed that is late "LATE=n name: why", the end of a scenario how many seeds ran, failed and
 * were late, and whether those are too many (tests/verdict.py reads all of it). After the first late one more seeds
 * run, up to LATE_DRAWN (12): more than 2 of 12 are too many, of all or of one row of a table, and so is the one that
 * was asked for alone. */
struct scn { const char *name; void (*run)(struct sim *s); uint64_t cells; };
#define SCN(name) { #name, scn_##name, 0 }
/* A table of which each seed takes the row seed % n: when a row is late, more seeds of that very row are drawn. */
#define SCN_CELLS(name, n) { #name, scn_##name, n }
int scn_main(const struct scn *list, int argc, char **argv);

#endif

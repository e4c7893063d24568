/* One direction of one link, without any clock or socket of its own: packets go in at a time, and come out at a later
 * one or not at all. Bottleneck first (a token bucket in front of a queue that is bounded in bytes, tail drop), then
 * the wire (delay, jitter, loss). What is lost on the wire has been through the bottleneck and took its time there.
 *
 * Chance is a function of the seed and the packet's number, so that the pattern of losses is the same in every run
 * whatever the times are. */
#ifndef TESTS_LINK_EMU_H
#define TESTS_LINK_EMU_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"
#include "common/list.h"

struct emu_conf {
	uint64_t rate_bps;                      /* bits/s of whole IP packets; 0 = no bottleneck */
	uint64_t queue_bytes;                   /* in front of it; 0 = what goes out in 200 ms, at least 32 KiB */
	uint64_t burst_bytes;                   /* what may go at once after idling */
	uint64_t delay_us, jitter_us;           /* uniform in delay +- jitter */
	double loss;                            /* share of packets, 0 to 1 */
	bool reorder;                           /* packets may overtake each other; else order is kept */
};

struct emu_packet { struct list link; uint64_t due_ns; bool lost; int to; size_t len; uint8_t bytes[]; };

struct emu_stats { uint64_t packets, bytes, overflowed, lost, cut, queue_us_max; };

struct emu {
	struct emu_conf conf;
	uint64_t seed, number;
	uint64_t busy_ns;                       /* the bottleneck is through with what it has at that time */
	uint64_t last_ns;                       /* the latest delivery so far */
	struct list packets;                    /* in the order of delivery */
	struct emu_stats stats;
};

void emu_init(struct emu *m, uint64_t seed);
void emu_free(struct emu *m);                   /* its packets; not m */
/* What is in the queue goes out at the new rate. */
void emu_set(struct emu *m, const struct emu_conf *c, uint64_t now_ns);
/* "rate=10mbit", "delay=50ms", "jitter=5ms", "loss=0.5%", "queue=64KiB", "burst=16KiB", "reorder=yes". */
int emu_parse(struct emu_conf *c, const char *word, struct err *e);
uint64_t emu_queue_bytes(const struct emu_conf *c);     /* the bound in force */
uint64_t emu_backlog(const struct emu *m, uint64_t now_ns);     /* bytes that wait for the bottleneck */
/* Copies the packet; false: the queue was full. to is the caller's (whom it is for). */
bool emu_put(struct emu *m, uint64_t now_ns, const void *bytes, size_t len, int to);
uint64_t emu_next(const struct emu *m);         /* when the next packet is due; UINT64_MAX: there is none */
/* The next packet that is due, which is the caller's to free(); NULL: none. Lost ones end here. */
struct emu_packet *emu_take(struct emu *m, uint64_t now_ns);

#endif

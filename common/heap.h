/* Timer heap: a binary min-heap over struct timer embedded in its owner; ties go to the one armed first. */
#ifndef COMMON_HEAP_H
#define COMMON_HEAP_H
#include <stddef.h>
#include <stdint.h>

struct timer {
	uint64_t at_us;                     /* when it fires; 0 = disarmed */
	uint64_t seq;                       /* arming order, breaks ties */
	size_t slot;                        /* index in the heap + 1; 0 = not in it */
	void (*fire)(struct timer *t);      /* called on the loop, already disarmed; may re-arm or free its owner */
	const char *name;                   /* shown when it runs for too long */
};

/* at and seq again, so that the order is known without going to the timers */
struct heap_slot { uint64_t at_us, seq; struct timer *t; };
struct heap { struct heap_slot *v; size_t n, cap; uint64_t seq; };

void heap_init(struct heap *h);
void heap_done(struct heap *h);                               /* frees the array, not the timers */
void heap_set(struct heap *h, struct timer *t, uint64_t at_us); /* arms, re-arms; 0 disarms */
struct timer *heap_peek(const struct heap *h);                /* earliest or NULL */
struct timer *heap_pop(struct heap *h);                       /* takes the earliest out and disarms it */

#endif

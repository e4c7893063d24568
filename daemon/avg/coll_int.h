/* Inside the strict collectives: coll.c has what callers ask for and how it ends, coll_step.c moves and sums ranges of
 * a vector, coll_sum.c adds elements of every type. */
#ifndef AVG_COLL_INT_H
#define AVG_COLL_INT_H
#include "avg/coll.h"
#include "common/list.h"

#define COLL_DIRECT 16384                       /* bytes: below it latency counts, not bandwidth */
#define COLL_SPARES 8

struct spare { void *p; size_t bytes; };
struct coll {
	struct env *env; struct net *net; struct chunks *chunks; struct list open; struct spare spare[COLL_SPARES];
};
struct step;
struct piece { struct step *s; struct xfer *x; bool done; };
/* Who has the sums in the end: everybody all of them, everybody its part, or one all of them. */
enum coll_whose { COLL_ALL, COLL_PART, COLL_ROOT };
/* What the caller asked for. */
struct op {
	struct list link; struct coll *c; struct timer later; struct list steps;
	struct id *members, tag; uint32_t n, me, root; uint64_t seq, deadline_us;
	enum coll_op op; enum coll_type type; enum coll_whose whose; enum net_class cls;
	char *out;                              /* COLL_PART: where my part of the sums goes */
	char *x; size_t size /* of an element */, len, at /* not begun yet */; uint32_t number;
	bool ended; struct err why; coll_done_fn *done; void *arg;
};
/* A range of the vector on its way: len elements from x on, of which this member sums [lo, hi). */
struct step {
	struct list link; struct op *o; struct job job; uint32_t number;
	char *x; size_t len, lo, hi, raw_bytes;
	char *raw;                              /* what the others sent of my part (butterfly) or of all (direct) */
	char *sum;                              /* where the sums go: my part of x, unless x is to stay as it is */
	struct piece *in, *out, *result_in, *result_out;
	bool direct, sums, summing, summed; uint32_t left;      /* transfers and the sum that must end well */
};

/* Ends it for the caller, from a timer, once; e NULL: well. */
void coll_end(struct op *o, const struct err *e);
/* Tells the caller, unless a lane still holds its memory. */
void coll_over(struct op *o);
/* Drops its transfers. */
void coll_step_cancel(struct step *s);
void coll_step_free(struct step *s);
/* The whole of what remains as one step that only moves; it has begun when coll_step_less is called once more. */
struct step *coll_only_step(struct op *o);
/* Begins as many steps of a reduction as may be under way at once. */
void coll_begin_steps(struct op *o);
/* One thing less that must end well. */
void coll_step_less(struct step *s);
/* A transfer of n elements to or from a member, as what; at its end the step has one thing less. */
void coll_receive(struct step *s, struct piece *p, char what, uint32_t from, void *to, size_t n);
void coll_give(struct step *s, struct piece *p, char what, uint32_t to, const void *from, size_t n);

/* Adds up n elements of each of the members, in their order, into out, which may be one of them. member(arg, i): where
 * those of member i begin. */
void coll_sum(enum coll_type type, enum coll_op op, size_t n, uint32_t members,
	const void *(*member)(const void *arg, uint32_t i), const void *arg, void *out);
#endif

/* Memory passes: in what pieces and what order a stretch of the model is gone through forward and backward, and what
 * is kept meanwhile. A strategy says what is computed, the memory pass what of it twice so that it fits; gradients have
 * the same bits with every one of them. To add one: memory/NAME.c with `const struct memory_ops memory_NAME` and a line
 * in memory/list.h.
 *
 * All that there are cut the stretch into segments. Forward keeps what flows into each (F^c in the papers, keep input)
 * and of the last one everything (F^e, keep all); backward, from the last to the first, runs each forward once more and
 * keeps everything. A unit is what lies between two places where a policy may cut: a segment has one or more. */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H
#include "plan/planner.h"
#include "plan/tokens.h"

struct memory_ops {
	const char *name, *help;
	bool marks, counts;             /* marked layers say where; segments, or the memory there is, say how often */
	/* Ops of a + 1 .. b before which the stretch a..b may be cut, in order, into ret (room for b - a); how many. */
	uint32_t (*cuts)(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how, uint32_t *ret);
	uint32_t (*usual)(uint32_t units);      /* segments when none are said */
};
const struct memory_ops *memory_find(const char *name); /* NULL: unknown */
const char *memory_names(char *out, size_t cap);
/* Segments that the stretch can be cut in at most; those that it is cut in. */
uint32_t memory_units(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how);
uint32_t memory_segments(uint32_t units, const struct memory_pass *how);
/* First ops of the stretch's units, in order, and b + 1 behind the last; free() it. Of n units in k segments, segment i
 * begins with unit memory_unit(n, k, i): the last one is never the shortest. */
uint32_t *memory_parts(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how,
	uint32_t *ret_n);
static inline uint32_t memory_unit(uint32_t n, uint32_t k, uint32_t i) { return (uint32_t)((uint64_t)i * n / k); }

/* What more segments bring: numbers of segments, ascending, each with fewer bytes at most than every smaller one; the
 * last is the fewest with the least bytes that the policy comes down to. Those left out are never worth it. */
struct memory_choice { uint32_t segments; uint64_t peak; };     /* peak: passes_peak with memory_beside */
struct memory_front { uint32_t n; struct memory_choice *v; };   /* n >= 1; free() v */
/* Of the whole model; the policy is one that counts. Exact, with some calls of profile_need for each unit. */
void memory_search(const struct profile *m, const struct memory_pass *how, struct memory_front *ret);
/* What lies beside backward and not beside forward: the parameters' gradient, the loss and how many were right. */
uint64_t memory_beside(const struct profile *m);
/* The fewest segments with which no more than `most` bytes are taken, and what that many take: taken(arg) says it, with
 * how->segments as it is then, and never more for a choice of fewer bytes. false: there are none, and *ret is the
 * number that takes least. how->segments is as it was afterwards. Asks some log2(front) times at most. */
struct memory_found { uint32_t segments; uint64_t bytes; };
bool memory_fewest(const struct profile *m, struct memory_pass *how, uint64_t most, uint64_t (*taken)(void *arg),
	void *arg, struct memory_found *ret);
/* Most bytes of the arena while a run's programs follow each other, in a view of a peer that begins; under_way: rounds
 * go on beside micro-batches. 0: the strategy refuses, and *e says why. */
uint64_t memory_programs(const struct planner_ops *strategy, const struct view *view, bool under_way, struct err *e);
/* One program run in order: what is held at once is the count of its tokens, and *peak (may be NULL) grows to the
 * most of it. Returns what it leaves for the next; tokens_free that before p. */
struct tokens *memory_rehearse(const struct plan *p, const struct tokens *before, uint64_t *peak);
/* Of the whole model, with nothing beside: see passes_peak. */
uint64_t memory_peak(const struct profile *m, const struct memory_pass *how, uint64_t *ret_kept);
/* In words, into text, and as JSON: segments, layers run twice, bytes. New reference; NULL: nothing is computed twice
 * with this policy. */
json_t *memory_json(const struct profile *m, const struct memory_pass *how, struct buf *text);

/* A schedule: FWD and BWD of ops a..b, both inclusive. FWD forgets its input (none: nobody can read it any more), keeps
 * it, or keeps it and all that BWD needs; replay: ops that have run before. BWD forgets the input, too. */
struct pass { enum plan_kind kind; uint32_t a, b; enum plan_keep keep; bool replay; struct piece_need need; };
struct passes { uint32_t a, b; uint32_t n; struct pass *v; };           /* of ops a..b */
void passes_add(struct passes *s, enum plan_kind kind, uint32_t a, uint32_t b, enum plan_keep keep, bool replay);
void passes_free(struct passes *s);
/* Those of a stretch, sized; how NULL: once forward, once backward. */
void memory_passes(const struct profile *m, uint32_t a, uint32_t b, const struct memory_pass *how, struct passes *ret);
void passes_size(const struct profile *m, struct passes *s);            /* fills in need */
uint32_t passes_forward_ops(const struct passes *s);    /* ops run forward, those again counted again */
/* Bytes of activations, their gradients and scratch at most at once, beside what enters, and with so many more beside
 * them from the first BWD on; of it, what BWD finds when it begins, but the gradient. */
uint64_t passes_peak(const struct passes *s, uint64_t beside, uint64_t *ret_kept);

/* Into a plan. What enters is the buffer "batch"; what leaves "y", with its gradient "dy"; in between they are "x5" and
 * "d5" before op 5, and "saved5" what BWD needs of the piece that begins there ("saved" when it is the whole). w: the
 * buffer of the parameters. Between forward and backward stands what makes dy of y, and drops y. */
void passes_buffers(struct plan *p, const struct passes *s);
void passes_forward(struct plan *p, const struct passes *s, const char *w);
void passes_backward(struct plan *p, const struct passes *s, const char *w);    /* the gradient is "g" */
/* Where the gradient lies in parts: in which of them BWD of a piece writes its own, and what comes behind that BWD. */
struct passes_parts {
	void *arg;
	const char *(*of)(void *arg, const struct pass *x);
	void (*made)(void *arg, struct plan *p, const struct pass *x);
};
void passes_backward_parts(struct plan *p, const struct passes *s, const char *w, const struct passes_parts *parts);

#endif

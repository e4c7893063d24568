/* Inside the room: what tokens.c (which instruction may start) and ring.c (which slot a reference means) share. */
#ifndef PLAN_TOKENS_INT_H
#define PLAN_TOKENS_INT_H
#include "plan/tokens.h"

struct ring { uint32_t depth, live; int64_t first; struct token_slot *slot; };
struct stream {
	struct list runs;               /* fetched and unfinished, in the list's order */
	uint32_t nruns, unstarted[PLAN_LANES_MAX];
	uint64_t iteration;
	uint32_t at;                    /* next instruction to fetch */
	bool fetched;
};
struct pair { uint32_t base, weight; };         /* a value of base pins the version of weight it was made with */
struct tokens {
	const struct plan *plan;
	struct token_hooks hooks;
	uint32_t nstreams;
	uint64_t iterations;
	int64_t index_max;
	uint32_t section[PLAN_SECTIONS_COUNT + 1];      /* where sections begin in the list */
	uint32_t lanes_from[PLAN_SECTIONS_COUNT + 1];   /* bits of the lanes used from this section on */
	uint32_t depth_max;
	struct ring *ring;                              /* stream * nbufs + buf */
	struct stream *stream;
	uint64_t seq, clock, running, mark;
	bool nothing;                                   /* may start until something ends, is inserted or stops */
	uint64_t used[PLAN_TIERS_MAX], peak[PLAN_TIERS_MAX];
	uint32_t *peak_values;
	uint32_t lane_running[PLAN_LANES_MAX];
	uint32_t npairs; struct pair *pair;
	bool *newest;                                   /* by buffer: somebody reads it as <=k */
};

struct ring *ring_of(const struct tokens *t, uint32_t stream, uint32_t buf);
struct token_slot *ring_slot(const struct tokens *t, const struct token_bind *b);
void rings_init(struct tokens *t);
void rings_carry(struct tokens *t, const struct tokens *before);
void rings_free(struct tokens *t);
/* In list order: what the reference means once everything before it has run. */
void ring_bind_in(struct tokens *t, const struct plan_ref *r, int64_t index, struct token_bind *b);
void ring_bind_out(struct tokens *t, const struct plan_ref *r, int64_t index, struct token_bind *b);
void ring_unclaim(struct tokens *t, const struct token_bind *b);
/* At the start: newest, same version, shared outputs. false: not there now. */
bool ring_bind_newest(struct tokens *t, const struct plan_ref *r, int64_t index, struct token_bind *b);
bool ring_bind_same(struct tokens *t, const struct token_bind *base, struct token_bind *b);
bool ring_bind_shared_out(struct tokens *t, const struct plan_ref *r, struct token_bind *b);
void ring_take(struct tokens *t, const struct token_bind *b);           /* memory, if it has none */
void ring_move(struct tokens *t, const struct token_bind *from, const struct token_bind *to);   /* its memory */
void ring_release(struct tokens *t, const struct token_bind *b, bool evict);
void ring_missing(struct tokens *t, const struct token_bind *b, bool keeps_memory);
void ring_forget(struct tokens *t, struct token_slot *s);               /* pins and senders of the value */
void ring_pin(struct tokens *t, struct token_slot *s, const struct token_bind *weight);
void ring_senders(struct token_slot *s, uint32_t n, const struct token_from *from, uint32_t parts);
uint64_t ring_bytes(const struct plan_buf *b);
void tokens_fetch(struct tokens *t, uint32_t stream);
void token_run_free(struct token_run *r);
void token_read(struct tokens *t, struct token_run *r);         /* at its start: which inputs are there; passed */
void token_not_made(struct tokens *t, struct token_run *r);     /* its outputs at its end: passed over, or not come */
void token_leave(struct tokens *t, struct token_run *r, bool takes);     /* its inputs, its lane; r is gone */
enum token_wait token_hinders(struct tokens *t, struct token_run *r, uint32_t *which);
bool token_drops(const struct plan_instr *i, uint32_t input);
bool token_evicts(const struct plan_instr *i);

#endif

/* What the executor asks of its owner: batches, and instructions that leave this peer. Each call is answered exactly
 * once, now or later, through exec_loaded or exec_done, unless it was cancelled. */
#ifndef EXEC_OPS_H
#define EXEC_OPS_H
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"
#include "common/id.h"
#include "kernels/real.h"
#include "plan/tokens.h"

struct batch;
struct lease;
struct exec_wait { int number; };               /* one pending instruction; its identity is its address */

struct exec_span { const char *buffer; void *p; size_t bytes; int64_t key; };
struct exec_net {                               /* names a value on the network: D1.9 */
	const struct plan *plan; const struct plan_instr *instr;
	const char *tag;                        /* plan_label: the buffer's name, equal on every peer */
	uint64_t generation; uint32_t stream; int64_t index, key;
	const struct id *peer;                  /* SEND, RECV of one peer; else NULL */
	const struct token_from *to; uint32_t nto;      /* REPLY: who sent the last input, each gets its part */
	uint32_t parts;                         /* into which input 0 is cut for them; 0, 1: each gets all */
	const struct plan_group *group;         /* collectives; whom a RECV of any accepts */
	uint64_t deadline_us;                   /* absolute; 0 = none */
	int64_t version;                        /* of the weights that made it; travels with it */
};
struct exec_ops {
	/* LOAD, answered by exec_loaded. variant as in the plan. */
	void (*load)(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index);
	void (*unload)(void *arg, struct batch *b);     /* nobody reads it any more */
	/* SUM GATHER SCATTER ALLTOALL SEND RECV. Inputs are read, outputs written until the answer. NULL: the
	 * plan must have none of them. */
	void (*net)(void *arg, struct exec_wait *w, const struct exec_net *n, const struct exec_span *in, uint32_t nin,
		const struct exec_span *out, uint32_t nout);
	/* The executor no longer wants the answer; the memory is its own again when this returns. */
	void (*cancel)(void *arg, struct exec_wait *w);
	/* Asked right after cancel: true when a lane still works on the memory; exec_done comes all the same, and the
	 * memory is the executor's then. NULL: never. */
	bool (*busy)(void *arg, struct exec_wait *w);
	/* SUMs of elastic groups whose one output is another buffer than their input, and not the owner's memory, have no
	 * memory for it: their span is NULL, and they are answered by exec_done_with. */
	bool lends;
};
void exec_loaded(struct exec_wait *w, struct batch *b, const struct err *e);
void exec_done(struct exec_wait *w, const struct token_news *news, const struct err *e);  /* e NULL: it worked */
/* It worked, and what it brings lies at p, as many bytes as its output has, for as long as l is not given back; nothing
 * is written there. The executor takes l for itself. */
void exec_done_with(struct exec_wait *w, void *p, struct lease *l);
/* What an input of w has at p stays there and as it is, whatever becomes of w, until the lease is given back; NULL: no
 * input has it. */
struct lease *exec_keep(struct exec_wait *w, const void *p);

#endif

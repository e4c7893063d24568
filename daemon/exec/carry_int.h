/* Inside carry: carry.c alone talks to the executor; carry_value.c (SEND, RECV of one peer, REPLY, what is on offer),
 * carry_coll.c (strict groups), carry_any.c and carry_port.c (RECV of any), carry_rows.c (ALLTOALL); below them
 * carry_haul.c (how an instruction ends). */
#ifndef EXEC_CARRY_INT_H
#define EXEC_CARRY_INT_H
#include "exec/carry.h"
#include "avg/coll.h"
#include "common/list.h"
#include "common/map.h"
#include "net/by_run.h"

#define CARRY_FEW 65536                         /* bytes: below it the loop does it at once */

struct haul;
struct carry {
	struct carry_conf c;
	struct coll *coll;
	struct list hauls; size_t nhauls;
	struct list outbox;                     /* values on offer, oldest first */
	struct list held; size_t nheld;         /* questions of receivers that nothing answers yet */
	struct list ports;                      /* of RECV of any */
	struct by_run hub;
	struct timer sweep;                     /* of the held ones */
	uint64_t boot, serial;                  /* names what is on offer, over restarts */
};

/* What goes in front of a value. */
struct value_head { int64_t version; uint64_t bytes; };
/* One value to or from one peer, under its name (D1.9). Its memory is the caller's and stays where it is. */
struct value {
	struct list link;                       /* outbox */
	struct haul *h;
	const struct id *peer;
	uint32_t rank, stream;
	int64_t index;
	bool send, grouped;                     /* grouped: within ALLTOALL of the members of a group */
	bool known;                             /* receiving: it has `bytes`, or is refused; else `room` at most */
	void *p; uint64_t room, bytes;
	struct value_head head;
	struct xfer *x[2]; bool moved[2];       /* its head, then itself */
	/* Receiving: its head is known. Sending: a RECV of any has been told, and takes no head. */
	bool told;
	uint64_t serial;                        /* on offer under this number; 0: it is not */
	bool cared, done;
	bool may_die;                           /* over comes soon when the peer is known to be gone, not at the deadline */
	struct timer again; uint32_t tries, looks;
	bool (*place)(struct value *v, struct err *e);  /* its bytes are known now, p is to be set; may be NULL */
	void (*over)(struct value *v, const struct err *e);
};
/* h, peer, rank, stream, index, send, memory and over are set; over is called later, unless value_cancel comes first.
 */
void value_begin(struct value *v);
void value_cancel(struct value *v);             /* may be over already */
void values_cancel(struct haul *h);             /* all of h */
/* In over, of one that is sent: the peer only seemed to be gone, perhaps; over is called again. false: it is gone. */
bool value_again(struct value *v, const struct err *e);
void value_end(struct value *v, const struct err *e);   /* calls over */

struct tag_of { char what; enum plan_kind kind; const char *group; uint32_t stream; int64_t index;
	const struct id *from, *to; };
void carry_tag(const struct haul *h, const struct tag_of *t, struct id *ret);
enum net_class carry_class(const struct haul *h);

struct any;
struct rows;
struct haul {
	struct list link;
	struct carry *c;
	struct exec_wait *w;
	struct exec_net n;
	struct exec_span in, out, route;
	const struct id **member; uint32_t *rank;       /* of the group, each peer once */
	uint32_t nmembers, me;
	struct value *value; uint32_t nvalues, left;
	struct any *any; struct rows *rows;
	uint64_t deadline_us;                   /* 0: none */
	int64_t version;                        /* what came, or goes */
	struct token_from *from; uint32_t nfrom;
	struct job job;
	bool working, summing, cancelled;       /* a job runs; coll is under way; nobody listens */
	bool over; struct timer ended;          /* settled; then the executor is told (carry.c) */
	bool cared;                             /* the members' sockets are watched for the collective's sake */
	struct err error;
};

static inline struct haul *haul_of(struct job *j) { return container_of(j, struct haul, job); }
/* Ends it, well or with e, as soon as no lane works on its memory, and later than this returns. Once; nothing comes or
 * goes for it any more, or the caller sees to that first. */
void haul_settle(struct haul *h, const struct err *e);
/* run in the lane, then done on the loop, which first asks haul_worked. False: there is little to do, and the caller
 * calls both at once, with h->job. */
bool haul_works(struct haul *h, size_t bytes, void (*run)(struct job *j), void (*done)(struct job *j));
#define HAUL_WORK(h, bytes, run, done) do { \
		if (!haul_works(h, bytes, run, done)) { \
			run(&(h)->job); \
			done(&(h)->job); \
		} \
	} while (0)
bool haul_worked(struct haul *h);               /* false: nobody waits for more of it, it ends now */
void haul_done(struct job *j);                  /* a done: that was all, it ends well */
/* The members of the group in its order, each peer once; `within`: this peer must be one of them. */
int haul_members(struct haul *h, bool within, struct err *e);
void haul_care(struct haul *h, int delta);
int coll_begin(struct haul *h, struct err *e);
int any_begin(struct haul *h, struct err *e);
void any_leave(struct haul *h);                 /* what it was receiving waits for the next one */
void any_free(struct haul *h);
void any_close(struct carry *c);
int rows_begin(struct haul *h, struct err *e);
void rows_free(struct haul *h);
void offer_open(struct carry *c);
void offer_close(struct carry *c);
void value_send_recv(struct haul *h);           /* SEND, RECV of one peer */
int value_reply(struct haul *h, struct err *e);

#endif

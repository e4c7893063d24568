/* Inside RECV of any: carry_port.c asks, carry_any.c takes. */
#ifndef EXEC_CARRY_PORT_H
#define EXEC_CARRY_PORT_H
#include "exec/carry_int.h"

#define CARRY_VAIN_MAX 3                        /* then a peer is not asked any more */
#define CARRY_AGAIN_US 200000ull                /* who has brought nothing is asked again after that */

struct port;
/* Who takes: what net calls with the answer to a question of a teller, which hands it to teller_heard; teller.timer. */
struct port_use {
	void (*answered)(void *teller, const struct frame *f, const struct err *e);
	void (*turn)(struct timer *t);
};
struct teller {                                 /* a peer of the group */
	struct port *port;
	struct list link;                       /* in the queue: it has something that nobody takes yet */
	struct id id;
	uint32_t rank, number, turns, vain;     /* turns without anything; offers of which nothing came */
	struct call *call;
	struct timer timer;                     /* under way: its turn is over; else: ask again */
	bool offered, under, mute;
	uint64_t boot, serial, drop;            /* of what it has told last; drop: what of it is not wanted */
	char why[96];
	int64_t index; uint32_t stream; uint64_t bytes; int64_t version;
	uint64_t was;                           /* bytes that had come at the beginning of its turn */
	struct value v; struct haul *h; uint32_t place;
};
struct port {
	struct list link;
	struct carry *c;
	const struct port_use *use;
	uint64_t generation; char label[PLAN_NAME];
	struct list queue, open;                /* tellers; RECVs with room */
	size_t hauls;                           /* RECVs, of which some are closing */
	struct teller **teller; uint32_t n, room;
	struct map *seen; int64_t *ring; uint64_t nseen;
};
struct any {
	struct list link;                       /* in port.open */
	struct haul *h;
	struct port *port;
	bool *member; uint32_t nmember;         /* by teller */
	uint64_t part;
	struct teller **place; struct token_from *come; bool *full;
	uint32_t most, nfull, under;
	struct timer limit, end;
	bool late, closing;
};

struct port *port_of(struct haul *h, const struct port_use *use);       /* makes it; use stays */
struct teller *teller_of(struct port *p, const struct id *id, uint32_t rank, uint32_t guess);
void port_ask(struct port *p);                  /* all who have nothing in the queue */
void teller_ask(struct teller *t);
void teller_look(struct teller *t);             /* does it still have what it has offered? */
void teller_refuse(struct teller *t, const char *why);  /* why: "", it is not needed */
void teller_forget(struct teller *t);           /* what it has offered */
/* What came of a question: nothing, it stands in the queue now, what it has offered is there no more. */
enum heard { HEARD_NOTHING, HEARD_OFFER, HEARD_GONE };
enum heard teller_heard(struct teller *t, const struct frame *f, const struct err *e);

#endif

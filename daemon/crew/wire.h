/* What peers of a crew say to each other in blobs: little-endian, canonical, so that the SHA-256 of an offer names it.
 * An offer carries its leader's signature and may be passed on; a go carries what all its members have signed. */
#ifndef CREW_WIRE_H
#define CREW_WIRE_H
#include "common/buf.h"
#include "crew/crew.h"

#define CREW_DIGEST 32
#define CREW_REDUNDANCY_MAX 64
#define CREW_SPEED_MAX 1e6

/* A measured figure in one byte, four steps to a doubling, so that a view of many links is small; 0: not known. */
uint8_t scale_code(uint64_t v);
uint64_t scale_value(uint8_t code);
#define SCALE_CODES 252                 /* the greatest code */

struct crew_link { uint8_t rate, delay; };      /* bytes/s; one way, us */
/* life: drawn whenever a crew is made: who has started anew holds nothing of before. */
struct crew_member { struct id id; uint64_t life; double speed; uint64_t memory_bytes; };

/* A generation as it is proposed. Its members stand in the order of crew_before. */
#define CREW_TARGET_MAX (1ull << 48)
struct offer {
	struct id run, leader; uint64_t life;   /* its leader's */
	uint64_t generation;
	uint64_t epoch; uint32_t term;          /* in which it leads */
	uint64_t target;                        /* batch of that epoch, for the plans; 0: as everybody has it */
	uint64_t base;                          /* generation whose members hold the committed state; 0: none does yet */
	uint32_t redundancy, n; struct crew_member *m;
	struct crew_link *link;                 /* [from * n + to] */
};
/* The greater speed first, by doublings, then the greater memory, likewise (0: no limit), then the smaller id. */
bool crew_before(const struct crew_member *a, const struct crew_member *b);
/* The number of a generation: how many there were, and a tag, so that leaders who do not know of each other (or another
 * life of the same) have none in common. */
uint64_t crew_number(uint64_t count, const struct id *run, const struct id *leader, uint64_t life);
void offer_free(struct offer *o);               /* {0} is fine; leaves {0} */
void offer_copy(struct offer *to, const struct offer *from);
/* ret: those of `from` that are in. */
void offer_some(struct offer *ret, const struct offer *from, const bool *in);
int offer_find(const struct offer *o, const struct id *id);     /* rank, or -1 */
void offer_encode(const struct offer *o, struct buf *ret);
int offer_decode(struct offer *ret, const void *p, size_t n, struct err *e);    /* checks every bound */

/* What a peer says of itself. */
struct card { uint64_t life; double speed; uint64_t memory_bytes;
	uint32_t n; struct card_link { struct id to; struct crew_link link; } *v; };
void card_free(struct card *c);
void card_encode(const struct card *c, struct buf *ret);
int card_decode(struct card *ret, const void *p, size_t n, struct err *e);

/* An offer that all its members have promised: the offer as it was signed, the digest of all plans, and of every member
 * its signature under both. */
struct go { struct offer o; const uint8_t *offer; size_t offer_len; const uint8_t *digest, *sig; };
void go_encode(const void *offer, size_t n, const uint8_t digest[CREW_DIGEST], const uint8_t *sig, uint32_t members,
	struct buf *ret);
int go_decode(struct go *ret, const void *p, size_t n, struct err *e);  /* points into p; free ret->o */

#endif

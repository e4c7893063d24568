/* A member that forges: it holds the swarm's key and an identity of its own, averages honestly, and beside that says
 * what is not its to say, in every message that there is. The table of lies says of each in which role it is told and
 * what must come of it; scn_attack.c tells them all. */
#ifndef TESTS_SIM_LIAR_H
#define TESTS_SIM_LIAR_H
#include "avg/int.h"
#include "avg_world.h"

/* What the liar is when it speaks. A client owns no part; who is next in the order would succeed the leader. */
enum role { STRANGER = 1, MEMBER = 2, CLIENT = 4, LEADER = 8, NEXT = 16 };
#define LIAR_PEERS 6

struct liar;
struct lie {
	const char *message, *name;
	unsigned roles;
	void (*begin)(struct liar *l);                          /* once; or NULL */
	void (*tell)(struct liar *l, struct apeer *to);         /* often, to each of the others; or NULL */
	uint64_t pause_us;                                      /* up to so long between two rounds of telling; 0: 20 ms */
	const char *named;                      /* an event with its id that somebody must have heard; NULL: none is due */
	bool banned;                            /* somebody must have banned it; else nobody may */
	unsigned slow;                          /* rounds may take so many times as long; 0: twice */
	uint64_t still_us, long_us;             /* the longest from epoch to epoch; it is told so long; 0: liar.c's */
	bool honest;                            /* it may be of that mind: nobody may hold it against it */
	bool lags;                              /* it leads others astray, who come back by a download */
	double apart;                           /* means are robust, and may be so far from the samples'; 0: they are not */
};
struct liar {
	struct world *w; struct sim *s; int node; struct apeer *e; struct rng rng;
	const struct lie *lie; enum role role;
	unsigned said, shown, named, left_out;  /* left_out: honest ones of rounds, while it lied */
	uint64_t epoch; uint8_t prev[DIGEST]; struct buf commit;        /* a history that it has made up */
	uint64_t newest, moved_us, still_us, lied_us;
	size_t heap;                            /* of the whole process, at its largest while it lied */
	bool lies, cut; struct request *kept;
};

/* One cell: the lie told in that role by one of LIAR_PEERS, and all that must hold while and afterwards. */
void liar_cell(struct sim *s, const struct lie *lie, enum role role);
/* The rows of that message, in all their roles: seed n tells cell n modulo their number. */
void liar_message(struct sim *s, const char *message);

/* ---- for the tables ---- */
extern const struct lie lies_lead[], lies_past[], lies_round[];         /* each ends with an empty row */
void lie_call(struct liar *l, struct apeer *to, enum kind k, json_t *j, struct buf *b);
json_t *lie_head(struct liar *l, uint64_t term);
void lie_bytes(struct liar *l, void *p, size_t n);
bool lie_leads(const struct liar *l, const struct apeer *v);    /* v takes it for the leader, of a round or the epoch */
int lie_author(const struct liar *l);           /* who may change hyperparameters */
static inline uint64_t lie_draw(struct liar *l, uint64_t n) { return rng_below(&l->rng, n); }

#endif

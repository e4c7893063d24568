/* Inside the room: the predictor's state. predict.c has the clock and local work, predict_net.c what leaves a peer. */
#ifndef PLAN_PREDICT_INT_H
#define PLAN_PREDICT_INT_H
#include "common/list.h"
#include "plan/predict.h"

enum event_kind { EVENT_END, EVENT_ARRIVE, EVENT_TIMER, EVENT_DEATH };
struct event { uint64_t at, seq; enum event_kind kind; uint32_t peer; void *what; };

struct message {
	struct list link;                       /* in its receiver's mail */
	uint32_t src, dst, stream;              /* positions in sim.peer */
	const char *label;
	int64_t index, version;
	uint64_t bytes;
	enum plan_class class;
};
/* An instruction that waits for others: RECV, ALLTOALL, collectives. */
struct wait {
	struct list link;
	struct token_run *run;
	bool late, over;                        /* its within or deadline has passed */
	uint32_t expected;                      /* messages an ALLTOALL still needs */
	bool *want;                             /* ALLTOALL: from whom, by position */
	uint32_t nfrom; struct token_from *from;
};
struct seen { const char *label; int64_t index; };
struct peer {
	const struct plan *plan;                /* the one under way, a shallow copy: only `iterations` may differ */
	struct plan copy[2];                    /* it, and the one before, in turns */
	struct tokens *tokens;
	double speed;
	uint64_t egress_us, ingress_us;         /* when the link is free again */
	struct list mail, waits;
	uint32_t nseen; struct seen *seen;
	bool dead;
	struct predict_peer *out;
};
struct sim {
	const struct predict_conf *conf;
	struct prediction *out;
	uint32_t n; struct peer *peer;
	uint32_t *rank_at;                      /* rank to position, PLAN_NONE */
	uint64_t now, seq, nevents;
	size_t nqueue, cqueue; struct event *queue;     /* binary heap */
};

void predict_at(struct sim *s, uint64_t at, enum event_kind kind, uint32_t peer, void *what);
void predict_end(struct sim *s, uint32_t peer, struct token_run *r, const struct token_news *news);
void predict_send(struct sim *s, uint32_t peer, struct token_run *r);
void predict_wait(struct sim *s, uint32_t peer, struct token_run *r);       /* RECV, ALLTOALL, collectives */
void predict_arrive(struct sim *s, struct message *m);
void predict_timer(struct sim *s, uint32_t peer, struct wait *w);
void predict_death(struct sim *s, uint32_t peer);
void predict_net_free(struct sim *s);

#endif

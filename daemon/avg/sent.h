/* What members have signed that they sent, where the mean is robust (audit.c says why). */
#ifndef AVG_SENT_H
#define AVG_SENT_H
#include "avg/int.h"

/* The hashes of a member's pieces, in the order of the parts, and its signature under them. */
struct sent_list { uint8_t *hash; uint8_t sig[SIG_BYTES]; bool known, good, wrong; };
/* What a member may have told of a round whose BEGIN has not come here. */
struct stash { uint8_t round[DIGEST]; void *bytes; size_t n; };
/* A job that looks at a piece (sent_check.c). orphan: the piece is its own to give back. */
struct sent_check { struct job job; struct round *r; size_t part, member; void *piece; bool verify, good, orphan; };
struct sents {
	struct sent_list *of;                   /* by member */
	struct sent_check **check;              /* [part * n + member]: a job that looks at that piece */
	uint8_t *fits;                          /* likewise: it is what its sender has signed */
	bool hashing;
};

bool sents_wanted(const struct round *r);       /* of this round's means, and codec */
void sents_open(struct round *r);
void sents_free(struct round *r);
void sents_make(struct round *r);               /* this peer's contribution is here */
void sent_on(struct avg *a, struct request *req);
void sents_stashed(struct round *r);            /* lists that came before the BEGIN */
void stash_free(struct mate *m);
void sent_arrived(struct round *r, size_t part, size_t member);         /* a piece */
bool sent_fits(const struct round *r, size_t part, size_t member);      /* piece and signature; else it is not there */
bool sent_own(const struct round *r);           /* this peer's list is signed; or nobody signs */
bool sent_wrong(const struct round *r, size_t member);
/* The piece's memory is the caller's to give back; false: a job reads it, and gives it back. */
bool sent_drop(struct round *r, size_t part, size_t member);
void sent_sign(const struct round *r, const uint8_t *hashes, uint8_t ret[SIG_BYTES]);    /* of this peer's pieces */
bool sent_verify(const struct id *run, const uint8_t round[DIGEST], const struct id *by, const uint8_t *hashes,
	size_t parts, const uint8_t sig[SIG_BYTES]);

#endif

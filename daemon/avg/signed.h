/* What a signature of the averager covers: a label, so that none passes for one of something else, the run, so that
 * none passes in another one, and fields, which the caller puts behind them. */
#ifndef AVG_SIGNED_H
#define AVG_SIGNED_H
#include "avg/wire.h"
#include "common/buf.h"
#include "net/net.h"

struct avg;
struct mate;
struct round;
struct term_claim;
struct buf signed_head(const char *label, const struct id *run);
/* Both free the bytes. */
void signed_make(struct buf *b, const struct net *n, uint8_t ret[SIG_BYTES]);
bool signed_by(struct buf *b, const struct id *who, const uint8_t sig[SIG_BYTES]);

/* Bodies. */
size_t body_size(const void *p, size_t n);      /* of a signed body: the bytes that are signed; 0: it is none */
void body_digest(const void *p, size_t n, uint8_t ret[DIGEST]);
int body_read(struct body *ret, const void *p, size_t n, struct err *e);        /* its own, or verified before */
void body_head_of(const struct body *b, const void *p, size_t n, struct body_head *ret);
bool body_head_verify(const struct id *run, const struct body_head *h);
void body_sign(struct avg *a, const struct body *b, struct buf *ret);
void ack_sign(const struct round *r, const struct id *leader, const uint8_t *hashes, uint8_t ret[SIG_BYTES]);
void acks_put(const struct round *r, const struct body *c, struct buf *b);      /* behind the signed c in b */
/* The ACKs that stand behind a COMMIT, in the order of its members. A signature takes time: it is looked at only when
 * somebody wants that member's; after some that are none no more come. */
struct acks { const struct avg *a; const struct body *c; const uint8_t *bytes, *sig; size_t n, at, i, least, wrong;
	uint64_t *w; uint8_t *hash; };
void acks_begin(struct acks *x, const struct avg *a, const struct body *c, const uint8_t *bytes, size_t n);
const struct id *acks_next(struct acks *x);     /* whose it is; NULL: that was all */
bool acks_signed(struct acks *x);               /* that one says that it holds what the COMMIT names */
void acks_end(struct acks *x);
void term_take(struct avg *a);                  /* the next one, in this peer's name */
json_t *term_json(const struct avg *a, json_t *j);      /* into j: the term and who has signed that it takes it */
/* Who is no member here may honestly take itself for one: in a term that it has signed itself, or in the first, which
 * nobody signs, it forges nothing. */
bool term_of_stranger(const struct avg *a, const struct mate *m, const struct term_claim *t);
/* ERR_INVALID: no such term can be; ERR_AUTH: no member has taken it; ERR_STATE: one has that led badly. 0: that of the
 * epoch, whoever leads. */
int term_read(const struct avg *a, const json_t *j, struct term_claim *ret, struct err *e);

#endif

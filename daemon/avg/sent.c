/* SENT: with a robust mean every member signs the hashes of all pieces that it brings into a round, and tells those who
 * may sum. A piece without such a signature is not summed: so whoever sums can show what it has summed, and nobody can
 * say later that it sent something else (audit.c). */
#include <stdlib.h>
#include "avg/sent.h"
#include "common/hash.h"

bool sents_wanted(const struct round *r)
{
	return r->robust != ROBUST_NONE && !r->feedback && !r->flow && r->tree.rows == 1 && !r->mean_is_x &&
		coding_plain(&r->coding, 0, r->b.len);
}

void sents_open(struct round *r)
{
	if (!sents_wanted(r) || r->b.what != BODY_BEGIN)
		return;
	r->sent = xcalloc(1, sizeof *r->sent);
	r->sent->of = xcalloc(r->b.n, sizeof *r->sent->of);
	r->sent->check = xcalloc(r->b.parts * r->b.n + 1, sizeof *r->sent->check);
	r->sent->fits = xcalloc(r->b.parts * r->b.n + 1, 1);
}

void sents_free(struct round *r)
{
	struct sents *s = r->sent;
	if (!s)
		return;
	for (size_t i = 0; i < r->b.n; i++)
		free(s->of[i].hash);
	free(s->of);
	free(s->check);
	free(s->fits);
	free(s);
	r->sent = NULL;
}

/* ---- signatures ---- */

static struct buf sent_bytes(const struct id *run, const uint8_t *round, const struct id *by, const uint8_t *hashes,
	size_t parts)
{
	uint8_t digest[DIGEST];
	struct buf b = signed_head("hivemind-sent-1", run);
	sha256_of(hashes, parts * TREE256, digest);
	buf_put(&b, round, DIGEST);
	buf_put(&b, by->b, 32);
	buf_put(&b, digest, DIGEST);
	return b;
}

bool sent_verify(const struct id *run, const uint8_t round[DIGEST], const struct id *by, const uint8_t *hashes,
	size_t parts, const uint8_t sig[SIG_BYTES])
{
	struct buf b = sent_bytes(run, round, by, hashes, parts);
	return signed_by(&b, by, sig);
}

void sent_sign(const struct round *r, const uint8_t *hashes, uint8_t ret[SIG_BYTES])
{
	const struct avg *a = r->a;
	struct buf b = sent_bytes(&a->conf.run, r->id, &a->me->id, hashes, r->b.parts);
	signed_make(&b, a->net, ret);
}

/* ---- what fits ---- */

bool sent_drop(struct round *r, size_t p, size_t i)
{
	struct sents *s = r->sent;
	size_t at = p * r->b.n + i;
	if (!s)
		return true;
	s->fits[at] = 0;
	if (!s->check[at])
		return true;
	s->check[at]->orphan = true;
	s->check[at] = NULL;
	return false;
}

bool sent_fits(const struct round *r, size_t p, size_t i)
{
	return !r->sent || r->sent->fits[p * r->b.n + i];
}

bool sent_own(const struct round *r)
{
	return !r->sent || r->sent->of[r->me].known;
}

bool sent_wrong(const struct round *r, size_t i)
{
	return r->sent && r->sent->of[i].wrong;
}

/* The weighted mean of a part, in blocks that stay in cache over all terms; encoded terms are decoded so, too. */
#include <assert.h>
#include <string.h>
#include "common/planted.h"
#include "avg/reduce.h"
#include "avg/robust.h"
#include "kernels/vec.h"

#define BLOCK CODEC_BLOCK_MAX                   /* floats: 64 KiB of result */

static struct par best(void)
{
	enum cpu cpu = CPU_PLAIN;
	(void)cpu_pick(NULL, &cpu, NULL);
	return par_serial(cpu, NULL);
}

void accum_begin(struct accum *a, float *out, size_t n, uint64_t total_weight)
{
	*a = (struct accum){ .out = out, .n = n, .total = (double)total_weight };
}

void accum_add(struct accum *a, const float *x, uint64_t weight)
{
	struct par par = best();
	assert(a->total > 0);
	vec_mean_add(&par, a->n, (double)weight / a->total, x, a->out, a->terms++ == 0);
}

/* ---- where a block of a term is ---- */

void blocks_begin(struct blocks *b, const struct coding *c, uint64_t off, size_t n)
{
	*b = (struct blocks){ .c = c, .off = off, .n = n, .par = best() };
}

bool blocks_next(struct blocks *b)
{
	uint64_t inside = b->len + b->at - b->piece.at;
	if (!b->piece.codec || inside >= b->piece.len) {
		if (!coding_next(b->c, b->off, b->n, &b->piece))
			return false;
		inside = 0;
	}
	b->at = b->piece.at + inside;
	b->len = b->piece.len - inside < BLOCK ? b->piece.len - inside : BLOCK;
	b->byte = b->piece.byte + b->piece.codec->bytes(inside);
	return true;
}

static const float *floats_of(const struct blocks *b, const struct reduce_term *t, float *room)
{
	if (!t->x)
		b->piece.codec->decode(&b->par, b->len, t->coded + b->byte, room);
	return t->x ? t->x + b->at : room;
}

const float *blocks_of(const struct blocks *b, struct reduce_term *t, float *room)
{
	const float *x = floats_of(b, t, room);
	t->bad = t->bad || vec_nonfinite(&b->par, b->len, x) < b->len;
	return x;
}

/* ---- means ---- */

static void plain(const struct coding *c, uint64_t off, size_t n, struct reduce_term *t, size_t terms, uint64_t total,
	float *out)
{
	float room[BLOCK];
	struct blocks b;
	blocks_begin(&b, c, off, n);
	while (blocks_next(&b)) {
		struct accum a;
		accum_begin(&a, out + b.at, b.len, total);
		for (size_t k = 0; k < terms; k++) {
			size_t i = PLANTED(WRONG_ORDER) ? terms - 1 - k : k;
			accum_add(&a, floats_of(&b, &t[i], room), t[i].weight);
		}
		/* What is not finite stays so in a sum: whose it was is asked only then. */
		if (vec_nonfinite(&b.par, b.len, out + b.at) < b.len)
			for (size_t k = 0; k < terms; k++)
				(void)blocks_of(&b, &t[k], room);
	}
}

int reduce_part(const struct coding *c, uint64_t off, size_t n, struct reduce_term *t, size_t terms,
	uint64_t total_weight, enum robust robust, float *out)
{
	if (robust == ROBUST_NONE || terms < 3)
		plain(c, off, n, t, terms, total_weight, out);
	else if (robust_part(c, off, n, t, terms, total_weight, robust, out))
		return -1;
	for (size_t i = 0; i < terms; i++)
		if (t[i].bad)
			return -1;
	return 0;
}

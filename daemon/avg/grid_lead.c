/* The leader of a round in a grid: who does what in an attempt, what every line of the last phase has come to, and
 * which epochs are not in a grid. */
#include <stdlib.h>
#include <string.h>
#include "avg/grid_flow.h"
#include "common/hash.h"
#include "common/vote.h"

void grid_hash(const uint8_t *part_hashes, size_t parts, uint8_t ret[TREE256])
{
	sha256_of(part_hashes, parts * TREE256, ret);
}

void grid_hash_own(const struct round *r, uint8_t ret[TREE256])
{
	struct buf b = { 0 };
	for (size_t p = 0; p < r->b.parts; p++)
		buf_put(&b, r->part[p].hash, TREE256);
	grid_hash(b.p, r->b.parts, ret);
	buf_free(&b);
}

size_t grid_last_line(const struct grid *g, size_t member)
{
	return g->cell[member] % grid_lines(g, (unsigned)g->dims - 1);
}

bool grid_lead_reassign(struct round *r)
{
	struct lead *l = r->lead;
	uint64_t sum = 0;
	size_t sums = 0;
	if (!l->stand)
		l->stand = xcalloc(r->b.n + 1, 1);
	for (size_t i = 0; i < r->b.grid.n; i++) {
		const struct lead_member *m = &l->m[i];
		uint8_t flags = r->b.m[i].flags;
		if (m->gone || !m->is_ready || flags & MATE_FOLLOWER)
			l->stand[i] = flow_lives(r, i) ? GRID_TAKES : GRID_GONE;
		else
			l->stand[i] = flags & (MATE_CLIENT | MATE_HOLD) ? GRID_PLAYS : GRID_SUMS;
		if (l->stand[i] < GRID_PLAYS)
			l->samples[i] = 0;
		sums += l->stand[i] == GRID_SUMS;
		sum += l->samples[i];
	}
	if (!sums)
		l->stand[r->me] = GRID_SUMS;
	return sum > 0;
}

/* The hash that most of those who have acknowledged say, of one line. */
static void vote(const struct round *r, size_t line, uint8_t ret[TREE256])
{
	const struct lead *l = r->lead;
	size_t n = 0;
	uint8_t (*hash)[TREE256] = xcalloc(r->b.n + 1, sizeof *hash);
	const uint8_t **said = xcalloc(r->b.n + 1, sizeof *said);
	for (size_t i = 0; i < r->b.grid.n; i++)
		if (l->m[i].acked && grid_last_line(&r->b.grid, i) == line) {
			grid_hash(l->m[i].hash, r->b.parts, hash[n]);
			said[n] = hash[n];
			n++;
		}
	size_t best = vote_most(said, n, NULL);
	if (best != VOTE_NONE)
		memcpy(ret, said[best], TREE256);
	free(said);
	free(hash);
}

void grid_lead_commit(struct round *r, struct body *c)
{
	grid_copy(&c->grid, &r->b.grid);
	memcpy(c->grid.stand, r->lead->stand, c->grid.n);
	c->lines = grid_lines(&c->grid, (unsigned)c->grid.dims - 1);
	c->line_hash = xcalloc(c->lines + 1, TREE256);
	for (size_t i = 0; i < c->lines; i++)
		vote(r, i, c->line_hash + TREE256 * i);
}

/* ---- when ---- */

static uint64_t makes(const struct body *b)
{
	return b->epoch + (b->what == BODY_BEGIN);
}

static bool agrees_anew(const struct avg *a, const struct body *b)
{
	return makes(b) % (a->conf.agree_every ? a->conf.agree_every : AVG_AGREE_EVERY) == 0;
}

bool grid_lead_may(const struct avg *a, const struct body *b)
{
	const json_t *codec = json_object_get(b->params, "codec");
	struct coding c;
	if (agrees_anew(a, b) || coding_make(&c, codec ? codec : a->conf.codec, a->conf.tensors, a->conf.ntensors,
			a->conf.len, NULL))
		return false;
	bool plain = coding_plain(&c, 0, a->conf.len);
	coding_free(&c);
	return plain;
}

static int allowed(const struct avg *a, const struct body *b, const struct coding *c, struct err *e)
{
	if (!a->conf.topology || !a->conf.topology->apart)
		return err_set(e, ERR_INVALID, "a round in a grid, whose members end with means that differ in the last bits; "
			"this run's averaging.topology does not say so");
	if (agrees_anew(a, b))
		return err_set(e, ERR_INVALID, "a round in a grid makes epoch %llu, in which all agree anew",
			(unsigned long long)makes(b));
	if (!coding_plain(c, 0, a->conf.len))
		return err_set(e, ERR_INVALID, "a round in a grid, and its codec leaves something out: lines would be further "
			"apart than the rounding of sums");
	return 0;
}

int grid_allowed(struct round *r, const struct body *b, struct err *e)
{
	int rc = allowed(r->a, b, &r->coding, e);
	if (rc)
		coding_free(&r->coding);
	return rc;
}

/* Trees over the members of a round: reading them, and mending them when somebody has gone. Pure. */
#include <stdlib.h>
#include <string.h>
#include "avg/tree.h"
#include "common/mem.h"

void tree_free(struct tree *t)
{
	free(t->row);
	free(t->owner);
	free(t->sub);
	free(t->hold);
	*t = (struct tree){ 0 };
}

static uint16_t *copy_of(const uint16_t *v, size_t n)
{
	return v ? xmemdup(v, n * sizeof *v) : NULL;
}

void tree_copy(struct tree *to, const struct tree *from)
{
	struct tree t = *from;
	t.row = copy_of(from->row, from->n);
	t.owner = copy_of(from->owner, from->parts);
	t.sub = copy_of(from->sub, from->parts * from->rows);
	t.hold = from->hold ? xmemdup(from->hold, from->parts * from->n + 1) : NULL;
	tree_free(to);
	*to = t;
}

static int check_part(const struct tree *t, size_t p, struct err *e)
{
	size_t owner = t->owner[p];
	for (size_t r = 0; r < t->rows; r++) {
		size_t s = t->sub[p * t->rows + r];
		if (s >= t->n || (s != owner && t->row[s] != r))
			return err_set(e, ERR_PROTOCOL, "part %zu: row %zu sends it to member %zu, who is neither in that row nor "
				"its owner", p, r, s);
	}
	if (t->sub[p * t->rows + t->row[owner]] != owner)
		return err_set(e, ERR_PROTOCOL, "part %zu: the row of its owner sends it to another", p);
	return 0;
}

int tree_check(const struct tree *t, struct err *e)
{
	if (!t->rows || t->rows > TREE_ROWS_MAX || t->rows > t->n)
		return err_set(e, ERR_PROTOCOL, "%zu rows of %zu members, expected 1 to %d", t->rows, t->n, TREE_ROWS_MAX);
	for (size_t i = 0; t->rows > 1 && i < t->n; i++)
		if (t->row[i] >= t->rows)
			return err_set(e, ERR_PROTOCOL, "member %zu is in row %u of %zu", i, t->row[i], t->rows);
	for (size_t p = 0; p < t->parts; p++) {
		if (t->owner[p] >= t->n)
			return err_set(e, ERR_PROTOCOL, "part %zu has no owner", p);
		if (!tree_holds(t, p, t->owner[p]))
			return err_set(e, ERR_PROTOCOL, "part %zu: its owner %u does not hold it", p, t->owner[p]);
		if (t->rows > 1 && check_part(t, p, e))
			return -1;
	}
	return 0;
}

static size_t sub_of(const struct tree *t, size_t p, size_t i)
{
	return t->rows > 1 ? t->sub[p * t->rows + t->row[i]] : t->owner[p];
}

size_t tree_up(const struct tree *t, size_t p, size_t i)
{
	size_t s = sub_of(t, p, i);
	return s == i ? t->owner[p] : s;
}

bool tree_sums(const struct tree *t, size_t p, size_t i)
{
	return sub_of(t, p, i) == i;
}

unsigned tree_height(const struct tree *t)
{
	return t->rows > 1 ? 2 : 1;
}

unsigned tree_depth(const struct tree *t, size_t p, size_t i)
{
	return t->owner[p] == i ? 0 : tree_up(t, p, i) == t->owner[p] ? 1 : 2;
}

uint64_t tree_weight(const struct tree *t, size_t p, size_t i, const uint64_t *w)
{
	uint64_t sum = 0;
	if (!tree_sums(t, p, i))
		return tree_brings(t, p, i) ? w[i] : 0;
	for (size_t k = 0; k < t->n; k++)
		if ((t->owner[p] == i || sub_of(t, p, k) == i) && tree_brings(t, p, k))
			sum += w[k];
	return sum;
}

bool tree_reduces(const struct tree *t, size_t i)
{
	for (size_t p = 0; p < t->parts; p++)
		if (tree_sums(t, p, i))
			return true;
	return false;
}

bool tree_touches(const struct tree *t, size_t i, size_t k)
{
	for (size_t p = 0; p < t->parts; p++)
		if (tree_holds(t, p, i) && tree_holds(t, p, k) && (tree_up(t, p, i) == k || tree_up(t, p, k) == i))
			return true;
	return false;
}

/* ---- mending ---- */

#define NOBODY SIZE_MAX

struct mend { struct tree *t; const uint64_t *len; const bool *gone, *able; uint64_t *load; };

static size_t least_loaded(const struct mend *m, size_t p, size_t row)
{
	size_t best = NOBODY;
	for (size_t i = 0; i < m->t->n; i++)
		if (m->able[i] && !m->gone[i] && tree_holds(m->t, p, i) && (row == NOBODY || m->t->row[i] == row) &&
				(best == NOBODY ||
				m->load[i] < m->load[best]))
			best = i;
	return best;
}

static size_t new_owner(const struct mend *m, size_t p, size_t last)
{
	const struct tree *t = m->t;
	size_t best = NOBODY;
	for (size_t r = 0; t->rows > 1 && r < t->rows; r++) {
		size_t s = t->sub[p * t->rows + r];
		if (!m->gone[s] && m->able[s] && (best == NOBODY || m->load[s] < m->load[best]))
			best = s;
	}
	if (best == NOBODY)
		best = least_loaded(m, p, NOBODY);
	if (best == NOBODY && t->hold)          /* one that cannot sum for others, else nobody has it any more */
		for (size_t i = t->n; i-- > 0;)
			best = tree_holds(t, p, i) && !m->gone[i] ? i : best;
	return best != NOBODY ? best : t->hold ? t->owner[p] : last;
}

static void mend_rows(struct mend *m, size_t p, size_t was)
{
	struct tree *t = m->t;
	uint16_t *sub = t->sub + p * t->rows;
	size_t owner = t->owner[p];
	for (size_t r = 0; r < t->rows; r++) {
		if (t->row[owner] == r) {
			sub[r] = (uint16_t)owner;
			continue;
		}
		if (sub[r] != was && !m->gone[sub[r]])
			continue;
		size_t s = least_loaded(m, p, r);
		sub[r] = (uint16_t)(s == NOBODY ? owner : s);
		if (s != NOBODY)
			m->load[s] += m->len[p];
	}
}

void tree_mend(struct tree *t, const uint64_t *len, const bool *gone, const bool *able, size_t last, bool *ret_lost)
{
	struct mend m = { .t = t, .len = len, .gone = gone, .able = able, .load = xcalloc(t->n + 1, sizeof *m.load) };
	for (size_t p = 0; p < t->parts; p++)
		for (size_t r = 0; r < t->rows; r++) {
			size_t s = t->rows > 1 ? t->sub[p * t->rows + r] : t->owner[p];
			m.load[s] += len[p];
			ret_lost[s] = ret_lost[s] || gone[s];
		}
	for (size_t p = 0; p < t->parts; p++) {
		size_t was = t->owner[p];
		bool moves = gone[was];
		if (moves) {
			t->owner[p] = (uint16_t)new_owner(&m, p, last);
			m.load[t->owner[p]] += len[p];
		}
		if (t->rows > 1)
			mend_rows(&m, p, moves ? was : NOBODY);
	}
	free(m.load);
}

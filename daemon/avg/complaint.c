/* Who is said to keep a round from going on, or to have brought what is no number. One member's word costs no third
 * party its samples: it takes a second one, or the leader's own. Until then both are believed as far as that costs
 * nothing: what either of them sums goes to others, and everybody's samples stay. */
#include <stdlib.h>
#include <string.h>
#include "avg/lead.h"

#define ALONE 3                                 /* rounds in a row; then its word alone is not looked into */

enum complaint { SILENT, NOT_FINITE, COMPLAINTS };
/* by: who said it first of a member, NO_ROW: nobody; fresh: it has said so since the timer fired last; heeded: what it
 * sums has moved on to another. */
struct complaints {
	struct round *r; uint16_t *by[COMPLAINTS]; bool *fresh[COMPLAINTS], *heeded, waits; struct timer timer;
};

/* What it brought cannot be averaged: without it, and it is told. What it sums of others' is as good as before. */
static void left_out(struct round *r, size_t j, size_t reporter)
{
	struct lead *l = r->lead;
	if (l->m[j].nonfinite)
		return;
	l->m[j].nonfinite = true;
	l->samples[j] = 0;
	l->again = true;
	hub_event(r->a, LOG_WARN_, "nonfinite", &r->b.m[j].id,
		"epoch %llu: its contribution holds numbers that are not finite (found by %s): left out",
		(unsigned long long)r->b.epoch, (int)reporter == r->me ? "this peer" : "other members");
}

static void silent(struct round *r, size_t j)
{
	struct lead *l = r->lead;
	l->samples[j] = 0;
	if (lead_reduces(r, j) || r->b.held)    /* its unit is out with it, whoever counts the samples */
		l->m[j].gone = true;
	l->again = true;
}

/* By its own word: what it brings is not all there yet. It sums as before, and whoever waits for it has said nothing
 * wrong. */
static void at_work(struct round *r, size_t i)
{
	struct lead *l = r->lead;
	uint64_t left = 0;
	l->samples[i] = 0;
	if (l->complaints)
		l->complaints->fresh[SILENT][i] = false;
	l->again = true;
	for (size_t k = 0; k < r->b.n; k++)
		left += l->samples[k];
	if (!left)                              /* all are: the next round gives them time */
		times_short(&r->a->data_times, 2, r->b.data_us, unmeasured_us(r->a));
	hub_event(r->a, LOG_INFO_, "late", &r->b.m[i].id, "epoch %llu goes on without its samples: what it brings is not "
		"all there yet", (unsigned long long)r->b.epoch);
}

/* Who complains again, though what it sums and what those sum of whom it complained is elsewhere now, is out of this
 * round itself; and they are as they were. */
static void dismiss(struct round *r, size_t i)
{
	struct lead *l = r->lead;
	struct complaints *c = l->complaints;
	struct mate *m = mate_find(r->a, &r->b.m[i].id);
	l->m[i].gone = true;
	l->samples[i] = 0;              /* who sums now what it did may not have its piece of it */
	if (m)
		m->alone++;
	for (size_t j = 0; j < r->b.n; j++)
		c->heeded[j] = c->heeded[j] && c->by[SILENT][j] != i;
	hub_event(r->a, LOG_WARN_, "complains alone", &r->b.m[i].id, "epoch %llu: it says that others are silent or bring "
		"what is no number, and nobody else says so: left out", (unsigned long long)r->b.epoch);
}

/* No second one has come: neither of the two sums any more, and both stay. Who complains of most of them is the one
 * that is cut off. In rows and grids, where who sums holds others' sums instead of its own piece, nobody moves: there
 * several wait for the same one, and who is alone leaves. */
static void heed(struct round *r, size_t i)
{
	struct lead *l = r->lead;
	struct complaints *c = l->complaints;
	size_t n = 0;
	for (size_t j = 0; j < r->b.n; j++)
		n += c->fresh[SILENT][j] && c->by[SILENT][j] == i;
	if (l->m[i].gone || l->m[i].acked)
		return;
	l->again = true;
	if (c->heeded[i] || 2 * n > r->b.n || r->flow || r->tree.rows > 1) {
		dismiss(r, i);
		return;
	}
	c->heeded[i] = true;
	for (size_t j = 0; j < r->b.n; j++)
		c->heeded[j] = c->heeded[j] || (c->fresh[SILENT][j] && c->by[SILENT][j] == i);
}

static void alone(struct timer *t)
{
	struct complaints *c = container_of(t, struct complaints, timer);
	struct round *r = c->r;
	struct lead *l = r->lead;
	c->waits = false;
	if (r->closed || r->fail || r->commit || l->phase != LEAD_DATA)
		return;
	for (size_t j = 0; j < r->b.n; j++) {
		c->fresh[SILENT][j] = c->fresh[SILENT][j] && !l->m[j].gone;
		c->fresh[NOT_FINITE][j] = c->fresh[NOT_FINITE][j] && !l->m[j].nonfinite;
	}
	for (size_t i = 0; i < r->b.n; i++) {
		bool said = false;
		for (size_t j = 0; j < r->b.n; j++)
			for (int what = 0; what < COMPLAINTS; what++)
				said = said || (c->fresh[what][j] && c->by[what][j] == i);
		if (said)
			heed(r, i);
	}
	for (int what = 0; what < COMPLAINTS; what++)
		memset(c->fresh[what], 0, r->b.n * sizeof *c->fresh[what]);
	kick(r->a);
}

static struct complaints *complaints_of(struct round *r)
{
	struct lead *l = r->lead;
	if (l->complaints)
		return l->complaints;
	struct complaints *c = l->complaints = xcalloc(1, sizeof *c);
	c->r = r;
	c->heeded = xcalloc(r->b.n, sizeof *c->heeded);
	c->timer = (struct timer){ .fire = alone, .name = "avg.complaint" };
	for (int what = 0; what < COMPLAINTS; what++) {
		c->by[what] = xcalloc(r->b.n, sizeof *c->by[what]);
		c->fresh[what] = xcalloc(r->b.n, sizeof *c->fresh[what]);
		for (size_t i = 0; i < r->b.n; i++)
			c->by[what][i] = NO_ROW;
	}
	return c;
}

void complaints_free(struct lead *l)
{
	struct complaints *c = l->complaints;
	l->complaints = NULL;
	if (!c)
		return;
	env_timer(c->r->a->env, &c->timer, 0);
	for (int what = 0; what < COMPLAINTS; what++) {
		free(c->by[what]);
		free(c->fresh[what]);
	}
	free(c->heeded);
	free(c);
}

bool complaints_heeded(const struct lead *l, size_t i)
{
	return l->complaints && l->complaints->heeded[i];
}

static bool second(struct round *r, enum complaint what, size_t i, size_t j)
{
	uint16_t *by = &complaints_of(r)->by[what][j];
	if ((int)i == r->me || i == j || !flow_lives(r, j) || PLANTED(ONE_WORD) || (*by != NO_ROW && *by != i))
		return true;
	*by = (uint16_t)i;
	r->lead->complaints->fresh[what][j] = true;
	return false;
}

/* Whoever sums nothing sees no contribution of others: it cannot know that one is no number. */
static bool sees_none(const struct round *r, size_t i)
{
	return (int)i != r->me && !r->flow && r->b.m[i].flags & (MATE_CLIENT | MATE_HOLD | MATE_FOLLOWER);
}

/* What cannot be: nobody is named, or more than there are, or what who says it cannot have seen. */
static bool absurd(const struct round *r, size_t i, const uint8_t *list, size_t n, size_t nonfinite)
{
	if (!n || n % 32 || n / 32 > 2 * r->b.n)
		return true;
	for (size_t k = nonfinite < n / 32 ? n / 32 - nonfinite : 0; k < n / 32 && sees_none(r, i); k++)
		if (memcmp(list + 32 * k, r->b.m[i].id.b, 32))
			return true;
	return false;
}

/* Who cannot hear the leader cannot stay in the round; what else it misses counts no more, and it is not waited for.
 * What it has brought stays, when it is in every sum already. */
static bool deaf(struct round *r, size_t i, const uint8_t *list, size_t silents)
{
	struct lead *l = r->lead;
	bool names_me = false;
	for (size_t k = 0; k < silents; k++)
		names_me = names_me || !memcmp(list + 32 * k, r->b.m[r->me].id.b, 32);
	if (!names_me || (int)i == r->me)
		return false;
	struct mate *m = mate_find(r->a, &r->b.m[i].id);
	if (!l->m[r->me].acked)
		silent(r, i);
	l->m[i].gone = true;
	if (m)
		m->alone++;
	return true;
}

bool complaint_heard(struct round *r, size_t i, const uint8_t *list, size_t n, size_t nonfinite, uint64_t slow)
{
	struct lead *l = r->lead;
	size_t silents = n / 32 - (nonfinite < n / 32 ? nonfinite : n / 32);
	bool doubt = false;
	const struct mate *by = mate_find(r->a, &r->b.m[i].id);
	l->m[i].answered = true;
	if (l->phase != LEAD_DATA || l->m[i].gone)
		return false;                   /* who is out of the round is not waited for: what it misses counts no more */
	if (absurd(r, i, list, n, nonfinite) || (by && by != r->a->me && by->alone >= ALONE)) {
		complaints_of(r);               /* it holds no mean, and is not believed: no second one is awaited */
		dismiss(r, i);
		l->again = true;
		return true;
	}
	if (slow)                               /* the link is thinner than was known: the next round gives it time */
		times_short(&r->a->data_times, slow, r->b.data_us, unmeasured_us(r->a));
	if (deaf(r, i, list, silents))
		return true;
	for (size_t k = 0; k < n / 32; k++) {
		struct id id;
		memcpy(id.b, list + 32 * k, 32);
		int j = round_member(r, &id);
		if (j < 0)
			continue;
		enum complaint what = k >= silents ? NOT_FINITE : SILENT;
		if (what == SILENT && j == (int)i && l->m[r->me].acked)         /* what it has brought is in every sum */
			l->m[i].gone = true;
		else if (what == SILENT && j == (int)i && l->samples[i] && !r->b.held)
			at_work(r, i);
		else if (!second(r, what, i, (size_t)j))
			doubt = true;
		else if (what == SILENT)
			silent(r, (size_t)j);
		else
			left_out(r, (size_t)j, i);
	}
	if (doubt && !l->complaints->waits) {
		l->complaints->waits = true;
		env_after(r->a->env, &l->complaints->timer, r->a->conf.round_floor_us / 4 + 2 * farthest_us(r->a));
	}
	return true;
}

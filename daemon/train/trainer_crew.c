/* A trainer whose plans have many members: its seat in a generation (engine of daemon/crew). What of the state is its
 * own, which samples its micro-batches are of, and what has been counted, follow from the plans, the grant and the
 * index alone, so that all members know the same without a word (trainer_positions.c). A flush counts as a whole, on
 * every member, or not at all; one that is cut short ends the generation here, unless epochs run on into each other
 * (trainer_late.c). */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"
#include "exec/batch.h"
#include "train/trainer_int.h"

#define ROUNDS_MAX 64                   /* of an epoch, that come to nothing */
#define INDEX_MAX (UINT32_MAX / 2)      /* plans have values with one key for all indices below UINT32_MAX */

/* --- taking a seat */

/* The shard that holds what the buffer is, or the optimizer's vectors of. */
static const struct shard *shard_of(const struct trainer *t, const struct plan_buf *b)
{
	uint32_t n;
	const struct shard *s = trainer_shards(t, &n);

	for (uint32_t k = 0; k < n; k++)
		if (b->nextents && s[k].param.lo == b->extent[0].lo && s[k].param.hi == b->extent[0].hi &&
		    b->bytes == (b->class == PLAN_WEIGHT ? s[k].w_bytes : s[k].opt_bytes))
			return &s[k];
	return NULL;
}

/* Where a buffer of weights lies in it: as the strategy calls its vectors, and a number or .NAME behind that; else in
 * w. */
static void *weights_of(const struct trainer *t, const struct shard *s, const char *name)
{
	for (uint32_t k = 0; k < t->s->mode.nstate; k++) {
		size_t n = strlen(t->s->mode.state[k]);

		bool tag = strlen(name) >= n && (name[n] == '.' || strspn(name + n, "0123456789") == strlen(name + n));

		if (tag && !strncmp(name, t->s->mode.state[k], n))
			return shard_extra(s, k);
	}
	return shard_w(s);
}

/* Micro-batches move running statistics of the part that this peer computes. */
static void bind_stats(struct trainer *t, const struct plan *p)
{
	for (uint32_t k = 0; k < p->ninstrs; k++) {
		const struct plan_instr *i = &p->instr[k];
		const struct plan_buf *from = i->kind == PLAN_VEC && !strcmp(i->fn, "tail") ? &p->buf[i->in[0].buf] : NULL;

		if (from && from->nextents > 1)
			exec_bind(t->x, "stats", t->stats + (from->extent[1].lo - t->model->nparam),
				(from->extent[1].hi - from->extent[1].lo) * sizeof(real));
	}
}

static void bind_state(struct trainer *t, const struct plan *p)
{
	exec_unbind(t->x);
	for (uint32_t k = 0; k < p->nbufs; k++) {
		const struct plan_buf *b = &p->buf[k];
		const struct shard *s = plan_is_state(b) ? shard_of(t, b) : NULL;

		if (s && b->class == PLAN_WEIGHT)
			exec_bind(t->x, b->name, weights_of(t, s, b->name), s->w_bytes);
		else if (s && b->class == PLAN_OPTIMIZER)
			exec_bind(t->x, b->name, shard_opt(s), s->opt_bytes);
	}
	bind_stats(t, p);
}

/* What its LOADs ask for. */
static void look_at_loads(struct seat *s, const struct plan *p)
{
	s->reads = false;
	s->ring = 1;
	for (uint32_t k = 0; k < p->ninstrs; k++)
		s->reads = s->reads || (p->instr[k].kind == PLAN_LOAD && strcmp(p->instr[k].variant, "positions"));
	for (uint32_t k = 0; k < p->nbufs; k++)
		if (p->buf[k].class == PLAN_BATCH)
			s->ring = plan_depth(&p->buf[k]);
}

static int settle(struct trainer *t, const struct view *v, struct err *e)
{
	struct seat *s = &t->seat;
	json_t *values = NULL;

	if (t->strategy->settle && t->strategy->settle(v, &values, e) < 0)
		return -1;
	seat_free(t);
	s->member = xmemdup(v->member, v->nmembers * sizeof(*v->member));
	s->v = *v;
	s->v.member = s->member;
	s->values = values ? values : json_incref((json_t *)v->values);
	s->v.values = s->values;
	return 0;
}

/* Its own part of v, and its flush from index 0 on. */
static int look_ahead(struct trainer *t, struct trainer_part *ret, struct plan *ret_flush, struct err *e)
{
	const struct view *v = &t->seat.v;
	const struct plan_results none = { 0, NULL };
	struct trainer_part *part = xcalloc(v->nmembers, sizeof(*part));
	struct view x = seat_view_at(t, v, false);
	int rc = trainer_parts(t, v, part, e);

	*ret = part[v->me];
	part[v->me] = (struct trainer_part){ 0 };
	trainer_parts_free(part, v->nmembers);
	free(part);
	return rc < 0 ? -1 : t->strategy->plan(&x, &none, ret_flush, e);
}

static bool holds(const struct trainer *t, const struct trainer_part *part)
{
	const struct shard_part none = { 0 };
	uint32_t n, want = part->nheld ? part->nheld : 1;
	const struct shard *s = trainer_shards(t, &n);

	for (uint32_t k = 0; k < n && n == want; k++)
		if (!shard_part_same(&(struct shard_part){ s[k].param, s[k].stat }, part->nheld ? &part->held[k] : &none))
			return false;
	return n == want;
}

int trainer_join(struct trainer *t, const struct view *v, bool *ret_fresh, struct state **ret_was, struct err *e)
{
	const struct ranges none = { 0 };
	struct plan flush;
	int rc;

	exec_reset(t->x);
	if (settle(t, v, e) < 0 || look_ahead(t, &t->seat.part, &flush, e) < 0)
		return -1;
	look_at_loads(&t->seat, &flush);
	*ret_fresh = !holds(t, &t->seat.part);
	rc = *ret_fresh ? trainer_hold_parts(t, t->seat.part.held, t->seat.part.nheld, ret_was, e) : 0;
	if (rc == 0)
		rc = t->seat.reads ? load_deep(t, t->seat.ring, e) : 0;
	eval_begin(t);
	if (rc == 0 && t->seat.reads && t->v.count)
		rc = valid_room(t, e);
	else
		valid_no_room(t);
	if (rc == 0) {
		/* What is prepared may lie behind what must come first again. */
		if (t->seat.reads && !PLANTED(STALE_BATCH))
			loader_grant(t->loader, &none);
		bind_state(t, &flush);
		t->seat.is = true;
		t->seat.start = 0;
		trainer_reset_epoch(t);
	}
	plan_free(&flush);
	return rc;
}

int trainer_stand_up(struct trainer *t, struct state **ret_was, struct err *e)
{
	exec_reset(t->x);
	exec_unbind(t->x);
	seat_free(t);
	eval_drop(t);
	t->lent = false;                        /* there is nothing of it that would have to be filled */
	return trainer_hold_parts(t, NULL, 0, ret_was, e);
}

bool trainer_unfilled(const struct trainer *t) { return t->lent; }

void trainer_stay(struct trainer *t)
{
	t->lent = false;
	if (state_wants(t->state))
		exec_wake(t->x);
}

/* What was decided is applied; all else of it is over. */
void trainer_part_ways(struct trainer *t)
{
	if (!t->seat.is || (t->seat.over && !runs_on(t)))
		return;
	t->seat.over = true;
	eval_drop(t);
	t->in_begin = t->contribute_again = t->given = t->passed = false;
	if (runs_on(t)) {
		late_cut(t);
	} else if (!t->applying && list_empty(&t->commits)) {
		round_cut(t);
		exec_interrupt(t->x);
	}
}

/* Others go on without an answer from here: the owner must know, and bring a generation about that they all begin. */
void trainer_unseat(struct trainer *t, const struct err *e)
{
	if (t->seat.over)
		return;
	t->seat.over = true;
	eval_drop(t);
	trainer_event(t, LOG_WARN_, "plan.failed", "%s; a new generation is needed", e->text);
	if (t->cb.unseated)
		t->cb.unseated(t->arg, e);
}

void seat_planned(struct trainer *t, const struct plan *p)
{
	struct ranges r = { 0 };
	struct exec_view x;

	if (!p->iterations || !p->ninstrs)
		return;
	exec_view(t->x, &x);
	t->seat.flush = (uint32_t)p->step;
	t->seat.first = p->first;
	t->seat.cut = x.cut_short;
	t->seat.correct = t->seat.corrects = 0;
	t->seat.share = seat_share(t);
	if (!t->samples || runs_on(t))
		t->seat.base = p->first;
	seat_find(t, p, &r);
	if (t->seat.reads)
		loader_grant(t->loader, &r);
	ranges_free(&r);
}

/* All of the flush is in the sums of all members, as soon as each has ended its own. */
static void count_flush(struct trainer *t)
{
	struct seat *s = &t->seat;

	if (runs_on(t)) {
		late_counted(s);
		t->oldest = t->epoch ? t->epoch - 1 : 0;
	}
	seat_positions(t, 0, s->flush, 1, &t->claimed);
	t->samples = ranges_count(&t->claimed);
	t->batches += s->flush;
}

uint32_t seat_flushed(struct trainer *t)
{
	struct seat *s = &t->seat;
	struct exec_view x;

	exec_view(t->x, &x);
	if (!s->flush || x.cut_short != s->cut)
		return 0;
	count_flush(t);
	return s->flush * t->profile.batch;
}

static bool unseat(struct trainer *t, const char *why)
{
	struct err e;

	(void)err_set(&e, ERR_STATE, "%s", why);
	trainer_unseat(t, &e);
	return false;
}

/* Those of its unit who had ended it are elsewhere, unless a COMMIT has told all of them to go on. */
bool seat_cut(struct trainer *t)
{
	return !t->seat.over && list_empty(&t->commits) && !unseat(t, "a validation was cut short");
}

bool seat_ask(struct trainer *t, uint64_t first)
{
	struct seat *s = &t->seat;
	struct exec_view x;
	uint32_t flush = s->flush;

	s->flush = 0;
	exec_view(t->x, &x);
	s->late.ahead = s->late.ahead && !(flush && x.cut_short != s->cut);
	if (!s->is || (s->over && list_empty(&t->commits) && !t->agreed))
		return false;
	if (s->over)
		return true;
	if (flush && x.cut_short != s->cut && list_empty(&t->commits))
		return unseat(t, "a flush of micro-batches was cut short");
	if (flush && x.cut_short != s->cut)
		t->unit = 0;                    /* of an epoch that the others have ended: nothing of it counts */
	if (!runs_on(t) && !t->samples && first > s->start && list_empty(&t->commits))
		return unseat(t, "too many rounds have come to nothing");
	if (first > INDEX_MAX || eval_exhausted(t))
		return unseat(t, "indices begin anew");
	return true;
}

/* Indices of an epoch: its micro-batches, the last flush filled up, and its rounds. */
void seat_applied(struct trainer *t, uint64_t target, bool mine)
{
	t->seat.start += batches_of(t, spec_epoch_samples(t->s, target)) + PLAN_MEMBERS_MAX + ROUNDS_MAX;
	if (late_applied(&t->seat, mine) && runs_on(t))
		late_cut(t);
}

/* It is in the sum of its stage's replicas, behind which it waits for the round. When that is decided without its unit
 * those with whom it sums may have been cut short before it, and do not come any more. */
static bool agrees(const struct trainer *t)
{
	return t->seat.is && t->round_prog && !t->applying && !sums_wait(&t->sums);
}

void seat_committed(struct trainer *t, const struct commit *c, bool mine)
{
	/* other members of its unit may have ended this flush, or not begun this validation */
	if (!runs_on(t) && (t->seat.flush || (t->v.eval.runs && !PLANTED(EVAL_KEPT))) && !mine)
		exec_interrupt(t->x);
	else if (!runs_on(t) && !mine && agrees(t)) {
		round_cut(t);
		exec_interrupt(t->x);
	}
	late_committed(&t->seat.late, c->epoch);
	if (runs_on(t) && (t->seat.flush || t->v.eval.runs) && !mine && !t->seat.over)
		late_cut(t);
	if (runs_on(t) && t->seat.is && !t->seat.over &&
	    spec_epoch_samples(t->s, t->target) != epoch_goal(t))
		(void)unseat(t, "the target batch has changed, and micro-batches for another one are under way");
}

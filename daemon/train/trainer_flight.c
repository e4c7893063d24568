/* Rounds beside micro-batches. What this peer gives lies in the plan's buffer `sent` (a flight), with the averager
 * while the next epoch's micro-batches run; its SUM may be abandoned and asked again as often as programs change. When
 * the commit has come the body ends, and the next program (view.agreed) begins with what follows a commit. Nothing of
 * a flight is in the state: whoever dies or fetches the state anew has lost it, and its samples come again. */
#include <assert.h>
#include "train/trainer_int.h"

/* A round that has begun wants this epoch's samples; a commit without a begin wants none. */
void round_view(struct trainer *t, struct view *v)
{
	bool begun = t->in_begin && !t->flight.out && !t->passed && !t->s->mode.any && list_empty(&t->commits);

	if (t->seat.is && t->samples < trainer_goal(t))
		begun = false;                  /* all members of a unit have all of its flushes behind them, or none */
	t->round_prog = t->splits = t->winding = false;
	v->sent = t->flight.out;
	v->agreed = t->agreed;
	v->gave = t->agreed ? t->gave : t->flight.out;
	v->begun = !v->sent && !v->agreed && (begun || !list_empty(&t->commits));
	v->fresh = t->seat.is ? !t->seat.late.ahead : !t->renewed;
	/* beside a round a micro-batch may wait for its positions */
	v->granted = t->started && !t->paused && (load_left(t) > 0 || v->begun || v->sent || v->agreed);
	if (v->begun && !begun)
		v->samples = 0;
}

void round_planned(struct trainer *t, const struct view *v, const struct plan *p)
{
	bool commit = false;
	uint32_t sums = 0;

	for (uint32_t i = 0; i < p->ninstrs; i++) {
		const struct plan_instr *n = &p->instr[i];

		sums += n->kind == PLAN_SUM && p->group[n->group].elastic;
		commit = commit || (n->kind == PLAN_COMMIT && !n->nin && n->scope == PLAN_GROUP);
	}
	t->sums.wanted = sums;
	t->splits = sums && (!commit || v->agreed);
	t->stepping = v->agreed;
	t->round_prog = p->ninstrs && !p->iterations && (sums || v->agreed);
	grow_planned(t, p, sums);
}

void round_parcel(struct trainer *t)
{
	struct flight *f = &t->flight;

	if (!t->samples)        /* while it was copied its round was decided without it: nothing flies */
		return;
	f->out = true;
	f->taken = false;
	f->samples = t->samples;
	f->loss_sum = t->loss_sum;
	f->version = t->oldest;
	ranges_copy(&f->claimed, &t->claimed);
	trainer_reset_epoch(t);
	if (t->s->mode.any) {
		t->tell = true;
		trainer_later(t);
	}
}

void round_renewed(struct trainer *t)
{
	t->renewed = true;
	t->work_epoch = t->epoch;
}

/* The commit c says what became of it. */
void flight_decide(struct trainer *t, struct commit *c, bool mine)
{
	struct flight *f = &t->flight;

	c->flew = f->taken = true;
	c->version = f->version;
	if (!mine)
		return;
	c->samples = f->samples;
	ranges_copy(&c->claimed, &f->claimed);
	c->loss = f->loss_sum / (double)f->samples;
	if (c->epoch - 1 > f->version) {
		t->stale++;
		if (c->epoch - 1 - f->version > t->stale_most)
			t->stale_most = c->epoch - 1 - f->version;
	}
}

/* The mean waits for the micro-batches of the overlap; not longer than they can come, nor into the next round. */
bool flight_due(const struct trainer *t, bool begun)
{
	bool idle = t->load_wait && !load_left(t);

	return !t->s->mode.overlap || !t->flight.out || t->batches >= t->s->mode.overlap || t->paused || !t->started ||
		idle || begun || list_len(&t->commits) > 1;
}

/* What it gave is in the mean now, or nowhere. */
void flight_land(struct trainer *t)
{
	t->flight.out = t->flight.taken = false;
	t->gave = true;
	ranges_clear(&t->flight.claimed);
	load_regrant(t);
}

/* The iteration under way ends; unless it waits for data, now or later: there may be none for long. */
void round_wind_down(struct trainer *t)
{
	t->winding = true;
	if (t->load_wait && !t->seat.is)        /* other members are in a flush, too */
		exec_interrupt(t->x);
	else
		exec_wind_down(t->x);
}

void round_break(struct trainer *t)
{
	if (t->stepping)
		t->break_later = true;
	else if (t->s->mode.patient)
		round_wind_down(t);
	else
		exec_interrupt(t->x);
	exec_wake(t->x);
}

void round_boundary(struct trainer *t)
{
	bool waits = t->splits && sums_wait(&t->sums);

	if (t->grow.planned && !t->applying && list_empty(&t->commits)) {
		(void)trainer_copies(t);        /* what it computes writes nothing of the state before a commit */
		if (t->grow.on || !t->paused)
			return;
	}
	if (t->round_prog && !waits)
		return;
	if (t->stepping && (t->load_wait || waits))
		t->break_later = true;
	else if (waits)
		exec_interrupt(t->x);           /* it waits for others: there may be no boundary for long */
	else
		round_wind_down(t);
}

void late_cut(struct trainer *t)
{
	struct late *l = &t->seat.late;

	l->cuts = l->steps;
	if (l->steps)
		return;
	t->agreed = t->applying != NULL;
	t->stepping = false;
	round_cut(t);
	exec_interrupt(t->x);
}

struct lease *trainer_room(struct trainer *t, size_t bytes)
{
	return exec_room(t->x, bytes);
}

void trainer_lend(struct trainer *t)
{
	assert(!t->dying && !t->lender);
	t->lender = t->x;
	if (t->lender)
		exec_lend(t->lender);
}

void trainer_returned(struct trainer *t)
{
	struct exec *x = t->lender;

	t->lender = NULL;
	if (x)
		exec_returned(x);               /* which may be the last that keeps t */
}

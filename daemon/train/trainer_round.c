/* Rounds: from begin to the applied step. A commit may come before this peer has contributed, while the step before is
 * still being applied, or with no begin at all (a follower): commits wait in a list, each is taken by one program. The
 * round's SUM, COMMIT and step are one program; or, where micro-batches go on meanwhile, SUM is in one and what
 * follows the commit in the next (trainer_flight.c). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/trainer_int.h"

/* For the replay: what the step was made with. flew: it decides what flies, a gradient of the parameters of that epoch;
 * batch: what the rate is scaled with, when that is not the target; then: the target from now on, when it is
 * another. */
static void log_commit(struct trainer *t, const struct commit *c)
{
	char hyper[TRAINER_HYPER], flew[40] = "", then[40] = "", batch[40] = "";

	if (c->flew)
		(void)snprintf(flew, sizeof(flew), ",\"flew\":%llu", (unsigned long long)c->version);
	if (t->target != c->target)
		(void)snprintf(then, sizeof(then), ",\"then\":%llu", (unsigned long long)t->target);
	if (c->batch != c->target)
		(void)snprintf(batch, sizeof(batch), ",\"batch\":%llu", (unsigned long long)c->batch);
	trainer_line(t, "\"ev\":\"commit\",\"epoch\":%llu,\"samples\":%llu,\"target\":%llu,\"clip_norm\":\"%a\","
		"\"hyper\":[%s]%s%s%s", (unsigned long long)c->epoch, (unsigned long long)c->samples,
		(unsigned long long)c->target, c->clip_norm, trainer_hyper_text(t, c->hyper, hyper), flew, then, batch);
}

static void log_applied(struct trainer *t, uint64_t epoch, const uint8_t digest[TRAINER_DIGEST])
{
	char hex[2 * TRAINER_DIGEST + 1];

	trainer_line(t, "\"ev\":\"applied\",\"epoch\":%llu,\"digest\":\"%s\"", (unsigned long long)epoch,
		text_hex(digest, TRAINER_DIGEST, hex));
}

static const real *sum_brought(const struct trainer *t)
{
	const real *x = NULL;

	for (uint32_t k = 0; k < t->sums.n; k++)
		x = t->sums.v[k].from ? t->sums.v[k].from : x;
	return x;
}

static void contribute(struct trainer *t)
{
	bool flies = t->flight.out;
	const real *sum = sum_brought(t);
	uint64_t samples = !sum ? 0 : flies ? t->flight.samples : t->samples;
	const real *x = samples ? sum : NULL;
	const struct ranges none = { 0 }, *claimed = flies ? &t->flight.claimed : &t->claimed;

	if (t->passed)                  /* it has been said that there is nothing */
		return;
	t->given = flies;
	t->passed = !samples && (t->splits || t->s->mode.any || t->v.eval.runs);
	trainer_line(t, "\"ev\":\"contribute\",\"epoch\":%llu,\"samples\":%llu", (unsigned long long)t->begin_epoch,
		(unsigned long long)samples);
	t->cb.contribute(t->arg, t->begin_epoch, x, samples, samples ? claimed : &none);
}

/* Its part of the mean ends a SUM: it is read where it lies, or goes where the SUM wants it, over what was brought. */
static void end_sum(const struct sum *s, const struct commit *c)
{
	float *from = c->mean + s->at;

	if (!s->to) {
		exec_done_with(s->w, from, c->lease);
		return;
	}
	if (s->to != from)
		memcpy(s->to, from, s->len * sizeof(real));
	exec_done(s->w, NULL, NULL);
}

/* The first commit of the list goes where the SUMs want it: a micro-batch that ended after the commit had come is in no
 * sum any more. Its positions come again. */
static void deliver(struct trainer *t)
{
	struct commit *c = list_entry(list_pop(&t->commits), struct commit, link);
	struct commit now = *c;
	struct sums s;

	t->applying = c;
	t->gave = false;
	if (c->flew)
		flight_land(t);
	if (!t->splits && t->samples) {
		trainer_line(t, "\"ev\":\"dropped\",\"samples\":%llu", (unsigned long long)t->samples);
		trainer_reset_epoch(t);
		load_regrant(t);
	}
	s = t->sums;                            /* what ends here may wait anew */
	t->sums = (struct sums){ .wanted = s.wanted };
	t->agreed = t->splits;
	t->stepping = !t->splits;
	if (t->agreed)                          /* before the SUM ends: the next program may begin with that */
		round_wind_down(t);
	c->lease = NULL;                        /* whoever reads it has it; c is gone when the step is made */
	for (uint32_t k = 0; k < s.n; k++)
		end_sum(&s.v[k], &now);
	lease_put(now.lease);
	free(s.v);
}

/* A commit has come, and the SUMs wait for it. Of a state that is being copied while a round has what is computed
 * nothing is stepped (trainer_copies). */
static bool may_deliver(const struct trainer *t)
{
	bool copying = t->grow.planned && state_busy(t->state);

	return sums_wait(&t->sums) && !list_empty(&t->commits) && !t->applying && flight_due(t, t->in_begin) && !copying;
}

/* SUM of an elastic group: everything behind it waits for the commit. */
void round_sum(struct trainer *t, const struct sum *s)
{
	if (t->sums.n == t->sums.max) {         /* as many as its plan has: parts that it holds, PLAN_INSTRS_MAX at most */
		t->sums.max = t->sums.max ? 2 * t->sums.max : 4;
		t->sums.v = xrealloc(t->sums.v, t->sums.max * sizeof(*t->sums.v));
	}
	t->sums.v[t->sums.n++] = *s;
	if (t->grow.on)
		grow_sum(t, s);
	if (may_deliver(t))
		deliver(t);
	else if (sums_wait(&t->sums) && list_empty(&t->commits) && t->in_begin && !t->grow.on)
		contribute(t);
}

void round_again(struct trainer *t)
{
	bool ready = sums_wait(&t->sums) || (t->s->mode.any && !t->flight.out) || t->v.eval.runs;

	if (t->contribute_again && list_empty(&t->commits) && t->in_begin) {
		if (t->grow.on)
			grow_begun(t);
		else if (ready)
			contribute(t);
	}
	t->contribute_again = false;
	while (t->strategy->crew && (!t->seat.is || t->flight.out) && !list_empty(&t->commits) && !t->applying &&
	       !trainer_round_len(t))
		round_go_on(t);                 /* a spare has no programs, who has no part none that would wait for it */
	if (may_deliver(t))
		deliver(t);
}

void trainer_begin(struct trainer *t, uint64_t epoch)
{
	if (t->broken)
		return;
	t->in_begin = true;
	t->given = t->passed = t->grow.told = false;
	t->begin_epoch = epoch;
	trainer_line(t, "\"ev\":\"begin\",\"epoch\":%llu", (unsigned long long)epoch);
	if (!t->round_prog && !t->flight.out && !t->s->mode.any && !t->v.eval.runs) {
		round_break(t);
		return;
	}
	/* Another attempt, or it lies ready or is being made, or there is nothing: a unit that is late with a validation
	 * says so at once. */
	if (sums_wait(&t->sums) || t->s->mode.any || t->grow.on || t->v.eval.runs) {
		t->contribute_again = true;
		trainer_later(t);
	}
}

/* Where the epoch's sums go when a commit takes them. */
static struct commit *commit_new(struct trainer *t, uint64_t epoch, bool mine)
{
	struct commit *c = xcalloc(1, sizeof(*c));

	c->epoch = epoch;
	c->loss = NAN;
	memcpy(c->hyper, t->hyper, sizeof(c->hyper));
	c->clip_norm = t->clip_norm;
	c->target = c->batch = t->target;
	grow_decided(t, mine);
	if (round_carries(t) && (t->given || !t->s->mode.any)) {
		flight_decide(t, c, mine);
		return c;
	}
	if (t->s->mode.any)             /* what there is was not in the round: it waits for the next */
		return c;
	if (mine) {
		c->samples = t->samples;
		ranges_copy(&c->claimed, &t->claimed);
		c->loss = t->samples ? t->loss_sum / (double)t->samples : NAN;
	}
	trainer_reset_epoch(t);
	return c;
}

/* -1: there is no memory to keep it. lent NULL: mean is whose it is, and stays no longer than the call, but for what
 * this peer has given itself. */
static int keep_mean(struct trainer *t, struct commit *c, const float *mean, struct lease *lent)
{
	c->mean = (float *)(uintptr_t)mean;
	c->lease = lease_take(lent);
	for (uint32_t k = 0; k < t->sums.n && !c->lease; k++)
		if (t->sums.v[k].from)
			c->lease = exec_keep(t->sums.v[k].w, mean);
	if (c->lease || !c->bytes)
		return 0;
	c->lease = exec_room(t->x, c->bytes);
	if (!c->lease)
		return -1;
	memcpy(c->lease->p, mean, c->bytes);
	c->mean = c->lease->p;
	return 0;
}

int trainer_commit(struct trainer *t, uint64_t epoch, const float *mean, struct lease *lent, uint64_t my_samples,
	uint64_t counted, const json_t *live, struct err *e)
{
	size_t bytes = trainer_round_len(t) * sizeof(real);
	bool left = t->seat.flush && !my_samples;       /* its unit was left out of an epoch, and is at work */
	uint64_t target = t->target;            /* what this epoch was worked for */
	struct commit *c;

	if (t->broken)
		return err_set(e, ERR_STATE, "training has stopped after an error");
	if (!mean && bytes)
		return err_set(e, ERR_INVALID, "a commit without a mean");
	if (list_len(&t->commits) >= COMMITS_MAX)
		return err_set(e, ERR_LIMIT, "%d commits wait to be applied: this peer is too slow for the swarm", COMMITS_MAX);
	if (live && spec_live_apply(t->s, live, t->hyper, &t->clip_norm, e) < 0)
		return -1;
	if (live)
		t->target = spec_live_target(t->s, live);
	c = commit_new(t, epoch, my_samples > 0);
	c->target = target;
	c->batch = t->s->schedule.track && counted ? counted : target;
	if (my_samples)
		c->samples = my_samples;
	c->bytes = bytes;
	if (keep_mean(t, c, mean, lent) < 0) {
		commit_free(c);
		return err_set(e, ERR_NOMEM, "no memory to keep a commit (%zu bytes)", bytes);
	}
	log_commit(t, c);
	list_push(&t->commits, &c->link);
	t->in_begin = t->given = t->passed = false;
	t->tell = t->samples > 0 || round_carries(t);
	if (sums_wait(&t->sums) || t->tell || !bytes)
		trainer_later(t);
	seat_committed(t, c, my_samples > 0);
	if (!left && !sums_wait(&t->sums) && !t->round_prog)
		round_break(t);
	return 0;
}

/* What was accumulated stays; micro-batches go on, at least one more before this peer waits again. */
void trainer_failed(struct trainer *t, uint64_t epoch)
{
	if (!t->in_begin)
		return;
	t->in_begin = t->contribute_again = t->given = t->passed = t->grow.told = false;
	trainer_line(t, "\"ev\":\"failed\",\"epoch\":%llu", (unsigned long long)epoch);
	if (t->grow.on)                 /* it is made, or has been, for the next round */
		return;
	if (t->flight.out) {            /* it lies there for the next round */
		t->tell = true;
		trainer_later(t);
		return;
	}
	if (!t->s->mode.steps && !t->s->mode.any && !t->strategy->crew)
		t->hold_at = t->samples + 1 > trainer_goal(t) ? t->samples + 1 : trainer_goal(t);
	if ((t->round_prog || t->splits) && !t->applying && list_empty(&t->commits)) {
		round_cut(t);
		exec_interrupt(t->x);
	}
}

/* A strategy without a swarm commits by itself. */
void round_own_commit(struct trainer *t)
{
	commit_free(t->applying);               /* of a program that was abandoned behind its COMMIT */
	t->applying = commit_new(t, t->epoch + 1, true);
	log_commit(t, t->applying);
}

void round_applied(struct trainer *t, const uint8_t digest[TRAINER_DIGEST])
{
	struct commit *c = t->applying;
	struct trainer_applied a;

	if (!c)
		return;
	a = (struct trainer_applied){ .epoch = c->epoch, .samples = c->samples, .claimed = &c->claimed, .digest = digest,
		.loss = c->loss, .lr = round_lr(t), .skipped = t->skipped > 0 };
	t->applying = NULL;
	t->agreed = t->stepping = false;
	t->epoch = c->epoch;
	t->batch = t->s->schedule.track ? c->batch : 0;
	if (t->seat.is)
		seat_applied(t, c->target, c->samples > 0);
	log_applied(t, t->epoch, digest);
	eval_drop(t);                           /* of the epoch before */
	if (!t->s->mode.local)
		check_step(t, t->skipped);
	trouble_over(t);
	t->skipped = 0;
	t->cb.applied(t->arg, &a);
	commit_free(c);
	if (sums_wait(&t->sums) && !list_empty(&t->commits))
		trainer_later(t);
	else if (!t->round_prog && (t->break_later || round_waits(t)))
		round_break(t);
	if (t->break_later && (t->paused || state_wants(t->state)))
		round_boundary(t);      /* the step is made: what waits for others need not hold up who has asked */
	t->break_later = false;
}

void round_go_on(struct trainer *t)
{
	static const uint8_t none[TRAINER_DIGEST];

	if (trainer_round_len(t) || list_empty(&t->commits))
		return;
	t->applying = list_entry(list_pop(&t->commits), struct commit, link);
	if (t->applying->flew)
		flight_land(t);
	else
		trainer_reset_epoch(t);
	round_applied(t, none);
}

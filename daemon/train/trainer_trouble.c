/* An instruction that talks to other peers has failed. That is an outcome and not the end of the run: it is told, the
 * program is abandoned, and after a rest, longer each time, another one is planned. Too many in a row (without a step
 * between them) do end the run; so does at once what no later try can mend: a plan that cannot be, state that was being
 * overwritten, a commit that is being applied. */
#include "train/trainer_int.h"

#define TROUBLES_MAX 16                 /* in a row: a minute and a half of rests */
#define REST_US 100000
#define REST_MAX_US 10000000

/* Peers come and go, and what is sent gets lost; all else comes again. Where a peer was there may be another daemon
 * now, which has another identity, swarm key or version: then the peer is not there. */
static bool passes(enum err_code code)
{
	static const enum err_code may[] = { ERR_TIMEOUT, ERR_UNREACHABLE, ERR_CANCELLED, ERR_BUSY, ERR_REFUSED,
		ERR_NOT_FOUND, ERR_CORRUPT, ERR_AUTH, ERR_VERSION };

	for (size_t k = 0; k < sizeof(may) / sizeof(*may); k++)
		if (code == may[k])
			return true;
	return false;
}

/* Gradients of many micro-batches that it was changing, or that were its own to drop. */
static bool spoils_sum(const struct plan *p, const struct plan_instr *i)
{
	for (uint32_t k = 0; k < i->nin + i->nout; k++) {
		const struct plan_ref *r = k < i->nin ? &i->in[k] : &i->out[k - i->nin];
		const struct plan_buf *b = &p->buf[r->buf];

		if (b->class == PLAN_WEIGHT_GRAD && b->per > 1 && (k >= i->nin || r->drop))
			return true;
	}
	return false;
}

enum exec_outcome trainer_failing(void *arg, const struct plan *p, const struct plan_instr *i, enum exec_outcome meant,
	const struct err *e)
{
	struct trainer *t = arg;
	uint64_t rest = REST_US;
	struct err last = *e;

	if (meant == EXEC_WITHOUT)              /* the plan says how it goes on */
		return meant;
	if (t->seat.is && plan_leaves(i->kind) && passes(e->code) && (!t->applying || runs_on(t))) {
		struct err why = *e;

		(void)err_wrap(&why, "%s of %s", plan_kind_name(i->kind), plan_label(p, i) ? plan_label(p, i) : p->strategy);
		trainer_unseat(t, &why);
		if (!t->applying)
			return EXEC_REPLAN;
		late_cut(t);
		return t->seat.late.steps ? EXEC_LATER : EXEC_REPLAN;
	}
	if (!plan_leaves(i->kind) || !passes(e->code) || plan_writes_state(p, i) || t->applying)
		return EXEC_BREAK;
	if (++t->troubles >= TROUBLES_MAX) {
		(void)err_wrap(&last, "%s failed %u times in a row", plan_kind_name(i->kind), t->troubles);
		trainer_break(t, &last);
		return EXEC_BREAK;
	}
	for (uint32_t k = 1; k < t->troubles && rest < REST_MAX_US; k++)
		rest *= 2;
	rest = rest < REST_MAX_US ? rest : REST_MAX_US;
	trainer_event(t, LOG_WARN_, "plan.failed", "%s of %s failed: %s; planned anew in %.1f s (%u in a row; the run ends "
		"at %u)", plan_kind_name(i->kind), plan_label(p, i) ? plan_label(p, i) : p->strategy, e->text,
		(double)rest / 1e6, t->troubles, TROUBLES_MAX);
	if (spoils_sum(p, i) && t->samples) {           /* nobody has them: they come again */
		trainer_line(t, "\"ev\":\"dropped\",\"samples\":%llu", (unsigned long long)t->samples);
		trainer_reset_epoch(t);
		load_regrant(t);
	}
	t->resting = true;
	env_after(t->env, &t->rest, rest);
	return EXEC_REPLAN;
}

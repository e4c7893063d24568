/* What is called and posted to a run's averager goes to who handles it: one handler for every kind. */
#include "avg/int.h"
#include "avg/audit.h"
#include "avg/proof.h"
#include "avg/sent.h"

#define HANDLERS(X) X(JOIN, join_on) X(PROGRESS, progress_on) X(BEGIN, member_begin_on) \
	X(ATTEMPT, member_attempt_on) X(MISSING, member_missing_on) X(COMMIT, member_commit_on) X(RECOVER, recover_on) \
	X(LEAVE, leave_on) X(PROPOSE, propose_on) X(GRANT, grant_on) X(REDIRECT, redirect_on) X(SHOW, show_on) \
	X(PROOF, proof_on) X(SENT, sent_on) X(AUDIT, audit_on) X(WRONG, wrong_on)

static const enum kind kinds[] = {
#define X(kind, fn) KIND_AVG_##kind,
	HANDLERS(X)
#undef X
};

static void hand(void *avg, struct request *req)
{
	switch (req->f.kind) {
#define X(kind, fn) case KIND_AVG_##kind: fn(avg, req); break;
	HANDLERS(X)
#undef X
	default: break;
	}
}

int hub_enter(struct avg *a, struct err *e)
{
	if (by_run_enter(&a->hub, a->net, kinds, sizeof kinds / sizeof *kinds, &a->conf.run, hand, a, e))
		return err_wrap(e, "averaging");
	return 0;
}

void hub_leave(struct avg *a)
{
	by_run_leave(&a->hub);
}

/* What comes to a run's crew goes to who handles it: what others ask, and what its lane has done. */
#include "crew/int.h"

#define HANDLERS(X) X(PROPOSE, crew_propose_on) X(GO, crew_go_on) X(ASK, crew_ask_on) X(SHOW, crew_show_on)

static const enum kind kinds[] = {
#define X(kind, fn) KIND_CREW_##kind,
	HANDLERS(X)
#undef X
};

static void hand(void *crew, struct request *req)
{
	if (!req->wants_reply)
		return;
	switch (req->f.kind) {
#define X(kind, fn) case KIND_CREW_##kind: fn(crew, req); break;
	HANDLERS(X)
#undef X
	default: break;
	}
}

static void worked(struct job *j)
{
	struct work *w = container_of(j, struct work, job);
	struct crew *c = crew_work_over(w);
	if (!c)
		return;
	if (w->kind == WORK_VERIFY || w->kind == WORK_VERIFY_OTHERS)
		member_verified(c, w);
	else if (w->kind == WORK_CHOOSE)
		need_chosen(c, w);
	else
		member_computed(c, w);
	crew_work_next(c, w);
	crew_kick(c);
}

int crew_hub_enter(struct crew *c, struct err *e)
{
	c->worked = worked;
	if (by_run_enter(&c->hub, c->net, kinds, sizeof kinds / sizeof *kinds, &c->conf.run, hand, c, e))
		return err_wrap(e, "crew");
	return 0;
}

void crew_hub_leave(struct crew *c)
{
	by_run_leave(&c->hub);
}

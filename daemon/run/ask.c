/* Operators who wait for the network. */
#include <stdlib.h>
#include "common/mem.h"
#include "run/int.h"

/* An operator's word on its way to the members; also the slot in which other requests wait for the network. */
struct ask *ask_new(struct runs *rs, struct run *r, struct reply *reply)
{
	struct ask *a = xcalloc(1, sizeof *a);
	a->rs = rs;
	a->reply = reply;
	if (r)
		a->run = r->id;
	list_push(&rs->asks, &a->link);
	return a;
}

void ask_free(struct ask *a)
{
	if (a->rs)
		env_timer(a->rs->ctx.env, &a->late, 0);
	list_del(&a->link);
	json_decref(a->local);
	json_decref(a->patch);
	free(a);
}

/* The network outlives the runs by a moment: whoever still waits gets an answer, and late calls find nobody. */
void runs_asks_free(struct runs *rs)
{
	list_each_safe(it, &rs->asks) {
		struct ask *a = list_entry(it, struct ask, link);
		struct err e;
		err_set(&e, ERR_CANCELLED, "the daemon is stopping");
		if (a->reply)
			reply_fail(a->reply, &e);
		env_timer(rs->ctx.env, &a->late, 0);
		list_del(&a->link);
		list_init(&a->link);
		a->reply = NULL;
		a->rs = NULL;
		if (!a->open)
			ask_free(a);
	}
}

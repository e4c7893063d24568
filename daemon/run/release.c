/* What a run held is let go: at its end, or before it begins anew. The trainer's jobs may still touch some of it. */
#include <stdlib.h>
#include "common/mem.h"
#include "run/int.h"

void run_wake(struct run *r)
{
	if (r->rest)
		r->rest->stop(r->rest);
}

/* What a trainer's jobs may still touch goes with it. */
struct grave { struct list link; struct data *data; struct spec *spec; struct rest *rest;
	struct carry *carry; };

static void buried(void *arg)
{
	struct grave *g = arg;
	list_del(&g->link);
	data_free(g->data);
	spec_free(g->spec);
	carry_free(g->carry);
	if (g->rest)
		g->rest->free(g->rest);
	free(g);
}

static void contribution_back(void *trainer)
{
	if (trainer)
		trainer_returned(trainer);
}

void run_release(struct run *r, bool keep_spec)
{
	sync_free(r->sync);
	r->sync = NULL;
	differ_free(r->differ);
	r->differ = NULL;
	origin_free(r->weights);
	r->weights = NULL;
	env_timer(r->rs->ctx.env, &r->leave_timer, 0);
	run_crew_close(r);
	if (r->avg && r->trainer)
		trainer_lend(r->trainer);       /* a sum may be reading what it contributed */
	if (r->avg)
		avg_free(r->avg, contribution_back, r->trainer);
	r->avg = NULL;
	struct grave *g = xcalloc(1, sizeof *g);
	run_wake(r);
	g->carry = r->carry;
	r->carry = NULL;
	g->rest = r->rest;
	r->rest = NULL;
	g->data = r->data;
	g->spec = r->spec;
	r->data = NULL;
	r->spec = NULL;
	list_push(&r->rs->graves, &g->link);
	if (keep_spec) {
		json_t *local = spec_local_json(g->spec);
		r->spec = spec_of(r->name, g->spec->shared, local, NULL);
		json_decref(local);
	}
	if (r->trainer) {
		trainer_free(r->trainer, buried, g);
		donors_forget(r->rs->donors, &r->id);
	} else if (r->opening) {                /* its job still reads the spec */
		run_open_orphan(r);
		g->spec = NULL;
		buried(g);
	} else
		buried(g);
	r->trainer = NULL;
	r->opening = NULL;
	trace_close(r);
}

/* What is over is freed when no job reads it and no transfer needs it: rounds, and the averager itself. */
#include <stdlib.h>
#include "avg/lead.h"
#include "avg/sent.h"

void round_reap(struct avg *a, bool force)
{
	list_each_safe(it, &a->tails) {
		struct round *r = list_entry(it, struct round, link);
		if (force)
			flow_stop(r, true);
		if (!flow_idle(r))
			continue;
		list_del(&r->link);
		if (r->applied)
			round_count(r);
		lead_free(r);
		flow_free(r);
		sents_free(r);
		lease_put(r->mean_in);
		body_free(&r->b);
		buf_free(&r->bytes);
		if (r->commit) {
			body_free(r->commit);
			free(r->commit);
		}
		buf_free(&r->commit_bytes);
		told_free(r);
		free(r->fail);
		ranges_free(&r->claimed);
		ranges_free(&r->there);
		free(r->w);
		free(r->bad);
		free(r->broken);
		tree_free(&r->tree);
		free(r->odd);
		coding_free(&r->coding);
		free(r->cared);
		free(r->part);
		free(r);
	}
}

void avg_end(struct avg *a)
{
	round_reap(a, true);
	residuals_clear(a);
	for (size_t i = 0; i < SPARES; i++)
		big_free(a->spare[i].p, a->spare[i].bytes);
	free((void *)a->conf.tensors);
	json_decref(a->conf.codec);
	free(a);
}

void avg_tell_quiet(struct avg *a)
{
	void (*quiet)(void *arg) = a->quiet;
	if (a->x_jobs || !quiet)
		return;
	a->quiet = NULL;
	quiet(a->quiet_arg);
}

void avg_job_over(struct avg *a)
{
	if (!a->freeing) {
		kick(a);
		return;
	}
	avg_tell_quiet(a);
	round_reap(a, true);
	if (list_empty(&a->tails))
		avg_end(a);
}

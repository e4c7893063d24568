/* Lanes in virtual time: a job has a thread of its lane for cost_us, sees only itself, and then its done comes through
 * the node's loop. Every other job does its work at the end of that time instead of its beginning: what it reads must
 * be there until its done, whatever the loop has done meanwhile. Name resolution: "n17" is node 17, numeric addresses
 * are themselves. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include "sim_int.h"

#define RESOLVE_US 2000

static void start_some(struct snode *n, struct lane *lane)
{
	while (lane->busy < lane->threads && !list_empty(&lane->waiting)) {
		struct simjob *j = list_entry(list_pop(&lane->waiting), struct simjob, item.link);
		lane->busy++;
		heap_set(&n->sim->heap, &j->t, n->sim->now);
	}
}

static void run_now(struct simjob *j)
{
	struct snode *n = j->node;

	j->ran = true;
	n->sim->on = n;
	sim_touch(n);
	j->job->run(j->job);
	n->sim->on = NULL;
}

static void job_fire(struct timer *t)
{
	struct simjob *j = container_of(t, struct simjob, t);
	struct snode *n = j->node;
	struct lane *lane = &n->lanes[j->job->lane];

	if (!j->begun) {
		j->begun = true;
		if (n->sim->stats.jobs++ % 2 == 0)
			run_now(j);
		heap_set(&n->sim->heap, &j->t, n->sim->now + j->job->cost_us * lane->slower);
		return;
	}
	if (!j->ran)
		run_now(j);
	lane->busy--;
	sim_item(n, &j->item, ITEM_DONE);
	start_some(n, lane);
}

void simwork_init(struct snode *n)
{
	static const struct { const char *name; int threads; } rows[SIM_LANES] = {
		{ "train", 1 }, { "reduce", 1 }, { "disk", 1 }, { "data", 2 }, { "copy-in", 1 }, { "copy-out", 1 },
		{ "resolve", 1 }, { "serve", 1 }, { "verify", 1 }, { "hash", 1 },
	};
	for (int i = 0; i < SIM_LANES; i++) {
		n->lanes[i] = (struct lane){ .name = rows[i].name, .threads = rows[i].threads, .slower = 1 };
		list_init(&n->lanes[i].waiting);
	}
}

int simwork_lane(struct env *e, const char *name)
{
	for (int i = 0; i < SIM_LANES; i++)
		if (!strcmp(snode_of(e)->lanes[i].name, name))
			return i;
	return -1;
}

void sim_lane_slow(struct sim *s, int node, const char *lane, unsigned times)
{
	int i = simwork_lane(&s->node[node]->env, lane);
	if (i >= 0)
		s->node[node]->lanes[i].slower = times;
}

void simwork_put(struct env *e, struct job *job)
{
	struct snode *n = snode_of(e);
	struct simjob *j;

	if (job->lane < 0 || job->lane >= SIM_LANES) {
		fprintf(stderr, "sim: job %s has lane %d\n", job->name, job->lane);
		abort();
	}
	if (n->detached) {
		job->run(job);
		job->done(job);
		return;
	}
	j = xcalloc(1, sizeof(*j));
	j->node = n;
	j->job = job;
	j->t.fire = job_fire;
	list_push(&n->jobs, &j->link);
	list_push(&n->lanes[job->lane].waiting, &j->item.link);
	start_some(n, &n->lanes[job->lane]);
}

void simwork_done(struct simjob *j)
{
	struct job *job = j->job;
	list_del(&j->link);
	free(j);
	job->done(job);
}

void simwork_resolved(struct answer *a)
{
	struct resolving *r = a->r;
	list_del(&a->link);
	free(a);
	r->done(r);
}

static void answer_fire(struct timer *t)
{
	struct answer *a = container_of(t, struct answer, t);
	struct sim *s = a->node->sim;
	struct resolving *r = a->r;
	unsigned node;
	int used = 0;
	uint8_t v4[4];

	r->rc = 0;
	memset(&r->error, 0, sizeof(r->error));
	memset(r->at.ip, 0, sizeof(r->at.ip));
	if (sscanf(r->name, "n%u%n", &node, &used) == 1 && !r->name[used] && (int)node < s->nodes) {
		memcpy(r->at.ip, s->node[node]->at.ip, sizeof(r->at.ip));
	} else if (inet_pton(AF_INET, r->name, v4) == 1) {
		r->at.ip[10] = r->at.ip[11] = 0xff;
		memcpy(r->at.ip + 12, v4, 4);
	} else if (inet_pton(AF_INET6, r->name, r->at.ip) != 1) {
		r->rc = err_set(&r->error, ERR_NOT_FOUND, "%s: no such host", r->name);
	}
	sim_item(a->node, &a->item, ITEM_RESOLVED);
}

void simwork_resolve(struct env *e, struct resolving *r)
{
	struct snode *n = snode_of(e);
	struct answer *a;

	if (n->detached) {
		r->rc = err_set(&r->error, ERR_CANCELLED, "%s: the daemon is stopping", r->name);
		r->done(r);
		return;
	}
	a = xcalloc(1, sizeof(*a));
	a->node = n;
	a->r = r;
	a->t.fire = answer_fire;
	list_push(&n->answers, &a->link);
	heap_set(&n->sim->heap, &a->t, n->sim->now + RESOLVE_US);
}

void simwork_drain(struct snode *n)
{
	while (!list_empty(&n->jobs)) {
		struct simjob *j = list_entry(n->jobs.next, struct simjob, link);
		bool waiting = !j->t.at_us && !j->begun;
		heap_set(&n->sim->heap, &j->t, 0);
		sim_unitem(&j->item);
		if (waiting)
			list_del(&j->item.link);
		if (!j->ran)
			j->job->run(j->job);
		simwork_done(j);
	}
	while (!list_empty(&n->answers)) {
		struct answer *a = list_entry(n->answers.next, struct answer, link);
		heap_set(&n->sim->heap, &a->t, 0);
		sim_unitem(&a->item);
		a->r->rc = err_set(&a->r->error, ERR_CANCELLED, "%s: the daemon is stopping", a->r->name);
		simwork_resolved(a);
	}
}

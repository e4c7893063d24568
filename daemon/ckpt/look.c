/* What checkpoints a folder has: their headers, as a job of the disk lane. Data is neither read nor hashed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt/ckpt.h"
#include "common/mem.h"

struct looking {
	struct job job;
	struct files *files;
	char *dir;
	size_t max, n;
	struct ckpt_seen *v;
	ckpt_looked_fn *done;
	void *arg;
};

/* One that cannot be read is as if it were not there: whoever loads it says why. */
static void look_run(struct job *j)
{
	struct looking *l = container_of(j, struct looking, job);
	uint64_t *epoch = xcalloc(l->max, sizeof *epoch);
	struct err e;
	int n = ckpt_list(l->files, l->dir, epoch, l->max, &e);
	for (int i = 0; i < n; i++) {
		struct ckpt_seen *s = &l->v[l->n];
		struct ckpt_head h = { 0 };
		s->epoch = epoch[i];
		ckpt_path(l->dir, epoch[i], s->path, sizeof s->path);
		if (!ckpt_head_read(&h, l->files, s->path, &e)) {
			s->meta = json_incref(h.meta);
			s->bytes = h.data_at + h.data_bytes;
			l->n++;
		}
		ckpt_head_done(&h);
	}
	free(epoch);
}

static void look_done(struct job *j)
{
	struct looking *l = container_of(j, struct looking, job);
	l->done(l->arg, l->v, l->n);
	for (size_t i = 0; i < l->n; i++)
		json_decref(l->v[i].meta);
	free(l->v);
	free(l->dir);
	free(l);
}

void ckpt_look(struct env *env, const char *dir, size_t max, ckpt_looked_fn *done, void *arg)
{
	struct looking *l = xcalloc(1, sizeof *l);
	*l = (struct looking){ .files = env->files, .dir = xstrdup(dir), .max = max, .done = done, .arg = arg,
		.v = xcalloc(max, sizeof *l->v) };
	l->job = (struct job){ .name = "checkpoint look", .lane = env_lane(env, "disk"), .run = look_run,
		.done = look_done, .cost_us = 500 };
	env_work(env, &l->job);
}

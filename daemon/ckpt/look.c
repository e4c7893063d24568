/* What checkpoints a folder has, by their headers; and that as a job of the disk lane. */
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

int ckpt_see(struct files *f, const char *dir, struct ckpt_seen *v, size_t max, struct err *e)
{
	uint64_t *epoch = xcalloc(max, sizeof *epoch);
	int n = ckpt_list(f, dir, epoch, max, e), ret = n < 0 ? -1 : 0;
	for (int i = 0; i < n; i++) {
		struct ckpt_seen *s = &v[ret];
		struct ckpt_head h = { 0 };
		s->epoch = epoch[i];
		ckpt_path(dir, epoch[i], s->path, sizeof s->path);
		if (!ckpt_head_read(&h, f, s->path, NULL)) {
			s->meta = json_incref(h.meta);
			s->bytes = h.data_at + h.data_bytes;
			ret++;
		}
		ckpt_head_done(&h);
	}
	free(epoch);
	return ret;
}

void ckpt_seen_done(struct ckpt_seen *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		json_decref(v[i].meta);
}

static void look_run(struct job *j)
{
	struct looking *l = container_of(j, struct looking, job);
	int n = ckpt_see(l->files, l->dir, l->v, l->max, NULL);
	l->n = n > 0 ? (size_t)n : 0;
}

static void look_done(struct job *j)
{
	struct looking *l = container_of(j, struct looking, job);
	l->done(l->arg, l->v, l->n);
	ckpt_seen_done(l->v, l->n);
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

/* Checkpoints as jobs of the disk lane: save with retention and a floor of free space, load with a way back to an older
 * one when the newest is corrupted. */
#include "ckpt/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/text.h"

#define EPOCHS_MAX 4096                 /* files of one folder that are looked at */
#define ASIDE_MAX 99                    /* of one name */

void ckpt_path(const char *dir, uint64_t epoch, char *out, size_t cap)
{
	snprintf(out, cap, "%s/epoch-%010" PRIu64 ".safetensors", dir, epoch);
}

/* --- what is in a folder */

struct names { uint64_t *v; size_t n, max; char **tmp; size_t tmps; };

static int row(void *arg, const char *name)
{
	static const char head[] = "epoch-", tail[] = ".safetensors";
	struct names *l = arg;
	size_t len = strlen(name), digits = strspn(name + (len > 6 ? 6 : len), "0123456789");
	uint64_t epoch;
	char text[24];

	if (len < 6 || strncmp(name, head, 6) != 0 || digits == 0 || digits >= sizeof text)
		return 0;
	memcpy(text, name + 6, digits);
	text[digits] = '\0';
	if (strcmp(name + 6 + digits, ".safetensors.tmp") == 0 && l->tmp && l->tmps < 64)
		l->tmp[l->tmps++] = xstrdup(name);
	if (strcmp(name + 6 + digits, tail) != 0 || text_u64(text, &epoch, NULL) < 0)
		return 0;
	if (l->n < l->max)
		l->v[l->n++] = epoch;
	return 0;
}

static int newest_first(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x > y ? -1 : x < y;
}

static int names_of(struct files *f, const char *dir, struct names *l, struct err *e)
{
	struct err why;

	if (f->list(f, dir, row, l, &why) < 0 && why.code != ERR_NOT_FOUND) {
		if (e)
			*e = why;
		return -1;
	}
	qsort(l->v, l->n, sizeof *l->v, newest_first);
	return 0;
}

int ckpt_list(struct files *f, const char *dir, uint64_t *ret_epochs, size_t max, struct err *e)
{
	uint64_t all[EPOCHS_MAX];
	struct names l = { .v = all, .max = EPOCHS_MAX };

	if (names_of(f, dir, &l, e) < 0)
		return -1;
	max = max < l.n ? max : l.n;
	memcpy(ret_epochs, all, max * sizeof *all);
	return (int)max;
}

/* --- jobs */

struct ckpt_job {
	struct job job;
	struct env *env;
	struct files *files;
	char *dir;
	struct ckpt_tensor *v;
	size_t n;
	json_t *meta;
	uint64_t epoch, free_min, began_us, lost_from, lent, reject, hold;
	unsigned keep;
	struct ckpt_result r;
	ckpt_done_fn *done;
	void *arg;
};

static int room_for(struct ckpt_job *c, struct err *e)
{
	char need[32], have[32], floor[32];
	uint64_t bytes = 4096;
	int64_t left = c->files->free_bytes(c->files, c->dir, e);

	if (left < 0)
		return -1;
	for (size_t i = 0; i < c->n; i++)
		bytes += c->v[i].bytes + 512;
	if ((uint64_t)left >= bytes && (uint64_t)left - bytes >= c->free_min)
		return 0;
	return err_set(e, ERR_FULL, "%s: a checkpoint needs %s, %s are free and %s must stay free (checkpoint.free_min): "
		"free some space; training goes on", c->dir, text_print_size(bytes, need, sizeof need),
		text_print_size((uint64_t)left, have, sizeof have), text_print_size(c->free_min, floor, sizeof floor));
}

/* Under a name that nothing has: what was set aside before stays, too. */
static int set_aside(struct ckpt_job *c, uint64_t epoch, const char *as, struct err *e)
{
	char path[512], to[544];

	ckpt_path(c->dir, epoch, path, sizeof path);
	for (unsigned n = 1; n <= ASIDE_MAX; n++) {
		struct err why;

		snprintf(to, sizeof to, n == 1 ? "%s.%s" : "%s.%s%u", path, as, n);
		if (c->files->size(c->files, to, &why) < 0 && why.code == ERR_NOT_FOUND)
			return c->files->rename(c->files, path, to, e);
	}
	return err_set(e, ERR_LIMIT, "%s: %d were set aside under that name: look at them, and remove what is not needed",
		path, ASIDE_MAX);
}

/* Of this history the newest `keep` stay; what another one has left is not this one's to delete. */
static void retain(struct ckpt_job *c, struct names *l)
{
	uint64_t lost = c->lost_from && c->lost_from <= c->epoch ? c->lost_from : c->epoch + 1;
	unsigned kept = 0, room = c->keep;

	for (size_t i = 0; i < l->n; i++)
		room -= room > 1 && c->hold && l->v[i] == c->hold && c->hold < lost;
	for (size_t i = 0; i < l->n; i++) {
		char path[512];

		if (l->v[i] >= lost && l->v[i] != c->epoch) {
			c->r.aside += set_aside(c, l->v[i], "aside", NULL) == 0;
			continue;
		}
		if ((c->hold && l->v[i] == c->hold) || kept++ < room || l->v[i] == c->lent)
			continue;
		ckpt_path(c->dir, l->v[i], path, sizeof path);
		if (c->files->unlink(c->files, path, NULL) == 0)
			c->r.removed++;
	}
}

/* With the folders above it: the first checkpoint of a state folder makes two. */
static int make_dir(struct files *f, const char *dir, struct err *e)
{
	char *up;
	int rc = f->mkdir(f, dir, 0750, e);

	if (rc == 0 || !strrchr(dir, '/') || strrchr(dir, '/') == dir)
		return rc;
	up = xstrdup(dir);
	*strrchr(up, '/') = '\0';
	rc = make_dir(f, up, NULL) ? -1 : f->mkdir(f, dir, 0750, e);
	free(up);
	return rc;
}

static void save_run(struct job *j)
{
	struct ckpt_job *c = container_of(j, struct ckpt_job, job);
	uint64_t epochs[EPOCHS_MAX];
	char *tmp[64];
	struct names l = { .v = epochs, .max = EPOCHS_MAX, .tmp = tmp };
	struct err *e = &c->r.error;
	int rc = make_dir(c->files, c->dir, e);

	if (rc == 0)
		rc = names_of(c->files, c->dir, &l, e);
	for (size_t i = 0; i < l.tmps; i++) {
		char path[512];

		snprintf(path, sizeof path, "%s/%s", c->dir, tmp[i]);
		c->files->unlink(c->files, path, NULL);
		free(tmp[i]);
	}
	ckpt_path(c->dir, c->epoch, c->r.path, sizeof c->r.path);
	c->r.epoch = c->epoch;
	if (rc == 0)
		rc = room_for(c, e);
	if (rc == 0)
		rc = ckpt_write(c->files, c->r.path, c->v, c->n, c->meta, &c->r.bytes, NULL, e);
	if (rc < 0)
		return;
	e->code = ERR_NONE;
	l.n = 0;
	l.tmp = NULL;
	if (names_of(c->files, c->dir, &l, NULL) == 0)
		retain(c, &l);
}

static void load_run(struct job *j)
{
	struct ckpt_job *c = container_of(j, struct ckpt_job, job);
	uint64_t epochs[EPOCHS_MAX];
	struct names l = { .v = epochs, .max = EPOCHS_MAX };
	struct err *e = &c->r.error;
	char path[512];

	if (c->reject != CKPT_NONE && set_aside(c, c->reject, "corrupt", e) < 0 && e->code != ERR_NOT_FOUND)
		return;
	if (names_of(c->files, c->dir, &l, e) < 0)
		return;
	for (size_t i = 0; i < l.n; i++) {
		ckpt_path(c->dir, l.v[i], path, sizeof path);
		if (ckpt_read(c->files, path, c->v, c->n, &c->meta, e) == 0) {
			e->code = ERR_NONE;
			e->text[0] = '\0';
			c->r.epoch = l.v[i];
			c->r.bytes = (uint64_t)c->files->size(c->files, path, NULL);
			snprintf(c->r.path, sizeof c->r.path, "%s", path);
			return;
		}
		if (e->code != ERR_CORRUPT) {
			if (e->code == ERR_NOT_FOUND)   /* a tensor: there is a checkpoint */
				e->code = ERR_MISMATCH;
			snprintf(c->r.path, sizeof c->r.path, "%s", path);
			return;
		}
		if (c->r.skipped++ == 0) {
			c->r.skip_error = *e;
			snprintf(c->r.skip_path, sizeof c->r.skip_path, "%s", path);
		}
		if (set_aside(c, l.v[i], "corrupt", e) < 0)
			return;
	}
	err_set(e, ERR_NOT_FOUND, "%s: there is no %scheckpoint", c->dir, c->r.skipped ? "whole " : "");
}

static void job_done(struct job *j)
{
	struct ckpt_job *c = container_of(j, struct ckpt_job, job);

	c->r.took_us = env_now(c->env) - c->began_us;
	c->r.meta = c->meta;
	if (FAILPOINT(c->env, "ckpt.done.before") < 0)
		err_set(&c->r.error, ERR_IO, "fail point ckpt.done.before");
	c->done(c->arg, &c->r);
	json_decref(c->meta);
	free(c->dir);
	free(c->v);
	free(c);
}

static struct ckpt_job *job_new(struct env *env, const char *dir, const struct ckpt_tensor *v, size_t n,
	ckpt_done_fn *done, void *arg)
{
	struct ckpt_job *c = xcalloc(1, sizeof *c);

	c->env = env;
	c->files = env->files;
	c->dir = xstrdup(dir);
	c->v = xcalloc(n + 1, sizeof *v);
	memcpy(c->v, v, n * sizeof *v);
	c->n = n;
	c->began_us = env_now(env);
	c->done = done;
	c->arg = arg;
	c->job.lane = env_lane(env, "disk");
	c->job.done = job_done;
	c->job.cost_us = 1000;
	for (size_t i = 0; i < n; i++)
		c->job.cost_us += v[i].bytes >> 10;     /* modelled: a disk of 1 GB/s */
	return c;
}

void ckpt_save(struct env *env, const struct ckpt_save *o, ckpt_done_fn *done, void *arg)
{
	struct ckpt_job *c = job_new(env, o->dir, o->v, o->n, done, arg);
	char text[24];

	snprintf(text, sizeof text, "%" PRIu64, o->epoch);
	c->meta = o->meta ? o->meta : json_object();
	json_object_set_new(c->meta, "epoch", json_string(text));
	c->epoch = o->epoch;
	c->keep = o->keep ? o->keep : 3;
	c->hold = o->hold;
	c->free_min = o->free_min_bytes;
	c->lost_from = o->lost_from;
	c->lent = o->lent;
	c->job.name = "checkpoint save";
	c->job.run = save_run;
	env_work(env, &c->job);
}

void ckpt_load(struct env *env, const char *dir, const struct ckpt_tensor *v, size_t n, uint64_t reject,
	ckpt_done_fn *done, void *arg)
{
	struct ckpt_job *c = job_new(env, dir, v, n, done, arg);

	c->reject = reject;
	c->job.name = "checkpoint load";
	c->job.run = load_run;
	env_work(env, &c->job);
}

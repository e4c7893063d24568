/* The folder of `model export`: it has another name until all of it is written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include "common/mem.h"
#include "common/text.h"
#include "run/export.h"

#define ROOM 1048576                    /* bytes that stay free beside it */
#define MODEL "model.safetensors"
#define SPEC "spec.json"

static int seen(void *arg, const char *name) { return 0; }

static int free_name(struct files *f, const char *dir, struct err *e)
{
	struct err why;
	if (!f->list(f, dir, seen, NULL, &why) || f->size(f, dir, &why) >= 0)
		return err_set(e, ERR_EXISTS, "%.200s is there already: name a folder that is not", dir);
	if (why.code == ERR_NOT_FOUND)
		return 0;
	*e = why;
	return -1;
}

static int room(const struct export *x, struct err *e)
{
	char need[32], have[32];
	uint64_t bytes = ROOM + 512 * x->ntensors;
	int64_t left = x->file.files->free_bytes(x->file.files, x->file.part, e);
	for (size_t i = 0; i < x->ntensors; i++)
		bytes += x->tensor[i].bytes;
	if (left < 0 || (uint64_t)left >= bytes)
		return left < 0 ? -1 : 0;
	return err_set(e, ERR_FULL, "%.200s: the model needs %s, and %s are free there", x->file.dir,
		text_print_size(bytes, need, sizeof need), text_print_size((uint64_t)left, have, sizeof have));
}

static int write_spec(struct export_file *o, const char *path, struct err *e)
{
	struct files *f = o->files;
	char *text = json_dumps(o->spec, JSON_INDENT(2));
	int fd = f->open(f, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640, e);
	int rc = fd < 0 ? -1 : f->pwrite(f, fd, text, strlen(text), 0, e);
	if (!rc)
		rc = f->fsync(f, fd, e);
	if (fd >= 0 && f->close(f, fd, rc ? NULL : e))
		rc = -1;
	free(text);
	return rc;
}

static int begin(struct export *x, struct err *e)
{
	struct export_file *o = &x->file;
	char path[4200];
	if (free_name(o->files, o->dir, e))
		return -1;
	if (o->files->mkdir(o->files, o->part, 0755, e))
		return err_wrap(e, "the folder above must be there, and writable for the daemon");
	o->made = true;
	(void)snprintf(path, sizeof path, "%s/" SPEC, o->part);
	if (room(x, e) || write_spec(o, path, e))
		return -1;
	(void)snprintf(path, sizeof path, "%s/" MODEL, o->part);
	o->out = ckpt_out_new(o->files, path, x->tensor, x->ntensors, o->meta, e);
	return o->out ? 0 : -1;
}

static int end(struct export_file *o, struct err *e)
{
	int rc = ckpt_out_end(o->out, &o->bytes, NULL, e);
	o->out = NULL;
	if (rc || free_name(o->files, o->dir, e) || o->files->rename(o->files, o->part, o->dir, e))
		return -1;
	o->made = false;
	return 0;
}

void export_drop_now(struct export_file *o)
{
	char path[4200];
	ckpt_out_drop(o->out);
	o->out = NULL;
	if (!o->made)
		return;
	(void)snprintf(path, sizeof path, "%s/" SPEC, o->part);
	o->files->unlink(o->files, path, NULL);
	(void)snprintf(path, sizeof path, "%s/" MODEL, o->part);
	o->files->unlink(o->files, path, NULL);
	o->files->rmdir(o->files, o->part, NULL);
	o->made = false;
}

static void work_run(struct job *j)
{
	struct export *x = container_of(j, struct export, job);
	const struct buf *b = &x->piece[x->first].bytes;
	x->rc = 0;
	switch (x->op) {
	case EXPORT_OPEN: x->rc = begin(x, &x->e); break;
	case EXPORT_PUT: x->rc = ckpt_out_put(x->file.out, b->p, b->len, &x->e); break;
	case EXPORT_END: x->rc = end(&x->file, &x->e); break;
	case EXPORT_DROP: export_drop_now(&x->file); break;
	}
}

static void work_done(struct job *j)
{
	struct export *x = container_of(j, struct export, job);
	x->works = false;
	export_soon(x);
}

void export_work(struct export *x, enum export_op op)
{
	struct env *env = x->rs->ctx.env;
	x->op = op;
	x->works = true;
	x->job = (struct job){ .name = "run.export", .lane = env_lane(env, "disk"), .run = work_run, .done = work_done,
		.cost_us = 300 };
	env_work(env, &x->job);
}

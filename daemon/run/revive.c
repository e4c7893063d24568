/* The weights of a run that is over, out of its newest checkpoint, with its data beside them: whoever wants to see what
 * it has learned need not have asked in time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "run/int.h"

struct reviving {
	struct job job;
	struct files *files;
	struct spec *spec;
	char path[4096], dir[4096];
	struct data *data;
	struct snapshot *weights;
	int rc;
	struct err e;
	run_revived *done; void *arg;
};

static int read_weights(struct reviving *v, const struct model *m, uint64_t epoch)
{
	struct ckpt_tensor *t = NULL;
	size_t n;
	char path[4200];
	real *at;
	int rc;
	v->weights = xcalloc(1, sizeof *v->weights);
	v->weights->refs = 1;
	v->weights->epoch = epoch;
	v->weights->bytes = (m->nparam + m->nbuffer) * sizeof(real) + 1;
	v->weights->data = at = big_alloc(v->weights->bytes);
	ckpt_path(v->dir, epoch, path, sizeof path);
	if (!at)
		rc = err_set(&v->e, ERR_NOMEM, "no memory for the weights (%zu bytes)", v->weights->bytes);
	else
		rc = (t = weights_tensors(m, at, &n, &v->e)) ? ckpt_read(v->files, path, t, n, NULL, &v->e) : -1;
	free(t);
	return rc;
}

static void revive(struct job *j)
{
	struct reviving *v = container_of(j, struct reviving, job);
	struct model *m;
	uint64_t epoch;
	v->rc = -1;
	int n = ckpt_list(v->files, v->dir, &epoch, 1, &v->e);
	if (n == 0)
		err_set(&v->e, ERR_NOT_FOUND, "there is no checkpoint of it on this machine");
	if (n <= 0 || !(m = spec_model(v->spec, NULL, &v->e)))
		return;
	v->data = data_open(v->files, v->path, v->spec, &v->e);
	if (!v->data)
		err_wrap(&v->e, "data %s", v->path);
	else
		v->rc = read_weights(v, m, epoch);
	model_free(m);
}

static void revived(struct job *j)
{
	struct reviving *v = container_of(j, struct reviving, job);
	if (v->rc) {
		data_free(v->data);
		snapshot_unref(v->weights);
		v->data = NULL;
		v->weights = NULL;
	}
	v->done(v->arg, v->data, v->weights, v->rc ? &v->e : NULL);
	spec_free(v->spec);
	free(v);
}

void run_revive(struct run *r, run_revived *done, void *arg)
{
	struct reviving *v = xcalloc(1, sizeof *v);
	json_t *local = spec_local_json(r->spec);
	v->files = r->rs->ctx.env->files;
	v->done = done;
	v->arg = arg;
	v->spec = spec_of(r->name, r->spec->shared, local, &v->e);
	json_decref(local);
	if (!r->rs->ctx.state_dir || !r->hex[0])
		err_set(&v->e, ERR_STATE, "it has kept no checkpoints");
	else if (v->spec && run_data_path(r->rs, v->spec, v->path, sizeof v->path, &v->e)) {
		run_dir(r, v->dir, sizeof v->dir);
		v->job = (struct job){ .name = "run.revive", .lane = env_lane(r->rs->ctx.env, "serve"), .run = revive,
			.done = revived, .cost_us = 2000 };
		env_work(r->rs->ctx.env, &v->job);
		return;
	}
	done(arg, NULL, NULL, &v->e);
	spec_free(v->spec);
	free(v);
}

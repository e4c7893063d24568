/* The replay: reads every peer's log into a list of epochs (micro-batches with their positions, the contribution, the
 * commit, the digest), then walks the epochs with the same VEC functions that the executor uses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "exec/vec.h"
#include "kernels/vec.h"
#include "state/digest.h"
#include "train/replay.h"

#define CLOCK (3 * sizeof(double))

struct micro { uint32_t n; uint64_t *position; bool mean; };   /* mean: the sum was turned into one behind it */
struct step {                                   /* one peer, one epoch */
	struct micro *micro; size_t nmicro;
	uint64_t epoch, samples;                /* samples: that were counted in the commit */
	double hyper[OPTIM_KEYS_MAX], clip_norm; uint64_t target;
	char digest[33];
};
struct peer {
	struct step *step; size_t nsteps;
	struct step open;                       /* the epoch that is being read */
	struct micro loaded[64]; int64_t loaded_index[64];      /* LOADs whose micro-batch has not been summed yet */
};

static void step_done(struct step *s)
{
	for (size_t i = 0; i < s->nmicro; i++)
		free(s->micro[i].position);
	free(s->micro);
	*s = (struct step){ 0 };
}

static void peer_done(struct peer *p)
{
	for (size_t i = 0; i < p->nsteps; i++)
		step_done(&p->step[i]);
	free(p->step);
	step_done(&p->open);
	for (size_t i = 0; i < 64; i++)
		free(p->loaded[i].position);
}

/* --- reading */

static const char *text(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "";
}

static uint64_t number(const json_t *j, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(j, key));

	return v < 0 ? 0 : (uint64_t)v;
}

static int take_load(struct peer *p, const json_t *j, struct err *e)
{
	const json_t *ranges = json_object_get(j, "positions");
	int64_t index = json_integer_value(json_object_get(j, "index"));
	struct micro *m = &p->loaded[(uint64_t)index % 64];
	uint32_t n = (uint32_t)number(j, "n");

	if (!n || n > 1 << 20)
		return err_set(e, ERR_CORRUPT, "a LOAD of %u samples", n);
	free(m->position);
	*m = (struct micro){ .position = xcalloc(n, sizeof(*m->position)) };
	p->loaded_index[(uint64_t)index % 64] = index;
	for (size_t i = 0; i < json_array_size(ranges); i++) {
		const json_t *r = json_array_get(ranges, i);
		uint64_t lo = (uint64_t)json_integer_value(json_array_get(r, 0));
		uint64_t hi = (uint64_t)json_integer_value(json_array_get(r, 1));

		for (; lo < hi && m->n < n; lo++)
			m->position[m->n++] = lo;
	}
	return m->n == n ? 0 : err_set(e, ERR_CORRUPT, "a LOAD of %u samples names %u positions", n, m->n);
}

static int take_sum(struct peer *p, const json_t *j, struct err *e)
{
	int64_t index = json_integer_value(json_object_get(j, "index"));
	struct micro *m = &p->loaded[(uint64_t)index % 64];
	struct step *s = &p->open;

	if (!m->n || p->loaded_index[(uint64_t)index % 64] != index)
		return err_set(e, ERR_CORRUPT, "micro-batch %lld was summed and never loaded", (long long)index);
	s->micro = xrealloc(s->micro, (s->nmicro + 1) * sizeof(*s->micro));
	s->micro[s->nmicro++] = *m;
	*m = (struct micro){ 0 };
	return 0;
}

static int take_commit(struct peer *p, const json_t *j, const struct spec *s, struct err *e)
{
	const json_t *hyper = json_object_get(j, "hyper");
	struct step *st;

	if (json_array_size(hyper) != (size_t)s->optim->nkeys)
		return err_set(e, ERR_CORRUPT, "a commit with %zu hyperparameters; %s has %d", json_array_size(hyper),
			s->optim->name, s->optim->nkeys);
	p->step = xrealloc(p->step, (p->nsteps + 1) * sizeof(*p->step));
	st = &p->step[p->nsteps++];
	*st = p->open;
	p->open = (struct step){ 0 };
	st->epoch = number(j, "epoch");
	st->samples = number(j, "samples");
	st->target = json_object_get(j, "target") ? number(j, "target") : s->target_batch;
	st->clip_norm = strtod(text(j, "clip_norm"), NULL);
	for (int i = 0; i < s->optim->nkeys; i++) {
		const char *v = json_string_value(json_array_get(hyper, (size_t)i));

		st->hyper[i] = v ? strtod(v, NULL) : 0;
	}
	return 0;
}

static int take_line(struct peer *p, const json_t *j, const struct spec *s, struct err *e)
{
	const char *ev = text(j, "ev"), *kind = text(j, "kind");

	if (!strcmp(ev, "end") && !strcmp(kind, "LOAD"))
		return take_load(p, j, e);
	if (!strcmp(ev, "end") && !strcmp(kind, "VEC") && !strcmp(text(j, "fn"), "accumulate"))
		return take_sum(p, j, e);
	if (!strcmp(ev, "end") && !strcmp(kind, "VEC") && !strcmp(text(j, "fn"), "mean") && p->open.nmicro)
		p->open.micro[p->open.nmicro - 1].mean = true;
	if (!strcmp(ev, "dropped"))
		step_done(&p->open);
	if (!strcmp(ev, "commit"))
		return take_commit(p, j, s, e);
	if (!strcmp(ev, "applied"))
		for (size_t i = 0; i < p->nsteps; i++)
			if (p->step[i].epoch == number(j, "epoch"))
				(void)snprintf(p->step[i].digest, sizeof(p->step[i].digest), "%s", text(j, "digest"));
	return 0;
}

static int read_log(struct peer *p, const struct replay_log *log, const struct spec *s, struct err *e)
{
	const char *at = log->text, *end = log->text + log->len;

	for (size_t line = 1; at < end; line++) {
		const char *nl = memchr(at, '\n', (size_t)(end - at));
		size_t n = (size_t)((nl ? nl : end) - at);
		json_t *j = n ? json_read(at, n, JSON_SOCK, e) : NULL;
		int rc = n && !j ? -1 : j ? take_line(p, j, s, e) : 0;

		json_decref(j);
		if (rc < 0)
			return err_wrap(e, "line %zu", line);
		at += n + 1;
	}
	return 0;
}

/* --- running */

struct replayer {
	const struct spec *s; struct data *d; const struct par *par;
	struct model *model;
	real *stats;                            /* running statistics, as micro-batches move them */
	size_t n, nparam, opt_bytes;            /* n: with those behind the parameters */
	real *w, *g, *acc, *mean; char *opt;
	bool used[OPTIM_STATES_MAX];
};

static void *zeros(size_t bytes)
{
	return big_alloc(bytes ? bytes : 1);
}

static int open_replayer(struct replayer *r, struct err *e)
{
	struct optim_clock c;
	double clock[3];
	size_t nused = 0;

	r->model = spec_model(r->s, NULL, e);
	if (!r->model)
		return -1;
	r->nparam = r->model->nparam;
	r->n = r->nparam + r->model->nbuffer;
	for (int i = 0; i < r->s->optim->nstates; i++)
		nused += r->used[i] = optim_uses_state(r->s->optim, r->s->hyper, i);
	r->opt_bytes = (nused * r->nparam * sizeof(real) + 7) / 8 * 8 + CLOCK;
	r->w = zeros(r->n * sizeof(real));
	r->g = zeros(r->n * sizeof(real));
	r->acc = zeros(r->n * sizeof(real));
	r->mean = zeros(r->n * sizeof(real));
	r->opt = zeros(r->opt_bytes);
	r->stats = zeros(r->model->nbuffer * sizeof(real) + 1);
	if (!r->w || !r->g || !r->acc || !r->mean || !r->opt || !r->stats)
		return err_set(e, ERR_NOMEM, "no memory to replay %zu parameters", r->n);
	model_init(r->model, r->s->seed, r->w);
	model_init_buffers(r->model, r->w + r->nparam);
	optim_clock_init(&c);
	clock[0] = (double)c.step;
	clock[1] = c.power[0];
	clock[2] = c.power[1];
	memcpy(r->opt + r->opt_bytes - CLOCK, clock, CLOCK);
	return 0;
}

static void close_replayer(struct replayer *r)
{
	big_free(r->w, r->n * sizeof(real));
	big_free(r->g, r->n * sizeof(real));
	big_free(r->acc, r->n * sizeof(real));
	big_free(r->mean, r->n * sizeof(real));
	big_free(r->opt, r->opt_bytes);
	big_free(r->stats, r->stats ? r->model->nbuffer * sizeof(real) + 1 : 1);
	model_free(r->model);
}

/* Gradient of the mean loss of a micro-batch into g; its loss. */
static int gradient(struct replayer *r, const struct micro *m, double *ret_loss, struct err *e)
{
	struct model_need need;
	size_t x_bytes = m->n * data_x_bytes(r->d), y_bytes = m->n * data_y_bytes(r->d), work;
	struct model_call c = { .batch = m->n, .param = r->w, .train = true,
		.buffer = r->model->nbuffer ? r->stats : NULL, .key = rand_key(r->s->seed, m->position[0]) };
	real *x, *y, *dy;
	void *target;
	int rc = -1;

	model_need(r->model, 0, r->model->nops, m->n, r->par->n, &need);
	work = need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd;
	x = zeros(x_bytes);
	target = zeros(y_bytes);
	y = zeros(need.y);
	dy = zeros(need.y);
	c.saved = zeros(need.saved + 64);
	c.work = zeros(work + 64);
	if (!x || !target || !y || !dy || !c.saved || !c.work) {
		(void)err_set(e, ERR_NOMEM, "no memory for a micro-batch of %u samples", m->n);
	} else if (data_read(r->d, DATA_TRAIN, m->position, m->n, x, target, e) == 0) {
		model_forward(r->par, r->model, 0, r->model->nops, &c, x, y);
		*ret_loss = loss_sum(r->par, &r->s->objective, m->n, y, target, 1.0 / m->n, dy, NULL);
		memset(r->g, 0, r->nparam * sizeof(real));
		model_backward(r->par, r->model, 0, r->model->nops, &c, x, dy, NULL, r->g);
		rc = 0;
	}
	big_free(x, x_bytes ? x_bytes : 1);
	big_free(target, y_bytes ? y_bytes : 1);
	big_free(y, need.y ? need.y : 1);
	big_free(dy, need.y ? need.y : 1);
	big_free(c.saved, need.saved + 64);
	big_free(c.work, work + 64);
	return rc;
}

static int call(struct replayer *r, const char *fn, struct vec_env *env, struct vec_arg *in, uint32_t nin,
	struct vec_arg *out, uint32_t nout, struct err *e)
{
	struct kerr why;
	struct vec_call c = { .par = r->par, .env = *env, .nin = nin, .nout = nout, .in = in, .out = out, .e = &why };

	return vec_find(fn)->run(&c) < 0 ? err_set(e, ERR_INTERNAL, "%s: %s", fn, why.text) : 0;
}

/* One peer's mean of an epoch, in acc. */
static int contribution(struct replayer *r, const struct step *st, struct err *e)
{
	struct vec_env env = { .model = r->model };
	size_t bytes = r->n * sizeof(real);
	double loss, unit;
	struct vec_arg sum = { .p = r->acc, .bytes = bytes };
	size_t stats = r->model->nbuffer * sizeof(real);

	memcpy(r->stats, r->w + r->nparam, stats);
	for (size_t i = 0; i < st->nmicro; i++) {
		const struct batch b = { .n = st->micro[i].n };
		struct vec_arg in[4] = { { .p = r->g, .bytes = bytes }, { .batch = &b }, { .p = &loss, .bytes = 8 },
			{ .p = r->stats, .bytes = stats } };
		struct vec_arg out[2] = { { .p = r->acc, .bytes = bytes, .add = true, .blank = !i }, { .p = &unit,
			.bytes = 8 } };

		if (gradient(r, &st->micro[i], &loss, e) < 0 || call(r, "accumulate", &env, in, 4, out, 2, e) < 0)
			return -1;
		env.unit = unit;
		env.samples += b.n;
		if (st->micro[i].mean && call(r, "mean", &env, &sum, 1, out, 2, e) < 0)
			return -1;
		env.unit = unit;
	}
	if (env.samples != st->samples)
		return err_set(e, ERR_CORRUPT, "epoch %llu: %llu samples were counted and %llu are in the log",
			(unsigned long long)st->epoch, (unsigned long long)st->samples, (unsigned long long)env.samples);
	return 0;
}

static int optimize(struct replayer *r, const struct step *st, struct err *e)
{
	struct vec_env env = { .model = r->model, .optim = r->s->optim, .decay_all = r->s->decay_all,
		.clip_norm = st->clip_norm };
	size_t bytes = r->n * sizeof(real);
	double skipped;
	struct vec_arg in[3] = { { .p = r->mean, .bytes = bytes, .class = PLAN_WEIGHT_GRAD }, { .p = r->w, .bytes = bytes },
		{ .p = r->opt, .bytes = r->opt_bytes, .class = PLAN_OPTIMIZER } };
	struct vec_arg out[3] = { { .p = r->w, .bytes = bytes }, { .p = r->opt, .bytes = r->opt_bytes },
		{ .p = &skipped, .bytes = 8 } };

	memcpy(env.hyper, st->hyper, sizeof(env.hyper));
	env.hyper[0] *= spec_lr_factor_of(r->s, st->target, st->epoch - 1);
	memcpy(env.state, r->used, sizeof(env.state));
	return call(r, "opt", &env, in, 3, out, 3, e);
}

static int compare(struct replayer *r, const struct step *st, struct err *e)
{
	uint8_t digest[16];
	char hex[33];

	digest_of(r->w, r->n, sizeof(real), digest);
	for (int i = 0; i < 16; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	if (st->digest[0] && strcmp(hex, st->digest))
		return err_set(e, ERR_MISMATCH, "epoch %llu: the parameters are %s here and were %s",
		(unsigned long long)st->epoch,
			hex, st->digest);
	return 0;
}

static int run_epoch(struct replayer *r, struct peer *peer, size_t n, uint64_t k, struct replay_result *ret,
	struct err *e)
{
	const struct step *any = &peer[0].step[k];
	double total = 0;
	int first = 1;

	for (size_t i = 0; i < n; i++)
		total += (double)peer[i].step[k].samples;
	for (size_t i = 0; i < n; i++) {
		const struct step *st = &peer[i].step[k];

		if (st->epoch != k + 1)
			return err_set(e, ERR_CORRUPT, "peer %zu: commit %llu makes epoch %llu", i, (unsigned long long)k,
				(unsigned long long)st->epoch);
		if (!st->samples)
			continue;
		if (contribution(r, st, e) < 0)
			return -1;
		vec_mean_add(r->par, r->n, (double)st->samples / total, r->acc, r->mean, first);
		first = 0;
		ret->samples += st->samples;
		ret->contributions++;
	}
	if (first)
		return err_set(e, ERR_CORRUPT, "epoch %llu: nobody contributed", (unsigned long long)k + 1);
	if (optimize(r, any, e) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		if (compare(r, &peer[i].step[k], e) < 0)
			return err_wrap(e, "peer %zu", i);
	ret->epochs++;
	return 0;
}

int replay(const struct spec *s, struct data *d, const struct par *par, const struct replay_log *log, size_t n,
	struct replay_result *ret, struct err *e)
{
	struct replayer r = { .s = s, .d = d, .par = par };
	struct peer *peer = xcalloc(n ? n : 1, sizeof(*peer));
	size_t epochs = SIZE_MAX;
	int rc = 0;

	*ret = (struct replay_result){ 0 };
	if (s->mode.local || s->mode.under_way || !n)
		rc = err_set(e, ERR_INVALID, "replay: %s",
			n ? "steps of its own or a delay are not replayed" : "there is no log");
	for (size_t i = 0; i < n && !rc; i++) {
		rc = read_log(&peer[i], &log[i], s, e);
		if (rc < 0)
			(void)err_wrap(e, "log %zu", i);
		epochs = peer[i].nsteps < epochs ? peer[i].nsteps : epochs;
	}
	if (!rc)
		rc = open_replayer(&r, e);
	for (uint64_t k = 0; k < epochs && !rc; k++)
		rc = run_epoch(&r, peer, n, k, ret, e);
	if (r.model)
		close_replayer(&r);
	for (size_t i = 0; i < n; i++)
		peer_done(&peer[i]);
	free(peer);
	return rc;
}

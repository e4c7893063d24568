/* The arithmetic of the replay: a VEC of the log is done with the executor's own function, on the vectors of that peer.
 * FWD and BWD are done where their gradient is first read, with the weights that FWD has read, which must not have
 * moved since. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "exec/batch.h"
#include "train/replay_int.h"

static const char *const place_name[PLACES] = { "w", "opt", "anchor", "momentum", "acc", "sent", "mean", "work",
	"stats", "g", "grad" };
static const char *const scalar_name[] = { "loss", "correct", "unit", "skipped", "parcel", "renewed", "digest",
	"loss_scale" };

int replay_place(const char *name)
{
	for (int i = 0; i < PLACES; i++)
		if (!strcmp(place_name[i], name))
			return i;
	return -1;
}

const char *replay_name(const char *name)
{
	return strncmp(name, "grad.", 5) && strncmp(name, "mean.", 5) ? name : place_name[PLACE_grad];
}

static bool is_scalar(const char *name)
{
	for (size_t i = 0; i < sizeof(scalar_name) / sizeof(*scalar_name); i++)
		if (!strcmp(scalar_name[i], name))
			return true;
	return false;
}

/* What lies there is of the micro-batch before: whoever works in it writes before he reads, as in an arena. */
static void *area(struct replayer *r, int k, size_t bytes)
{
	size_t n = bytes ? bytes : 1;

	if (r->area[k].p && r->area[k].bytes >= n)
		return r->area[k].p;
	big_free(r->area[k].p, r->area[k].bytes);
	r->area[k].p = big_alloc(n);
	r->area[k].bytes = n;
	return r->area[k].p;
}

/* Gradient of the mean loss of a micro-batch into g; its loss. */
static int gradient(struct replayer *r, struct peer *p, const struct micro *m, double *ret_loss, struct err *e)
{
	struct model_need need;
	size_t work;
	struct model_call c = { .batch = m->n, .param = p->v[m->from].p, .train = true,
		.buffer = r->model->nbuffer ? p->v[PLACE_stats].p : NULL, .key = rand_key(r->s->seed, m->position[0]) };
	real *x, *y, *dy, *g = p->v[PLACE_g].p;
	void *target;

	model_need(r->model, 0, r->model->nops, m->n, r->par->n, &need);
	work = need.work_fwd > need.work_bwd ? need.work_fwd : need.work_bwd;
	x = area(r, 0, m->n * data_x_bytes(r->d));
	target = area(r, 1, m->n * data_y_bytes(r->d));
	y = area(r, 2, need.y);
	dy = area(r, 3, need.y);
	c.saved = area(r, 4, need.saved + 64);
	c.work = area(r, 5, work + 64);
	if (!x || !target || !y || !dy || !c.saved || !c.work)
		return err_set(e, ERR_NOMEM, "no memory for a micro-batch of %u samples", m->n);
	if (data_read(r->d, DATA_TRAIN, m->position, m->n, x, target, e) < 0)
		return -1;
	model_forward(r->par, r->model, 0, r->model->nops, &c, x, y);
	*ret_loss = loss_sum(r->par, &r->s->objective, m->n, y, target, (m->scale > 0 ? m->scale : 1) / m->n, dy,
		NULL);
	memset(g, 0, r->model->nparam * sizeof(real));
	model_backward(r->par, r->model, 0, r->model->nops, &c, x, dy, NULL, g);
	return 0;
}

static int passes(struct replayer *r, struct peer *p, struct micro *m, int64_t index, double *ret_loss, struct err *e)
{
	char here[32];

	if (!m->n || m->index != index || !m->begun || m->summed)
		return err_set(e, ERR_CORRUPT, "micro-batch %lld was summed and %s", (long long)index,
			m->n && m->index == index ? m->summed ? "has been before" : "never computed" : "never loaded");
	if (p->v[m->from].writes != m->writes)
		return err_set(e, ERR_CORRUPT, "micro-batch %lld: its parameters were changed on its way", (long long)index);
	m->summed = true;
	if (gradient(r, p, m, ret_loss, e) < 0)
		return -1;
	(void)snprintf(here, sizeof(here), "%a", *ret_loss);
	if (strcmp(here, m->loss))
		return err_set(e, ERR_MISMATCH, "micro-batch %lld: its loss is %s here and was %s", (long long)index, here,
			m->loss);
	return 0;
}

/* What an instruction works on; scalars lie in here. */
struct call { struct vec_arg in[REPLAY_REFS], out[REPLAY_REFS]; double scalar[2 * REPLAY_REFS][2]; struct batch b; };

static int operand(struct peer *p, const char *name, struct call *c, uint32_t k, struct vec_arg *a, struct err *e)
{
	int place = replay_place(name);

	if (place >= 0 && p->v[place].p)
		*a = (struct vec_arg){ .p = p->v[place].p, .bytes = p->v[place].bytes,
			.class = place == PLACE_stats ? PLAN_WEIGHT : PLAN_ACTIVATION };
	else if (is_scalar(name))
		*a = (struct vec_arg){ .p = c->scalar[k], .bytes = strcmp(name, "digest") ? 8 : STATE_DIGEST,
			.class = PLAN_SCALAR };
	else if (!strcmp(name, "batch"))
		*a = (struct vec_arg){ .batch = &c->b, .class = PLAN_BATCH };
	else
		return err_set(e, ERR_CORRUPT, "%s is no vector of this run", name);
	return 0;
}

/* The scalars that the line tells are those that come out here. */
static int scalars(struct peer *p, const struct call *c, const json_t *j, const char *const *name, uint32_t n,
	struct err *e)
{
	for (uint32_t k = 0; k < n; k++) {
		double v = c->scalar[REPLAY_REFS + k][0];
		const char *told = replay_text(j, name[k]);
		char here[32];

		if (c->out[k].class != PLAN_SCALAR)
			continue;
		if (!strcmp(name[k], "digest")) {
			memcpy(p->digest, c->out[k].p, STATE_DIGEST);
			continue;
		}
		(void)snprintf(here, sizeof(here), "%a", v);
		if (strcmp(here, told))
			return err_set(e, ERR_MISMATCH, "%s: %s is %s here and was %s", replay_text(j, "fn"), name[k], here, told);
		if (!strcmp(name[k], "unit")) {
			p->unit = v;
		} else if (!strcmp(name[k], "skipped")) {
			p->scale = shard_scale(&p->shard);
		} else if (!strcmp(name[k], "renewed")) {
			p->renewed = true;
			p->work_epoch = p->epoch;
		} else if (!strcmp(name[k], "parcel") && p->samples) {
			p->flight.out = true;
			p->flight.samples = p->samples;
			p->flight.version = p->oldest;
			p->samples = 0;
		}
	}
	return 0;
}

/* Which commits are in what it has written. */
static void versions(struct peer *p, const struct begun *op, const char *const *out, uint32_t nout, const json_t *j)
{
	const json_t *refs = json_object_get(j, "out");
	const char *fn = replay_text(j, "fn");

	for (uint32_t k = 0; k < nout; k++) {
		int place = replay_place(out[k]), from = op->nin ? replay_place(op->in[0]) : -1;

		if (place < 0)
			continue;
		p->v[place].writes++;
		p->v[place].program = p->program;
		p->v[place].key = json_integer_value(json_array_get(json_array_get(refs, k), 1));
		if (!strcmp(fn, "copy") && from >= 0)
			p->v[place].epoch = p->v[from].epoch;
		if (place == PLACE_w && p->applying && strcmp(op->in[0], "g"))
			p->v[place].epoch = p->applying->epoch;
	}
}

int replay_known(const char *fn, const char *const *in, uint32_t nin, const char *const *out, uint32_t nout,
	struct err *e)
{
	static const char *const forms[] = {
		"accumulate g batch loss > acc unit", "accumulate g batch loss stats > acc unit", "mean acc > acc unit",
		"accumulate g batch loss loss_scale > acc unit", "accumulate g batch loss stats loss_scale > acc unit",
		"opt g w opt loss loss_scale > w opt skipped", "opt g w opt loss stats loss_scale > w opt skipped",
		"mean acc > sent parcel", "opt acc w opt > w opt skipped", "opt mean w opt > w opt skipped",
		"opt sent w opt > w opt skipped", "opt g w opt loss > w opt skipped", "opt g w opt loss stats > w opt skipped",
		"copy w > work renewed", "copy w > sent parcel", "copy mean > w", "delta mean sent w > w",
		"away anchor w > sent", "away anchor w > sent parcel",
		"outer sent anchor momentum > anchor momentum w skipped",
		"outer mean anchor momentum > anchor momentum w skipped",
		"fragment sent anchor momentum w > anchor momentum w skipped",
		"fragment mean anchor momentum w > anchor momentum w skipped", "tail w > stats", "tail acc > stats",
		"tail work > stats", "bucket grad batch loss > grad", "bucket grad batch loss stats > grad",
		"bucket grad batch loss acc > grad", "bucket grad batch loss stats acc > grad",
		"opt grad w opt > w opt skipped", "digest w > digest", "digest mean > digest", "digest anchor > digest",
	};
	char form[400];
	size_t n = (size_t)snprintf(form, sizeof(form), "%.24s", fn);

	for (uint32_t k = 0; k < nin; k++)
		n += (size_t)snprintf(form + n, sizeof(form) - n, " %.23s", in[k]);
	n += (size_t)snprintf(form + n, sizeof(form) - n, " >");
	for (uint32_t k = 0; k < nout; k++)
		n += (size_t)snprintf(form + n, sizeof(form) - n, " %.15s", out[k]);
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
		if (!strcmp(forms[i], form))
			return 0;
	return err_set(e, ERR_CORRUPT, "no strategy does \"%s\"", form);
}

int replay_loss(struct micro *m, const struct begun *op, const json_t *j, struct err *e)
{
	m->scale = op->v.loss_scale;
	if (m->scale > 0 && strtod(replay_text(j, "loss_scale"), NULL) != m->scale)
		return err_set(e, ERR_MISMATCH, "micro-batch %lld: the scale of its loss is %g here and was %s",
			(long long)m->index, m->scale, replay_text(j, "loss_scale"));
	(void)snprintf(m->loss, sizeof(m->loss), "%s", replay_text(j, "loss"));
	return 0;
}

int replay_vec(struct replayer *r, struct peer *p, const struct begun *op, const json_t *j, struct err *e)
{
	const json_t *refs = json_object_get(j, "out");
	const struct vec_ops *ops = vec_find(replay_text(j, "fn"));
	int64_t index = json_integer_value(json_object_get(j, "index"));
	struct micro *m = &p->micro[(uint64_t)index % REPLAY_LOADS];
	uint32_t nout = (uint32_t)json_array_size(refs);
	const char *in[REPLAY_REFS], *out[REPLAY_REFS] = { NULL };
	bool part = ops && !strcmp(ops->name, "bucket"), reads = op->nin && (part || !strcmp(op->in[0], "g"));
	struct kerr why = { 0 };
	struct call c = { .b = { .n = m->n } };
	struct vec_call v = { .par = r->par, .env = op->v, .nin = op->nin, .nout = nout, .in = c.in, .out = c.out,
		.e = &why };

	if (!ops || nout > REPLAY_REFS)
		return err_set(e, ERR_CORRUPT, "VEC %s with %u outputs", replay_text(j, "fn"), nout);
	for (uint32_t k = 0; k < nout; k++)
		if (!(out[k] = json_string_value(json_array_get(json_array_get(refs, k), 0))))
			return err_set(e, ERR_CORRUPT, "an output without a name");
		else
			out[k] = replay_name(out[k]);
	for (uint32_t k = 0; k < op->nin; k++)
		in[k] = op->in[k];
	if (replay_known(ops->name, in, op->nin, out, nout, e) < 0)
		return -1;
	for (uint32_t k = 0; k < op->nin; k++)
		if (operand(p, op->in[k], &c, k, &c.in[k], e) < 0)
			return -1;
		else if (!strcmp(op->in[k], "loss_scale"))
			c.scalar[k][0] = m->scale;
	for (uint32_t k = 0; k < nout; k++)
		if (operand(p, out[k], &c, REPLAY_REFS + k, &c.out[k], e) < 0)
			return -1;
	for (uint32_t k = 0; reads && k < op->nin; k++)
		if (!strcmp(op->in[k], "loss") && !(part && m->summed && m->index == index) &&
		    passes(r, p, m, index, c.scalar[k], e) < 0)
			return -1;
	if (part && p->v[PLACE_grad].program == p->program && p->v[PLACE_grad].index == index)
		return 0;                       /* the first of its parts was all of it */
	if (part) {
		memcpy(p->v[PLACE_grad].p, p->v[PLACE_g].p, r->model->nparam * sizeof(real));
		p->v[PLACE_grad].index = index;
	}
	if (ops->run(&v) < 0)
		return err_set(e, ERR_CORRUPT, "%s", why.text);
	versions(p, op, out, nout, j);
	return scalars(p, &c, j, out, nout, e);
}

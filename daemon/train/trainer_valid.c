/* Validation: a program of its own, in an executor of its own, on a copy of the parameters. Its jobs take turns with
 * those of training on the same lane, so that training is never stopped for long. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/memory.h"
#include "train/trainer_int.h"

#define BATCH_MIN 128

struct valid_batch {
	struct batch b;                         /* first */
	struct job job;
	struct trainer *t;
	struct exec_wait *wait;                 /* NULL: nobody waits any more */
	bool busy, running;
	int rc; struct err error;
	size_t x_bytes, y_bytes;
};

static void load_run(struct job *j)
{
	struct valid_batch *s = container_of(j, struct valid_batch, job);

	s->rc = data_read(s->t->c.data, DATA_VALIDATION, s->b.position, s->b.n, s->b.x, s->b.y, &s->error);
}

/* Who has had to wait for a slot. */
static void load_more(struct trainer *t)
{
	struct valid *v = &t->v;

	if (!v->nmore || t->dying)
		return;
	v->nmore--;
	valid_load(t, v->more[0].w, v->more[0].from, v->more[0].n);
	memmove(v->more, v->more + 1, v->nmore * sizeof(*v->more));
}

static void load_done(struct job *j)
{
	struct valid_batch *s = container_of(j, struct valid_batch, job);
	struct exec_wait *w = s->wait;

	s->running = false;
	s->wait = NULL;
	if (s->t->dying) {
		trainer_part_gone(s->t);
		return;
	}
	if (w && s->rc >= 0) {
		exec_loaded(w, &s->b, NULL);
		return;
	}
	s->busy = false;
	if (w)
		exec_loaded(w, NULL, &s->error);
	else
		load_more(s->t);
}

void valid_load(struct trainer *t, struct exec_wait *w, uint64_t from, uint32_t n)
{
	struct valid_batch *s = t->v.slot[0]->busy ? t->v.slot[1] : t->v.slot[0];
	uint32_t at = s->busy ? t->v.nmore++ : 0;

	if (s->busy) {                          /* plans hold no more than there are slots */
		t->v.more[at].w = w;
		t->v.more[at].from = from;
		t->v.more[at].n = n;
		return;
	}
	s->busy = s->running = true;
	s->wait = w;
	s->b.n = n;
	for (uint32_t k = 0; k < n; k++)
		s->b.position[k] = from + k;
	s->job = (struct job){ .name = "load", .lane = env_lane(t->env, "data"), .run = load_run, .done = load_done };
	env_work(t->env, &s->job);
}

static void load(void *arg, struct exec_wait *w, const struct plan_instr *i, int64_t index)
{
	struct trainer *t = arg;
	uint64_t left = t->v.count - t->v.next, from = t->v.next;
	uint32_t n = left < t->v.batch ? (uint32_t)left : t->v.batch;

	t->v.next += n;
	valid_load(t, w, from, n);
}

static void unload(void *arg, struct batch *b)
{
	((struct valid_batch *)b)->busy = false;
}

bool valid_back(struct trainer *t, const struct batch *b)
{
	for (int k = 0; k < VALID_SLOTS; k++)
		if (t->v.slot[k] && &t->v.slot[k]->b == b) {
			t->v.slot[k]->busy = false;
			load_more(t);
			return true;
		}
	return false;
}

bool valid_cancel(struct trainer *t, const struct exec_wait *w)
{
	for (int k = 0; k < VALID_SLOTS; k++)
		if (t->v.slot[k] && t->v.slot[k]->wait == w) {
			t->v.slot[k]->wait = NULL;
			return true;
		}
	for (uint32_t k = 0; k < t->v.nmore; k++)
		if (t->v.more[k].w == w) {
			memmove(t->v.more + k, t->v.more + k + 1, (--t->v.nmore - k) * sizeof(*t->v.more));
			return true;
		}
	return false;
}

static void cancel(void *arg, struct exec_wait *w) { (void)valid_cancel(arg, w); }

static void add(struct plan *p, const char *name, enum plan_class class, uint64_t bytes, uint32_t depth)
{
	plan_buf(p, &(struct plan_buf){ .class = class, .bytes = (bytes + 63) / 64 * 64, .depth = depth,
		.per = class == PLAN_WEIGHT ? UINT32_MAX : 1, .initial = class == PLAN_WEIGHT }, "%s", name);
}

static void make_plan(struct trainer *t, uint64_t first, struct plan *p)
{
	uint32_t last = (uint32_t)t->model->nops - 1, n = t->v.batch;
	struct model_need need;
	struct plan_instr *i;

	model_need(t->model, 0, t->model->nops, n, t->par.n, &need);
	p->first = first;
	p->iterations = (t->v.count + n - 1) / n;
	p->buf = NULL;
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = t->v.w_bytes, .per = UINT32_MAX, .initial = true },
		"w");
	add(p, "batch", PLAN_BATCH, n * (data_x_bytes(t->c.data) + data_y_bytes(t->c.data)), 2);
	add(p, "y", PLAN_ACTIVATION, need.y, 1);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "loss");
	plan_buf(p, &(struct plan_buf){ .class = PLAN_SCALAR, .bytes = 8 }, "correct");
	plan_section(p, PLAN_BODY);
	plan_do(p, PLAN_LOAD, 0, "-> batch");
	i = plan_piece(plan_do(p, PLAN_FWD, 0, "batch w -> y"), 0, last);
	i->work_bytes = need.work_eval;
	memcpy(i->variant, "eval", 5);
	plan_vec(p, 0, "loss", "y batch -> loss correct");
	plan_do(p, PLAN_COMMIT, 0, "batch!");
}

void valid_told(struct trainer *t)
{
	double n = (double)t->v.count;
	struct trainer_validated r = { .epoch = t->v.epoch, .samples = t->v.count, .loss = t->v.loss / n,
		.accuracy = t->counts ? t->v.correct / n : NAN, .took_us = env_now(t->env) - t->v.begun_us };

	t->v.running = t->v.wanted = false;
	if (t->cb.validated)
		t->cb.validated(t->arg, &r);
}

static int plan(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret, struct err *e)
{
	struct trainer *t = arg;

	plan_init(ret, "validation", 0, 1, &t->c.self);
	if (t->v.running && !t->v.planned) {
		t->v.planned = true;
		make_plan(t, first, ret);
	} else if (t->v.running && !t->dying) {
		valid_told(t);
	}
	return 0;
}

static void scalar(void *arg, const char *name, int64_t index, const void *p, size_t bytes)
{
	struct trainer *t = arg;

	if (!strcmp(name, "loss"))
		t->v.loss += *(const double *)p;
	else if (!strcmp(name, "correct"))
		t->v.correct += *(const double *)p;
}

static void env(void *arg, struct vec_env *ret)
{
	struct trainer *t = arg;

	ret->loss = t->s->loss;
	ret->objective = &t->s->objective;
	ret->counts = t->counts;
}

static void broken(void *arg, const struct err *e)
{
	trainer_break(arg, e);
}

/* Many at once, as long as that takes no more memory than a micro-batch of training does. */
static uint64_t batch_size(const struct trainer *t)
{
	uint32_t local = t->s->local.batch;
	uint64_t n = BATCH_MIN, kept, room = memory_peak(&t->profile, &t->pass, &kept);
	struct model_need need;

	for (; n > local; n /= 2) {
		model_need(t->model, 0, t->model->nops, n, t->par.n, &need);
		if (need.y + need.work_eval <= room)
			return n;
	}
	return local;
}

int valid_room(struct trainer *t, struct err *e)
{
	for (int k = 0; k < VALID_SLOTS && !t->v.slot[k]; k++) {
		struct valid_batch *s = t->v.slot[k] = xcalloc(1, sizeof(*s));

		s->t = t;
		list_init(&s->b.link);
		s->x_bytes = t->v.batch * data_x_bytes(t->c.data);
		s->y_bytes = t->v.batch * data_y_bytes(t->c.data);
		s->b.x = big_alloc(s->x_bytes);
		s->b.y = big_alloc(s->y_bytes);
		s->b.position = xcalloc(t->v.batch, sizeof(*s->b.position));
		if (!s->b.x || !s->b.y)
			return err_set(e, ERR_NOMEM, "no memory for validation (%zu bytes)", 2 * (s->x_bytes + s->y_bytes));
	}
	return 0;
}

uint64_t valid_room_bytes(const struct trainer *t)
{
	uint64_t bytes = 0;

	for (int k = 0; k < VALID_SLOTS && t->v.slot[k]; k++)
		bytes += t->v.slot[k]->x_bytes + t->v.slot[k]->y_bytes + t->v.batch * sizeof(uint64_t);
	return bytes;
}

int valid_new(struct trainer *t, struct err *e)
{
	static const struct exec_ops ops = { .load = load, .unload = unload, .cancel = cancel };
	const struct exec_cb cb = { .plan = plan, .scalar = scalar, .env = env, .broken = broken };
	struct exec_conf conf = { .env = t->env, .model = t->model, .par = &t->par, .profile = &t->profile, .ops = &ops,
		.ops_arg = t, .eval = true, .check = true };
	uint64_t n = batch_size(t);
	size_t w_bytes = trainer_shard(t)->w_bytes;

	t->v.t = t;
	t->v.count = data_count(t->c.data, DATA_VALIDATION);
	if (!t->v.count)
		return 0;
	t->v.batch = (uint32_t)(n < t->v.count ? n : t->v.count);
	t->v.w_bytes = w_bytes;
	t->v.w = big_alloc(w_bytes + 1);
	if (!t->v.w)
		return err_set(e, ERR_NOMEM, "no memory for validation (%zu bytes)", w_bytes);
	if (valid_room(t, e) < 0)
		return -1;
	conf.buffers = t->model->nbuffer ? t->v.w + t->model->nparam : NULL;
	t->v.x = exec_new(&conf, &cb, t);
	exec_bind(t->v.x, "w", t->v.w, w_bytes ? w_bytes : 1);
	return 0;
}

/* The copy of the parameters is there. */
static void valid_run(void *arg, uint64_t epoch)
{
	struct trainer *t = arg;

	t->v.epoch = epoch;
	t->v.running = true;
	t->v.planned = false;
	t->v.next = 0;
	t->v.loss = t->v.correct = 0;
	t->v.begun_us = env_now(t->env);
	exec_wake(t->v.x);
}

void valid_begin(struct trainer *t)
{
	if (t->v.wanted)
		return;
	t->v.wanted = true;
	if (t->v.count)
		state_copy(t->state, t->v.w, valid_run, t);
	else
		trainer_later(t);
}

uint64_t trainer_valid_bytes(const struct trainer *t)
{
	struct exec_view v = { 0 };

	if (t->v.x)
		exec_view(t->v.x, &v);
	return v.arena_peak_bytes;
}

/* What must end before the trainer's memory may go: jobs of the data lane, the executor. */
uint32_t valid_parts(const struct trainer *t)
{
	uint32_t n = t->v.x ? 1 : 0;

	for (int k = 0; k < VALID_SLOTS; k++)
		if (t->v.slot[k] && t->v.slot[k]->running)
			n++;
	return n;
}

void valid_stop(struct trainer *t)
{
	if (t->v.x)
		exec_free(t->v.x, trainer_part_gone, t);
}

static void free_room(struct trainer *t)
{
	for (int k = 0; k < VALID_SLOTS; k++) {
		struct valid_batch *s = t->v.slot[k];

		t->v.slot[k] = NULL;
		if (!s)
			continue;
		big_free(s->b.x, s->x_bytes);
		big_free(s->b.y, s->y_bytes);
		free(s->b.position);
		free(s);
	}
}

void valid_no_room(struct trainer *t)
{
	for (int k = 0; k < VALID_SLOTS; k++)
		if (t->v.slot[k] && (t->v.slot[k]->running || t->v.slot[k]->busy))
			return;
	free_room(t);
}

void valid_free(struct trainer *t)
{
	free_room(t);
	big_free(t->v.w, t->v.w_bytes + 1);
}

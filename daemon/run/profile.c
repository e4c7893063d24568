/* model profile: layers of a model measured on this machine, before any run of it. A pass at a time in the train lane,
 * with its team, so that what trains here goes on between two, as slowly as that makes it. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "run/int.h"
#include "train/layer_times.h"
#include "train/profile.h"
#include "train/zoo.h"

#define PASSES 5
#define PLAIN_MACS_PER_US 500                  /* without OpenBLAS, where nobody has measured it */
#define PASS_US 5e6                             /* longer ones would keep others waiting, and the daemon from ending */
#define ALL_US 50e6                             /* hivectl waits a minute */

struct profiling {
	struct job job; struct list link;       /* of runs.profiles */
	struct runs *rs; struct reply *reply;   /* NULL: the daemon is ending */
	struct compute compute;
	json_t *params;
	struct rest *rest; struct model *model; struct layer_times *times;
	size_t batch; int passes; bool first;
	json_t *out;
	bool more, woken;                       /* woken: its sleep layers wait no more, and times say nothing */
};

static void profiling_free(struct profiling *p)
{
	if (p->rs) {
		list_del(&p->link);
		p->rs->measuring = 0;
	}
	layer_times_free(p->times);
	model_free(p->model);
	if (p->rest)
		p->rest->free(p->rest);
	json_decref(p->params);
	json_decref(p->out);
	free(p);
}

static const struct err stopping = { ERR_CANCELLED, "the daemon is stopping" };

static void fail(struct profiling *p, const struct err *e)
{
	reply_fail(p->reply, e);
	profiling_free(p);
}

/* The daemon ends, or is to: whoever comes back from a lane goes. */
static bool is_over(struct profiling *p)
{
	if (!p->rs)
		profiling_free(p);
	else if (p->woken)
		fail(p, &stopping);
	else
		return false;
	return true;
}

static void pass_run(struct job *j)
{
	struct profiling *p = container_of(j, struct profiling, job);
	p->more = layer_times_pass(p->times);
	if (p->more)
		return;
	p->out = layer_times_json(p->times);
	layer_times_free(p->times);             /* gigabytes take their time */
	p->times = NULL;
}

/* The pass that does not count has shown how long one takes, whatever was expected. */
static int too_long(const struct profiling *p, struct err *e)
{
	double us = (double)layer_times_last_us(p->times);
	int most = us > 0 ? (int)(ALL_US / us) : p->passes;
	if (us <= PASS_US && p->passes <= most)
		return 0;
	if (us <= PASS_US)
		return err_set(e, ERR_LIMIT, "a pass of %zu samples takes %.2f s, and %d of them too long: say --passes=%d or "
			"a smaller --batch", p->batch, us / 1e6, p->passes, most);
	return err_set(e, ERR_LIMIT, "a pass of %zu samples takes %.1f s here, in which nothing trains; up to %.0f are "
		"fine: say a smaller --batch", p->batch, us / 1e6, PASS_US / 1e6);
}

static void pass_done(struct job *j)
{
	struct profiling *p = container_of(j, struct profiling, job);
	struct err e;
	if (is_over(p))
		return;
	if (p->first && too_long(p, &e) < 0) {
		fail(p, &e);
		return;
	}
	p->first = false;
	if (p->more) {
		env_work(p->rs->ctx.env, &p->job);
		return;
	}
	json_object_set_new(p->out, "runs_training", json_integer((json_int_t)runs_active(p->rs)));
	reply_ok(p->reply, p->out);
	p->out = NULL;
	profiling_free(p);
}

/* Would a pass take what this machine has not, or far too long? */
static int bearable(const struct profiling *p, size_t batch, int parts, struct err *e)
{
	uint64_t need = layer_times_bytes(p->model, batch, parts), room = run_room(p->rs, NULL);
	double speed = run_macs_per_us(&p->compute);
	struct profile_source from = { .model = p->model, .parts = parts, .macs_per_us = speed > 0 ? speed :
		PLAIN_MACS_PER_US };
	struct profile of;
	double us = 0;
	char a[32], b[32];
	profile_model(&of, &from, (uint32_t)batch);
	for (uint32_t i = 0; i < of.nops; i++)
		us += (double)of.op[i].variant[0].fwd_us + (double)of.op[i].variant[0].bwd_us;
	profile_free(&of);
	if (room && need > room)
		return err_set(e, ERR_LIMIT, "measuring takes %s, and runs leave %s: say a smaller --batch, or hivectl model "
			"show for the bytes alone", text_print_size(need, a, sizeof a), text_print_size(room, b, sizeof b));
	if (us > PASS_US)
		return err_set(e, ERR_LIMIT, "one pass of %zu samples would take about %.0f s, in which nothing trains here; "
			"up to %.0f are fine: say a smaller --batch", batch, us / 1e6, PASS_US / 1e6);
	return 0;
}

static void load_run(struct job *j)
{
	struct profiling *p = container_of(j, struct profiling, job);
	if (p->compute.load)
		p->compute.load(p->compute.arg);
}

static void load_done(struct job *j)
{
	struct profiling *p = container_of(j, struct profiling, job);
	struct err e;
	if (is_over(p))
		return;
	const struct compute *c = &p->compute;
	const json_t *passes = json_object_get(p->params, "passes");
	const struct par *par = c->par(c->arg, 0, &e);
	if (par && !par->now_ns) {
		err_set(&e, ERR_STATE, "this peer computes without a clock");
		par = NULL;
	}
	p->rest = par && c->rest ? c->rest(c->arg) : NULL;
	p->model = par ? zoo_asked(p->params, p->rest ? &p->rest->host : NULL, &p->batch, &e) : NULL;
	if (!p->model || bearable(p, p->batch, par->n, &e) < 0) {
		fail(p, &e);
		return;
	}
	p->passes = passes ? (int)json_integer_value(passes) : PASSES;
	p->first = true;
	p->rs->measuring = layer_times_bytes(p->model, p->batch, par->n);
	p->times = layer_times_new(p->model, par, p->batch, p->passes);
	if (!p->times) {
		err_set(&e, ERR_NOMEM, "there is no memory for a pass of %zu samples: say a smaller --batch", p->batch);
		fail(p, &e);
		return;
	}
	p->job = (struct job){ .name = "model.profile", .lane = env_lane(p->rs->ctx.env, "train"), .run = pass_run,
		.done = pass_done, .cost_us = 1000 };
	env_work(p->rs->ctx.env, &p->job);
}

void runs_model_profile(struct runs *rs, const json_t *params, struct reply *reply)
{
	const json_t *passes = json_object_get(params, "passes");
	struct err e;
	if (rs->draining) {
		reply_fail(reply, &stopping);
		return;
	}
	if (!list_empty(&rs->profiles)) {
		err_set(&e, ERR_BUSY, "a model is being measured already, for somebody else: ask again when that is done");
		reply_fail(reply, &e);
		return;
	}
	if (passes && (json_integer_value(passes) < 1 || json_integer_value(passes) > LAYER_TIMES_PASSES)) {
		err_set(&e, ERR_INVALID, "passes: must be 1 to %d", LAYER_TIMES_PASSES);
		reply_fail(reply, &e);
		return;
	}
	struct profiling *p = xcalloc(1, sizeof *p);
	*p = (struct profiling){ .rs = rs, .reply = reply, .compute = rs->ctx.compute, .params = json_deep_copy(params) };
	list_push(&rs->profiles, &p->link);
	p->job = (struct job){ .name = "model.profile", .lane = env_lane(rs->ctx.env, "data"), .run = load_run,
		.done = load_done };
	env_work(rs->ctx.env, &p->job);
}

void runs_profiles_wake(struct runs *rs)
{
	list_each(it, &rs->profiles) {
		struct profiling *p = list_entry(it, struct profiling, link);
		p->woken = true;
		if (p->rest)
			p->rest->stop(p->rest);
	}
}

/* Their jobs may still run: those free them. */
void runs_profiles_free(struct runs *rs)
{
	runs_profiles_wake(rs);
	list_each_safe(it, &rs->profiles) {
		struct profiling *p = list_entry(it, struct profiling, link);
		list_del(&p->link);
		reply_fail(p->reply, &stopping);
		p->rs = NULL;
	}
}

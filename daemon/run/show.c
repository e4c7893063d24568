/* `run show` and `run layers`: all there is to say of one run. */
#include <math.h>
#include "run/int.h"

/* Predicted beside measured, us. An epoch is this peer's share of the target batch, then the step (and the round). */
static json_t *times_json(struct run *r)
{
	struct trainer_times t;
	struct trainer_view v;
	struct avg_view a = { 0 };
	double share = 1, batches;
	trainer_times(r->trainer, &t);
	trainer_view(r->trainer, &v);
	if (r->avg)
		avg_view(r->avg, &a);
	if (a.rate_total > v.rate && v.rate > 0)
		share = v.rate / a.rate_total;
	batches = ceil((double)run_target(r) * share / r->spec->local.batch);
	json_t *o = json_pack("{s:b,s:I,s:I,s:I}", "measured", t.measured, "micro_batch_predicted_us",
		(json_int_t)t.micro_batch_us, "step_predicted_us", (json_int_t)t.step_us, "epoch_predicted_us",
		(json_int_t)(batches * (double)t.micro_batch_us + (double)t.step_us + (double)a.last_round_us));
	if (t.took_us)
		run_put_count(o, "micro_batch_us", t.took_us);
	if (r->nepochs >= EXEC_TIMES_FEWEST)
		run_put_count(o, "epoch_us", exec_median(r->nepochs, r->epoch_took));
	return o;
}

static void put_long(struct run *r, json_t *o)
{
	struct trainer_view v;
	json_object_set(o, "spec", r->spec->shared);
	json_object_set_new(o, "local", spec_local_json(r->spec));
	json_object_set_new(o, "equality", json_string(r->spec->mode.equality));
	if (r->avg)
		json_object_set_new(o, "rounds_shape", avg_shape(r->avg));
	if (r->crew)
		json_object_set_new(o, "crew", run_crew_json(r));
	if (r->spec->mode.under_way)
		json_object_set_new(o, "under_way", json_string(r->spec->mode.under_way));
	bool seldom = r->spec->validation_every == SPEC_VALIDATION_AUTO;
	json_t *val = json_pack("{s:o,s:I}", "every", seldom ? json_string("auto") :
		json_integer((json_int_t)r->spec->validation_every), "took_us", (json_int_t)r->val_took_us);
	if (r->val_at)
		run_put_count(val, "epoch", r->val_at);
	if (r->data)
		run_put_count(val, "samples", data_count(r->data, DATA_VALIDATION));
	json_object_set_new(o, "validation", val);
	if (r->trainer) {
		trainer_view(r->trainer, &v);
		json_t *t = json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "state", v.state, "generation",
			(json_int_t)v.generation, "arena_bytes",
			(json_int_t)v.arena_bytes,
			"arena_peak_bytes", (json_int_t)v.arena_peak_bytes, "arena_predicted_bytes",
			(json_int_t)v.arena_predicted_bytes,
			"state_bytes", (json_int_t)v.state_bytes, "loader_bytes", (json_int_t)v.loader_bytes, "skipped",
			(json_int_t)v.skipped,
			"abandoned", (json_int_t)v.abandoned, "load_wait_us", (json_int_t)v.load_wait_us);
		if (trainer_has_crew(r->trainer))
			run_put_count(t, "held_out_bytes", v.held_bytes);
		run_put_count(t, "flops", v.flops);
		if (r->spec->mode.under_way) {
			run_put_count(t, "stale", v.stale);
			run_put_count(t, "stale_most", v.stale_most);
		}
		if (v.loss_scale > 0)
			json_object_set_new(t, "loss_scale", json_real(v.loss_scale));
		if (v.busy_us)
			json_object_set_new(t, "gflops_per_s", json_real((double)v.flops / (double)v.busy_us / 1e3));
		json_object_set_new(o, "trainer", t);
		json_object_set_new(o, "times", times_json(r));
		json_t *data = trainer_data_json(r->trainer);
		json_object_set_new(data, "order", json_string(r->spec->independent ? "independent" : "ledger"));
		json_object_set_new(o, "data", data);
		json_object_set_new(o, "traffic", trainer_traffic_json(r->trainer));
		run_put_count(o, "parameters", trainer_model(r->trainer)->nparam);
	}
	json_object_set_new(o, "log", trace_json(r));
	if (r->rs->ctx.store) {
		json_object_set_new(o, "last_rounds", store_list(r->rs->ctx.store, STORE_ROUNDS, r->hex, 10));
		json_object_set_new(o, "checkpoints", store_list(r->rs->ctx.store, STORE_CKPTS, r->hex, 5));
	}
}

json_t *run_json_all(struct run *r)
{
	json_t *o = run_json(r);
	put_long(r, o);
	return o;
}

/* Where every peer has an order of its own, commits say how many samples each brought, not which. */
static json_t *no_ledger(const struct run *r)
{
	json_t *proof = json_pack("{s:I,s:n,s:s}", "samples", (json_int_t)r->point.samples, "exactly_once", "why",
		"there is no proof: data.order is independent, so every peer walks through the data in an order of its own, "
		"several may process the same sample in one pass, and commits name no positions");
	json_t *o = json_pack("{s:I,s:I,s:o}", "epoch", (json_int_t)r->point.epoch, "samples",
		(json_int_t)r->point.samples, "proof", proof);
	if (!run_over(r)) {                     /* what this peer's commits have taken of its own order */
		json_object_set_new(o, "walked_here", ranges_json(&r->walked));
		run_put_count(o, "data_samples", r->data ? data_count(r->data, DATA_TRAIN) : 0);
	}
	return o;
}

void run_put_ledger(struct run *r, json_t *o)
{
	if (r->spec->independent)
		json_object_set_new(o, "ledger", no_ledger(r));
	else if (r->avg)
		json_object_set_new(o, "ledger", avg_ledger(r->avg));
	else if (r->point.done.n)
		json_object_set_new(o, "ledger", avg_point_ledger(&r->point, r->data ? data_count(r->data, DATA_TRAIN) : 0));
	if (!r->spec->independent && r->rs->ctx.store && json_object_get(o, "ledger"))
		json_object_set_new(json_object_get(o, "ledger"), "discarded", run_discarded_json(r));
}

void runs_layers(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	json_t *layers = NULL;
	struct err e;
	if (!r)
		return;
	if (r->trainer)
		layers = trainer_layers_json(r->trainer, &e);
	else
		err_set(&e, ERR_STATE, "run %s is %s: nothing is computed for it now", r->name, run_state_name(r));
	if (layers)
		reply_ok(reply, layers);
	else
		reply_fail(reply, &e);
}

void runs_show(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	if (!r)
		return;
	json_t *o = run_json_all(r);
	if (json_is_true(json_object_get(params, "data")))
		run_put_ledger(r, o);
	reply_ok(reply, o);
}

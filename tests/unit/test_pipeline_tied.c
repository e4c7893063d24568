/* Pipelines whose first and last stage use one tensor (train/strategy/parts/tied.h): of a small GPT-2, every schedule,
 * number of stages, replicas, copies of the state and pipelines side by side learn what one process learns, to 1e-12 in
 * double, and all who have the tensor have the same bits of it, and of what the optimizer knows of it, after every
 * step. */
#include "pipe_agree.h"
#include "pipe_whole.h"

#define LATE 5                          /* epochs of a schedule that runs on */

struct how { uint32_t members, copies, holders; uint64_t micro; const char *optimizer, *values, *model;
	uint64_t bad, memory; };

/* All that anybody has is what one process has, and of each part all have the same bits. */
static void as_one(const struct world *w, const struct whole *o, bool late)
{
	for (uint32_t t = 0; t < STAGES; t++) {
		const struct held *first = NULL;

		for (uint32_t k = 0; k < w->n; k++) {
			const struct held *h = &w->peer[k].held[t];
			const struct peer as = { .rank = k, .lo = h->lo, .n = h->n };

			if (!h->w || !h->n)
				continue;
			compare(&as, h->w, o->w, false);
			if (late)
				compare(&as, h->before, o->before, false);
			first = first ? first : h;
			assert_int_equal(h->n, first->n);
			assert_memory_equal(h->w, first->w, h->n * sizeof(real));
			assert_int_equal(h->opt_bytes, first->opt_bytes);
			assert_memory_equal(h->opt, first->opt, h->opt_bytes);
		}
	}
}

/* Who has the tensor: all members of the first stage and of the last one, and who keeps the first. */
static uint32_t holders(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < w->n; k++)
		n += w->peer[k].held[TIED].w != NULL;
	return n;
}

/* Bytes that the member which takes most has taken. */
static uint64_t most_taken(const struct world *w)
{
	uint64_t most = 0;

	for (uint32_t k = 0; k < w->n; k++) {
		struct exec_view v;

		exec_view(w->peer[k].x, &v);
		most = v.arena_peak_bytes > most ? v.arena_peak_bytes : most;
	}
	return most;
}

static uint64_t train(const struct how *how)
{
	uint64_t most;
	struct world w;
	struct whole o;
	world_with(&w, how->members, how->micro, how->model ? how->model : tied_text, how->optimizer);
	w.kit.v.redundancy = how->copies;
	w.bad = how->bad;
	for (uint32_t k = 0; k < how->members; k++)
		w.kit.member[k].memory_bytes = how->memory;
	pipe_values(&w.kit, "%s", how->values);
	whole_open(&w, &o);
	for (uint32_t k = 0; k < how->members; k++)
		peer_open(&w, k);
	assert_int_equal(holders(&w), how->holders);
	for (; w.epoch < EPOCHS; w.epoch++) {
		for (uint32_t k = 0; k < how->members; k++) {
			w.peer[k].waits = w.peer[k].gave = false;
			w.peer[k].unit = 0;
			exec_wake(w.peer[k].x);
		}
		sim_run_for(w.sim, 1000000);
		agree(&w, PLAN_NONE);
		sim_run_for(w.sim, 1000000);
		whole_step(&w, &o, false);
		as_one(&w, &o, false);
		w.begin += w.micro + 1;
	}
	most = most_taken(&w);
	whole_close(&o);
	world_close(&w);
	return most;
}

static const char sgd[] = "{\"name\":\"sgd\",\"lr\":0.1}";
static const char momentum[] = "{\"name\":\"sgd\",\"lr\":0.1,\"momentum\":0.9}";

/* What is in common steps by its own gradient, wherever it is held: when the rest of the first stage's is not finite it
 * steps, and when it is not itself nobody steps it. */
static void not_finite(uint32_t members, uint32_t spoilt, const char *values)
{
	struct world w;
	struct whole o;

	world_with(&w, members, 5, tied_text, "{\"name\":\"sgd\",\"lr\":0.1,\"momentum\":0.9}");
	pipe_values(&w.kit, "%s", values);
	whole_open(&w, &o);
	for (uint32_t k = 0; k < members; k++)
		peer_open(&w, k);
	for (uint32_t k = 0; k < members; k++)
		exec_wake(w.peer[k].x);
	sim_run_for(w.sim, 1000000);
	agree(&w, spoilt);
	sim_run_for(w.sim, 1000000);
	whole_step(&w, &o, false);
	for (uint32_t k = 0; k < members; k++) {
		struct held *h = &w.peer[k].held[spoilt];

		assert_int_equal(w.peer[k].skips, h->w ? 1u << spoilt : 0);
		if (h->w)
			memcpy(o.w + h->lo, o.before + h->lo, h->n * sizeof(real));
	}
	as_one(&w, &o, false);
	w.epoch = EPOCHS;
	whole_close(&o);
	world_close(&w);
}

static void gradients_not_finite(void **state)
{
	train(&(struct how){ 3, 1, 2, 5, sgd, "{'stages':3}", .bad = 2 });      /* a micro-batch adds nothing anywhere */
	train(&(struct how){ 3, 1, 3, 7, sgd, "{'stages':[{},{'replicas':2}]}", .bad = 3 });
	not_finite(2, 0, "{'stages':2}");
	not_finite(3, TIED, "{'stages':3,'schedule':'gpipe'}");
	not_finite(3, 2, "{'stages':[{'layers':'transformer.wte-transformer.wpe'},{'layers':'2-transformer.h.1.mlp."
		"c_proj'},{'layers':'25-lm_head'}]}");
}

static void schedules(void **state)
{
	static const char *const schedule[] = { "naive", "gpipe", "1f1b" };
	char values[100];

	for (int s = 0; s < 3; s++)
		for (uint32_t p = 2; p <= 4; p++)
			for (uint32_t m = 1; m <= 9; m += 4) {
				(void)snprintf(values, sizeof(values), "{'stages':%u,'schedule':'%s','micro_batches':%u}", p,
					schedule[s], m);
				train(&(struct how){ p, 1, 2, 7, m == 5 ? sgd : momentum, values });
			}
	train(&(struct how){ 1, 1, 0, 5, sgd, "{'stages':1}" });
}

/* A stage keeps its input alone. */
static void from_its_input(void **state)
{
	train(&(struct how){ 2, 1, 2, 7, sgd, "{'stages':2,'schedule':'gpipe','micro_batches':5,'remat':'boundary'}" });
	train(&(struct how){ 4, 2, 3, 7, momentum, "{'stages':4,'micro_batches':7,'remat':'boundary'}" });
}

/* Who keeps the first stage for others has the tensor with it: two stages hold all there is. */
static void copies(void **state)
{
	train(&(struct how){ 2, 2, 2, 5, momentum, "{'stages':2}" });
	train(&(struct how){ 3, 2, 3, 5, momentum, "{'stages':3,'schedule':'gpipe'}" });
	train(&(struct how){ 5, 2, 3, 6, momentum, "{'stages':4,'micro_batches':4}" });
	train(&(struct how){ 5, 3, 4, 6, sgd, "{'stages':5,'schedule':'naive'}" });
	train(&(struct how){ 3, 3, 3, 5, momentum, "{'stages':3}" });
}

/* Every replica of the last stage gives its piece once. */
static void replicas(void **state)
{
	train(&(struct how){ 3, 1, 3, 7, sgd, "{'stages':[{'replicas':2},{}]}" });
	train(&(struct how){ 3, 1, 3, 7, momentum, "{'stages':[{},{'replicas':2}],'schedule':'gpipe'}" });
	train(&(struct how){ 6, 1, 5, 9, sgd, "{'stages':[{'replicas':2},{},{'replicas':3}],'micro_batches':5}" });
	train(&(struct how){ 6, 2, 5, 9, momentum, "{'stages':[{'replicas':3},{},{'replicas':2}],'micro_batches':5}" });
}

static void side_by_side(void **state)
{
	train(&(struct how){ 4, 1, 4, 8, sgd, "{'stages':2}" });
	train(&(struct how){ 6, 2, 4, 9, momentum, "{'stages':3,'micro_batches':3}" });
	train(&(struct how){ 6, 1, 6, 8, sgd, "{'stages':[{},{'replicas':2}],'schedule':'gpipe'}" });
}

/* The embedding alone, which is all in common; the output alone; both. */
static void alone_with_it(void **state)
{
	train(&(struct how){ 2, 1, 2, 5, sgd, "{'stages':[{'layers':'transformer.wte'},{'layers':"
		"'transformer.wpe-lm_head'}]}" });
	train(&(struct how){ 3, 1, 2, 5, momentum, "{'stages':[{'layers':'transformer.wte'},{'layers':"
		"'transformer.wpe-transformer.ln_f'},{'layers':'lm_head'}],'schedule':'gpipe'}" });
	train(&(struct how){ 2, 2, 2, 5, momentum, "{'stages':[{'layers':'transformer.wte-transformer.ln_f'},{'layers':"
		"'lm_head'}]}" });
	train(&(struct how){ 4, 1, 3, 7, momentum, "{'stages':[{'layers':'transformer.wte','replicas':2},{'layers':"
		"'transformer.wpe-transformer.ln_f'},{'layers':'lm_head'}],'schedule':'gpipe','micro_batches':4}" });
}

#define LAYERS(list) "{\"name\":\"c\",\"input\":[6],\"model\":[" list "],\"loss\":\"cross_entropy\",\"optimizer\":%s," \
	"\"target_batch\":8,\"data\":{\"name\":\"x\",\"kind\":\"synthetic\",\"count\":500}}"
#define LINEAR(name) "{\"type\":\"linear\",\"out\":6,\"name\":\"" name "\"},{\"type\":\"tanh\"},"
#define SHARED(name, of) "{\"type\":\"linear\",\"out\":6,\"name\":\"" name "\",\"share\":\"" of "\"}"

/* Two tensors, and one between them that only the first stage uses; one that several layers of the last stage use;
 * layers that share within a stage, too. */
static void several(void **state)
{
	static const char two[] = LAYERS(LINEAR("a") LINEAR("only") LINEAR("b") LINEAR("c") LINEAR("d") SHARED("y", "b") ","
		"{\"type\":\"gelu\"}," SHARED("z", "a"));
	static const char twice[] = LAYERS(LINEAR("a") SHARED("again", "a") ",{\"type\":\"gelu\"}," LINEAR("c") LINEAR("d")
		SHARED("y", "a") ",{\"type\":\"tanh\"}," SHARED("z", "a"));
	static const char within[] = LAYERS(LINEAR("a") LINEAR("b") LINEAR("c") SHARED("w", "c") ",{\"type\":\"tanh\"},"
		LINEAR("d") SHARED("z", "a"));

	train(&(struct how){ 2, 1, 2, 7, sgd, "{'stages':2}", two });
	train(&(struct how){ 3, 1, 2, 7, momentum, "{'stages':3,'schedule':'gpipe','micro_batches':3}", two });
	train(&(struct how){ 3, 2, 3, 7, momentum, "{'stages':[{'layers':6},{'layers':3},{'layers':4}]}", two });
	train(&(struct how){ 2, 1, 2, 7, momentum, "{'stages':2}", twice });
	train(&(struct how){ 3, 1, 2, 7, sgd, "{'stages':3,'remat':'boundary'}", twice });
	train(&(struct how){ 3, 1, 2, 7, momentum, "{'stages':[{'layers':2},{'layers':7},{'layers':2}]}", within });
}

static void refused(struct world *w, const char *values, const char *words)
{
	struct plan p;
	struct err e = { 0 };

	pipe_values(&w->kit, "%s", values);
	if (pipe_plan(&w->kit, 0, &p, &e) == 0)
		fail_msg("%s was taken", values);
	if (!strstr(e.text, words))
		fail_msg("%s: %s", values, e.text);
}

/* Nor can a stage between the ends have something in common with another. */
static void not_between(void **state)
{
	static const char three[] = LAYERS(LINEAR("a") LINEAR("b") SHARED("m", "a") ",{\"type\":\"tanh\"}," LINEAR("c")
		SHARED("z", "a"));
	struct world w;

	world_with(&w, 6, 6, three, sgd);
	refused(&w, "{'stages':[{'layers':3},{'layers':3},{'layers':3}]}", "stage 1 begins or ends between a and m, which "
		"share parameters: that can be in one stage, or in the first and the last one; cut elsewhere, or give m "
		"parameters of its own (no \"share\")");
	refused(&w, "{'stages':6}", "6 stages, and the model cannot be cut into so many: a and z share parameters");
	w.n = 0;
	world_close(&w);
}

/* The least that members must have, as the planner says. */
static uint64_t least_memory(const struct how *how)
{
	uint64_t lo = 0, hi = 1 << 24;
	struct world w;
	struct plan p;
	struct err e;

	world_with(&w, how->members, how->micro, how->model ? how->model : tied_text, how->optimizer);
	w.kit.v.redundancy = how->copies;
	pipe_values(&w.kit, "%s", how->values);
	while (hi - lo > 1) {
		uint64_t mid = lo + (hi - lo) / 2;

		for (uint32_t k = 0; k < how->members; k++)
			w.kit.member[k].memory_bytes = mid;
		if (pipe_plan(&w.kit, 0, &p, &e) < 0) {
			lo = mid;
			continue;
		}
		plan_free(&p);
		hi = mid;
	}
	w.n = 0;
	world_close(&w);
	return hi;
}

/* With as much as the planner asks for, and no byte more, members train; and they take it, but for what rings have room
 * for and is never there at once. */
static void fits(struct how how)
{
	uint64_t least = least_memory(&how), most;

	how.memory = least;
	most = train(&how);
	if (most > least || most < least - least / 20)
		fail_msg("%s: %llu bytes are asked for, %llu taken", how.values, (unsigned long long)least,
			(unsigned long long)most);
}

static void bytes(void **state)
{
	fits((struct how){ 2, 1, 2, 6, sgd, "{'stages':[{'layers':5},{'layers':24}],'schedule':'naive'}" });
	fits((struct how){ 2, 1, 2, 6, sgd, "{'stages':[{'layers':24},{'layers':5}],'schedule':'naive'}" });
	fits((struct how){ 3, 1, 2, 6, momentum, "{'stages':3,'schedule':'gpipe','micro_batches':3}" });
	fits((struct how){ 4, 2, 3, 6, momentum, "{'stages':4}" });
}

/* --- epochs that run on into each other */

static int next_epoch(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret, struct err *e)
{
	struct peer *p = arg;
	struct world *w = p->world;
	uint64_t n = w->programs[p->rank];

	if (n > w->epoch) {
		plan_init(ret, "wait", 0, 1, &w->kit.member[0].id);
		return 0;
	}
	w->programs[p->rank]++;
	w->kit.v.first = n * w->micro;
	w->kit.v.fresh = n == 0;
	w->kit.v.samples = n ? w->micro * BATCH : 0;
	return pipe_plan(&w->kit, p->rank, ret, e);
}

static void late(const struct how *how)
{
	struct world w;
	struct whole o;

	world_with(&w, how->members, how->micro, tied_text, how->optimizer);
	w.kit.v.redundancy = how->copies;
	pipe_values(&w.kit, "%s", how->values);
	whole_open(&w, &o);
	w.kit.v.fresh = true;
	for (uint32_t r = 0; r < how->members; r++)
		peer_with(&w, r, next_epoch);
	assert_int_equal(holders(&w), how->holders);
	for (; w.epoch < LATE; w.epoch++) {
		w.begin = w.epoch ? (w.epoch - 1) * w.micro : 0;
		for (uint32_t r = 0; r < how->members; r++)
			exec_wake(w.peer[r].x);
		sim_run_for(w.sim, 1000000);
		if (!w.epoch)
			continue;
		agree(&w, PLAN_NONE);
		sim_run_for(w.sim, 1000000);
		whole_step(&w, &o, true);
		as_one(&w, &o, true);
	}
	for (uint32_t r = 0; r < how->members; r++)
		exec_interrupt(w.peer[r].x);
	whole_close(&o);
	world_close(&w);
}

static void one_step_late(void **state)
{
	late(&(struct how){ 2, 1, 2, 5, sgd, "{'stages':2,'schedule':'2bw'}" });
	late(&(struct how){ 2, 2, 2, 5, momentum, "{'stages':2,'schedule':'2bw','remat':'boundary'}" });
	late(&(struct how){ 3, 1, 2, 6, momentum, "{'stages':3,'schedule':'2bw'}" });
	late(&(struct how){ 4, 2, 3, 6, momentum, "{'stages':4,'schedule':'2bw'}" });
	late(&(struct how){ 3, 1, 3, 8, sgd, "{'stages':[{},{'replicas':2}],'schedule':'2bw'}" });
	late(&(struct how){ 3, 1, 3, 7, momentum, "{'stages':[{'replicas':2},{}],'schedule':'2bw'}" });
	late(&(struct how){ 3, 1, 2, 6, sgd, "{'stages':[{'layers':'transformer.wte'},{'layers':"
		"'transformer.wpe-transformer.ln_f'},{'layers':'lm_head'}],'schedule':'2bw'}" });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schedules),
		cmocka_unit_test(from_its_input),
		cmocka_unit_test(copies),
		cmocka_unit_test(replicas),
		cmocka_unit_test(side_by_side),
		cmocka_unit_test(alone_with_it),
		cmocka_unit_test(one_step_late),
		cmocka_unit_test(gradients_not_finite),
		cmocka_unit_test(several),
		cmocka_unit_test(bytes),
		cmocka_unit_test(not_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

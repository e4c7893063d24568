/* Validation by a pipeline: what its members say of held-out micro-batches is what one process says, to 1e-12 in double
 * and to the last right answer, for every schedule, depth and number of replicas; nothing of the state changes by it;
 * its plans are right together, and fit into what the members of the step have. */
#include "pipe_agree.h"
#include "train/memory.h"

#define HELD 11                                 /* micro-batches of a validation, some of them with fewer samples */
#define FROM 1000                               /* index of the first */

/* Training, until it is time for one of them; each once. */
static int next(void *arg, const struct plan_results *results, uint64_t first, struct plan *ret, struct err *e)
{
	struct peer *p = arg;
	struct world *w = p->world;

	if (w->programs[p->rank]++ || !w->kit.v.validates) {
		plan_init(ret, "wait", 0, 1, &w->kit.member[0].id);
		return 0;
	}
	w->kit.v.first = FROM;
	return pipe_plan(&w->kit, p->rank, ret, e);
}

/* One process: the same samples, with what the members hold. */
static void alone_sees(const struct world *w, const real *param, uint64_t j, double sum[TALLY])
{
	struct batch *b = batch_new(w, j);
	int n = w->model->nops;
	struct model_need need;
	real y[BATCH * CONTEXT * VOCAB];
	double right = 0;

	model_need(w->model, 0, n, b->n, 1, &need);
	char *work = aligned_alloc(64, (need.work_eval + 127) / 64 * 64);
	struct model_call c = { .batch = b->n, .param = param, .work = work };
	struct loss plain = loss_plain(w->spec->loss, &w->model->out);

	model_forward(&w->par, w->model, 0, n, &c, b->x, y);
	sum[0] += loss_sum(&w->par, &plain, b->n, y, b->y, 1.0 / b->n, NULL, &right);
	sum[1] += right;
	sum[2] += b->n;
	free(work);
	batch_free(NULL, b);
}

static void right(const struct world *w, const struct peer *p, const real *param)
{
	double want[TALLY] = { 0 }, got[TALLY] = { 0 }, most = sizeof(real) == 8 ? 1e-12 : 1e-5;

	for (uint64_t j = 0; j < HELD; j++)
		alone_sees(w, param, p->of.first + FROM + j, want);
	for (uint32_t k = 0; k < STAGES; k++)
		for (int i = 0; i < TALLY; i++)
			got[i] += p->told[k][i];
	if (!(fabs(got[0] - want[0]) <= most * want[0]) || got[1] != want[1] || got[2] != want[2])
		fail_msg("member %u: loss %.17g, %g right of %g; one process has %.17g, %g of %g", p->rank, got[0], got[1],
			got[2], want[0], want[1], want[2]);
	assert_true(want[2] > 30 && want[1] > 0 && want[1] < want[2]);
}

/* The members begin with numbers that no initial value has. */
static real *weights(struct world *w)
{
	real *param = xcalloc(w->model->nparam, sizeof(real));

	model_init(w->model, 3, param);
	for (size_t i = 0; i < w->model->nparam; i++)
		param[i] += (real)0.3 * (real)sin((double)i);
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t t = 0; t < STAGES; t++)
			if (w->peer[k].held[t].w)
				memcpy(w->peer[k].held[t].w, param + w->peer[k].held[t].lo, w->peer[k].held[t].n * sizeof(real));
	return param;
}

static void unchanged(const struct world *w, const real *param)
{
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t t = 0; t < STAGES; t++) {
			const struct held *h = &w->peer[k].held[t];

			if (h->w)
				assert_memory_equal(h->w, param + h->lo, h->n * sizeof(real));
		}
}

static void validate_of(uint32_t members, uint32_t copies, const char *values, const char *model)
{
	struct world w;
	real *param;

	world_with(&w, members, 12, model, "{\"name\":\"adam\",\"lr\":0.1}");
	w.kit.v.redundancy = copies;
	w.kit.v.held = HELD;
	w.kit.v.fresh = true;
	pipe_values(&w.kit, "%s", values);
	for (uint32_t k = 0; k < members; k++)
		peer_with(&w, k, next);
	param = weights(&w);
	w.kit.v.validates = HELD;
	for (uint32_t k = 0; k < members; k++)
		exec_wake(w.peer[k].x);
	sim_run_for(w.sim, 1000000);
	for (uint32_t k = 0; k < members; k++)
		if (w.peer[k].of.unit != PLAN_NO_UNIT)
			right(&w, &w.peer[k], param);
	unchanged(&w, param);
	free(param);
	world_close(&w);
}

static void validate(uint32_t members, uint32_t copies, const char *values)
{
	validate_of(members, copies, values, text);
}

/* The first stage and the last one use one tensor. */
static void tied(void **state)
{
	validate_of(2, 1, "{'stages':2}", tied_text);
	validate_of(4, 2, "{'stages':4,'schedule':'gpipe'}", tied_text);
	validate_of(3, 1, "{'stages':3,'schedule':'2bw'}", tied_text);
	validate_of(5, 1, "{'stages':[{'layers':'transformer.wte','replicas':2},{'layers':'transformer.wpe-transformer."
		"ln_f'},{'layers':'lm_head','replicas':2}]}", tied_text);
}

static void schedules(void **state)
{
	static const char *const schedule[] = { "naive", "gpipe", "1f1b", "2bw" };
	char values[100];

	for (int s = 0; s < 4; s++)
		for (uint32_t p = 1; p <= 5; p++) {
			(void)snprintf(values, sizeof(values), "{'stages':%u,'schedule':'%s'%s}", p, schedule[s],
				s < 3 ? ",'micro_batches':4" : "");
			validate(p, 1, values);
		}
	validate(4, 1, "{'stages':3}");
}

static void replicas_and_copies(void **state)
{
	validate(3, 1, "{'stages':[{'replicas':2},{}]}");
	validate(3, 1, "{'stages':[{},{'replicas':2}],'schedule':'gpipe'}");
	validate(6, 1, "{'stages':[{'replicas':3},{'replicas':2},{}],'micro_batches':5}");
	validate(6, 1, "{'stages':[{},{'replicas':2},{'replicas':3}],'micro_batches':5}");
	validate(4, 2, "{'stages':4,'remat':'boundary'}");
	validate(4, 3, "{'stages':4,'schedule':'2bw'}");
	validate(6, 2, "{'stages':2}");
	validate(5, 2, "{'stages':2,'schedule':'2bw'}");
}

/* --- plans of all members, with as little memory as a planner will have it */

static int planned(struct pipe_kit *k, struct plan *ret, struct err *e)
{
	for (uint32_t r = 0; r < k->v.nmembers; r++)
		if (pipe_plan(k, r, &ret[r], e) < 0) {
			while (r-- > 0)
				plan_free(&ret[r]);
			return -1;
		}
	return 0;
}

static int checked(struct pipe_kit *k, struct err *e)
{
	struct plan p[PIPE_MAX];
	const struct plan *list[PIPE_MAX];
	struct check_conf conf = { .predict = { .profile = k->v.profile } };
	int rc = planned(k, p, e);

	for (uint32_t r = 0; r < k->v.nmembers && rc == 0; r++)
		list[r] = &p[r];
	if (rc)
		return rc;
	rc = plan_check(list, k->v.nmembers, &conf, NULL, e);
	for (uint32_t r = 0; r < k->v.nmembers; r++)
		plan_free(&p[r]);
	return rc;
}

static bool fits(struct pipe_kit *k, uint64_t bytes)
{
	struct plan p[PIPE_MAX];
	struct err e;

	for (uint32_t r = 0; r < k->v.nmembers; r++)
		k->member[r].memory_bytes = bytes;
	if (planned(k, p, &e) < 0)
		return false;
	for (uint32_t r = 0; r < k->v.nmembers; r++)
		plan_free(&p[r]);
	return true;
}

static bool reads(const struct plan *p)
{
	for (uint32_t i = 0; i < p->ninstrs; i++)
		if (p->instr[i].kind == PLAN_LOAD && strcmp(p->instr[i].variant, "positions"))
			return true;
	return false;
}

/* The most that the step, and a validation behind it, take of the members, of whom some read what is held out; what is
 * under way stays. */
static uint64_t together_take(struct pipe_kit *k)
{
	struct plan step[PIPE_MAX], look[PIPE_MAX];
	uint64_t peak = 0;
	struct err e;

	k->v.validates = 0;
	assert_int_equal(planned(k, step, &e), 0);
	k->v.validates = HELD;
	assert_int_equal(planned(k, look, &e), 0);
	for (uint32_t r = 0; r < k->v.nmembers; r++) {
		uint64_t most = 0;
		struct tokens *left = memory_rehearse(&step[r], NULL, &most);

		tokens_free(memory_rehearse(&look[r], left, &most));
		tokens_free(left);
		most += reads(&look[r]) ? 2 * (k->v.profile->batch_bytes + k->v.profile->batch * sizeof(uint64_t)) : 0;
		peak = most > peak ? most : peak;
		plan_free(&step[r]);
		plan_free(&look[r]);
	}
	return peak;
}

/* The fewest bytes of every member with which there is a plan. */
static uint64_t fewest(struct pipe_kit *k)
{
	uint64_t lo = 1, hi = 1 << 24;

	while (lo + 1 < hi) {
		uint64_t mid = (lo + hi) / 2;

		*(fits(k, mid) ? &hi : &lo) = mid;
	}
	assert_true(fits(k, hi));
	return hi;
}

static void tight(uint32_t members, const char *values)
{
	struct world w;
	struct err e;
	uint64_t hi;

	world_open(&w, members, 12, "{\"name\":\"adam\",\"lr\":0.1}");
	w.kit.v.held = HELD;
	w.kit.v.fresh = true;
	pipe_values(&w.kit, "%s", values);
	hi = fewest(&w.kit);
	if (checked(&w.kit, &e) < 0)
		fail_msg("%s: the step with %llu bytes: %s", values, (unsigned long long)hi, e.text);
	w.kit.v.validates = HELD;
	if (checked(&w.kit, &e) < 0)
		fail_msg("%s: the validation with %llu bytes: %s", values, (unsigned long long)hi, e.text);
	assert_true(together_take(&w.kit) <= hi);
	w.n = 0;                                /* nobody has run */
	world_close(&w);
}

static void little_memory(void **state)
{
	tight(2, "{'stages':2,'schedule':'naive'}");
	tight(3, "{'stages':3,'schedule':'gpipe','micro_batches':1}");
	tight(4, "{'stages':4}");
	tight(4, "{'stages':4,'remat':'boundary'}");
	tight(3, "{'stages':3,'schedule':'2bw'}");
	tight(2, "{'stages':2,'schedule':'2bw'}");
	tight(6, "{'stages':[{'replicas':3},{'replicas':2},{}],'micro_batches':5}");
	tight(6, "{'stages':[{},{'replicas':2},{'replicas':3}],'micro_batches':5}");
}

/* What is held out takes so many bytes more of the member that has least beside what it needs. */
static void takes_more(uint32_t members, const char *values, uint32_t tellers, bool reads_it)
{
	struct world w;
	uint64_t without, slot;

	world_open(&w, members, 12, "{\"name\":\"adam\",\"lr\":0.1}");
	w.kit.v.fresh = true;
	pipe_values(&w.kit, "%s", values);
	w.kit.v.held = 0;
	without = fewest(&w.kit);
	w.kit.v.held = HELD;
	slot = w.profile.batch_bytes + w.profile.batch * sizeof(uint64_t);
	assert_int_equal(fewest(&w.kit) - without, tellers * TALLY * sizeof(double) + (reads_it ? 2 * slot : 0));
	w.n = 0;                                /* nobody has run */
	world_close(&w);
}

static void to_the_byte(void **state)
{
	takes_more(1, "{'stages':1}", 1, true);
	takes_more(2, "{'stages':[{'layers':2},{'layers':8}]}", 1, true);
	takes_more(4, "{'stages':[{'layers':2},{'layers':8,'replicas':3}],'micro_batches':6}", 3, true);
	takes_more(3, "{'stages':[{'layers':1},{'layers':8},{'layers':1}],'micro_batches':3}", 1, false);
	takes_more(3, "{'stages':[{'layers':1},{'layers':8},{'layers':1}],'schedule':'2bw'}", 1, false);
}

/* Nothing goes back: each cut is crossed once by each micro-batch, and by what is told. */
static void bytes_sent(void **state)
{
	struct world w;
	struct plan p[PIPE_MAX];
	const struct plan *list[PIPE_MAX];
	struct prediction out;
	struct err e;

	world_open(&w, 3, 12, "{\"name\":\"adam\",\"lr\":0.1}");
	w.kit.v.held = w.kit.v.validates = HELD;
	pipe_values(&w.kit, "{'stages':3}");
	assert_int_equal(planned(&w.kit, p, &e), 0);
	for (uint32_t r = 0; r < 3; r++)
		list[r] = &p[r];
	assert_int_equal(predict(list, 3, &(struct predict_conf){ .profile = &w.profile }, &out, &e), 0);
	for (uint32_t r = 0; r < 3; r++) {
		char name[8];
		uint32_t b;

		(void)snprintf(name, sizeof(name), "va%u", r + 1);
		b = plan_find(&p[r], name);
		assert_int_equal(out.peer[r].sent[PLAN_ACTIVATION], r < 2 ? HELD * p[r].buf[b].bytes : 0);
		assert_int_equal(out.peer[r].sent[PLAN_ACTIVATION_GRAD] + out.peer[r].sent[PLAN_WEIGHT_GRAD], 0);
		assert_int_equal(out.peer[r].sent[PLAN_SCALAR], r == 2 ? 2 * TALLY * sizeof(double) : 0);
	}
	prediction_free(&out);
	for (uint32_t r = 0; r < 3; r++)
		plan_free(&p[r]);
	w.n = 0;                                /* nobody has run */
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schedules),
		cmocka_unit_test(tied),
		cmocka_unit_test(replicas_and_copies),
		cmocka_unit_test(little_memory),
		cmocka_unit_test(to_the_byte),
		cmocka_unit_test(bytes_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Pipelines whose epochs run on into each other, with real numbers (row D09): parameters, and those from before the
 * last step, are after every commit what one process has that steps with a gradient one step late, W(t+1) = W(t) -
 * lr g(W(t-1)), for every holder; the same bits without replicas, to 1e-12 in double with them. */
#include "pipe_agree.h"
#include "pipe_whole.h"

#define LATE 6                          /* epochs */

/* Epoch after epoch, each one program, with the round of the one before in it. */
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

static void equal_to(const struct world *w, const struct whole *o, bool exact)
{
	for (uint32_t k = 0; k < w->n; k++)
		for (uint32_t t = 0; t < STAGES; t++) {
			const struct held *h = &w->peer[k].held[t];
			const struct peer as = { .rank = k, .lo = h->lo, .n = h->n };

			if (!h->w || !h->n)
				continue;
			compare(&as, h->w, o->w, exact);
			compare(&as, h->before, o->before, exact);
		}
}

static void train(uint32_t members, uint64_t micro, uint32_t copies, bool exact, const char *optimizer,
	const char *values)
{
	struct world w;
	struct whole o;

	world_open(&w, members, micro, optimizer);
	w.kit.v.redundancy = copies;
	pipe_values(&w.kit, "%s", values);
	whole_open(&w, &o);
	w.kit.v.fresh = true;
	for (uint32_t r = 0; r < members; r++)
		peer_with(&w, r, next_epoch);
	for (; w.epoch < LATE; w.epoch++) {
		w.begin = w.epoch ? (w.epoch - 1) * micro : 0;   /* what the round is about */
		for (uint32_t r = 0; r < members; r++)
			exec_wake(w.peer[r].x);
		sim_run_for(w.sim, 1000000);
		if (!w.epoch)
			continue;
		agree(&w, PLAN_NONE);
		sim_run_for(w.sim, 1000000);
		whole_step(&w, &o, true);
		equal_to(&w, &o, exact);
	}
	for (uint32_t r = 0; r < members; r++)
		exec_interrupt(w.peer[r].x);
	whole_close(&o);
	world_close(&w);
}

static const char sgd[] = "{\"name\":\"sgd\",\"lr\":0.1}";
static const char momentum[] = "{\"name\":\"sgd\",\"lr\":0.1,\"momentum\":0.9}";
static const char adam[] = "{\"name\":\"adam\",\"lr\":0.01}";

static void one_step_late(void **state)
{
	char values[100];

	for (uint32_t p = 1; p <= 5; p++)
		for (uint32_t m = p; m <= p + 4; m += 2) {
			(void)snprintf(values, sizeof(values), "{'stages':%u,'schedule':'2bw'}", p);
			train(p, m, 1, true, m % 3 ? sgd : adam, values);
		}
}

static void copies(void **state)
{
	train(2, 5, 2, true, momentum, "{'stages':2,'schedule':'2bw'}");
	train(2, 5, 2, true, momentum, "{'stages':2,'schedule':'2bw','remat':'boundary'}");
	train(4, 9, 2, true, adam, "{'stages':4,'schedule':'2bw','remat':'boundary'}");
	train(4, 6, 2, true, adam, "{'stages':4,'schedule':'2bw'}");
	train(3, 5, 3, true, adam, "{'stages':3,'schedule':'2bw'}");
	train(3, 5, 2, true, adam, "{'stages':[{'layers':'in'},{'layers':'t'},{'layers':'mid-9'}],'schedule':'2bw'}");
}

static void replicas(void **state)
{
	train(3, 7, 1, false, sgd, "{'stages':[{'replicas':2},{}],'schedule':'2bw'}");
	train(3, 8, 1, false, momentum, "{'stages':[{},{'replicas':2}],'schedule':'2bw'}");
	train(6, 9, 1, false, sgd, "{'stages':[{'replicas':3},{'replicas':2},{}],'schedule':'2bw'}");
	train(5, 8, 2, false, momentum, "{'stages':[{},{'replicas':3},{}],'schedule':'2bw'}");
}

/* --- late or not */

static double loss_of(struct world *w, const real *param, uint64_t epochs)
{
	real *mean = xcalloc(w->model->nparam, sizeof(real));
	double loss = 0;

	for (w->begin = 0; w->begin < epochs * w->micro; w->begin += w->micro)
		alone(w, param, mean, &loss);
	free(mean);
	return loss;
}

static double after_300(const char *optimizer, bool late)
{
	struct world w;
	struct whole o;
	double loss;

	world_open(&w, 1, 8, optimizer);
	whole_open(&w, &o);
	for (uint64_t e = 0; e < 300; e++) {
		if (!late)
			memcpy(o.before, o.w, w.model->nparam * sizeof(real));
		w.begin = e * w.micro;
		whole_step(&w, &o, true);
	}
	loss = loss_of(&w, o.w, 15);
	whole_close(&o);
	w.n = 0;                        /* nobody but this process was there */
	world_close(&w);
	return loss;
}

/* After 300 steps of one process that is late, as all above are to the bit, and of one that is not. */
static void loss_as_synchronous(void **state)
{
	static const char *const optimizer[] = { "{\"name\":\"sgd\",\"lr\":0.02}", "{\"name\":\"sgd\",\"lr\":0.05}" };

	for (int k = 0; k < 2; k++) {
		double plain = after_300(optimizer[k], false), late = after_300(optimizer[k], true);

		print_message("%s: loss %g, one step late %g\n", optimizer[k], plain, late);
		assert_true(late < 1.02 * plain);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_step_late),
		cmocka_unit_test(copies),
		cmocka_unit_test(replicas),
		cmocka_unit_test(loss_as_synchronous),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

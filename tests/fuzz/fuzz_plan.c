/* A plan from another peer: taken whole or refused with a text; what was taken reads back the same, prints, and runs
 * under the readiness rules and the predictor without a crash, whatever it says. */
#include <stdlib.h>
#include <string.h>
#include "plan/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const struct plan *p)
{
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *r, *first = NULL;
	struct buf why = {0};
	/* one is left running, so that others end out of order */
	for (int n = 0; n < 500 && (r = tokens_start(t)); n++) {
		if (!first)
			first = r;
		else
			tokens_end(t, r, NULL);
	}
	if (first)
		tokens_end(t, first, NULL);
	tokens_stop(t);
	for (int n = 0; n < 500 && (r = tokens_start(t)); n++)
		tokens_end(t, r, NULL);
	tokens_why(t, &why);
	buf_free(&why);
	tokens_free(t);
}

static void predicted(const struct plan *p)
{
	struct predict_conf conf = { .iterations = 2, .events_max = 2000, .spans = true };
	struct prediction out;
	struct err e = {0};
	struct buf b = {0};
	if (p->iterations == 0)
		conf.iterations = 0;
	if (predict(&p, 1, &conf, &out, &e) < 0) {
		if (!e.text[0])
			abort();
		return;
	}
	plan_gantt(&out, &p, 40, &b);
	buf_free(&b);
	prediction_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plan p, q;
	struct err e = {0};
	struct buf b = {0};
	json_t *j = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
	if (!j)
		return 0;
	if (plan_from_json(&p, j, &e) == 0) {
		json_t *k = plan_to_json(&p);
		if (plan_from_json(&q, k, &e) < 0 || !plan_equal(&p, &q))
			abort();
		plan_print(&p, &b);
		run(&p);
		predicted(&p);
		plan_free(&q);
		json_decref(k);
	} else if (!e.text[0] || p.instr) {
		abort();
	}
	plan_free(&p);
	buf_free(&b);
	json_decref(j);
	return 0;
}

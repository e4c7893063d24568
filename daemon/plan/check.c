/* The checker's order: what an instruction says by itself, who answers whom, who holds what, when state counts as
 * changed; then the plans are run with unit costs, first without budgets (waits for ever), then with them (memory). */
#include "plan/check_int.h"
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"

const char *plan_rule_name(enum plan_rule r)
{
	static const char *const name[] = {
#define X(n, text) #n,
		PLAN_RULES(X)
#undef X
	};
	return (unsigned)r < PLAN_RULES_COUNT ? name[r] : "?";
}

static int check_shape(const struct plan *p, struct err *e)
{
	for (uint32_t k = 0; k < p->ninstrs; k++) {
		const char *wrong = plan_instr_wrong(p, &p->instr[k]);
		if (!wrong)
			continue;
		struct buf b = {0};
		plan_print_instr(p, &p->instr[k], &b);
		err_set(e, ERR_INVALID, "peer %u, instruction %u (%.150s): %s", p->me, k, (const char *)b.p, wrong);
		buf_free(&b);
		return -1;
	}
	return 0;
}

/* Enough iterations for every ring and every `when` to come round twice. */
static uint64_t iterations_of(const struct plan *const *v, uint32_t n)
{
	uint64_t most = 8;
	for (uint32_t k = 0; k < n; k++) {
		const struct plan *p = v[k];
		uint64_t step = p->step > 0 ? p->step : 1;
		if (p->iterations != v[0]->iterations || (p->step > 0 ? p->step : 1) != (v[0]->step > 0 ? v[0]->step : 1))
			return 0;
		for (uint32_t b = 0; b < p->nbufs; b++) {
			uint64_t turn = 2 * (uint64_t)plan_depth(&p->buf[b]) * (p->buf[b].per > 0 ? p->buf[b].per : 1) / step + 2;
			most = turn > most ? turn : most;
		}
		for (uint32_t i = 0; i < p->ninstrs; i++) {
			uint64_t turn = 2 * (uint64_t)p->instr[i].every / step + 2;
			most = turn > most ? turn : most;
		}
	}
	most = most > 4096 ? 4096 : most;
	return v[0]->iterations < most ? v[0]->iterations : most;
}

static int over_budget(const struct plan *const *v, uint32_t n, const struct prediction *o, struct err *e)
{
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t t = 0; t < v[k]->ntiers; t++)
			if (v[k]->tier[t].budget > 0 && o->peer[k].peak[t] > v[k]->tier[t].budget)
				return err_set(e, ERR_LIMIT, "peer %u needs %llu bytes of tier %s, its budget is %llu", v[k]->me,
					(unsigned long long)o->peer[k].peak[t], v[k]->tier[t].name,
					(unsigned long long)v[k]->tier[t].budget);
	return 0;
}

/* One run; bounded: with the budgets. */
static int rehearse(const struct plan *const *v, uint32_t n, const struct check_conf *conf, uint64_t iterations,
	bool bounded, enum plan_rule *rule, struct err *e)
{
	struct plan *copy = xcalloc(n, sizeof *copy);
	const struct plan **list = xcalloc(n, sizeof *list);
	struct predict_conf pc = conf->predict;
	struct prediction o;
	pc.iterations = iterations;
	pc.spans = false;
	pc.horizon_us = 0;
	pc.dies_at_us = NULL;
	for (uint32_t k = 0; k < n; k++) {
		copy[k] = *v[k];
		list[k] = &copy[k];
		copy[k].tier = xmemdup(v[k]->tier, v[k]->ntiers * sizeof *v[k]->tier);
		for (uint32_t t = 0; t < v[k]->ntiers && !bounded; t++)
			copy[k].tier[t].budget = 0;
	}
	int rc = predict(list, n, &pc, &o, e);
	*rule = RULE_CYCLE;
	if (rc == 0 && o.stuck) {
		*rule = o.lost ? RULE_VALUE : o.memory ? RULE_PEAK : RULE_CYCLE;
		rc = err_set(e, *rule == RULE_PEAK ? ERR_LIMIT : ERR_STATE, "%.300s", (const char *)o.why.p);
	} else if (rc == 0 && bounded && over_budget(v, n, &o, e) < 0) {
		*rule = RULE_PEAK;
		rc = -1;
	}
	prediction_free(&o);
	for (uint32_t k = 0; k < n; k++)
		free(copy[k].tier);
	free(copy);
	free(list);
	return rc;
}

/* One plan alone cannot be run when it waits for somebody by name: its partners' plans are not here. */
static bool complete(const struct plan *const *v, uint32_t n)
{
	for (uint32_t i = 0; n == 1 && i < v[0]->ninstrs; i++) {
		const struct plan_instr *x = &v[0]->instr[i];
		if (x->with != PLAN_ALONE && !(x->with == PLAN_IN_GROUP && v[0]->group[x->group].elastic))
			return false;
	}
	return true;
}

#define STEP(r, call) \
	do { \
		if ((call) < 0) { \
			*ret_rule = r; \
			return -1; \
		} \
	} while (0)

static int check(const struct plan *const *v, uint32_t n, const struct check_conf *conf, enum plan_rule *ret_rule,
	struct err *e)
{
	for (uint32_t k = 0; k < n; k++)
		STEP(RULE_SHAPE, check_shape(v[k], e));
	uint64_t iterations = iterations_of(v, n);
	STEP(RULE_UNMATCHED, check_match(v, n, iterations, e));
	STEP(RULE_HOLDERS, check_holders(v, n, e));
	STEP(RULE_STRICT, check_strict(v, n, conf, e));
	for (uint32_t k = 0; k < n && !PLANTED(PASSES_UNCHECKED); k++)
		STEP(RULE_PASSES, check_passes(v[k], e));
	for (uint32_t k = 0; k < n; k++)
		STEP(RULE_COMMIT, check_commit(v[k], e));
	*ret_rule = RULE_NONE;
	if (!complete(v, n))
		return 0;
	if (rehearse(v, n, conf, iterations, false, ret_rule, e) < 0)
		return -1;
	if (rehearse(v, n, conf, iterations, true, ret_rule, e) < 0)
		return -1;
	*ret_rule = RULE_NONE;
	return 0;
}

int plan_check(const struct plan *const *v, uint32_t n, const struct check_conf *conf, enum plan_rule *ret_rule,
	struct err *e)
{
	struct check_conf usual = {0};
	enum plan_rule rule = RULE_NONE;
	int rc = check(v, n, conf ? conf : &usual, &rule, e);
	if (ret_rule)
		*ret_rule = rule;
	return rc < 0 ? err_wrap(e, "plan refused, %s", plan_rule_name(rule)) : 0;
}

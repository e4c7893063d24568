/* The checker: refuses plans that would hang, overflow or lose the model, before they run. */
#ifndef PLAN_CHECK_H
#define PLAN_CHECK_H
#include "plan/predict.h"

/* X(NAME, what a plan with this fault does) */
#define PLAN_RULES(X) \
	X(NONE, "nothing is wrong") \
	X(SHAPE, "an instruction is wrong in itself") \
	X(UNMATCHED, "a SEND without RECV, a RECV without SEND, a collective that a member of its group does not call") \
	X(VALUE, "reads a value that nothing before it makes, or that is gone") \
	X(CYCLE, "instructions that wait for each other for ever") \
	X(PASSES, "forward and backward do not fit: another piece's value, an op twice, a gradient for nobody") \
	X(PEAK, "needs more of a tier than its budget") \
	X(STRICT, "a strict group too large for the copies that exist of its members' state") \
	X(HOLDERS, "a state buffer with fewer holders than the run's redundancy") \
	X(COMMIT, "state changed before something that can fail, without a journal; or never committed")
enum plan_rule {
#define X(name, text) RULE_##name,
	PLAN_RULES(X)
#undef X
	PLAN_RULES_COUNT
};
const char *plan_rule_name(enum plan_rule r);

struct check_conf {
	double death_chance;            /* that one peer dies during one program; 0: 0.01 */
	double loss_max;                /* chance of losing a strict group's state for good that is accepted; 0: 0.1 */
	struct predict_conf predict;    /* profile, hooks, route ... as the plans will meet them */
};

/* n plans of one generation (one alone is fine: elastic groups have no others). 0: nothing is wrong; else -1, *ret_rule
 * (may be NULL) is the rule and e says which peer, which instruction, and what would be right. Looks at as many
 * iterations as rings and `when`s need to repeat. Takes 10 ms per thousand instructions. */
int plan_check(const struct plan *const *v, uint32_t n, const struct check_conf *conf, enum plan_rule *ret_rule,
	struct err *e);
/* A strict group of n whose members' state has `copies` holders: n * death_chance^copies <= loss_max. */
bool plan_strict_allowed(uint32_t n, uint32_t copies, const struct check_conf *conf);

#endif

/* Who holds what, how many may depend on each other, and when state counts as changed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "plan/check_int.h"

static const struct plan_buf *state_of(const struct plan *p, const char *name)
{
	uint32_t b = plan_find(p, name);
	return b != PLAN_NONE && plan_is_state(&p->buf[b]) ? &p->buf[b] : NULL;
}

static bool declared(const struct plan_buf *b, uint32_t rank)
{
	for (uint32_t k = 0; k < b->nholders; k++)
		if (b->holder[k] == rank)
			return true;
	return false;
}

/* Those that b names, and every plan that has the state of that name: equal names are the same value. */
static uint32_t holders(const struct plan *const *v, uint32_t n, const struct plan *p, const struct plan_buf *b)
{
	uint32_t count = b->nholders + (declared(b, p->me) ? 0 : 1);
	for (uint32_t k = 0; k < n; k++)
		if (v[k]->me != p->me && !declared(b, v[k]->me) && state_of(v[k], b->name))
			count++;
	return count;
}

int check_holders(const struct plan *const *v, uint32_t n, struct err *e)
{
	for (uint32_t k = 0; k < n; k++) {
		const struct plan *p = v[k];
		for (uint32_t i = 0; i < p->nbufs; i++) {
			const struct plan_buf *b = &p->buf[i];
			if (!plan_is_state(b))
				continue;
			for (uint32_t q = 0; q < n; q++)
				if (declared(b, v[q]->me) && !state_of(v[q], b->name))
					return err_set(e, ERR_MISMATCH,
						"peer %u says that peer %u holds %s, whose plan has no such state", p->me,
						v[q]->me, b->name);
			uint32_t have = holders(v, n, p, b), need = p->redundancy > 0 ? p->redundancy : 1;
			if (have < need)
				return err_set(e, ERR_LIMIT, "peer %u: state %s has %u holder%s, the run's redundancy is %u", p->me,
					b->name,
					have, have == 1 ? "" : "s", need);
		}
	}
	return 0;
}

bool plan_strict_allowed(uint32_t n, uint32_t copies, const struct check_conf *conf)
{
	double q = conf && conf->death_chance > 0 ? conf->death_chance : 0.01;
	double max = conf && conf->loss_max > 0 ? conf->loss_max : 0.1;
	return n <= 1 || n * pow(q, copies) <= max * (1 + 1e-9);
}

int check_strict(const struct plan *const *v, uint32_t n, const struct check_conf *conf, struct err *e)
{
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t g = 0; g < v[k]->ngroups; g++) {
			const struct plan_group *x = &v[k]->group[g];
			uint32_t copies = UINT32_MAX;
			for (uint32_t i = 0; x->strict && i < v[k]->nbufs; i++)
				if (plan_is_state(&v[k]->buf[i])) {
					uint32_t have = holders(v, n, v[k], &v[k]->buf[i]);
					copies = have < copies ? have : copies;
				}
			if (copies != UINT32_MAX && !plan_strict_allowed(x->n, copies, conf))
				return err_set(e, ERR_LIMIT,
					"peer %u: strict group %s has %u members, but some state of this peer has only %u "
					"holder%s: fewer members or more holders", v[k]->me, x->name, x->n, copies, copies == 1 ? "" : "s");
		}
	return 0;
}

static bool can_fail(const struct plan *p, const struct plan_instr *i)
{
	return plan_leaves(i->kind) && i->kind != PLAN_SEND && i->with != PLAN_ANY && i->on_missing == PLAN_FAIL &&
		!(i->with == PLAN_IN_GROUP && p->group[i->group].elastic);
}

/* A COMMIT that names no state commits all that was changed; and what is changed behind a COMMIT, locally, belongs to
 * it:
 * data parallelism agrees first and steps afterwards. */
static void commit(const struct plan *p, const struct plan_instr *i, bool *dirty)
{
	bool names = false;
	for (uint32_t k = 0; k < i->nin; k++) {
		names = names || plan_is_state(&p->buf[i->in[k].buf]);
		dirty[i->in[k].buf] = false;
	}
	for (uint32_t b = 0; b < p->nbufs; b++)
		dirty[b] = dirty[b] && names;
}

static int step(const struct plan *p, const struct plan_instr *i, bool *dirty, bool *behind, struct err *e)
{
	if (i->kind == PLAN_COMMIT) {
		commit(p, i, dirty);
		*behind = true;
		return 0;
	}
	if (plan_leaves(i->kind) && i->kind != PLAN_SEND)
		*behind = false;
	for (uint32_t b = 0; b < p->nbufs && can_fail(p, i); b++)
		if (dirty[b] && !p->buf[b].journal) {
			struct buf text = {0};
			plan_print_instr(p, i, &text);
			err_set(e, ERR_STATE,
				"peer %u: %s is changed and not committed when %.120s may fail: put COMMIT before it or journal "
				"the buffer", p->me, p->buf[b].name, (const char *)text.p);
			buf_free(&text);
			return -1;
		}
	for (uint32_t k = 0; k < i->nout; k++)
		dirty[i->out[k].buf] = dirty[i->out[k].buf] || (plan_is_state(&p->buf[i->out[k].buf]) && !*behind);
	return 0;
}

/* The list in order, the body twice so that its end meets its beginning. A RECV of weights from a server is state
 * too. */
int check_commit(const struct plan *p, struct err *e)
{
	bool *dirty = xcalloc(p->nbufs + 1, sizeof *dirty), behind = false;
	int rc = 0;
	for (int s = 0; s < PLAN_SECTIONS_COUNT && rc == 0; s++)
		for (int round = 0; round < (s == PLAN_BODY ? 2 : 1) && rc == 0; round++)
			for (uint32_t i = 0; i < p->ninstrs && rc == 0; i++)
				if (p->instr[i].section == (enum plan_section)s)
					rc = step(p, &p->instr[i], dirty, &behind, e);
	for (uint32_t b = 0; b < p->nbufs && rc == 0; b++)
		if (dirty[b])
			rc = err_set(e, ERR_STATE, "peer %u: %s is changed and never committed: a COMMIT at the end is missing",
				p->me,
				p->buf[b].name);
	free(dirty);
	return rc;
}

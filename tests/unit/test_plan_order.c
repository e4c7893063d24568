/* Nobody can tell the difference: random programs run with random lanes, windows and orders of completion give exactly
 * the values of the list run in order; a list that reads what is not there is stuck at that very instruction. */
#include "common/rng.h"
#include "plan_kit.h"

#define BUFS 6
#define DEPTH 4

/* --- the meaning: the list in order, rings as small maps from key to value */

struct ring { uint32_t n; int64_t key[DEPTH]; uint64_t value[DEPTH]; };
struct reference { struct ring ring[BUFS]; int64_t first[BUFS]; uint64_t ran, trace; };

static int look(const struct ring *r, int64_t key)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->key[i] == key)
			return (int)i;
	return -1;
}

static void forget(struct ring *r, int at)
{
	r->n--;
	r->key[at] = r->key[r->n];
	r->value[at] = r->value[r->n];
}

static int64_t key_of(const struct plan *p, const struct reference *f, const struct plan_ref *r, int64_t index,
	bool out)
{
	int64_t key = plan_key(p, &p->buf[r->buf], index) - r->k;
	return !out && p->buf[r->buf].initial && key < f->first[r->buf] ? f->first[r->buf] : key;
}

/* false: it reads something that is not there. */
static bool step(const struct plan *p, struct reference *f, const struct plan_instr *i, uint32_t number, int64_t index)
{
	uint64_t h = rng_mix(number, (uint64_t)index);
	for (uint32_t k = 0; k < i->nin; k++) {
		int at = look(&f->ring[i->in[k].buf], key_of(p, f, &i->in[k], index, false));
		if (at < 0)
			return false;
		h = rng_mix(h, f->ring[i->in[k].buf].value[at]);
	}
	for (uint32_t k = 0; k < i->nout; k++) {
		struct ring *r = &f->ring[i->out[k].buf];
		int64_t key = key_of(p, f, &i->out[k], index, true);
		int at = look(r, key), oldest = 0;
		uint64_t was = at >= 0 && i->out[k].add ? r->value[at] : 0;
		if (at < 0 && r->n == plan_depth(&p->buf[i->out[k].buf])) {
			for (uint32_t q = 1; q < r->n; q++)
				if (r->key[q] < r->key[oldest])
					oldest = (int)q;
			forget(r, oldest);
		}
		at = at >= 0 ? at : (int)r->n++;
		r->key[at] = key;
		r->value[at] = rng_mix(was, h + k);
	}
	for (uint32_t k = 0; k < i->nin; k++) {
		int at = look(&f->ring[i->in[k].buf], key_of(p, f, &i->in[k], index, false));
		if (i->in[k].drop && at >= 0)
			forget(&f->ring[i->in[k].buf], at);
	}
	f->trace += h;
	f->ran++;
	return true;
}

/* Returns the number of the instruction that cannot run, or PLAN_NONE. */
static uint32_t in_order(const struct plan *p, struct reference *f, int64_t *ret_index)
{
	*f = (struct reference){0};
	for (uint32_t b = 0; b < p->nbufs; b++) {
		f->first[b] = plan_key(p, &p->buf[b], (int64_t)p->first);
		if (p->buf[b].initial)
			f->ring[b] = (struct ring){ 1, { f->first[b] }, { 1000 + b } };
	}
	for (int s = 0; s < PLAN_SECTIONS_COUNT; s++)
		for (uint64_t it = 0; it < (s == PLAN_BODY ? p->iterations : 1); it++)
			for (uint32_t n = 0; n < p->ninstrs; n++) {
				const struct plan_instr *i = &p->instr[n];
				*ret_index = plan_index(p, i, it);
				if (i->section == (enum plan_section)s && plan_due(i, *ret_index) && !step(p, f, i, n, *ret_index))
					return n;
			}
	return PLAN_NONE;
}

/* --- the same by tokens, ended in random order; values are read at the start and must be the same at the end */

struct live { struct token_run *run; uint64_t in[8]; };
struct machine { uint64_t value[BUFS][DEPTH], trace, ran; struct live live[64]; uint32_t nlive; };

static void ended(struct machine *m, struct tokens *t, uint32_t at)
{
	struct token_run *r = m->live[at].run;
	const struct plan_instr *i = r->instr;
	uint64_t h = rng_mix(r->number, (uint64_t)r->index);
	for (uint32_t k = 0; k < i->nin; k++)
		h = rng_mix(h, m->live[at].in[k]);
	for (uint32_t k = 0; k < i->nin; k++) {
		/* nobody wrote over what it was reading, unless it is this one's own output */
		bool own = false;
		for (uint32_t q = 0; q < i->nout; q++)
			own = own || (r->out[q].buf == r->in[k].buf && r->out[q].slot == r->in[k].slot);
		assert_true(own || m->value[r->in[k].buf][r->in[k].slot] == m->live[at].in[k]);
	}
	for (uint32_t k = 0; k < i->nout; k++) {
		uint64_t *v = &m->value[r->out[k].buf][r->out[k].slot];
		*v = rng_mix(i->out[k].add && !r->out[k].blank ? *v : 0, h + k);
	}
	m->trace += h;
	m->ran++;
	m->live[at] = m->live[--m->nlive];
	tokens_end(t, r, NULL);
}

static struct tokens *shuffled(const struct plan *p, struct machine *m, struct rng *rng)
{
	struct tokens *t = tokens_new(p, NULL, NULL);
	*m = (struct machine){0};
	for (uint32_t b = 0; b < p->nbufs; b++)
		m->value[b][0] = 1000 + b;
	for (;;) {
		for (struct token_run *r; m->nlive < 64 && (r = tokens_start(t));) {
			struct live *l = &m->live[m->nlive++];
			l->run = r;
			for (uint32_t k = 0; k < r->instr->nin; k++)
				l->in[k] = m->value[r->in[k].buf][r->in[k].slot];
			/* what will be written is unknown from now on */
			for (uint32_t k = 0; k < r->instr->nout; k++)
				if (r->out[k].blank)
					m->value[r->out[k].buf][r->out[k].slot] = rng_u64(rng);
			if (rng_below(rng, 3) == 0)
				break;
		}
		if (m->nlive == 0)
			return t;
		ended(m, t, (uint32_t)rng_below(rng, m->nlive));
	}
}

static void random_plan(struct plan *p, struct rng *rng)
{
	struct id id[1] = {{{1}}};
	static const uint32_t per[] = { 1, 1, 2, 1000, 1000, 1000 };
	uint32_t lanes[3];
	plan_init(p, "random", 0, 1, id);
	for (int i = 0; i < 3; i++) {
		char name[8] = { 'l', (char)('0' + i) };
		lanes[i] = plan_lane(p, name, (uint32_t)rng_below(rng, 3), 1 + (uint32_t)rng_below(rng, 6));
	}
	for (int b = 0; b < BUFS; b++)
		plan_buf(p, &(struct plan_buf){ .bytes = 1, .initial = b < 5, .depth = 1 + (uint32_t)rng_below(rng, DEPTH),
			.per = per[rng_below(rng, 6)] }, "b%d", b);
	p->first = rng_below(rng, 4);
	p->iterations = rng_below(rng, 7);
	p->step = 1 + (uint32_t)rng_below(rng, 2);
	for (int s = 0; s < PLAN_SECTIONS_COUNT; s++) {
		plan_section(p, (enum plan_section)s);
		for (uint64_t n = rng_below(rng, 6); n > 0; n--) {
			char text[200] = "";
			uint32_t out = (uint32_t)rng_below(rng, BUFS), nin = (uint32_t)rng_below(rng, 3);
			for (uint32_t k = 0; k < nin; k++) {
				static const char *const age[] = { "", "", "", "=1", "", "'", "=2", "" };
				snprintf(text + strlen(text), sizeof text - strlen(text), "b%llu%s%s ", (unsigned long long)(k * 3 +
					rng_below(rng, 3)), age[rng_below(rng, 8)], rng_below(rng, 12) == 0 ? "!" : "");
			}
			if (rng_below(rng, 8) > 0)
				snprintf(text + strlen(text), sizeof text - strlen(text), "-> b%u%s%s", out,
					rng_below(rng, 3) == 0 ? "'" : "", rng_below(rng, 4) == 0 ? "+" : "");
			struct plan_instr *i = plan_vec(p, (int64_t)rng_below(rng, 8) / 6, "mix", "%s", text);
			i->lane = lanes[rng_below(rng, 3)];
			i->priority = (int32_t)rng_below(rng, 3);
			if (rng_below(rng, 5) == 0)
				plan_when(i, 2, (uint32_t)rng_below(rng, 2));
		}
	}
}

static void order_cannot_be_told(void **state)
{
	struct rng rng;
	int whole = 0, broken = 0;
	rng_seed(&rng, 7);
	for (int n = 0; n < 20000; n++) {
		struct plan p;
		struct reference f;
		struct machine m;
		int64_t index;
		random_plan(&p, &rng);
		uint32_t stops = in_order(&p, &f, &index);
		struct tokens *t = shuffled(&p, &m, &rng);
		assert_int_equal(tokens_finished(t), stops == PLAN_NONE);
		if (stops == PLAN_NONE && f.ran > 0) {
			whole++;
			assert_int_equal(m.ran, f.ran);
			assert_int_equal(m.trace, f.trace);
			for (uint32_t b = 0; b < BUFS; b++)
				for (uint32_t k = 0; k < f.ring[b].n; k++) {
					uint32_t slot = tokens_find(t, 0, b, f.ring[b].key[k]);
					assert_int_not_equal(slot, PLAN_NONE);
					assert_int_equal(m.value[b][slot], f.ring[b].value[k]);
				}
		} else if (stops != PLAN_NONE) {
			const struct token_run *r;
			uint32_t which;
			broken++;
			assert_int_equal(tokens_blocked(t, 0, &r, &which), WAIT_LOST);
			assert_int_equal(r->number, stops);
			assert_int_equal(r->index, index);
		}
		tokens_free(t);
		plan_free(&p);
	}
	if (getenv("KIT_SHOW"))
		print_message("%d whole, %d stuck\n", whole, broken);
	assert_true(whole > 2000);
	assert_true(broken > 3000);
}

/* One lane, one at a time: the list's own order. */
static uint64_t serial_peak(const struct plan *p)
{
	struct plan q = *p;
	struct plan_lane one[16];
	q.instr = xmemdup(p->instr, p->ninstrs * sizeof *p->instr);
	memcpy(one, p->lane, p->nlanes * sizeof *one);
	q.lane = one;
	one[0].width = one[0].window = 1;
	for (uint32_t i = 0; i < q.ninstrs; i++)
		q.instr[i].lane = 0;
	struct tokens *t = tokens_new(&q, NULL, NULL);
	for (struct token_run *r; (r = tokens_start(t));)
		tokens_end(t, r, NULL);
	assert_true(tokens_finished(t));
	uint64_t peak = tokens_peak(t, 0);
	tokens_free(t);
	free(q.instr);
	return peak;
}

/* The budget that the list needs when it is run in order is enough in every order: running ahead never takes the memory
 * that the list is waiting for. */
static void budgets_hold_without_deadlock(void **state)
{
	struct rng rng;
	int whole = 0, tight = 0;
	rng_seed(&rng, 11);
	for (int n = 0; n < 20000; n++) {
		struct plan p;
		struct reference f;
		struct machine m;
		int64_t index;
		random_plan(&p, &rng);
		for (uint32_t b = 0; b < p.nbufs; b++)
			p.buf[b].bytes = 1 + rng_below(&rng, 20);
		for (uint32_t i = 0; i < p.ninstrs; i++)
			p.instr[i].work_bytes = rng_below(&rng, 3) == 0 ? rng_below(&rng, 20) : 0;
		if (in_order(&p, &f, &index) != PLAN_NONE || f.ran == 0) {
			plan_free(&p);
			continue;
		}
		uint64_t peak = serial_peak(&p);
		p.tier[0].budget = peak;
		struct tokens *t = shuffled(&p, &m, &rng);
		assert_true(tokens_finished(t));
		assert_true(tokens_peak(t, 0) <= peak);
		assert_int_equal(m.trace, f.trace);
		tokens_free(t);
		p.tier[0].budget = peak - 1;
		/* one byte less: another order may still find a way (drops that come early), most do not */
		t = shuffled(&p, &m, &rng);
		tight += !tokens_finished(t);
		tokens_free(t);
		plan_free(&p);
		whole++;
	}
	assert_true(whole > 2000 && tight > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_cannot_be_told),
		cmocka_unit_test(budgets_hold_without_deadlock),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The readiness rules: random programs run with random lanes, windows and orders of completion give exactly the values of
 * the list run in order; a list that reads what is not there is stuck at that very instruction. Then each rule alone. */
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

static int64_t key_of(const struct plan *p, const struct reference *f, const struct plan_ref *r, int64_t index, bool out)
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

/* --- each rule alone */

static struct plan *small(struct kit *k)
{
	kit_open(k, 1);
	plan_init(&k->plan[0], "small", 0, 1, k->member);
	return &k->plan[0];
}

static void text(struct plan *p, const char *name, bool initial, uint32_t depth)
{
	plan_buf(p, &(struct plan_buf){ .bytes = 10, .initial = initial, .depth = depth }, "%s", name);
}

static struct token_run *starts(struct tokens *t, uint32_t number, int64_t index)
{
	struct token_run *r = tokens_start(t);
	assert_non_null(r);
	assert_int_equal(r->number, number);
	assert_int_equal(r->index, index);
	return r;
}

static void newest_waits_only_when_too_old(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t other = plan_lane(p, "other", 1, 1);
	text(p, "w", true, 2);
	text(p, "y", false, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 4;
	plan_vec(p, 0, "use", "w<=1 -> y");
	plan_vec(p, 0, "make", "-> w'")->lane = other;
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *use = starts(t, 0, 0), *make = starts(t, 1, 0);
	assert_int_equal(use->in[0].key, 0);
	tokens_end(t, use, NULL);
	use = starts(t, 0, 1);          /* key 0 is one behind index 1: young enough */
	assert_int_equal(use->in[0].key, 0);
	tokens_end(t, use, NULL);
	assert_null(tokens_start(t));   /* index 2 needs at least key 1 */
	tokens_end(t, make, NULL);
	make = starts(t, 1, 1);
	use = starts(t, 0, 2);
	assert_int_equal(use->in[0].key, 1);
	assert_int_equal(make->out[0].key, 2);
	tokens_free(t);
	kit_plans_free(&k);
}

static void lanes_windows_priorities(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t wide = plan_lane(p, "wide", 2, 3);
	text(p, "never", true, 1);
	text(p, "a", false, 1);
	text(p, "b", false, 1);
	text(p, "c", false, 1);
	plan_vec(p, 0, "slow", "-> a");
	for (int i = 0; i < 4; i++)
		plan_vec(p, 0, "x", i == 0 ? "a -> b" : "never")->lane = wide;
	p->instr[3].priority = 5;
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *slow = tokens_start(t), *first = tokens_start(t), *second = tokens_start(t);
	/* of the window 1 2 3: 1 waits for a, 3 has priority, then 2; 4 was outside, and now the lane is full */
	if (slow->number != 0) {
		struct token_run *x = slow;
		slow = second->number == 0 ? second : first;
		second = slow == second ? first : second;
		first = x;
	}
	assert_int_equal(slow->number, 0);
	assert_int_equal(first->number, 3);
	assert_int_equal(second->number, 2);
	assert_null(tokens_start(t));
	tokens_end(t, first, NULL);
	assert_int_equal(tokens_start(t)->number, 4);
	tokens_free(t);
	kit_plans_free(&k);
}

static void pins_hold_versions(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 10, .initial = true, .depth = 2 }, "w");
	text(p, "kept", false, 3);
	uint32_t other = plan_lane(p, "other", 1, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 3;
	plan_do(p, PLAN_FWD, 0, "w<=* -> save:kept");
	plan_vec(p, 0, "opt", "w -> w'")->lane = other;
	plan_section(p, PLAN_EPILOGUE);
	for (int j = -3; j < 0; j++)
		plan_do(p, PLAN_BWD, j, "save:kept! w~0");
	struct tokens *t = tokens_new(p, NULL, NULL);
	tokens_end(t, starts(t, 0, 0), NULL);
	struct token_run *f = tokens_start(t), *o = tokens_start(t);
	struct token_run *opt = f->number == 1 ? f : o, *fwd = f->number == 1 ? o : f;
	tokens_end(t, opt, NULL);       /* w key 1 */
	tokens_end(t, fwd, NULL);       /* made with key 0 too */
	fwd = starts(t, 0, 2);
	assert_int_equal(fwd->in[0].key, 1);
	tokens_end(t, fwd, NULL);
	/* key 2 would overwrite key 0, which the first two still need */
	struct token_run *b = starts(t, 2, 0);
	assert_int_equal(b->in[1].key, 0);
	assert_int_equal(b->version, 0);
	assert_null(tokens_start(t));
	tokens_end(t, b, NULL);
	b = starts(t, 3, 1);
	assert_int_equal(b->in[1].key, 0);
	tokens_end(t, b, NULL);
	opt = starts(t, 1, 1);
	assert_int_equal(opt->out[0].key, 2);
	tokens_end(t, opt, NULL);
	tokens_free(t);
	kit_plans_free(&k);
}

static void values_live_across_programs(void **state)
{
	struct kit k, l;
	struct plan *p = small(&k), *q = small(&l);
	for (int i = 0; i < 2; i++) {
		struct plan *x = i == 0 ? p : q;
		text(x, "w", true, 2);
		text(x, "flight", false, 2);
		plan_section(x, PLAN_BODY);
		x->iterations = i == 0 ? 3 : 1;
		x->first = i == 0 ? 10 : 13;
		plan_vec(x, 0, "opt", "w -> w'");
		if (i == 0)
			plan_vec(x, 0, "make", "-> flight");
		else
			plan_vec(x, 0, "use", "flight=1!");
	}
	struct tokens *t = tokens_new(p, NULL, NULL), *u;
	for (struct token_run *r; (r = tokens_start(t));)
		tokens_end(t, r, NULL);
	assert_true(tokens_finished(t));
	assert_int_equal(tokens_next_index(t), 13);
	uint32_t slot = tokens_find(t, 0, 0, 13);
	u = tokens_new(q, NULL, t);
	tokens_free(t);
	assert_int_equal(tokens_find(u, 0, 0, 13), slot);
	assert_int_equal(tokens_used(u, 0), 40);
	struct token_run *r = starts(u, 0, 13);
	assert_int_equal(r->in[0].slot, slot);
	tokens_end(u, r, NULL);
	tokens_end(u, starts(u, 1, 13), NULL);          /* what index 12 made */
	assert_true(tokens_finished(u));
	tokens_free(u);
	kit_plans_free(&k);
	kit_plans_free(&l);
}

static void stop_ends_at_an_iteration(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	text(p, "a", false, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 1000000;
	plan_vec(p, 0, "x", "-> a");
	plan_vec(p, 0, "y", "a!");
	plan_section(p, PLAN_EPILOGUE);
	plan_vec(p, 0, "end", "->");
	struct tokens *t = tokens_new(p, NULL, NULL);
	uint64_t ran[3] = {0};
	for (struct token_run *r; (r = tokens_start(t));) {
		ran[r->number]++;
		if (ran[0] == 50)
			tokens_stop(t);
		tokens_end(t, r, NULL);
	}
	assert_true(tokens_finished(t));
	assert_true(ran[0] >= 50 && ran[0] <= 55);
	assert_int_equal(ran[0], ran[1]);
	assert_int_equal(ran[2], 1);
	assert_int_equal(tokens_next_index(t), (int64_t)ran[0] + 1);
	tokens_free(t);
	kit_plans_free(&k);
}

static void streams_share_weights(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	p->streams = 3;
	plan_lane(p, "train", 0, 1);
	plan_buf(p, &(struct plan_buf){ .class = PLAN_WEIGHT, .bytes = 10, .initial = true, .shared = true, .depth = 2 }, "w");
	text(p, "g", false, 1);
	plan_section(p, PLAN_BODY);
	p->iterations = 2;
	plan_do(p, PLAN_FWD, 0, "w<=* -> g");
	plan_vec(p, 0, "opt", "g! w<=* -> w'");
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *f[3];
	for (int s = 0; s < 3; s++) {
		f[s] = tokens_start(t);
		assert_int_equal(f[s]->stream, s);
		assert_int_equal(f[s]->in[0].key, 0);
	}
	assert_null(tokens_start(t));
	for (int s = 0; s < 3; s++)
		tokens_end(t, f[s], NULL);
	/* one writer of a shared buffer at a time, and every write counts */
	struct token_run *o = tokens_start(t);
	assert_int_equal(o->out[0].key, 1);
	assert_null(tokens_start(t));
	tokens_end(t, o, NULL);
	for (struct token_run *r; (r = tokens_start(t));)
		tokens_end(t, r, NULL);
	assert_true(tokens_finished(t));
	assert_int_equal(tokens_slot(t, 0, 0, tokens_newest(t, 0, 0))->key, 6);
	tokens_free(t);
	kit_plans_free(&k);
}

static void budget_and_text(void **state)
{
	struct kit k;
	struct buf b = {0};
	struct plan *p = small(&k);
	text(p, "a", true, 1);
	text(p, "b", false, 1);
	p->tier[0].budget = 25;
	plan_vec(p, 0, "x", "a -> b")->work_bytes = 6;
	struct tokens *t = tokens_new(p, NULL, NULL);
	assert_null(tokens_start(t));
	tokens_why(t, &b);
	assert_non_null(strstr((const char *)b.p, "waits for memory in tier arena"));
	tokens_free(t);
	p->tier[0].budget = 26;
	t = tokens_new(p, NULL, NULL);
	struct token_run *r = tokens_start(t);
	assert_int_equal(tokens_used(t, 0), 26);
	tokens_end(t, r, NULL);
	assert_int_equal(tokens_used(t, 0), 20);
	assert_int_equal(tokens_peak(t, 0), 26);
	tokens_free(t);
	buf_free(&b);
	kit_plans_free(&k);
}

static void commit_waits_for_everything(void **state)
{
	struct kit k;
	struct plan *p = small(&k);
	uint32_t other = plan_lane(p, "other", 1, 1);
	text(p, "a", false, 1);
	plan_vec(p, 0, "x", "-> a");
	plan_do(p, PLAN_COMMIT, 0, "->");
	plan_vec(p, 0, "later", "->")->lane = other;
	struct tokens *t = tokens_new(p, NULL, NULL);
	struct token_run *x = starts(t, 0, 0);
	struct token_run *later = starts(t, 2, 0);      /* nobody waits for a COMMIT that changes nothing it reads */
	assert_null(tokens_start(t));
	tokens_end(t, later, NULL);
	tokens_end(t, x, NULL);
	tokens_end(t, starts(t, 1, 0), NULL);
	assert_true(tokens_finished(t));
	tokens_free(t);
	kit_plans_free(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_cannot_be_told),
		cmocka_unit_test(newest_waits_only_when_too_old),
		cmocka_unit_test(lanes_windows_priorities),
		cmocka_unit_test(pins_hold_versions),
		cmocka_unit_test(values_live_across_programs),
		cmocka_unit_test(stop_ends_at_an_iteration),
		cmocka_unit_test(streams_share_weights),
		cmocka_unit_test(budget_and_text),
		cmocka_unit_test(commit_waits_for_everything),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

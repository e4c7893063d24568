/* Paper plan 3: Chimera. Two pipelines in opposite directions on the same peers, two model replicas (slots) on each,
 * the copies of a stage summed strictly between slots. The order is the unit-time list schedule with at most D - s in
 * flight. */
#include "plan_kit.h"

#define ACT 1000
#define PARAM 4000
#define MAXD 8

struct op { bool back; uint32_t mb, s, pipe; };
struct order { struct op op[MAXD][4 * MAXD]; uint32_t n[MAXD]; };

static uint32_t peer_of(uint32_t d, uint32_t s, uint32_t pipe)
{
	return pipe == 0 ? s : d - 1 - s;
}

/* done[back][mb][s][pipe]: finished before this time unit. A worker prefers backwards, then early micro-batches. */
static void schedule(uint32_t d, struct order *o)
{
	static bool done[2][MAXD][MAXD][2];
	uint32_t flight[MAXD][2] = {{0}}, left = 2 * d * d;
	memset(done, 0, sizeof done);
	*o = (struct order){0};
	while (left > 0) {
		struct op pick[MAXD];
		bool has[MAXD] = {false};
		for (uint32_t w = 0; w < d; w++)
			for (uint32_t pipe = 0; pipe < 2; pipe++)
				for (uint32_t i = 0; i < d / 2; i++)
					for (int back = 1; back >= 0; back--) {
						uint32_t s = peer_of(d, w, pipe), mb = i + pipe * (d / 2);
						bool ready = back ? !done[1][mb][s][pipe] && done[0][mb][s][pipe] &&
							(s == d - 1 || done[1][mb][s + 1][pipe]) :
							!done[0][mb][s][pipe] && (s == 0 || done[0][mb][s - 1][pipe]) && flight[w][pipe] < d - s;
						struct op x = { back, mb, s, pipe }, *p = &pick[w];
						uint32_t pi = p->mb - p->pipe * (d / 2);
						bool better = !has[w] || (back && !p->back) || (back == p->back &&
							(i < pi || (i == pi && (back ? s < p->s : s > p->s))));
						if (ready && better) {
							*p = x;
							has[w] = true;
						}
					}
		for (uint32_t w = 0; w < d; w++)
			if (has[w]) {
				struct op *x = &pick[w];
				o->op[w][o->n[w]++] = *x;
				flight[w][x->pipe] += x->back ? -1 : 1;
				done[x->back][x->mb][x->s][x->pipe] = true;
				left--;
			}
	}
}

static void buffers(struct plan *p, uint32_t d, uint32_t w)
{
	for (uint32_t pipe = 0; pipe < 2; pipe++) {
		uint32_t s = peer_of(d, w, pipe);
		struct plan_buf b = { .bytes = ACT, .depth = d, .slot = pipe };
		for (uint32_t k = s; k <= s + 1; k++) {
			b.class = k > 0 ? PLAN_ACTIVATION : PLAN_BATCH;
			plan_buf(p, &b, "a%u.%u", pipe, k);
			b.class = PLAN_ACTIVATION_GRAD;
			plan_buf(p, &b, "g%u.%u", pipe, k);
		}
		b.class = PLAN_ACTIVATION;
		plan_buf(p, &b, "kept%u", pipe);
		/* the two replicas of stage s carry the same names on their two peers */
		struct plan_buf x = { .class = PLAN_WEIGHT_GRAD, .bytes = PARAM, .per = d, .slot = pipe };
		plan_buf(p, &x, "dw%u", s);
		x.initial = true;
		x.class = PLAN_WEIGHT;
		plan_buf(p, &x, "w%u", s);
		x.class = PLAN_OPTIMIZER;
		plan_buf(p, &x, "opt%u", s);
		char name[16];
		snprintf(name, sizeof name, "stage%u", s);
		uint32_t g = plan_group(p, name, PLAN_OP_SUM, true, false);
		plan_join(p, g, s, 0);
		plan_join(p, g, d - 1 - s, 1);
	}
}

static void work(struct plan *p, uint32_t d, const struct op *x)
{
	uint32_t s = x->s, q = x->pipe;
	char next[64] = "", last[64] = "";
	if (!x->back) {
		if (s == 0)
			plan_do(p, PLAN_LOAD, x->mb, "-> a%u.0", q);
		else
			plan_recv(p, x->mb, peer_of(d, s - 1, q), "a%u.%u", q, s);
		if (s + 1 < d)
			snprintf(next, sizeof next, "a%u.%u", q, s + 1);
		plan_piece(plan_do(p, PLAN_FWD, x->mb, "a%u.%u! w%u -> %s save:kept%u", q, s, s, next, q), s, s);
		if (s + 1 < d)
			plan_send(p, x->mb, peer_of(d, s + 1, q), "%s!", next);
		return;
	}
	if (s + 1 < d) {
		plan_recv(p, x->mb, peer_of(d, s + 1, q), "g%u.%u", q, s + 1);
		snprintf(next, sizeof next, "g%u.%u!", q, s + 1);
	}
	if (s > 0)
		snprintf(last, sizeof last, "g%u.%u", q, s);
	plan_piece(plan_do(p, PLAN_BWD, x->mb, "save:kept%u! w%u %s -> %s dw%u+", q, s, next, last, s), s, s);
	if (s > 0)
		plan_send(p, x->mb, peer_of(d, s - 1, q), "%s!", last);
}

static void plan_chimera(struct plan *p, uint32_t d, uint32_t w, const struct order *o)
{
	buffers(p, d, w);
	p->redundancy = 2;              /* each stage lives on two peers */
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	p->step = d;
	for (uint32_t i = 0; i < o->n[w]; i++)
		work(p, d, &o->op[w][i]);
	for (uint32_t pipe = 0; pipe < 2; pipe++) {
		uint32_t s = peer_of(d, w, pipe);
		plan_coll(p, PLAN_SUM, 0, pipe, "dw%u -> dw%u", s, s)->priority = 1;
	}
	for (uint32_t pipe = 0; pipe < 2; pipe++) {
		uint32_t s = peer_of(d, w, pipe);
		plan_vec(p, 0, "opt", "dw%u! w%u opt%u -> w%u' opt%u'", s, s, s, s, s);
	}
	plan_do(p, PLAN_COMMIT, 0, "->")->scope = PLAN_GROUP;
}

static void run(struct kit *k, uint32_t d, uint64_t back)
{
	struct order o;
	schedule(d, &o);
	kit_open(k, d);
	kit_chain(k, d, 60, back, ACT, PARAM);
	for (uint32_t w = 0; w < d; w++) {
		plan_init(&k->plan[w], "chimera", w, d, k->member);
		plan_chimera(&k->plan[w], d, w, &o);
	}
	kit_check(k);
	kit_predict(k);
	kit_show(k);
}

static void bubbles_and_stashes(void **state)
{
	static const struct { uint32_t d; double equal, twice; uint32_t peak[MAXD]; } want[] = {
		{ 4, 1.0 / 5, 1.0 / 4, { 3, 4, 4, 3 } },
		{ 6, 1.0 / 4, 4.0 / 13, { 4, 5, 6, 6, 5, 4 } },
		{ 8, 3.0 / 11, 1.0 / 3, { 5, 6, 7, 8, 8, 7, 6, 5 } },
	};
	for (int t = 0; t < 3; t++)
		for (int twice = 0; twice < 2; twice++) {
			struct kit k;
			run(&k, want[t].d, twice ? 120 : 60);
			for (uint32_t w = 0; w < want[t].d; w++) {
				kit_near(k.out.peer[w].bubble, twice ? want[t].twice : want[t].equal, 1e-9);
				/* D/2 micro-batches of each pipe at most, so the sum of both stashes peaks at D/2 + 1 .. D */
				uint32_t most = 0, now = 0;
				for (size_t i = 0; i < k.out.nspans; i++) {
					const struct predict_span *s = &k.out.span[i];
					if (s->peer == w && s->kind == PLAN_FWD)
						most = ++now > most ? now : most;
					if (s->peer == w && s->kind == PLAN_BWD)
						now--;
				}
				assert_int_equal(most, want[t].peak[w]);
				/* both copies of two stages: 2(n-1)/n of each gradient with n = 2 */
				assert_int_equal(k.out.peer[w].sent[PLAN_WEIGHT_GRAD], 2 * PARAM);
			}
			kit_close(&k);
		}
}

/* One replica's loss is the loss of half a stage's sum: the plan says so by redundancy. */
static void single_copy_is_refused(void **state)
{
	struct kit k;
	run(&k, 4, 60);
	k.plan[1].redundancy = 3;
	kit_refused(&k, RULE_HOLDERS);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bubbles_and_stashes),
		cmocka_unit_test(single_copy_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Paper plan 4: interleaved 1F1B (Megatron-LM): v chunks per peer, stage = chunk * p + rank, m a multiple of p. */
#include "plan_kit.h"

#define ACT 1000
#define PARAM 4000

struct shape { uint32_t p, v, m; };

static void forward(struct plan *p, const struct shape *x, uint32_t r, uint32_t c, int64_t mb)
{
	uint32_t s = c * x->p + r, last = x->p * x->v - 1;
	char out[64] = "";
	if (s == 0)
		plan_do(p, PLAN_LOAD, mb, "-> a0");
	else
		plan_recv(p, mb, (s - 1) % x->p, "a%u", s);
	if (s < last)
		snprintf(out, sizeof out, "a%u", s + 1);
	plan_piece(plan_do(p, PLAN_FWD, mb, "a%u! w%u -> %s save:kept%u", s, s, out, s), s, s);
	if (s < last)
		plan_send(p, mb, (s + 1) % x->p, "a%u!", s + 1);
}

static void backward(struct plan *p, const struct shape *x, uint32_t r, uint32_t c, int64_t mb)
{
	uint32_t s = c * x->p + r, last = x->p * x->v - 1;
	char in[64] = "", out[64] = "";
	if (s < last) {
		plan_recv(p, mb, (s + 1) % x->p, "g%u", s + 1);
		snprintf(in, sizeof in, "g%u!", s + 1);
	}
	if (s > 0)
		snprintf(out, sizeof out, "g%u", s);
	plan_piece(plan_do(p, PLAN_BWD, mb, "save:kept%u! w%u %s -> %s dw%u+", s, s, in, out, s), s, s);
	if (s > 0)
		plan_send(p, mb, (s - 1) % x->p, "g%u!", s);
}

static void buffers(struct plan *p, const struct shape *x, uint32_t r)
{
	uint32_t last = x->p * x->v - 1;
	for (uint32_t c = 0; c < x->v; c++) {
		uint32_t s = c * x->p + r;
		/* a chunk's input and output differ from every other chunk's: v x m transfers never collide */
		for (uint32_t k = s; k <= s + 1 && k <= last; k++) {
			plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = ACT, .depth = x->m }, "a%u", k);
			plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION_GRAD, .bytes = ACT, .depth = x->m }, "g%u", k);
		}
		plan_buf(p, &(struct plan_buf){ .class = PLAN_ACTIVATION, .bytes = ACT, .depth = x->m }, "kept%u", s);
		struct plan_buf b = { .class = PLAN_WEIGHT_GRAD, .bytes = PARAM, .per = x->m };
		plan_buf(p, &b, "dw%u", s);
		b.class = PLAN_WEIGHT;
		b.initial = true;
		plan_buf(p, &b, "w%u", s);
		b.class = PLAN_OPTIMIZER;
		plan_buf(p, &b, "opt%u", s);
	}
}

static void plan_interleaved(struct plan *p, const struct shape *x, uint32_t r)
{
	uint32_t total = x->m * x->v, group = x->p * x->v, f = 0, b = 0;
	uint32_t warm = (x->p - r - 1) * 2 + (x->v - 1) * x->p;
	warm = x->m == x->p || warm > total ? total : warm;
	buffers(p, x, r);
	plan_section(p, PLAN_BODY);
	p->iterations = 1;
	p->step = x->m;
	while (b < total) {
		if (f < total) {
			forward(p, x, r, f % group / x->p, f / group * x->p + f % x->p);
			f++;
		}
		if (f > warm || f == total) {
			backward(p, x, r, x->v - 1 - b % group / x->p, b / group * x->p + b % x->p);
			b++;
		}
	}
	for (uint32_t c = 0; c < x->v; c++) {
		uint32_t s = c * x->p + r;
		plan_vec(p, 0, "opt", "dw%u! w%u opt%u -> w%u' opt%u'", s, s, s, s, s);
	}
	plan_do(p, PLAN_COMMIT, 0, "->");
}

static void bubble_stash_bytes(void **state)
{
	static const uint32_t peers[] = { 2, 4 }, chunks[] = { 2, 3, 4 }, mult[] = { 1, 2, 4 };
	for (int a = 0; a < 2; a++)
		for (int b = 0; b < 3; b++)
			for (int c = 0; c < 6; c++) {
				struct kit k;
				struct shape x = { peers[a], chunks[b], peers[a] * mult[c / 2] };
				uint64_t sent = 0, back = 0;
				kit_open(&k, x.p);
				kit_chain(&k, x.p * x.v, 30, c % 2 ? 60 : 30, ACT, PARAM);
				for (uint32_t r = 0; r < x.p; r++) {
					plan_init(&k.plan[r], "interleaved", r, x.p, k.member);
					plan_interleaved(&k.plan[r], &x, r);
				}
				kit_check(&k);
				kit_predict(&k);
				for (uint32_t r = 0; r < x.p; r++) {
					int32_t now = 0, most = 0;
					kit_near(k.out.peer[r].bubble, (double)(x.p - 1) / (x.v * x.m + x.p - 1), 1e-9);
					for (size_t i = 0; i < k.out.nspans; i++) {
						const struct predict_span *s = &k.out.span[i];
						if (s->peer == r && s->kind == PLAN_FWD)
							most = ++now > most ? now : most;
						if (s->peer == r && s->kind == PLAN_BWD)
							now--;
					}
					assert_int_equal(most, x.m == x.p ? x.v * x.m : 2 * (x.p - r - 1) + (x.v - 1) * x.p + 1);
					sent += k.out.peer[r].sent[PLAN_ACTIVATION];
					back += k.out.peer[r].sent[PLAN_ACTIVATION_GRAD];
				}
				assert_int_equal(sent, (uint64_t)(x.p * x.v - 1) * x.m * ACT);
				assert_int_equal(back, sent);
				kit_close(&k);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bubble_stash_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

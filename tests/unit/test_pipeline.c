/* The planner of pipelines on sleep-layer profiles (rows D01, D02, D03, D08): bubble, stash and bytes as the rows say,
 * and no deadlock for any model, depth, replicas and number of micro-batches, also when a SEND ends only with its RECV.
 * */
#include "pipe_meet.h"

static void equal_stages(struct kit *k, struct pipe_kit *p, uint32_t stages, uint32_t m, uint64_t back)
{
	kit_open(k, stages);
	kit_chain(k, stages, 30, back, ACT, PARAM);
	k->profile.batch_bytes = 700;
	k->profile.label_bytes = 50;
	pipe_open(p, &k->profile, stages, m);
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t kept(struct kit *k, uint32_t rank, uint32_t stage)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "kept%u", stage);
	return kit_values(k, rank, name);
}

/* Each boundary carries an activation and its gradient per micro-batch, and its loss. */
static void bytes_are(const struct kit *k, uint32_t m)
{
	for (uint32_t s = 0; s < k->n; s++) {
		const struct predict_peer *o = &k->out.peer[s];
		bool first = s == 0, last = s + 1 == k->n;

		assert_int_equal(o->sent[PLAN_ACTIVATION], last ? 0 : m * ACT);
		assert_int_equal(o->received[PLAN_ACTIVATION], first ? 0 : m * ACT);
		assert_int_equal(o->sent[PLAN_ACTIVATION_GRAD], first ? 0 : m * ACT);
		assert_int_equal(o->received[PLAN_ACTIVATION_GRAD], last ? 0 : m * ACT);
		assert_int_equal(o->sent[PLAN_SCALAR], first ? 0 : m * 8);
		assert_int_equal(o->sent[PLAN_WEIGHT] + o->sent[PLAN_WEIGHT_GRAD] + o->sent[PLAN_BATCH], 0);
	}
	assert_int_equal(k->out.unread, 0);
}

static void one(const char *schedule, uint32_t p, uint32_t m, uint64_t back)
{
	struct kit k;
	struct pipe_kit x;
	bool naive = !strcmp(schedule, "naive"), gpipe = !strcmp(schedule, "gpipe");

	equal_stages(&k, &x, p, m, back);
	pipe_values(&x, "{'schedule':'%s','stages':%u,'micro_batches':%u}", schedule, p, m);
	all_plans(&k, &x);
	kit_check(&k);
	kit_predict(&k);
	assert_int_equal(k.out.us, (naive ? (uint64_t)p * m : m + p - 1) * (30 + back));
	for (uint32_t s = 0; s < p; s++) {
		kit_near(k.out.peer[s].bubble, naive ? 1 - 1.0 / p : (double)(p - 1) / (m + p - 1), 1e-12);
		assert_int_equal(kept(&k, s, s), naive ? 1 : gpipe ? m : least(m, p - s));
	}
	bytes_are(&k, m);
	kit_close(&k);
	pipe_close(&x);
}

static void bubble_stash_and_bytes(void **state)
{
	static const uint32_t depth[] = { 1, 2, 3, 4, 8 }, micro[] = { 1, 2, 4, 8, 16 };
	static const uint64_t back[] = { 30, 60, 50 };

	for (int a = 0; a < 5; a++)
		for (int b = 0; b < 5; b++)
			for (int c = 0; c < 3; c++) {
				one("naive", depth[a], micro[b], back[c]);
				one("gpipe", depth[a], micro[b], back[c]);
				one("1f1b", depth[a], micro[b], back[c]);
			}
}

/* With remat a stage keeps the inputs of what is under way, and of one micro-batch alone what else BWD needs; who has
 * one under way goes forward once. */
static void again(const char *schedule, uint32_t p, uint32_t m, bool remat, uint64_t *peak)
{
	struct kit k;
	struct pipe_kit x;

	equal_stages(&k, &x, p, m, 60);
	pipe_values(&x, "{'schedule':'%s','stages':%u,'micro_batches':%u%s}", schedule, p, m, remat ?
		",'remat':'boundary'" : "");
	all_plans(&k, &x);
	kit_check(&k);
	kit_predict(&k);
	for (uint32_t s = 0; s < p; s++) {
		uint32_t under_way = !strcmp(schedule, "gpipe") ? m : least(m, p - s);
		char name[16];

		(void)snprintf(name, sizeof(name), "a%u", s);
		peak[s] = k.out.peer[s].peak[0];
		assert_int_equal(kept(&k, s, s), remat ? 1 : under_way);
		assert_true(!s || kit_values(&k, s, name) >= under_way);
		assert_int_equal(k.out.peer[s].ran[PLAN_FWD], remat && under_way > 1 ? 2 * m : m);
		assert_int_equal(k.out.peer[s].ran[PLAN_BWD], m);
	}
	bytes_are(&k, m);
	kit_close(&k);
	pipe_close(&x);
}

/* GPipe's formula: m more micro-batches take m inputs more, and without remat what BWD needs of each. */
static void inputs_alone_are_kept(void **state)
{
	const uint64_t saved = 2048, out = 1024;        /* of a micro-batch, in whole lines */
	uint64_t few[8], more[8];

	for (uint32_t p = 1; p <= 5; p++)
		for (uint32_t m = 1; m <= 16; m *= 2) {
			again("1f1b", p, m, true, few);
			for (int remat = 0; remat < 2; remat++) {
				again("gpipe", p, m, remat, few);
				again("gpipe", p, 2 * m, remat, more);
				for (uint32_t s = 0; s < p && m > 2; s++) {
					bool first = s == 0, last = s + 1 == p;
					uint64_t input = first ? last ? 700 : 650 : ACT + (last ? 50 : 8);

					assert_int_equal(more[s] - few[s], m * (input + (remat ? 0 : saved + (last ? out : 0))));
				}
			}
		}
}

/* --- any model, any depth */

static void any_open(struct any *a, uint64_t seed)
{
	static const char *const schedule[] = { "naive", "gpipe", "1f1b" };
	char stages[200] = "";
	uint32_t widest = 1, nops;

	*a = (struct any){ .members = 0 };
	rng_seed(&a->r, seed);
	a->stages = 1 + (uint32_t)up_to(&a->r, 5);
	nops = a->stages + (uint32_t)up_to(&a->r, 12);
	for (uint32_t s = 0; s < a->stages; s++) {
		a->replicas[s] = up_to(&a->r, 2) ? 1 : 1 + (uint32_t)up_to(&a->r, 3);
		a->members += a->replicas[s];
		widest = a->replicas[s] > widest ? a->replicas[s] : widest;
		(void)snprintf(stages + strlen(stages), sizeof(stages) - strlen(stages), "%s{'replicas':%u}", s ? "," : "",
			a->replicas[s]);
	}
	a->m = widest + (uint32_t)up_to(&a->r, 14);
	kit_open(&a->k, a->members);
	any_model(a, nops);
	pipe_open(&a->x, &a->k.profile, a->members, (uint64_t)a->m * a->k.profile.batch);
	for (uint32_t r = 0; r < a->members; r++)
		a->x.member[r].speed = (double)(1 + up_to(&a->r, 3)) / 2;
	a->x.v.first = up_to(&a->r, 50);
	pipe_values(&a->x, "{'schedule':'%s','stages':[%s],'micro_batches':%u}", schedule[up_to(&a->r, 2)], stages, a->m);
	all_plans(&a->k, &a->x);
}

/* Every op in the pieces of one stage, the stages in order; micro-batch j forward and backward once in every stage, on
 * replica j modulo their number. */
static void all_is_done_once(const struct any *a)
{
	uint32_t next = 0, rank = 0;

	for (uint32_t s = 0; s < a->stages; s++) {
		uint32_t done[2][64] = { { 0 } }, lo = PLAN_NONE, hi = 0;

		for (uint32_t q = 0; q < a->replicas[s]; q++, rank++)
			for (uint32_t k = 0; k < a->k.plan[rank].ninstrs; k++) {
				const struct plan *p = &a->k.plan[rank];
				const struct plan_instr *i = &p->instr[k];

				if (i->kind != PLAN_FWD && i->kind != PLAN_BWD)
					continue;
				assert_int_equal((p->first + (uint64_t)i->mb) % a->replicas[s], q);
				done[i->kind == PLAN_BWD][i->mb]++;
				assert_int_equal(i->npiece, 1);
				assert_true(lo == PLAN_NONE || (i->piece[0].a == lo && i->piece[0].b == hi));
				lo = i->piece[0].a;
				hi = i->piece[0].b;
			}
		assert_int_equal(lo, next);
		next = hi + 1;
		for (uint32_t j = 0; j < 64; j++)
			for (int back = 0; back < 2; back++)
				assert_int_equal(done[back][j], j < a->m);
	}
	assert_int_equal(next, a->k.profile.nops);
}

static void nothing_is_lost(const struct any *a)
{
	uint64_t sent[PLAN_CLASSES_COUNT] = { 0 }, received[PLAN_CLASSES_COUNT] = { 0 };

	for (uint32_t r = 0; r < a->members; r++)
		for (int c = 0; c < PLAN_CLASSES_COUNT; c++) {
			sent[c] += a->k.out.peer[r].sent[c];
			received[c] += a->k.out.peer[r].received[c];
		}
	assert_memory_equal(sent, received, sizeof(sent));
	assert_int_equal(sent[PLAN_ACTIVATION], sent[PLAN_ACTIVATION_GRAD]);
	assert_int_equal(a->k.out.unread, 0);
}

/* Another member's computation, from values read anew, and that with all settled before: the same plans. */
static void same_everywhere(const struct any *a, bool settled)
{
	struct any b = *a;
	uint8_t here[32], there[32];

	memset(b.k.plan, 0, sizeof(b.k.plan));
	b.x.values = json_deep_copy(a->x.values);
	if (settled) {
		struct err e;
		json_t *found;

		assert_int_equal(a->x.strategy->settle(&a->x.v, &found, &e), 0);
		json_decref(b.x.values);
		b.x.values = found;
		assert_int_equal(json_array_size(json_object_get(found, "stages")), a->stages);
	}
	b.x.v.values = b.x.values;
	b.x.v.member = b.x.member;
	for (uint32_t r = 0; r < b.k.n; r++)
		b.k.list[r] = &b.k.plan[r];
	all_plans(&b.k, &b.x);
	plan_digest_all((const struct plan *const *)a->k.list, a->members, here);
	plan_digest_all((const struct plan *const *)b.k.list, a->members, there);
	assert_memory_equal(here, there, 32);
	kit_plans_free(&b.k);
	json_decref(b.x.values);
}

static void any_pipeline(void **state)
{
	uint64_t from = any_seed();

	for (uint64_t seed = from; seed < from + 150; seed++) {
		struct any a;

		any_open(&a, seed);
		all_is_done_once(&a);
		same_everywhere(&a, false);
		same_everywhere(&a, true);
		kit_check(&a.k);
		kit_predict(&a.k);
		nothing_is_lost(&a);
		meet(&a, NULL);
		any_close(&a);
	}
}

/* --- replicas: 2-1-1, 7-1, 9-5-1-1, stages taking as long as they have replicas: nobody waits but at the ends */

static void in_turn(const uint32_t *r, uint32_t stages, uint32_t m)
{
	struct kit k;
	struct pipe_kit x;
	char list[200] = "";
	uint32_t members = 0, rank = 0;

	for (uint32_t s = 0; s < stages; s++) {
		(void)snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s{'layers':1,'replicas':%u}", s ? "," : "",
			r[s]);
		members += r[s];
	}
	kit_open(&k, members);
	kit_chain(&k, stages, 30, 60, ACT, PARAM);
	for (uint32_t s = 0; s < stages; s++) {
		k.profile.op[s].variant[0].fwd_us *= r[s];
		k.profile.op[s].variant[0].bwd_us *= r[s];
	}
	pipe_open(&x, &k.profile, members, m);
	pipe_values(&x, "{'stages':[%s],'micro_batches':%u}", list, m);
	all_plans(&k, &x);
	kit_check(&k);
	kit_predict(&k);
	for (uint32_t s = 0; s < stages; s++)
		for (uint32_t q = 0; q < r[s]; q++, rank++) {
			assert_int_equal(k.out.peer[rank].ran[PLAN_FWD], (m - q + r[s] - 1) / r[s]);
			for (int64_t j = 0; j < m; j++) {
				assert_true(!kit_span(&k, rank, PLAN_FWD, j) == (j % r[s] != q));
				assert_true(!kit_span(&k, rank, PLAN_BWD, j) == (j % r[s] != q));
			}
			assert_true(kept(&k, rank, s) <= (members - (rank - q) + r[s] - 1) / r[s]);
		}
	/* all are busy all the time, but while the pipeline fills and drains */
	assert_true(k.out.us >= m * 90 && k.out.us <= (m + 3 * members) * 90);
	assert_int_equal(k.out.unread, 0);
	kit_close(&k);
	pipe_close(&x);
}

static void replicas(void **state)
{
	static const uint32_t a[] = { 2, 1, 1 }, b[] = { 7, 1 }, c[] = { 9, 5, 1, 1 };

	in_turn(a, 3, 64);
	in_turn(b, 2, 64);
	in_turn(c, 4, 192);
}

/* The round: each stage for itself, replicas summed before. */
static void rounds(void **state)
{
	struct kit k;
	struct pipe_kit x;

	kit_open(&k, 4);
	kit_chain(&k, 3, 30, 60, ACT, PARAM);
	k.profile.state_vectors = 2;
	pipe_open(&x, &k.profile, 4, 8);
	pipe_values(&x, "{'stages':[{'layers':1},{'layers':1,'replicas':2},{'layers':1}]}");
	x.v.samples = 8;
	x.v.begun = true;
	all_plans(&k, &x);
	/* what the flushes have left is not here: the sums come from nowhere, and all else is looked at */
	for (uint32_t r = 0; r < 4; r++) {
		char sum[16];

		(void)snprintf(sum, sizeof(sum), "acc%u", r < 2 ? r : r - 1);
		k.plan[r].buf[plan_find(&k.plan[r], sum)].initial = true;
	}
	kit_check(&k);
	kit_predict(&k);
	for (uint32_t r = 0; r < 4; r++) {
		bool replica = r == 1 || r == 2;

		assert_int_equal(k.out.peer[r].sent[PLAN_WEIGHT_GRAD], replica ? PARAM : 0);
		assert_int_equal(k.out.peer[r].ran[PLAN_SUM], replica ? 2 : 1);
		assert_int_equal(k.out.peer[r].ran[PLAN_COMMIT], 1);
	}
	kit_close(&k);
	pipe_close(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bubble_stash_and_bytes),
		cmocka_unit_test(inputs_alone_are_kept),
		cmocka_unit_test(any_pipeline),
		cmocka_unit_test(replicas),
		cmocka_unit_test(rounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

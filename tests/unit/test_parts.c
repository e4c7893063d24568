/* Where the parts of a model's stages lie in what a unit contributes: end to end in the order of the stages, each with
 * its own running statistics behind its parameters, once for all replicas of a stage; and what the averager takes. */
#include "train_kit.h"
#include "common/buf.h"
#include "common/mem.h"
#include "plan/planner.h"
#include "train/trainer_int.h"

static const char form[] = "{\"name\":\"parts\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5},"
	"{\"type\":\"batchnorm\"},{\"type\":\"linear\",\"out\":7},{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":4},"
	"{\"type\":\"relu\"},{\"type\":\"linear\",\"out\":9},{\"type\":\"batchnorm\"},{\"type\":\"linear\",\"out\":3}],"
	"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\",\"lr\":0.1},\"target_batch\":32,"
	"\"strategy\":\"pipeline\",\"plan\":{\"stages\":%s},\"data\":{\"name\":\"d\",\"kind\":\"synthetic\",\"count\":64},"
	"\"seed\":3,\"local\":{\"batch\":4}}";

static void open_stages(struct kit *k, const char *stages)
{
	char text[900];

	memset(k, 0, sizeof(*k));
	(void)snprintf(text, sizeof(text), form, stages);
	kit_open(k, text, NULL, false);
}

/* Of 9 layers these, on so many members; ret: what each has. */
static void lay_out(const char *stages, uint32_t members, struct trainer_part *ret, size_t *ret_len)
{
	struct view_member member[8] = { 0 };
	struct view v;
	struct kit k;
	struct err e;

	open_stages(&k, stages);
	for (uint32_t i = 0; i < members; i++)
		member[i] = (struct view_member){ .id = { { (uint8_t)(i + 1) } }, .speed = 1 };
	v = trainer_crew_view(k.t);
	v.nmembers = members;
	v.member = member;
	v.redundancy = 1;
	if (trainer_parts(k.t, &v, ret, &e) < 0)
		fail_msg("%s", e.text);
	*ret_len = trainer_contribution_len(k.t);
	trainer_read_over(k.t);
	kit_close(&k);
}

static void end_to_end(const char *stages, uint32_t members, uint32_t replicas_of_second)
{
	struct trainer_part part[8];
	uint64_t at = 0, speak = 0;
	size_t len;

	lay_out(stages, members, part, &len);
	for (uint32_t i = 0; i < members; i++) {
		bool copy = i > 1 && i <= replicas_of_second;

		assert_int_equal(part[i].nheld, 1);
		assert_int_equal(part[i].keep_hi - part[i].keep_lo, extent_len(part[i].held[0].param) +
			extent_len(part[i].held[0].stat));
		assert_int_equal(part[i].keep_lo, copy ? part[1].keep_lo : at);
		assert_true(part[i].brings == !copy);
		assert_int_equal(part[i].lo, copy ? 0 : part[i].keep_lo);
		assert_int_equal(part[i].hi, copy ? 0 : part[i].keep_hi);
		speak += part[i].hi - part[i].lo;
		at = part[i].keep_hi;
	}
	trainer_parts_free(part, members);
	assert_int_equal(at, len);
	assert_int_equal(speak, len);
}

/* Statistics before, behind and in none of the stages. */
static void stages_with_and_without_statistics(void **state)
{
	end_to_end("[{\"layers\":2},{\"layers\":2},{\"layers\":2},{\"layers\":3}]", 4, 0);
	end_to_end("[{\"layers\":1},{\"layers\":5},{\"layers\":1},{\"layers\":2}]", 4, 0);
	end_to_end("[{\"layers\":6},{\"layers\":3}]", 2, 0);
	end_to_end("[{\"layers\":9}]", 1, 0);
	end_to_end("[{\"layers\":3},{\"layers\":6}]", 2, 0);
}

static void replicas_have_one_part(void **state)
{
	end_to_end("[{\"layers\":2},{\"layers\":4,\"replicas\":3},{\"layers\":3}]", 5, 3);
	end_to_end("[{\"layers\":4},{\"layers\":5,\"replicas\":2}]", 3, 2);
}

/* Who has nothing to learn has no part, and a spare has none. */
static void nothing(void **state)
{
	struct trainer_part part[8];
	size_t len;

	lay_out("[{\"layers\":3},{\"layers\":1},{\"layers\":5}]", 4, part, &len);
	assert_true(part[1].lo == part[1].hi && !part[1].brings);
	assert_true(part[3].lo == part[3].hi && !part[3].brings);
	assert_true(part[1].nheld == 0 && part[3].nheld == 0);
	assert_true(part[0].lo == 0 && part[2].lo == part[0].hi && part[2].hi == len);
	trainer_parts_free(part, 4);
}

/* Of a model whose last layer has the parameters of the first: these are the beginning of what the first stage brings,
 * and the last one keeps them behind its own. Whatever they keep for each other, it lies end to end. */
static void tied(void **state)
{
	static const char model[] = "{\"name\":\"tied\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":6,\"name\":"
		"\"t\"},{\"type\":\"batchnorm\"},{\"type\":\"linear\",\"out\":7},{\"type\":\"tanh\"},{\"type\":\"linear\","
		"\"out\":5},{\"type\":\"relu\"},{\"type\":\"linear\",\"out\":6},{\"type\":\"batchnorm\"},{\"type\":\"linear\","
		"\"out\":6,\"share\":\"t\"}],\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\",\"lr\":0.1},"
		"\"target_batch\":32,\"strategy\":\"pipeline\",\"plan\":{\"stages\":%u,\"micro_batches\":1},\"data\":{\"name\":"
		"\"d\",\"kind\":\"synthetic\",\"count\":64},\"seed\":3,\"local\":{\"batch\":4}}";

	for (uint32_t n = 2; n <= 7; n++)
		for (uint32_t copies = 1; copies <= n; copies++) {
			struct view_member member[8] = { 0 };
			struct trainer_part part[8];
			uint64_t brought = 0;
			char text[1200];
			struct view v;
			struct kit k;
			struct err e;
			uint32_t heads = 0;

			memset(&k, 0, sizeof(k));
			(void)snprintf(text, sizeof(text), model, n);
			kit_open(&k, text, NULL, false);
			for (uint32_t i = 0; i < n; i++)
				member[i] = (struct view_member){ .id = { { (uint8_t)(i + 1) } }, .speed = 1 };
			v = trainer_crew_view(k.t);
			v.nmembers = n;
			v.member = member;
			v.redundancy = copies;
			if (trainer_parts(k.t, &v, part, &e) < 0)
				fail_msg("%u stages, %u copies: %s", n, copies, e.text);
			for (uint32_t i = 0; i < n; i++) {
				uint64_t held = 0;

				for (uint32_t h = 0; h < part[i].nheld; h++)
					held += extent_len(part[i].held[h].param) + extent_len(part[i].held[h].stat);
				assert_int_equal(part[i].keep_hi - part[i].keep_lo, held);
				assert_true(part[i].lo >= part[i].keep_lo || !part[i].brings);
				assert_true(part[i].hi <= part[i].keep_hi);
				brought += part[i].hi - part[i].lo;
				heads += part[i].brings && !part[i].lo;
			}
			assert_int_equal(part[0].held[0].param.hi, 42);
			assert_int_equal(part[n - 1].held[0].param.hi, 42);
			assert_int_equal(brought, trainer_contribution_len(k.t));
			assert_int_equal(heads, 1);
			trainer_parts_free(part, n);
			trainer_read_over(k.t);
			kit_close(&k);
		}
}

/* Each holds a part for every one of 65 stages, and waits for as many means at once. */
#define STAGES 65

static void many_parts(void **state)
{
	struct view_member member[STAGES] = { 0 };
	struct trainer_part *part = xcalloc(STAGES, sizeof(*part));
	struct buf text = { 0 };
	struct view v;
	struct kit k;
	struct err e;

	memset(&k, 0, sizeof(k));
	buf_printf(&text, "{\"name\":\"many\",\"input\":[4],\"model\":[");
	for (int i = 0; i < STAGES; i++) {
		buf_printf(&text, "%s{\"type\":\"linear\",\"out\":4}", i ? "," : "");
		member[i] = (struct view_member){ .id = { { (uint8_t)(i + 1) } }, .speed = 1 };
	}
	buf_printf(&text, "],\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},\"target_batch\":32,"
		"\"strategy\":\"pipeline\",\"plan\":{\"stages\":%d,\"micro_batches\":1},\"data\":{\"name\":\"d\",\"kind\":"
		"\"synthetic\",\"count\":64},\"seed\":3,\"local\":{\"batch\":4}}", STAGES);
	buf_u8(&text, 0);
	kit_open(&k, (const char *)text.p, NULL, false);
	buf_free(&text);
	v = trainer_crew_view(k.t);
	v.nmembers = STAGES;
	v.member = member;
	v.redundancy = STAGES - 1;
	if (trainer_parts(k.t, &v, part, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(part[1].nheld, STAGES);
	k.t->sums.wanted = STAGES + 1;          /* nothing is contributed meanwhile */
	for (uint32_t i = 0; i < part[1].nheld; i++)
		round_sum(k.t, &(struct sum){ .w = (void *)&member[i] });
	assert_int_equal(k.t->sums.n, STAGES);
	for (uint32_t i = 0; i < STAGES; i++)
		assert_true(round_cancel(k.t, (void *)&member[i]));
	assert_int_equal(k.t->sums.n, 0);
	trainer_parts_free(part, STAGES);
	free(part);
	trainer_read_over(k.t);
	kit_close(&k);
}

static int sum_as(struct kit *k, uint64_t lo, uint64_t hi, size_t out, size_t in, struct sum *ret, struct err *e)
{
	struct plan_buf b = { .nextents = 1, .bytes = (hi - lo) * sizeof(real) };
	const struct exec_span from = { .bytes = in * sizeof(real), .buffer = "g" };
	const struct exec_span to = { .bytes = out * sizeof(real), .buffer = "mean" };
	struct plan_extent x = { .kind = PLAN_FLAT, .lo = lo, .hi = hi };
	struct plan_ref o = { 0 };
	struct plan_instr i = { .kind = PLAN_SUM, .out = &o, .nout = 1 };
	struct plan p = { .buf = &b, .nbufs = 1 };

	b.extent = &x;
	return sum_of(k->t, &(struct exec_net){ .plan = &p, .instr = &i }, &from, 1, &to, 1, ret, e);
}

/* A round's plan that is not of what this peer holds: refused, before a mean is written anywhere. */
static void sum_is_bounded(void **state)
{
	struct shard_part held[] = { { { 0, 35 }, { 0, 0 } }, { { 45, 87 }, { 0, 0 } } };
	uint64_t at[] = { 100, 135 };
	struct sum s = { 0 };
	struct kit k;
	struct err e;

	open_stages(&k, "3");
	k.t->seat.is = true;
	k.t->seat.part = (struct trainer_part){ .lo = 100, .hi = 135, .keep_lo = 100, .keep_hi = 177, .nheld = 2,
		.held = held, .at = at };
	assert_int_equal(sum_as(&k, 45, 87, 42, 35, &s, &e), 0);
	assert_true(s.at == 35 && s.len == 42);
	assert_int_equal(sum_as(&k, 45, 86, 42, 35, &s, &e), -1);      /* a part that it does not hold */
	assert_non_null(strstr(e.text, "is of no part that this peer holds"));
	assert_int_equal(sum_as(&k, 45, 87, 41, 35, &s, &e), -1);      /* no room */
	assert_non_null(strstr(e.text, "elements 35 to 77 of 77 into mean, which has room for 41"));
	assert_int_equal(sum_as(&k, 45, 87, 42, 34, &s, &e), -1);      /* less than is contributed */
	assert_non_null(strstr(e.text, "takes 35 elements from g, which has 34"));
	k.t->seat.part.keep_hi = 176;                                   /* more than the mean has */
	assert_int_equal(sum_as(&k, 45, 87, 42, 35, &s, &e), -1);
	assert_int_equal(e.code, ERR_INVALID);
	k.t->seat.part = (struct trainer_part){ 0 };
	k.t->seat.is = false;
	kit_close(&k);
}

/* A state of several shards: a copy has every tensor of all of them once, and says of what parts it is. */
struct copied { struct snapshot *s; };

static void on_copied(void *arg, struct snapshot *s, const struct err *e)
{
	((struct copied *)arg)->s = s;
}

static bool is_copied(struct sim *s, void *arg) { return ((struct copied *)arg)->s; }

static void copy_of_several(void **state)
{
	static const struct shard_part part[] = { { { 0, 0 }, { 0, 0 } }, { { 0, 35 }, { 0, 0 } },
		{ { 35, 45 }, { 0, 10 } }, { { 87, 119 }, { 0, 0 } } };
	struct copied c = { NULL };
	uint32_t n, tensors = 0, seen = 0;
	struct state *st;
	struct shard *v;
	struct kit k;
	struct err e;

	open_stages(&k, "3");
	st = trainer_state_of(k.t, part, 4, &e);
	assert_non_null(st);
	v = state_shards(st, &n);
	assert_int_equal(n, 4);
	assert_int_equal(state_init(st, &e), 0);
	for (uint32_t i = 0; i < n; i++) {
		((double *)shard_clock(&v[i]))[0] = i ? 17 : 0;
		tensors += (uint32_t)v[i].ntensors;
	}
	state_snapshot(st, on_copied, &c);
	assert_true(state_copies(st, 5));
	assert_true(sim_run_until(k.sim, is_copied, &c, 10000000));
	assert_int_equal(c.s->bytes, state_bytes(st));
	assert_int_equal(c.s->ntensors, tensors - 3);   /* of four clocks one */
	assert_int_equal(c.s->nparts, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(shard_part_same(&c.s->part[i], &part[i]));
	for (uint32_t i = 0; i < n; i++)
		for (size_t t = 0; t < v[i].ntensors; t++)
			for (size_t j = 0; j < c.s->ntensors && v[i].of[t]; j++)
				if (!strcmp(c.s->tensor[j].name, v[i].tensor[t].name)) {
					assert_memory_equal(c.s->tensor[j].data, v[i].tensor[t].data, v[i].tensor[t].bytes);
					seen++;
				}
	assert_int_equal(seen, c.s->ntensors - 1);
	assert_string_equal(c.s->tensor[c.s->ntensors - 1].name, "optimizer.clock");
	assert_true(*(const double *)c.s->tensor[c.s->ntensors - 1].data == 17);
	snapshot_unref(c.s);
	state_free(st, NULL, NULL);
	kit_close(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stages_with_and_without_statistics),
		cmocka_unit_test(replicas_have_one_part),
		cmocka_unit_test(many_parts),
		cmocka_unit_test(sum_is_bounded),
		cmocka_unit_test(copy_of_several),
		cmocka_unit_test(nothing), cmocka_unit_test(tied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Where the parts of a model's stages lie in what a unit contributes: end to end in the order of the stages, each with
 * its own running statistics behind its parameters, once for all replicas of a stage; and what the averager takes. */
#include "train_kit.h"
#include "plan/planner.h"

static const char form[] = "{\"name\":\"parts\",\"input\":[6],\"model\":[{\"type\":\"linear\",\"out\":5},"
	"{\"type\":\"batchnorm\"},{\"type\":\"linear\",\"out\":7},{\"type\":\"tanh\"},{\"type\":\"linear\",\"out\":4},"
	"{\"type\":\"relu\"},{\"type\":\"linear\",\"out\":9},{\"type\":\"batchnorm\"},{\"type\":\"linear\",\"out\":3}],"
	"\"loss\":\"cross_entropy\",\"optimizer\":{\"name\":\"adam\",\"lr\":0.1},\"target_batch\":32,"
	"\"strategy\":\"pipeline\",\"plan\":{\"stages\":%s},\"data\":{\"name\":\"d\",\"kind\":\"synthetic\",\"count\":64},"
	"\"seed\":3,\"local\":{\"batch\":4}}";

/* Of 9 layers these, on so many members; ret: what each has. */
static void lay_out(const char *stages, uint32_t members, struct trainer_part *ret, size_t *ret_len)
{
	struct view_member member[8] = { 0 };
	char text[900];
	struct view v;
	struct kit k;
	struct err e;

	memset(&k, 0, sizeof(k));
	(void)snprintf(text, sizeof(text), form, stages);
	kit_open(&k, text, NULL, false);
	for (uint32_t i = 0; i < members; i++)
		member[i] = (struct view_member){ .id = { { (uint8_t)(i + 1) } }, .speed = 1 };
	v = trainer_crew_view(k.t);
	v.nmembers = members;
	v.member = member;
	v.redundancy = 1;
	if (trainer_parts(k.t, &v, ret, &e) < 0)
		fail_msg("%s", e.text);
	*ret_len = trainer_contribution_len(k.t);
	trainer_crew_view_back(k.t);
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

		assert_int_equal(part[i].hi - part[i].lo, extent_len(part[i].param) + extent_len(part[i].stat));
		assert_int_equal(part[i].lo, copy ? part[1].lo : at);
		assert_true(part[i].brings == !copy);
		speak += part[i].brings ? part[i].hi - part[i].lo : 0;
		at = part[i].hi;
	}
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
	assert_true(part[0].lo == 0 && part[2].lo == part[0].hi && part[2].hi == len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stages_with_and_without_statistics),
		cmocka_unit_test(replicas_have_one_part),
		cmocka_unit_test(nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Votes on a digest: the most, the first of them, and who says something else as often. */
#include "common/vote.h"
#include "tests/unit/t.h"

/* One letter a peer; '.' says nothing. */
static void vote(const char *words, size_t want, size_t want_rival)
{
	uint8_t digest[16][TREE256];
	const uint8_t *said[16];
	size_t rival = 77, n = strlen(words);
	for (size_t i = 0; i < n; i++) {
		memset(digest[i], 0, TREE256);
		digest[i][TREE256 - 1] = (uint8_t)words[i];     /* all of it counts */
		said[i] = words[i] == '.' ? NULL : digest[i];
	}
	assert_int_equal(vote_most(said, n, &rival), want);
	assert_int_equal(rival, want_rival);
	assert_int_equal(vote_most(said, n, NULL), want);
}

static void what_most_say_counts(void **s)
{
	vote("", VOTE_NONE, VOTE_NONE);
	vote("...", VOTE_NONE, VOTE_NONE);
	vote("a", 0, VOTE_NONE);
	vote(".a", 1, VOTE_NONE);
	vote("aaa", 0, VOTE_NONE);
	vote("baa", 1, VOTE_NONE);
	vote("a.ba", 0, VOTE_NONE);
	vote("abcbab.b", 1, VOTE_NONE);
}

static void as_many_are_rivals(void **s)
{
	vote("ab", 0, 1);
	vote("..a.b", 2, 4);
	vote("aabb", 0, 2);
	vote("cbaab", 1, 2);
	vote("abc", 0, 1);
	vote("cabba", 1, 2);
	vote("abbccc", 3, VOTE_NONE);           /* b and a were as good, once */
	vote("abbcccbb", 1, VOTE_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_most_say_counts), cmocka_unit_test(as_many_are_rivals),
	};
	return cmocka_run_group_tests_name("vote", tests, NULL, NULL);
}

/* What most say, and whether as many say something else. */
#include "common/vote.h"
#include <string.h>

static size_t votes_for(const uint8_t *what, const uint8_t *const *said, size_t n)
{
	size_t votes = 0;
	for (size_t i = 0; i < n && what; i++)
		votes += said[i] && !memcmp(said[i], what, TREE256);
	return votes;
}

size_t vote_most(const uint8_t *const *said, size_t n, size_t *ret_rival)
{
	size_t best = VOTE_NONE, rival = VOTE_NONE, most = 0;
	for (size_t i = 0; i < n; i++) {
		size_t votes = votes_for(said[i], said, n);
		if (votes > most) {
			most = votes;
			best = i;
			rival = VOTE_NONE;
		} else if (votes && votes == most && rival == VOTE_NONE && memcmp(said[i], said[best], TREE256)) {
			rival = i;
		}
	}
	if (ret_rival)
		*ret_rival = rival;
	return best;
}

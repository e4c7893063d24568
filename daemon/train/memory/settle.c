/* How many segments it becomes when bytes are stated: of the choices that the search has found, the first that fits. */
#include <stdlib.h>
#include "train/memory.h"

struct settle {
	struct memory_pass *how;
	uint64_t (*taken)(void *arg);
	void *arg;
	struct memory_front front;
};

static struct memory_found ask(const struct settle *s, uint32_t segments)
{
	s->how->segments = segments;
	return (struct memory_found){ segments, s->taken(s->arg) };
}

/* The choice to ask about first, of those between lo, which does not fit, and hi, which does: what is taken beside the
 * passes (rest) is thought to be the same for all. It is, unless something else takes more than they do. */
static uint32_t guess(const struct memory_front *f, uint32_t lo, uint32_t hi, uint64_t most, uint64_t rest)
{
	uint32_t i = lo + 1;

	while (i + 1 < hi && (rest > most || f->v[i].peak > most - rest))
		i++;
	return i;
}

/* The first choice does not fit, the last one does. */
static struct memory_found between(const struct settle *s, uint64_t most, uint64_t rest, struct memory_found last)
{
	uint32_t lo = 0, hi = s->front.n - 1, at = guess(&s->front, lo, hi, most, rest);

	for (int asked = 1; hi - lo > 1; asked++) {
		struct memory_found x = ask(s, s->front.v[at].segments);

		if (x.bytes <= most) {
			hi = at;
			last = x;
		} else {
			lo = at;
		}
		at = asked > 1 ? lo + (hi - lo) / 2 : hi == at ? hi - 1 : lo + 1;       /* its neighbour, then by halves */
	}
	return last;
}

bool memory_fewest(const struct profile *m, struct memory_pass *how, uint64_t most, uint64_t (*taken)(void *arg),
	void *arg, struct memory_found *ret)
{
	const uint32_t was = how->segments;
	struct settle s = { .how = how, .taken = taken, .arg = arg };
	struct memory_found one = ask(&s, 1), last = one;

	if (one.bytes > most) {
		memory_search(m, how, &s.front);
		if (s.front.n > 1)
			last = ask(&s, s.front.v[s.front.n - 1].segments);
		if (last.bytes <= most)
			last = between(&s, most, one.bytes - s.front.v[0].peak, last);
		free(s.front.v);
	}
	how->segments = was;
	*ret = last;
	return last.bytes <= most;
}

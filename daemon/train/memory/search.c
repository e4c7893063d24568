/* The search for segments: of all numbers of segments those that are worth it. What a segment takes at most depends on
 * nothing but itself and what is kept before it, which is a sum; so a number is left as soon as one segment of it takes
 * as much as fewer segments do in all, and the one that most probably does is looked at first. */
#include <stdlib.h>
#include "common/mem.h"
#include "common/planted.h"
#include "kernels/real.h"
#include "train/memory.h"

#define ALIGN(n) (((uint64_t)(n) + 63) / 64 * 64)
#define SCALAR 8

struct search {
	const struct profile *m;
	uint64_t beside;
	uint32_t n, *unit;              /* n + 1 */
	uint64_t *x;                    /* n + 1: what flows in before each unit, and out of the last */
	uint64_t *weight;               /* n + 1: of all units before; only a guess which segment is the heaviest */
	uint64_t *kept;                 /* of the number at hand: inputs kept up to each segment, its own among them */
};

uint64_t memory_beside(const struct profile *m)
{
	return m->params * sizeof(real) + m->stats_bytes + 2 * SCALAR;
}

static void search_open(struct search *s, const struct profile *m, const struct memory_pass *how)
{
	*s = (struct search){ .m = m, .beside = memory_beside(m) };
	s->unit = memory_parts(m, 0, m->nops - 1, how, &s->n);
	s->x = xcalloc((size_t)s->n + 1, sizeof(*s->x));
	s->weight = xcalloc((size_t)s->n + 1, sizeof(*s->weight));
	s->kept = xcalloc((size_t)s->n + 1, sizeof(*s->kept));
	for (uint32_t u = 0; u < s->n; u++) {
		struct piece_need need;

		profile_need(m, s->unit[u], s->unit[u + 1] - 1, &need);
		s->x[u] = u ? ALIGN(need.x) : 0;        /* the batch is there in any case */
		s->x[u + 1] = ALIGN(need.y);
		s->weight[u + 1] = s->weight[u] + ALIGN(need.saved) + s->x[u];
	}
}

static void search_close(struct search *s)
{
	free(s->unit);
	free(s->x);
	free(s->weight);
	free(s->kept);
}

static uint64_t more(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Segment i of k: the most that is there while it runs forward, again, and backward. As passes_peak has it. */
static uint64_t segment_peak(const struct search *s, uint32_t k, uint32_t i)
{
	uint32_t from = memory_unit(s->n, k, i), to = memory_unit(s->n, k, i + 1);
	uint64_t dx = s->x[from], dy = s->x[to], front, back;
	struct piece_need need;

	profile_need(s->m, s->unit[from], s->unit[to] - 1, &need);
	front = s->kept[i] + dy + (i + 1 < k ? need.work_eval : ALIGN(need.saved) + need.work_fwd);
	back = dx + need.work_bwd;
	if (i + 1 < k)
		back = more(back, dy + need.work_fwd);
	return more(front, s->beside + s->kept[i] + ALIGN(need.saved) + dy + back);
}

/* What is kept of k segments, as long as that is not `most` by itself; the one that seems to be the heaviest of them.
 * k: those kept are too much. */
static uint32_t lay_out(struct search *s, uint32_t k, uint64_t most)
{
	uint64_t weightiest = 0;
	uint32_t heavy = 0;

	for (uint32_t i = 0, from = 0; i < k; i++) {
		uint32_t to = memory_unit(s->n, k, i + 1);
		uint64_t guess;

		s->kept[i] = (i ? s->kept[i - 1] : 0) + s->x[from];
		if (s->beside + s->kept[i] >= most)     /* with the last segment's backward; and more is kept there */
			return k;
		guess = s->kept[i] + s->weight[to] - s->weight[from] + s->x[to];
		if (guess > weightiest) {
			weightiest = guess;
			heavy = i;
		}
		from = to;
	}
	return heavy;
}

/* The most bytes of k segments; `most` when they are no fewer than that. */
static uint64_t peak_below(struct search *s, uint32_t k, uint64_t most)
{
	uint32_t heavy = lay_out(s, k, most);
	uint64_t peak = heavy == k ? most : segment_peak(s, k, heavy);

	for (uint32_t i = 0; i < k && peak < most && !PLANTED(HEAVIEST_ALONE); i++)
		peak = i == heavy ? peak : more(peak, segment_peak(s, k, i));
	return peak < most ? peak : most;
}

void memory_search(const struct profile *m, const struct memory_pass *how, struct memory_front *ret)
{
	uint64_t lowest = UINT64_MAX;
	struct search s;

	search_open(&s, m, how);
	*ret = (struct memory_front){ 0, xcalloc(s.n, sizeof(*ret->v)) };
	for (uint32_t k = 1; k <= s.n; k++) {
		uint64_t peak = peak_below(&s, k, lowest);

		if (peak < lowest)
			ret->v[ret->n++] = (struct memory_choice){ k, lowest = peak };
	}
	search_close(&s);
}

/* Deadlines: three times the worst of what was measured of late; before that, what an unknown link may take. */
#include "avg/int.h"

#define SHORT_MAX 5                             /* a third and half of that again */
#define WORSE 3                                 /* than the worst of late it may become */
#define MEASURED 5                              /* times; fewer say nothing */
#define UNMEASURED_US (2 * SECOND)

void times_add(struct times *t, uint64_t us)
{
	t->v[t->n++ % TIMES] = us;
	if (t->n >= MEASURED)
		t->least_us = 0;
}

bool times_longer(uint64_t us, uint64_t floor_us) { return us * WORSE > floor_us; }

void times_short(struct times *t, uint64_t times, uint64_t us, uint64_t unmeasured_us)
{
	uint64_t least = us * (times < 2 ? 2 : times > SHORT_MAX ? SHORT_MAX : times);
	least = least < 16 * unmeasured_us ? least : 16 * unmeasured_us;
	t->least_us = least > t->least_us ? least : t->least_us;
}

uint64_t times_deadline(const struct times *t, uint64_t floor_us, uint64_t unmeasured_us)
{
	uint64_t worst = 0, least = t->least_us > floor_us ? t->least_us : floor_us;
	unsigned n = t->n < TIMES ? t->n : TIMES;
	for (unsigned i = 0; i < n; i++)
		if (t->v[i] > worst)
			worst = t->v[i];
	if (n < MEASURED)
		return unmeasured_us > least ? unmeasured_us : least;
	return times_longer(worst, least) ? worst * WORSE : least;
}

uint64_t unmeasured_us(const struct avg *a)
{
	return UNMEASURED_US + (uint64_t)a->conf.len * sizeof(float);   /* at 1 MB/s */
}

/* The longest round trip to a member. What was measured so far may have been rounds without those who are far away:
 * they would never be in time again, and so never be measured. */
uint64_t farthest_us(const struct avg *a)
{
	struct peer_info info;
	uint64_t us = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (m != a->me && m->member && m->live && net_peer(a->net, &m->id, &info) && info.rtt_us > us)
			us = info.rtt_us;
	}
	return us;
}

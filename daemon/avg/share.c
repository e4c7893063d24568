/* What an epoch asks of each member, so that together they bring its samples. */
#include "avg/int.h"
#include "avg/share.h"

#define IDLE_US (20 * SECOND)

bool share_brings(const struct mate *m)
{
	return m->member && m->live && !(m->flags & (MATE_FOLLOWER | MATE_AUX | MATE_HOLD));
}

uint64_t share_quota(const struct avg *a, const struct mate *m)
{
	uint32_t micro = m == a->me ? a->conf.micro_batch : m->micro;
	return (uint64_t)a->conf.each * (micro ? micro : 1);
}

uint64_t progress_goal(const struct avg *a)
{
	uint64_t sum = 0;
	if (!a->conf.each)
		return a->conf.any ? 1 : a->target;
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		if (share_brings(m))
			sum += share_quota(a, m);
	}
	return sum ? sum : share_quota(a, a->me);
}

/* What the unit of this head brings to an epoch; none is complete before it has said so. */
uint64_t share_due(const struct avg *a, const struct mate *m)
{
	return a->conf.each ? share_quota(a, m) : m->share ? m->share : UINT64_MAX;
}

bool share_made(const struct avg *a, const struct mate *m)
{
	return (m == a->me || m->counted) && m->samples >= share_due(a, m);
}

double share_of(const struct avg *a, const struct mate *m)
{
	double rates = 0;
	size_t n = 0, unknown = 0;
	if (m->share)
		return (double)m->share;
	if (a->conf.each)
		return (double)share_quota(a, m);
	list_each(it, &a->mates) {
		struct mate *o = list_entry(it, struct mate, link);
		if (!share_brings(o))
			continue;
		n++;
		rates += o->rate;
		unknown += o->rate <= 0;
	}
	if (!n)
		n = 1;
	if (unknown || rates <= 0)
		return (double)a->target / (double)n;
	return (double)a->target * m->rate / rates;
}

/* A leader of units waits for slow ones, which have three times as long as the first (late_after). */
uint64_t share_patience(const struct avg *a)
{
	unsigned before = a->leader->unfits < 4 ? a->leader->unfits : 4;        /* it has less time each time */
	uint64_t begun = a->commit_us > a->enter_us ? a->commit_us : a->enter_us;
	uint64_t slow = a->units && a->idle_us > begun ? 3 * (a->idle_us - begun) : 0;
	return (IDLE_US + 8 * a->quick_us + slow) << a->idle_passed >> before;
}

bool progress_idle(const struct avg *a)
{
	return a->leader && a->idle_us && a->idle_gen == a->gen && a->lead_us <= a->idle_us &&
		now_of(a) - a->idle_us >= share_patience(a) / 2;
}

/* Everybody has an amount of its own to bring, and the sum is what comes of that. */
bool share_each(const struct avg *a)
{
	bool some = a->conf.each > 0;
	list_each(it, &a->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		some = some || (a->units && m->share && share_brings(m));
	}
	return some;
}

/* Who is left out of the next generations for a while: who was late with an answer, or has so often said what ended a
 * generation or kept one back. */
#include "crew/int.h"

#define BENCH_MOST 6
#define TROUBLE_MOST 4

void bench_late(struct crew *c, const struct id *id)
{
	struct mate *m = mate_of(c, id);
	if (!m)
		return;
	m->bench = c->commits + (1ull << (m->late < BENCH_MOST ? m->late : BENCH_MOST));
	m->late++;
	crew_say(c, LOG_INFO_, "crew_late", id, "it has not answered in time: the next generation is without it");
}

/* It says what can be true now and then: has seen a later number, does not run what is decided, has started anew, is
 * undecided. Each ends a generation or keeps one back; who goes on is left out, longer each time. */
void bench_trouble(struct crew *c, struct mate *m, const char *what)
{
	m->troubled = c->commits;
	if (++m->trouble <= TROUBLE_MOST || PLANTED(CREW_PATIENT))
		return;
	unsigned more = m->trouble - TROUBLE_MOST;
	m->shut = c->commits + (1ull << (more < BENCH_MOST ? more : BENCH_MOST));
	crew_say(c, LOG_WARN_, "crew_unsteady", &m->id, "the next generations are without it, too many have come to "
		"nothing because of it: %s", what);
}

void bench_calmer(struct crew *c)
{
	list_each(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		m->trouble -= m->trouble > 0 && m->shut <= c->commits && m->troubled + 1 < c->commits;
	}
}

bool benched(const struct crew *c, const struct mate *m)
{
	return (m->late && m->bench > c->commits) || m->shut > c->commits;
}

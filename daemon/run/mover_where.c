/* Whom a peer asks about the state. */
#include "run/mover.h"

static void add(const struct run *r, const struct id *id, struct id *to, size_t *n)
{
	bool there = id_eq(id, net_self(r->rs->ctx.net));
	for (size_t i = 0; i < *n; i++)
		there = there || id_eq(&to[i], id);
	if (!there && *n < MOVER_SOURCES)
		to[(*n)++] = *id;
}

/* Who holds the state by the last COMMIT, whether this peer has heard of it since or not, who is in the generation, and
 * everybody who is not known to be gone. Of a generation that begins with what lay on disks members may know each other
 * by it alone; and of a spare that has come since only the leader hears before the next COMMIT. */
size_t mover_whom(const struct run *r, struct id *ret, size_t *ret_sure)
{
	struct avg_member v[RUN_PEERS_SHOWN];
	struct id held[MOVER_SOURCES];
	size_t n = avg_members(r->avg, v, RUN_PEERS_SHOWN), holders = run_crew_holders(r, held, MOVER_SOURCES), out = 0;
	n = n < RUN_PEERS_SHOWN ? n : RUN_PEERS_SHOWN;
	for (size_t i = 0; i < holders; i++)
		if (avg_lives(r->avg, &held[i]))
			add(r, &held[i], ret, &out);
	*ret_sure = out;
	for (size_t i = 0; i < holders; i++)
		add(r, &held[i], ret, &out);
	holders = run_crew_members(r, held, MOVER_SOURCES);
	for (size_t i = 0; i < holders; i++)
		add(r, &held[i], ret, &out);
	for (size_t i = 0; i < n; i++)
		if (!v[i].gone)
			add(r, &v[i].id, ret, &out);
	return out;
}

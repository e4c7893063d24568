/* Who is who, by id. */
#include "avg/int.h"

struct mate *mate_find(const struct avg *a, const struct id *id)
{
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (id_eq(&m->id, id))
			return m;
	}
	return NULL;
}

int round_member(const struct round *r, const struct id *id)
{
	size_t i = 0;
	while (i < r->b.n && !id_eq(&r->b.m[i].id, id))
		i++;
	return i < r->b.n ? (int)i : -1;
}

bool flow_lives(const struct round *r, size_t i)
{
	const struct mate *m = mate_find(r->a, &r->b.m[i].id);
	return m && m->live;
}

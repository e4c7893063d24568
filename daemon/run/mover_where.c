/* Whom a peer asks about the state, and where in the history those are: for one that stands where nobody else does. */
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/mover.h"

#define ASK_US 3000000

static void add(const struct run *r, const struct id *id, struct id *to, size_t *n)
{
	bool there = id_eq(id, net_self(r->rs->ctx.net));
	for (size_t i = 0; i < *n; i++)
		there = there || id_eq(&to[i], id);
	if (!there && *n < MOVER_SOURCES)
		to[(*n)++] = *id;
}

static bool lives(const struct avg_member *v, size_t n, const struct id *id)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].live && id_eq(&v[i].id, id))
			return true;
	return false;
}

/* Who holds the state by the last COMMIT, whether this peer has heard of it since or not, and everybody who lives. */
size_t mover_whom(const struct run *r, struct id *ret, size_t *ret_sure)
{
	struct avg_member v[RUN_PEERS_SHOWN];
	struct id held[MOVER_SOURCES];
	size_t n = avg_members(r->avg, v, RUN_PEERS_SHOWN), holders = run_crew_holders(r, held, MOVER_SOURCES), out = 0;
	n = n < RUN_PEERS_SHOWN ? n : RUN_PEERS_SHOWN;
	for (size_t i = 0; i < holders; i++)
		if (lives(v, n, &held[i]))
			add(r, &held[i], ret, &out);
	*ret_sure = out;
	for (size_t i = 0; i < holders; i++)
		add(r, &held[i], ret, &out);
	for (size_t i = 0; i < n; i++)
		if (v[i].live)
			add(r, &v[i].id, ret, &out);
	return out;
}

/* ---- where others are ---- */

void mover_where_stop(struct mover *m)
{
	for (size_t i = 0; i < sizeof m->asked / sizeof *m->asked; i++) {
		struct asked *a = &m->asked[i];
		if (a->call)
			net_cancel(m->net, a->call);
		if (a->has)
			avg_point_done(&a->point);
		*a = (struct asked){ 0 };
	}
}

static bool same_place(const struct asked *a, const struct asked *b)
{
	return a->point.epoch == b->point.epoch && !memcmp(a->point.prev, b->point.prev, DIGEST) &&
		a->generation == b->generation;
}

static void said(struct mover *m)
{
	struct run *r = m->r;
	struct avg_point p;
	const struct asked *best = NULL;
	size_t most = 0, n = sizeof m->asked / sizeof *m->asked;
	void (*told)(struct run *r, const struct avg_point *p, uint64_t generation) = m->told;
	for (size_t i = 0; i < n; i++)
		if (m->asked[i].call)
			return;
	for (size_t i = 0; i < n; i++) {
		size_t same = 0;
		for (size_t k = 0; k < n && m->asked[i].has; k++)
			same += m->asked[k].has && same_place(&m->asked[i], &m->asked[k]);
		if (same > most || (same && same == most && m->asked[i].point.epoch > best->point.epoch)) {
			most = same;
			best = &m->asked[i];
		}
	}
	m->told = NULL;
	avg_point_init(&p);
	if (best)
		avg_point_copy(&p, &best->point);
	uint64_t generation = best ? best->generation : 0;
	mover_where_stop(m);
	told(r, generation ? &p : NULL, generation);    /* before the first COMMIT there is none */
	avg_point_done(&p);
}

static void point_came(void *arg, const struct frame *a, const struct err *error)
{
	struct asked *x = arg;
	struct mover *m = x->m;
	struct err e;
	x->call = NULL;
	bool fine = !error && !json_get_u64(a->json, "generation", &x->generation, &e);
	json_t *j = !fine ? NULL : json_read((const char *)a->blob, a->blob_len, JSON_POINT, &e);
	if (j) {
		avg_point_init(&x->point);
		x->has = !avg_point_parse(&x->point, j, &e);
		if (!x->has)
			avg_point_done(&x->point);
	}
	json_decref(j);
	said(m);
}

void mover_where(struct mover *m, void (*told)(struct run *r, const struct avg_point *p, uint64_t generation))
{
	struct run *r = m->r;
	struct id v[MOVER_SOURCES];
	size_t sure, n = mover_whom(r, v, &sure), max = sizeof m->asked / sizeof *m->asked;
	if (m->told)
		return;
	m->told = told;
	for (size_t i = 0; i < n && i < max; i++) {
		m->asked[i] = (struct asked){ .m = m };
		m->asked[i].call = net_call(m->net, &v[i], KIND_RUN_SHARD, json_pack("{s:s}", "run", r->hex), NO_BLOB,
			CLASS_control, ASK_US, point_came, &m->asked[i]);
	}
	if (!n) {
		m->told = NULL;
		told(r, NULL, 0);
	}
}

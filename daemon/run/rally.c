/* Which epoch all go on from (rally.h): everybody is asked where it stands and what it has, and each judges alike.
 *
 * Where somebody goes on, all go. Else it is the newest epoch of which those who are here have every part. Whoever
 * comes from the disk waits for as many as made the last COMMIT, 20 seconds at most: one of them may have a newer one.
 * It goes nowhere while somebody stands beyond. Who stands beyond goes back only when all who held the state there have
 * spoken, and have it no more: what a peer has in memory that cannot be reached now is not given up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "run/mover.h"
#include "run/rally.h"

#define ASK_US 1000000
#define ASK_STANDING_US 3000000         /* what a peer has in memory is not given up because it is busy */
#define WAIT_US 20000000                /* for those of the last COMMIT */
#define BACKS 3                         /* rounds that must say the same before anybody goes back */
#define TELL_US 10000000

/* ---- life ---- */

struct rally *rally_new(struct run *r)
{
	struct rally *w = xcalloc(1, sizeof *w);
	*w = (struct rally){ .r = r, .env = r->rs->ctx.env, .net = r->rs->ctx.net };
	return w;
}

static void drop_said(struct rally *w)
{
	for (size_t i = 0; i < w->nsaid; i++) {
		struct said *x = &w->said[i];
		if (x->call)
			net_cancel(w->net, x->call);
		if (x->has_point)
			avg_point_done(&x->point);
		for (size_t k = 0; k < x->n; k++)
			claim_free(&x->v[k]);
		free(x->v);
	}
	w->nsaid = 0;
}

static void verdict_drop(struct rally *w)
{
	if (w->has_at)
		avg_point_done(&w->at);
	w->has_at = false;
}

void rally_anew(struct rally *w)
{
	drop_said(w);
	if (w->fetch.call)
		net_cancel(w->net, w->fetch.call);
	w->fetch.call = NULL;
	w->asks = false;
}

void rally_free(struct rally *w)
{
	if (!w)
		return;
	rally_anew(w);
	rally_files_free(w);
	verdict_drop(w);
	w->dead = true;
	if (!w->reading)                        /* else its job's end frees it */
		free(w);
}

void rally_since(struct rally *w)
{
	w->since_us = env_now(w->env);
	w->backs = 0;
}

void rally_calm(struct rally *w)
{
	w->lacks[0] = '\0';
	w->backs = 0;
}

const char *rally_lacks(const struct rally *w) { return w->lacks[0] ? w->lacks : NULL; }

static void tell(struct rally *w, const char *text)
{
	bool news = strcmp(text, w->lacks) && env_now(w->env) - w->told_us >= TELL_US;
	snprintf(w->lacks, sizeof w->lacks, "%s", text);
	if (!news && w->told_us)
		return;
	w->told_us = env_now(w->env);
	run_log(w->r, LOG_WARN_, "crew.lacks", "%s", text);
	run_tell(w->r, true);
}

/* ---- what is there, by point ---- */

struct cand { uint64_t epoch; uint8_t prev[DIGEST]; struct shard_part *v; size_t n; bool stands, runs; unsigned votes;
	uint64_t missing, generation;
	const struct said *at, *has;            /* who knows its point; who has a checkpoint of it */
};
struct cands { struct cand *v; size_t n; };

static struct cand *cand_of(struct cands *c, uint64_t epoch, const uint8_t prev[DIGEST])
{
	for (size_t i = 0; i < c->n; i++)
		if (c->v[i].epoch == epoch && !memcmp(c->v[i].prev, prev, DIGEST))
			return &c->v[i];
	c->v = xrealloc(c->v, (c->n + 1) * sizeof *c->v);
	c->v[c->n] = (struct cand){ .epoch = epoch };
	memcpy(c->v[c->n].prev, prev, DIGEST);
	return &c->v[c->n++];
}

static void put(struct cands *c, const struct claim *x, const struct said *by)
{
	struct cand *to = x->epoch ? cand_of(c, x->epoch, x->prev) : NULL;
	if (!to)
		return;
	to->v = xrealloc(to->v, (to->n + x->n + 1) * sizeof *to->v);
	memcpy(to->v + to->n, x->v, x->n * sizeof *x->v);
	to->n += x->n;
	if (by && x->file)
		to->has = by;
}

static void put_mine(struct rally *w, struct cands *c)
{
	json_t *mine = rally_have(w);
	struct claim x;
	struct err e;
	for (size_t i = 0; i < json_array_size(mine); i++)
		if (!claim_read(&x, rally_layout(w), json_array_get(mine, i), &e)) {
			put(c, &x, NULL);
			claim_free(&x);
		}
	json_decref(mine);
}

static bool stands_at(const struct said *x, const struct cand *c)
{
	return x->heard && x->stands && x->epoch == c->epoch && !memcmp(x->prev, c->prev, DIGEST);
}

/* The generation that most of those who stand there name; of two the lower one. */
static uint64_t most_say(const struct rally *w, const struct cand *c)
{
	uint64_t best = 0;
	unsigned most = 0;
	for (size_t i = 0; i < w->nsaid; i++) {
		unsigned same = 0;
		for (size_t k = 0; k < w->nsaid && stands_at(&w->said[i], c); k++)
			same += stands_at(&w->said[k], c) && w->said[k].generation == w->said[i].generation;
		if (same > most || (same && same == most && w->said[i].generation < best)) {
			most = same;
			best = w->said[i].generation;
		}
	}
	return best;
}

static struct cands gather(struct rally *w)
{
	struct cands c = { 0 };
	put_mine(w, &c);
	for (size_t i = 0; i < w->nsaid; i++) {
		const struct said *x = &w->said[i];
		for (size_t k = 0; k < x->n; k++)
			put(&c, &x->v[k], x);
		if (!x->heard || !x->stands || !x->epoch)
			continue;
		struct cand *to = cand_of(&c, x->epoch, x->prev);
		to->stands = true;
		to->runs = to->runs || x->runs;
		to->votes += x->runs;
		to->at = x->has_point ? x : to->at;
	}
	for (size_t i = 0; i < c.n; i++) {
		c.v[i].generation = most_say(w, &c.v[i]);
		c.v[i].missing = c.v[i].runs ? 0 : rally_missing(rally_layout(w), c.v[i].v, c.v[i].n);
	}
	return c;
}

static void cands_free(struct cands *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->v[i].v);
	free(c->v);
}

enum which { ANY, WHOLE, STANDS, RUNS };

static bool is(const struct cand *x, enum which which)
{
	return which == WHOLE ? !x->missing : which == STANDS ? x->stands : which == RUNS ? x->runs : true;
}

static bool before(const struct cand *x, const struct cand *y, enum which which)
{
	if (which == RUNS && x->votes != y->votes)
		return x->votes > y->votes;
	return x->epoch != y->epoch ? x->epoch > y->epoch : memcmp(x->prev, y->prev, DIGEST) < 0;
}

/* The newest that is so; of where somebody goes on, the one that most name. Of two the same one for everybody. */
static const struct cand *newest(const struct cands *c, enum which which)
{
	const struct cand *best = NULL;
	for (size_t i = 0; i < c->n; i++)
		if (is(&c->v[i], which) && (!best || before(&c->v[i], best, which)))
			best = &c->v[i];
	return best;
}

/* ---- who is there ---- */

/* How many are here, and how many made the last COMMIT. */
static uint64_t count(const struct rally *w, uint64_t *ret_members)
{
	uint64_t members = w->r->was_members, n = 1;
	for (size_t i = 0; i < w->nsaid; i++) {
		n += w->said[i].heard;
		members = w->said[i].heard && w->said[i].members > members ? w->said[i].members : members;
	}
	*ret_members = members;
	return n;
}

/* As many as made the last COMMIT, or it was waited long enough. */
static bool here(const struct rally *w)
{
	uint64_t members, n = count(w, &members);
	return PLANTED(RALLY_HASTY) || n >= members || env_now(w->env) - w->since_us >= WAIT_US;
}

/* No event: it is so after every restart. */
static void waits(struct rally *w)
{
	uint64_t members, n = count(w, &members);
	snprintf(w->lacks, sizeof w->lacks, "%llu of %llu members of the last commit are here: the others are waited for, "
		"%d s at most, since they may have a newer state", (unsigned long long)n, (unsigned long long)members,
		(int)(WAIT_US / 1000000));
}

/* One of them that has not spoken; NULL: all have. */
static const struct id *silent(const struct rally *w, const struct id *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		bool heard = id_eq(&v[i], net_self(w->net));
		for (size_t k = 0; k < w->nsaid && !heard; k++)
			heard = w->said[k].heard && id_eq(&w->said[k].id, &v[i]);
		if (!heard)
			return &v[i];
	}
	return NULL;
}

/* A holder of the last COMMIT, or a member of the generation, that has not spoken. */
static const struct id *unheard(const struct rally *w, struct id v[RALLY_PEERS])
{
	const struct id *who = silent(w, v, run_crew_holders(w->r, v, RALLY_PEERS));
	return who ? who : silent(w, v, run_crew_members(w->r, v, RALLY_PEERS));
}

/* ---- judging ---- */

static void lacks(struct rally *w, const struct cand *x)
{
	char text[RALLY_TEXT];
	snprintf(text, sizeof text, "no epoch is whole among the %zu peers here, in memory or on their disks: of epoch "
		"%llu, the newest, %llu bytes of the state are missing", w->nsaid + 1, (unsigned long long)x->epoch,
		(unsigned long long)x->missing);
	tell(w, text);
}

/* It stands nowhere. NULL: not yet. */
static const struct cand *judge_coming(struct rally *w, const struct cands *c)
{
	const struct cand *best = newest(c, RUNS), *top = newest(c, STANDS);
	char text[RALLY_TEXT];
	if (!best)
		best = newest(c, WHOLE);
	if (!best) {
		if (c->n && here(w))
			lacks(w, newest(c, ANY));
		else if (c->n)
			waits(w);
		return NULL;
	}
	if (top && top->epoch > best->epoch && !best->runs) {
		snprintf(text, sizeof text, "others stand at epoch %llu, of which %llu bytes are missing; epoch %llu is whole: "
			"they have to go back first", (unsigned long long)top->epoch, (unsigned long long)top->missing,
			(unsigned long long)best->epoch);
		tell(w, text);
		return NULL;
	}
	if (best->stands || here(w))
		return best;
	waits(w);
	return NULL;
}

/* It stands, and nothing goes on. true: it must go back. */
static bool judge_standing(struct rally *w, const struct cands *c)
{
	const struct avg_point *p = &w->r->point;
	const struct cand *best = newest(c, WHOLE), *mine = NULL;
	struct id held[RALLY_PEERS];
	char text[RALLY_TEXT];
	for (size_t i = 0; i < c->n; i++)
		if (c->v[i].epoch == p->epoch && !memcmp(c->v[i].prev, p->prev, DIGEST))
			mine = &c->v[i];
	bool back = best && !newest(c, RUNS) && !run_crew_seated(w->r) && best->epoch < p->epoch;
	if (!back || w->back != best->epoch)
		w->backs = 0;
	if (!best && mine)
		lacks(w, mine);
	if (!back)
		return false;
	const struct id *who = unheard(w, held);
	if (who) {
		snprintf(text, sizeof text, "epoch %llu is whole, but of epoch %llu %.8s may hold what is missing here (%llu "
			"bytes): it is waited for", (unsigned long long)best->epoch, (unsigned long long)p->epoch,
			id_short(who, (char[9]){ 0 }), (unsigned long long)(mine ? mine->missing : 0));
		tell(w, text);
		return false;
	}
	w->back = best->epoch;
	return here(w) && ++w->backs >= BACKS && !PLANTED(RALLY_STAYS);
}

static const struct rally_verdict *end(struct rally *w, enum rally_way way, uint64_t generation)
{
	w->verdict = (struct rally_verdict){ .way = way, .point = way == RALLY_THERE ? &w->at : NULL,
		.generation = generation };
	w->asks = false;
	drop_said(w);
	if (way == RALLY_THERE)
		w->lacks[0] = '\0';
	return &w->verdict;
}

/* ---- the point of what is taken ---- */

static int parse(struct avg_point *p, const char *text, size_t n, uint64_t epoch, const uint8_t prev[DIGEST])
{
	struct err e;
	json_t *j = json_read(text, n, JSON_POINT, &e);
	avg_point_init(p);
	int rc = !j || avg_point_parse(p, j, &e) || p->epoch != epoch || memcmp(p->prev, prev, DIGEST) ? -1 : 0;
	json_decref(j);
	if (rc)
		avg_point_done(p);
	return rc;
}

static const struct rally_verdict *take(struct rally *w, const char *text, size_t n)
{
	w->has_at = !parse(&w->at, text, n, w->fetch.epoch, w->fetch.prev);
	return w->has_at ? end(w, RALLY_THERE, w->fetch.generation) : end(w, RALLY_STAY, 0);
}

const struct rally_verdict *rally_fetched(struct rally *w, const struct frame *f, const struct err *e)
{
	w->fetch.call = NULL;
	return e || !f->blob_len ? end(w, RALLY_STAY, 0) : take(w, (const char *)f->blob, f->blob_len);
}

static const struct rally_verdict *go_there(struct rally *w, const struct cand *x)
{
	const struct kept *k = rally_file(w, x->epoch, x->prev);
	w->fetch.epoch = x->epoch;
	w->fetch.generation = x->generation;
	memcpy(w->fetch.prev, x->prev, DIGEST);
	if (!x->stands)
		rally_found(w, x->epoch);
	if (x->at) {
		avg_point_init(&w->at);
		avg_point_copy(&w->at, &x->at->point);
		w->has_at = true;
		return end(w, RALLY_THERE, x->generation);
	}
	if (k)
		return take(w, k->point, strlen(k->point));
	if (!x->has)
		return end(w, RALLY_STAY, 0);
	w->fetch.call = net_call(w->net, &x->has->id, KIND_RUN_SHARD, json_pack("{s:s,s:I,s:o,s:b}", "run", w->r->hex,
		"epoch", (json_int_t)x->epoch, "prev", json_hex(x->prev, DIGEST), "point", 1), NO_BLOB, CLASS_control,
		ASK_US, w->fetched, w);
	return NULL;
}

/* ---- a round ---- */

static const struct rally_verdict *judge(struct rally *w)
{
	struct cands c = gather(w);
	const struct rally_verdict *v;
	if (run_crew_stands(w->r)) {
		bool back = judge_standing(w, &c);
		if (back)
			run_log(w->r, LOG_WARN_, "crew.back", "epoch %llu has parts that nobody holds any more: going back to "
				"epoch %llu, which is whole", (unsigned long long)w->r->point.epoch, (unsigned long long)w->back);
		v = end(w, back ? RALLY_BACK : RALLY_STAY, 0);
	} else {
		const struct cand *x = judge_coming(w, &c);
		v = x ? go_there(w, x) : end(w, RALLY_STAY, 0);
	}
	cands_free(&c);
	return v;
}

const struct rally_verdict *rally_answered(struct said *x, const struct frame *f, const struct err *e)
{
	struct rally *w = x->w;
	x->call = NULL;
	if (!e)
		rally_hear_said(x, f);
	for (size_t i = 0; i < w->nsaid; i++)
		if (w->said[i].call)
			return NULL;
	return judge(w);
}

static void add(struct rally *w, const struct id *id)
{
	bool there = id_eq(id, net_self(w->net));
	for (size_t i = 0; i < w->nsaid; i++)
		there = there || id_eq(&w->said[i].id, id);
	if (!there && w->nsaid < RALLY_PEERS)
		w->said[w->nsaid++] = (struct said){ .w = w, .id = *id };
}

const struct rally_verdict *rally_ask(struct rally *w, net_done_fn *answered, net_done_fn *fetched)
{
	struct avg_member v[RUN_PEERS_SHOWN];
	struct id held[RALLY_PEERS];
	if (w->asks || w->reading)
		return NULL;
	verdict_drop(w);
	size_t n = avg_members(w->r->avg, v, RUN_PEERS_SHOWN), holders = run_crew_holders(w->r, held, RALLY_PEERS);
	for (size_t i = 0; i < holders; i++)
		add(w, &held[i]);
	for (size_t i = 0; i < n && i < RUN_PEERS_SHOWN; i++)
		add(w, &v[i].id);
	w->asks = true;
	w->fetched = fetched;
	uint64_t us = run_crew_stands(w->r) ? ASK_STANDING_US : ASK_US;
	for (size_t i = 0; i < w->nsaid; i++)
		w->said[i].call = net_call(w->net, &w->said[i].id, KIND_RUN_SHARD, json_pack("{s:s}", "run", w->r->hex),
			NO_BLOB, CLASS_control, us, answered, &w->said[i]);
	return w->nsaid ? NULL : judge(w);
}

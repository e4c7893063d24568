/* What one member can take of others' memory, data and history: what cannot be sent is not applied, a micro-batch of
 * any size does not take the pool, strangers take no member's place, changes without end do not make points that nobody
 * can read; and what comes a moment early is not lost. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include "avg/held.h"
#include "avg/int.h"
#include "avg/sent.h"
#include "avg_world.h"
#include "check.h"

#define PEERS 4
#define TARGET (PEERS * 32)
#define CROWD 400

static struct world *begun_as(struct sim *s, uint64_t epoch, enum robust robust)
{
	struct world *w = world_new(s, 320, TARGET, 16, 10 * MSEC);
	w->conf.robust = robust;
	if (robust != ROBUST_NONE)
		w->slack = 10;                  /* a robust mean is not the samples' */
	w->start_us = 2 * SEC;
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, epoch, 20 * SEC);
	return w;
}

static struct world *begun(struct sim *s, uint64_t epoch) { return begun_as(s, epoch, ROBUST_NONE); }

/* ---- a COMMIT too large to be sent ---- */

static json_t *long_patch(void)
{
	char text[4070];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = 0;
	return json_pack("{s:s}", "x", text);
}

static void fill(struct avg *a)
{
	if (a->props)
		return;
	free(a->prop);
	a->prop = xcalloc(2 * WIRE_PROPOSALS_MAX, sizeof *a->prop);
	while (a->props < 2 * WIRE_PROPOSALS_MAX)
		a->prop[a->props++] = (struct wire_proposal){ .nonce = a->props, .asked = 1u << 20, .epoch = 1u << 20,
			.patch = long_patch() };
}

static void empty(struct avg *a)
{
	while (a->props)
		json_decref(a->prop[--a->props].patch);
}

/* Whoever leads has more to write than a frame takes: nobody, itself least of all, takes the epoch for made. */
static void scn_large(struct sim *s)
{
	struct world *w = begun(s, 3);
	uint64_t at = 0;
	for (int k = 0; k < 2000; k++) {
		sim_run_for(s, MSEC);
		for (int i = 0; i < PEERS; i++)
			fill(world_peer(w, i)->avg);
		at = k == 300 ? world_newest(w) : at;   /* what was decided before is applied */
	}
	if (world_newest(w) > at)
		sim_fail(s, "epoch %llu was made, and its COMMIT cannot be sent", (unsigned long long)world_newest(w));
	for (int i = 0; i < PEERS; i++) {
		sim_in_time(s, world_peer(w, i)->fails > 0);
		empty(world_peer(w, i)->avg);
	}
	world_go_on(w, 6);
	world_same(w);
	world_free(w);
}

/* ---- a micro-batch of any size ---- */

static uint64_t one_is_huge(struct world *w, int node)
{
	return node == PEERS ? 1u << 30 : 16;
}

static void scn_micro(struct sim *s)
{
	struct world *w = world_new(s, 320, TARGET, 16, 10 * MSEC);
	w->start_us = 2 * SEC;
	w->conf.data_limit = 100 * TARGET;
	w->micro_of = one_is_huge;
	w->step_us[PEERS] = 3600 * SEC;         /* it holds what it was given, and brings nothing */
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, 3, 60 * SEC);
	world_add(w, 1);
	world_run_to(w, 25, 200 * SEC);        /* one that leads and gives nothing is passed over after 20 s */
	for (int i = 0; i < PEERS; i++) {
		const struct mate *m = mate_find(world_peer(w, i)->avg, net_self(world_peer(w, PEERS)->net));
		if (m && ranges_count(&m->grant) > 50 * TARGET)
			sim_fail(s, "node %d of %d positions holds %llu: the others have nothing to do", PEERS, 100 * TARGET,
				(unsigned long long)ranges_count(&m->grant));
	}
	world_free(w);
}

/* ---- strangers ---- */

static void scn_strangers(struct sim *s)
{
	struct world *w = begun(s, 3);
	for (int i = 0; i < PEERS; i++)
		for (unsigned k = 0; k < 3 * MATES_MAX; k++) {
			struct id id = { { 0 } };
			memcpy(id.b, &k, sizeof k);
			id.b[31] = 0x5a;
			mate_make(world_peer(w, i)->avg, &id);
		}
	for (int i = 0; i < PEERS; i++)
		sim_check(s, world_peer(w, i)->avg->nmates <= MATES_MAX && roster_others(world_peer(w, i)->avg, true) ==
			PEERS - 1);
	world_add(w, 1);
	world_go_on(w, 6);
	world_brings(w, PEERS, 0);
	world_free(w);
}

/* ---- a crowd that is not there ---- */

/* A member that exists on that peer only. */
static struct mate *nobody(struct sim *s, struct avg *a, unsigned k)
{
	struct id id = { { 0 } };
	memcpy(id.b, &k, sizeof k);
	id.b[31] = 0x5a;
	struct mate *m = mate_make(a, &id);
	sim_check(s, m != NULL);
	m->member = true;
	return m;
}

static size_t heap_now(void)
{
	struct mallinfo2 m = mallinfo2();       /* zeros under the sanitizers */
	return m.uordblks + m.hblkhd;
}

/* The leader's BEGIN names hundreds who are nobody: who sums a part takes no memory for pieces that do not come. */
static void scn_crowd(struct sim *s)
{
	struct world *w = world_new(s, PEERS << 14, TARGET, 16, 10 * MSEC);     /* a piece has 8 KiB */
	size_t quiet, most = 0, named = 0;
	int leads = 0;
	w->start_us = 2 * SEC;
	world_add(w, PEERS);
	world_settle(w, 20 * SEC);
	world_run_to(w, 6, 20 * SEC);
	quiet = heap_now();
	while (leads < PEERS && !is_leader(world_peer(w, leads)->avg))
		leads++;
	if (leads == PEERS) {
		sim_late(s, "nobody leads at the moment when the crowd is to come");
		world_free(w);
		return;
	}
	struct avg *a = world_peer(w, leads)->avg;
	for (unsigned k = 0; k < CROWD; k++)
		nobody(s, a, k)->live = true;
	for (int k = 0; k < 2000; k++) {
		sim_run_for(s, MSEC);
		size_t heap = heap_now();
		most = heap > most ? heap : most;
		const struct round *r = world_peer(w, 1)->avg->round;
		named = r && r->b.n > named ? r->b.n : named;
	}
	sim_in_time(s, named > CROWD);
	if (most > quiet + PEERS * (8u << 20))
		sim_late(s, "%zu KiB more memory in everybody for %zu members of a round", (most - quiet) / 1024, named);
	world_free(w);
}

/* ---- what is kept of audits ---- */

static void accuses(struct avg *a, const struct mate *by, uint64_t epoch)
{
	uint8_t round[DIGEST] = { 1 };
	json_t *j = json_pack("{s:o,s:I,s:i}", "round", json_hex(round, DIGEST), "epoch", (json_int_t)epoch, "part", 0);
	struct request req = { .net = a->net, .f = { .kind = KIND_AVG_WRONG, .from = by->id, .json = j } };
	wrong_on(a, &req);
	json_decref(j);
}

static bool none_wait(struct sim *s, void *arg) { return list_empty(&((struct avg *)arg)->audits->said); }

/* Of an epoch that is to come: each has one that waits, so many do at most, and not for long. */
static void scn_accusations(struct sim *s)
{
	struct world *w = begun_as(s, 3, ROBUST_CLIP);
	struct avg *a = world_peer(w, 0)->avg;
	for (unsigned k = 0; k < 40; k++) {
		const struct mate *m = nobody(s, a, k % 20);
		accuses(a, m, a->point.epoch + 2);
		size_t most = k < 16 ? k + 1 : 16;
		if (list_len(&a->audits->said) != most)
			sim_fail(s, "%zu accusations wait, of %zu that may", list_len(&a->audits->said), most);
	}
	sim_await(s, none_wait, a, 31 * SEC);
	accuses(a, nobody(s, a, 30), a->point.epoch + 3);       /* too far ahead to be honest */
	sim_check(s, list_empty(&a->audits->said));
	world_free(w);
}

#define MIB (1u << 20)

static void holds(struct avg *a, unsigned k, size_t bytes, size_t want, struct sim *s)
{
	struct held *h = xcalloc(1, sizeof *h);
	*h = (struct held){ .part = k, .n = 1, .bytes = bytes, .len = 1, .data = xcalloc(2, sizeof *h->data) };
	h->data[0] = big_alloc(bytes);
	list_init(&h->link);
	held_put(audits_of(a), h);
	const struct held *last = list_entry(a->audits->held.prev, struct held, link);
	if (list_len(&a->audits->held) != want || last->part != k)
		sim_fail(s, "%zu parts are held, the last is the %zuth; of %u with %zu bytes each %zu may",
			list_len(&a->audits->held), last->part, k + 1, bytes, want);
}

static bool none_held(struct sim *s, void *arg) { return list_empty(&((struct avg *)arg)->audits->held); }

/* Large ones are few, small ones as many as 64 MiB take, the oldest go, and all after 30 s. */
static void scn_held(struct sim *s)
{
	struct world *w = begun(s, 3);
	struct avg *a = world_peer(w, 0)->avg;
	for (unsigned k = 0; k < 6; k++)
		holds(a, k, 40 * MIB, k < 4 ? k + 1 : 4, s);
	sim_run_for(s, 29 * SEC);
	sim_check(s, list_len(&a->audits->held) == 4);
	sim_await(s, none_held, a, 3 * SEC);
	for (unsigned k = 0; k < 80; k++)
		holds(a, k, MIB, k < 64 ? k + 1 : 64, s);
	world_free(w);
}

static void said(void *arg, const struct frame *f, const struct err *e) {}

/* One member's lists of rounds that nobody has begun: the newest stays, and none that no round could have. */
static void scn_lists(struct sim *s)
{
	struct world *w = begun(s, 3);
	struct apeer *from = world_peer(w, 1), *to = world_peer(w, 0);
	size_t most = WIRE_MEMBERS_MAX * TREE256 + SIG_BYTES;
	struct mate *m = mate_find(to->avg, net_self(from->net));
	for (unsigned k = 0; k < 100; k++) {
		uint8_t round[DIGEST] = { (uint8_t)(k + 1), 0x5a };
		void *bytes = xcalloc(1, most + 1);
		json_t *j = hub_json(from->avg);
		size_t n = k % 2 ? most + 1 : most - k;
		json_object_set_new(j, "round", json_hex(round, DIGEST));
		net_call(from->net, net_self(to->net), KIND_AVG_SENT, j, blob_copy(bytes, n), CLASS_control, SEC, said, NULL);
		free(bytes);
		sim_run_for(s, 100 * MSEC);
		if (m->stash && m->stash->n > most)
			sim_fail(s, "a list of %zu bytes is kept, and none may have more than %zu", m->stash->n, most);
		else if (!m->stash || m->stash->n != most - (k & ~1u) || m->stash->round[0] != (k & ~1u) + 1)
			sim_late(s, "after list %u of %zu bytes it has one of %zu", k, n, m->stash ? m->stash->n : 0);
	}
	world_free(w);
}

/* ---- changes without end ---- */

/* Everybody may change anything, and one does: as often as a body has room for, in every epoch that it leads. */
static void many(struct avg *a)
{
	for (size_t i = 0; i < a->props; i++)
		json_decref(a->prop[i].patch);
	a->prop = xrealloc(a->prop, WIRE_PROPOSALS_MAX * sizeof *a->prop);
	for (a->props = 0; a->props < WIRE_PROPOSALS_MAX; a->props++) {
		struct wire_proposal *p = &a->prop[a->props];
		struct buf b = { 0 };
		*p = (struct wire_proposal){ .author = a->me->id, .nonce = env_rand(a->env) >> 1, .asked = a->point.epoch + 1,
			.epoch = a->point.epoch + 1, .patch = json_pack("{s:i}", "x", (int)a->props) };
		buf_put(&b, a->conf.run.b, 32);
		buf_u64(&b, p->nonce);
		buf_u64(&b, p->asked);
		wire_put_json(&b, p->patch);
		net_sign(a->net, b.p, b.len, p->sig);
		buf_free(&b);
	}
}

static void scn_many(struct sim *s)
{
	struct world *w = begun(s, 3);
	size_t most = 0;
	for (int k = 0; k < 4000; k++) {
		struct avg *a = world_peer(w, 0)->avg;
		sim_run_for(s, MSEC);
		if (is_leader(a) && !a->round && a->props < WIRE_PROPOSALS_MAX)
			many(a);
		for (int i = 0; i < PEERS; i++) {
			size_t n = json_object_size(world_peer(w, i)->avg->point.recent);
			most = n > most ? n : most;
		}
	}
	sim_in_time(s, most > WIRE_PROPOSALS_MAX);        /* in more than one epoch */
	if (most > 256)
		sim_fail(s, "%zu changes are part of the point", most);
	world_go_on(w, 6);
	world_same(w);
	world_free(w);
}

/* ---- a moment early ---- */

struct early { uint8_t round[DIGEST]; struct id from; uint64_t epoch; bool kept; };

/* A BEGIN that stands on what is decided, and whose mean is on its way, is that of a round when its turn comes, unless
 * another leads that epoch here. */
static void watch(struct world *w, int node, struct early *e)
{
	const struct apeer *p = world_peer(w, node);
	const struct avg *a = p ? p->avg : NULL;
	struct body b;
	if (!a)
		return;
	if (a->begin_req && !body_read(&b, a->begin_bytes.p, a->begin_bytes.len, NULL)) {
		body_digest(a->begin_bytes.p, a->begin_bytes.len, e->round);
		e->epoch = b.epoch;
		e->from = a->begin_req->f.from;
		body_free(&b);
	} else if (e->kept && a->state == AVG_IN && a->point.epoch == e->epoch && list_empty(&a->early) &&
			(!a->leader || id_eq(&a->leader->id, &e->from)) && (!a->round || memcmp(a->round->id, e->round, DIGEST))) {
		sim_fail(w->s, "node %d: the BEGIN of epoch %llu came early, and is lost", node, (unsigned long long)e->epoch);
	}
	e->kept = a->begin_req != NULL;
}

static void scn_early(struct sim *s)
{
	struct world *w = world_new(s, 400, 64, 8, 3750);
	struct sim_link far = { .latency_us = 55 * MSEC, .jitter_us = 5 * MSEC };
	struct early e[6] = { { { 0 } } };
	sim_link(s, -1, -1, &far);
	w->forks_allowed = true;
	world_add(w, 1);
	world_run_to(w, 60, 20 * SEC);
	world_add(w, 5);
	for (int k = 0; k < 40000; k++) {
		sim_run_for(s, 200);
		for (int i = 1; i < 6; i++)
			watch(w, i, &e[i]);
	}
	world_free(w);
}

static const struct scn list[] = { SCN(large), SCN(micro), SCN(strangers), SCN(crowd), SCN(many), SCN(early),
	SCN(accusations), SCN(held), SCN(lists), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

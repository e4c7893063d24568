/* RECV of any: what peers have told stands in the port's queue, and the first go into free places of the RECV that is
 * open. What has begun to come is waited for when the batch closes; who announces and then brings nothing is sent to
 * the end of the queue, each time for longer, and is not asked any more at last. */
#include "exec/carry_port.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/planted.h"

#define TURN_US 500000ull                       /* nothing has come in that time: others first; then twice as long */
#define TURNS_MAX 5                             /* a quarter of a minute in all */
#define SEEN_MAX 65536                          /* indexes that are remembered where the first one counts */

static void check(struct haul *h);

static bool seen(const struct port *p, int64_t index)
{
	return p->seen && map_get(p->seen, &index, sizeof(index));
}

static void see(struct port *p, int64_t index)
{
	struct env *env = p->c->c.env;
	int64_t *slot;
	uint64_t key;

	if (!p->seen) {                         /* peers choose the indexes */
		env->ops->secure(env, &key, sizeof(key));
		p->seen = map_new(key);
		p->ring = xcalloc(SEEN_MAX, sizeof(*p->ring));
	}
	slot = &p->ring[p->nseen++ % SEEN_MAX];
	if (p->nseen > SEEN_MAX)
		(void)map_del(p->seen, slot, sizeof(*slot));
	*slot = index;
	(void)map_put(p->seen, &index, sizeof(index), p);
}

/* --- taking */

static void over(struct value *v, const struct err *e);

static void take(struct haul *h, struct teller *t)
{
	struct any *a = h->any;
	uint32_t k = 0;

	while (a->place[k] || a->full[k])
		k++;
	list_del(&t->link);
	t->under = true;
	t->h = h;
	t->place = k;
	t->was = 0;
	a->place[k] = t;
	a->under++;
	t->v = (struct value){ .h = h, .peer = &t->id, .rank = t->rank, .stream = t->stream, .index = t->index,
		.known = true, .told = true, .head = { t->version, t->bytes }, .p = (char *)h->out.p + k * a->part,
		.bytes = t->bytes, .room = a->part, .over = over };
	value_begin(&t->v);
	env_after(h->c->c.env, &t->timer, TURN_US << t->turns);
}

/* It is not under way any more; what it has still stands. */
static void untake(struct teller *t)
{
	struct any *a = t->h->any;

	value_cancel(&t->v);
	env_timer(t->port->c->c.env, &t->timer, 0);
	a->place[t->place] = NULL;
	a->under--;
	t->under = false;
	t->h = NULL;
}

/* What a later one of its stream had would be of no use before this one is full, and its sender might wait for that. */
static bool first(const struct any *a)
{
	if (PLANTED(CARRY_LATER_FIRST))
		return true;
	for (const struct list *it = a->link.prev; it != &a->port->open; it = it->prev)
		if (list_entry(it, const struct any, link)->h->n.stream == a->h->n.stream)
			return false;
	return true;
}

static struct haul *taker(const struct port *p, const struct teller *t)
{
	list_each(it, &p->open) {
		struct any *a = list_entry(it, struct any, link);

		if (a->nfull + a->under < a->most && t->number < a->nmember && a->member[t->number] && first(a))
			return a->h;
	}
	return NULL;
}

/* From the queue into free places. */
static void assign(struct port *p)
{
	char why[96];

	list_each_safe(it, &p->queue) {
		struct teller *t = list_entry(it, struct teller, link);
		struct haul *h = taker(p, t);
		bool bounded = h && h->n.plan->buf[h->n.instr->out[0].buf].bounded;

		if (!h)
			continue;
		if (h->n.instr->unique && seen(p, t->index)) {
			teller_refuse(t, "");
		} else if (!t->bytes || t->bytes > h->any->part || (t->bytes < h->any->part && !bounded)) {
			(void)snprintf(why, sizeof(why), "%s%llu bytes are taken, it has %llu", bounded ? "at most " : "",
				(unsigned long long)h->any->part, (unsigned long long)t->bytes);
			teller_refuse(t, why);
		} else {
			take(h, t);
		}
	}
}

static void over(struct value *v, const struct err *e)
{
	struct teller *t = container_of(v, struct teller, v);
	struct haul *h = t->h;
	struct any *a = h->any;
	uint32_t k = t->place;

	untake(t);
	t->offered = false;
	if (e) {                                /* it may be there again, or still */
		t->serial--;
		t->mute = (e->code == ERR_MISMATCH || e->code == ERR_CORRUPT) && ++t->vain > CARRY_VAIN_MAX;
		env_after(h->c->c.env, &t->timer, CARRY_AGAIN_US);
	} else if (!h->n.instr->unique || !seen(a->port, t->index)) {
		t->vain = 0;
		if (h->n.instr->unique)
			see(a->port, t->index);
		a->full[k] = true;
		a->come[k] = (struct token_from){ t->rank, t->stream, t->index, t->bytes, a->part };
		h->version = v->head.version;
		if (!a->nfull++ && h->n.instr->within_us)
			env_after(h->c->c.env, &a->limit, h->n.instr->within_us);
	}
	if (!e)
		teller_ask(t);
	check(h);
}

/* Its turn is over, or it is to be asked again. */
static void turn(struct timer *timer)
{
	struct teller *t = container_of(timer, struct teller, timer);
	struct haul *h = t->h;
	struct port *p = t->port;
	uint64_t come;

	if (!t->under) {
		teller_ask(t);
		return;
	}
	come = xfer_bytes(t->v.x[1]);
	if (come > t->was) {
		t->was = come;
		env_after(p->c->c.env, &t->timer, TURN_US << t->turns);
		return;
	}
	teller_look(t);                         /* its program may be another one by now */
	if ((list_empty(&p->queue) && !h->any->closing) || PLANTED(CARRY_NO_TURN)) {
		env_after(p->c->c.env, &t->timer, TURN_US << t->turns);
		return;
	}
	untake(t);
	list_push(&p->queue, &t->link);
	if (++t->turns > TURNS_MAX) {
		teller_forget(t);
		t->mute = ++t->vain > CARRY_VAIN_MAX;
		env_after(p->c->c.env, &t->timer, CARRY_AGAIN_US);
	}
	check(h);
}

/* What it has offered is there no more. */
static void gone(struct teller *t)
{
	struct haul *h = t->h;

	if (t->under) {
		untake(t);
		t->offered = false;
	}
	teller_forget(t);
	teller_ask(t);
	if (h)
		check(h);
}

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct teller *t = arg;
	enum heard heard = teller_heard(t, f, e);

	if (heard == HEARD_OFFER)
		assign(t->port);
	else if (heard == HEARD_GONE)
		gone(t);
}

/* --- closing */

/* Parts lie one behind the other, with zeros behind what is shorter and in place of what has not come. */
static void pack(struct job *j)
{
	struct haul *h = haul_of(j);
	struct any *a = h->any;
	char *at = h->out.p;
	uint32_t n = 0;

	for (uint32_t k = 0; k < a->most; k++) {
		if (!a->full[k])
			continue;
		if (k != n)
			memcpy(at + n * a->part, at + k * a->part, a->come[k].bytes);
		memset(at + n * a->part + a->come[k].bytes, 0, a->part - a->come[k].bytes);
		a->come[n++] = a->come[k];
	}
	memset(at + n * a->part, 0, h->out.bytes - n * a->part);
}

static void packed(struct job *j)
{
	struct haul *h = haul_of(j);
	struct any *a = h->any;

	if (!haul_worked(h))
		return;
	h->nfrom = a->nfull;
	h->from = a->come;
	a->come = NULL;
	haul_settle(h, NULL);
}

static void finish(struct haul *h)
{
	struct any *a = h->any;
	uint64_t bytes = h->out.bytes;

	for (uint32_t k = 0; k < a->most && a->full[k]; k++)
		bytes -= a->come[k].bytes;
	env_timer(h->c->c.env, &a->end, 0);
	env_timer(h->c->c.env, &a->limit, 0);
	HAUL_WORK(h, bytes, pack, packed);
}

static void check(struct haul *h)
{
	struct any *a = h->any;
	const struct plan_instr *i = h->n.instr;

	if (!a->closing && (a->nfull == a->most || (a->nfull >= i->quorum && (!i->within_us || a->late)))) {
		a->closing = true;
		list_del(&a->link);
	}
	assign(a->port);
	if (a->closing && !a->under)
		finish(h);
}

static void limit(struct timer *t)
{
	struct any *a = container_of(t, struct any, limit);

	a->late = true;
	check(a->h);
}

/* Its deadline: with what has come, where the plan goes on with fewer. */
static void end(struct timer *t)
{
	struct any *a = container_of(t, struct any, end);
	struct haul *h = a->h;
	const struct plan_instr *i = h->n.instr;
	struct err e;

	if (a->nfull >= i->quorum || (a->nfull && i->on_missing != PLAN_FAIL)) {
		any_leave(h);
		finish(h);
		return;
	}
	(void)err_set(&e, ERR_TIMEOUT, "RECV of any %s (index %lld): %u of %u have come in time", h->n.tag,
		(long long)h->n.index, a->nfull, i->quorum);
	any_leave(h);
	haul_settle(h, &e);
}

/* --- for carry.c */

void any_leave(struct haul *h)
{
	struct any *a = h->any;

	env_timer(h->c->c.env, &a->limit, 0);
	env_timer(h->c->c.env, &a->end, 0);
	if (!a->closing)
		list_del(&a->link);
	a->closing = true;
	for (uint32_t k = a->most; k-- > 0; ) {
		struct teller *t = a->place[k];

		if (!t)
			continue;
		untake(t);
		list_push_front(&a->port->queue, &t->link);
	}
	assign(a->port);
}

void any_free(struct haul *h)
{
	struct any *a = h->any;

	a->port->hauls--;
	free(a->member);
	free(a->place);
	free(a->come);
	free(a->full);
	free(a);
	h->any = NULL;
}

int any_begin(struct haul *h, struct err *e)
{
	const struct plan_instr *i = h->n.instr;
	const struct plan_group *g = h->n.group;
	const struct id *self = net_self(h->c->c.net);
	static const struct port_use use = { .answered = answered, .turn = turn };
	struct any *a;

	if (!g || !i->most || i->quorum > i->most || !i->quorum || i->nout != 1)
		return err_set(e, ERR_INVALID, "1 <= quorum <= most, and one buffer for them, are expected");
	if (h->out.bytes % i->most || !h->out.bytes)
		return err_set(e, ERR_INVALID, "%s has %zu bytes, which are no %u equal parts", h->out.buffer, h->out.bytes,
			i->most);
	a = h->any = xcalloc(1, sizeof(*a));
	*a = (struct any){ .h = h, .port = port_of(h, &use), .part = h->out.bytes / i->most, .most = i->most,
		.limit = { .fire = limit, .name = "carry quorum" }, .end = { .fire = end, .name = "carry deadline" } };
	a->port->hauls++;
	a->place = xcalloc(a->most, sizeof(struct teller *));
	a->come = xcalloc(a->most, sizeof(*a->come));
	a->full = xcalloc(a->most, sizeof(*a->full));
	a->member = xcalloc(a->port->n + g->n, sizeof(*a->member));
	a->nmember = a->port->n + g->n;
	for (uint32_t k = 0; k < g->n; k++) {
		const struct id *id = &h->n.plan->member[g->member[k].peer];

		if (!id_eq(id, self))
			a->member[teller_of(a->port, id, g->member[k].peer, k)->number] = true;
	}
	list_push(&a->port->open, &a->link);
	if (h->deadline_us)
		env_timer(h->c->c.env, &a->end, h->deadline_us);
	assign(a->port);
	port_ask(a->port);
	return 0;
}

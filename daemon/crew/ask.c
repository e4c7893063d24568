/* What others know. Who is not where it should be (it has promised and hears no go, it has come anew) asks whoever
 * leads; a leader asks those of whom it knows nothing. Both say what they are, and how far they are. What somebody
 * knows of a newer generation it shows: the go, with the promises of all its members. */
#include <stdlib.h>
#include "crew/int.h"

#define ASK_US (2 * SECOND)
#define FIRST_US (250 * MS)                     /* the next question, then twice as late each time */
#define SHOW_US (1 * SECOND)
#define BEGIN_US (2 * SECOND)                   /* who has promised it and has not begun by then does not begin it */

/* ---- what this peer says of itself ---- */

static struct crew_link link_to(const struct crew *c, const struct id *to)
{
	struct peer_info p;
	if (!net_peer(c->net, to, &p))
		return (struct crew_link){ 0 };
	return (struct crew_link){ scale_code(p.bandwidth_bps), scale_code(p.rtt_us / 2) };
}

void card_of(const struct crew *c, struct card *ret)
{
	*ret = (struct card){ .life = c->life, .speed = c->conf.speed, .memory_bytes = c->conf.memory_bytes,
		.v = xcalloc(c->nmates + 1, sizeof *ret->v) };
	list_each(it, &c->mates) {
		const struct mate *m = list_entry(it, struct mate, link);
		struct crew_link x = link_to(c, &m->id);
		if ((x.rate || x.delay) && ret->n < CREW_MEMBERS_MAX)
			ret->v[ret->n++] = (struct card_link){ m->id, x };
	}
}

static json_t *numbers(const struct crew *c)
{
	json_t *j = crew_head(c);
	json_object_set_new(j, "decided", json_integer((json_int_t)deal_number(c->decided)));
	json_object_set_new(j, "running", json_integer((json_int_t)deal_number(c->running)));
	json_object_set_new(j, "promised", json_integer((json_int_t)deal_number(c->promised)));
	if (c->waits)
		json_object_set_new(j, "waits", json_text(c->why.text));
	return j;
}

static struct blob my_card(const struct crew *c)
{
	struct card card;
	struct buf b = { 0 };
	card_of(c, &card);
	card_encode(&card, &b);
	card_free(&card);
	return blob_steal(&b);
}

/* ---- what others say ---- */

/* What is far above all that this peer has seen is a lie. */
uint64_t crew_ask_number(struct crew *c, const struct id *from, const json_t *j, const char *name)
{
	uint64_t number;
	struct err e;
	if (json_get_u64(j, name, &number, NULL))
		return 0;
	if (number <= c->seen + (AHEAD_MAX << CREW_TAG_BITS))
		return number;
	err_set(&e, ERR_INVALID, "generation %llu cannot have been seen", (unsigned long long)CREW_COUNT(number));
	guard_refused(c, from, REFUSED_number, &e, true);
	return 0;
}

/* Its card, and whether it runs what it should: to who leads. Who does not would not hear when it is another. -1: it
 * says what nobody would. */
static int take_card(struct crew *c, struct mate *m, const struct frame *f)
{
	uint64_t running = 0, promised = 0;
	struct card card;
	struct err e;
	if (card_decode(&card, f->blob, f->blob_len, &e)) {
		guard_refused(c, &m->id, REFUSED_shape, &e, true);
		return -1;
	}
	if (!leads(c)) {
		m->own_word = card.life;
		card_free(&card);
		return 0;
	}
	if (m->card.life && m->card.life != card.life)
		bench_trouble(c, m, "it has started anew");
	card_free(&m->card);
	m->card = card;
	m->known = true;
	json_get_u64(f->json, "running", &running, NULL);
	json_get_u64(f->json, "promised", &promised, NULL);
	uint64_t now = deal_number(c->decided);
	int rank = c->decided ? offer_find(&c->decided->o, &m->id) : -1;
	bool late = promised != now || now_of(c) - c->decided_us > BEGIN_US;
	if (rank >= 0 && running != now && late && deal_unit_of(c, c->decided, (uint32_t)rank)) {
		if (m->adrift != now)
			bench_trouble(c, m, "it does not run what is decided");
		m->adrift = now;
	}
	crew_kick(c);
	return 0;
}

/* ---- SHOW ---- */

static void shown(void *arg, const struct frame *f, const struct err *e)
{
	struct mate *m = arg;
	m->show = NULL;
	if (f)
		member_take_go(m->c, f->blob, f->blob_len, &m->id);
	crew_kick(m->c);
}

void crew_ask_show(struct crew *c, struct mate *m, uint64_t number)
{
	uint64_t now = now_of(c);
	if (m->show || (m->show_number == number && now - m->show_us < SHOW_US))
		return;
	json_t *j = crew_head(c);
	json_object_set_new(j, "number", json_integer((json_int_t)number));
	m->show_number = number;
	m->show_us = now;
	MARK(c, "crew.show.before");
	m->show = net_call(c->net, &m->id, KIND_CREW_SHOW, j, NO_BLOB, CLASS_control, ASK_US, shown, m);
	MARK(c, "crew.show.after");
}

void crew_show_on(struct crew *c, struct request *req)
{
	struct mate *m = mate_of(c, &req->f.from);
	uint64_t number = 0;
	struct err e;
	json_get_u64(req->f.json, "number", &number, NULL);
	struct deal *d = deal_known(c, number);
	if (!m || !d || !guard_pays(c, m)) {
		err_set(&e, ERR_NOT_FOUND, "this generation is not known here, or not shown so often");
		net_refuse(req, &e);
		return;
	}
	net_reply(req, crew_head(c), deal_blob_go(d));
}

/* ---- ASK ---- */

static void asked(void *arg, const struct frame *f, const struct err *e)
{
	struct mate *m = arg;
	struct crew *c = m->c;
	m->ask = NULL;
	crew_kick(c);                           /* perhaps it must ask again */
	if (!f || take_card(c, m, f))
		return;
	bool leader = id_eq(&m->id, &c->leader);
	const char *waits = json_string_value(json_object_get(f->json, "waits"));
	uint64_t decided = crew_ask_number(c, &m->id, f->json, "decided");
	uint64_t running = crew_ask_number(c, &m->id, f->json, "running"), mine = deal_number(c->running);
	if (decided > deal_number(c->decided) && (leads(c) || leader))
		crew_ask_show(c, m, decided);
	else if (leader)
		c->unsure = false;
	if (leader && mine && decided == mine && running != mine && offer_find(&c->running->o, &m->id) >= 0)
		crew_stop_running(c, "who leads was in it, and has left it");
	if (leader && waits && !c->running) {
		struct err why;
		err_set(&why, ERR_STATE, "%s", waits);
		crew_waits(c, &why);
	}
}

void crew_ask_mate(struct crew *c, struct mate *m)
{
	if (m->ask)
		return;
	m->asked_us = now_of(c);
	MARK(c, "crew.ask.before");
	m->ask = net_call(c->net, &m->id, KIND_CREW_ASK, numbers(c), my_card(c), CLASS_control, ASK_US, asked, m);
	MARK(c, "crew.ask.after");
}

void crew_ask_on(struct crew *c, struct request *req)
{
	struct mate *m = mate_of(c, &req->f.from);
	struct err e;
	if (!m || !guard_pays(c, m) || take_card(c, m, &req->f)) {
		err_set(&e, ERR_BUSY, "it is not in the roster here, asks too often, or says what cannot be");
		net_refuse(req, &e);
		return;
	}
	uint64_t decided = crew_ask_number(c, &m->id, req->f.json, "decided");
	if (leads(c) && decided > deal_number(c->decided))
		crew_ask_show(c, m, decided);
	net_reply(req, numbers(c), my_card(c));
}

/* Is this peer where it should be? */
static bool settled(const struct crew *c)
{
	const struct deal *d = c->decided;
	if (c->unsure || (c->base_number && deal_number(c->base) != c->base_number))
		return false;
	return d && !c->promised && deal_goes_on(c, d) && (deal_rank(c, d) < 0 || c->running == d);
}

/* Who holds what is committed, and whom only the leader has named: it is asked itself. */
static void ask_hearsay(struct crew *c)
{
	uint64_t now = now_of(c);
	c->doubts = false;
	for (uint32_t i = 0; c->base && i < c->base->o.n; i++) {
		const struct crew_member *x = &c->base->o.m[i];
		struct mate *m = mate_of(c, &x->id);
		if (m && m->hearsay && m->own_word != x->life && (!m->asked_us || now - m->asked_us >= FIRST_US))
			crew_ask_mate(c, m);
	}
}

void crew_ask_step(struct crew *c)
{
	struct mate *m = mate_of(c, &c->leader);
	if (c->doubts)
		ask_hearsay(c);
	if (!c->in || leads(c) || !m || settled(c) || PLANTED(CREW_NOBODY_ASKS)) {
		c->asks = 0;
		return;
	}
	uint64_t now = now_of(c), due = c->asked_us + (FIRST_US << (c->asks < 3 ? c->asks : 3));
	if (m->ask)
		return;
	if (c->asked_us && now < due) {
		crew_tick_at(c, due - now);
		return;
	}
	c->asked_us = now;
	c->asks++;
	crew_ask_mate(c, m);
	if (c->base_number && deal_number(c->base) != c->base_number)
		crew_ask_show(c, m, c->base_number);
	crew_tick_at(c, FIRST_US);
}

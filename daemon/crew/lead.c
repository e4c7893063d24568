/* The leader: a proposal and its answers. While a generation runs that may go on, its members are only asked what they
 * would find (a trial): nothing stops for a member that finds something else, or nothing. Then they are asked to
 * promise, and when all have promised the same, go.
 *
 * Whoever is late, finds other plans than most, or none, is left out of the next proposal. When it is this peer that
 * finds others, it leads on and is not in it. */
#include <stdlib.h>
#include "crew/int.h"

#define ASK_AGAIN_US (10 * MS)                  /* who says "later" is asked again so soon, then less often */
#define ASK_AGAIN_MOST_US (200 * MS)
#define DECIDED_US (2 * MS)                     /* a round is over soon that is decided */
#define BLIND_US (1 * SECOND)                   /* how long plans take is not known here */
#define GO_US (5 * SECOND)
#define LATE_MOST 6
#define DAY_US (86400 * SECOND)
#define ALLOWED_MOST_US (20 * SECOND)           /* whatever members say of themselves, and have taken until now */

enum said { SAID_NOTHING, SAID_YES, SAID_CANNOT, SAID_OLD };
struct answer { struct lead *l; uint32_t rank; enum said said; struct call *call; uint64_t again_us, wait_us, seen;
	uint8_t digest[CREW_DIGEST], sig[SIG_BYTES]; };
struct lead { struct crew *c; struct deal *d; bool trial, blind; uint64_t begun_us, deadline_us; struct timer timer;
	uint64_t epoch; uint32_t term; struct answer *a; };
/* A go on its way. */
struct going { struct list link; struct crew *c; struct id to; uint64_t number; bool member; struct call *call; };

static void lead_drop(struct crew *c)
{
	struct lead *l = c->lead;
	if (!l)
		return;
	c->lead = NULL;
	env_timer(c->env, &l->timer, 0);
	for (uint32_t i = 0; i < l->d->o.n; i++)
		if (l->a[i].call)
			net_cancel(c->net, l->a[i].call);
	deal_drop(&l->d);
	free(l->a);
	free(l);
}

void crew_lead_free(struct crew *c)
{
	lead_drop(c);
	while (!list_empty(&c->gos)) {
		struct going *g = list_entry(list_pop(&c->gos), struct going, link);
		net_cancel(c->net, g->call);
		free(g);
	}
}

/* ---- go ---- */

static void gone_to(void *arg, const struct frame *f, const struct err *e)
{
	struct going *g = arg;
	struct crew *c = g->c;
	struct mate *m = mate_of(c, &g->to);
	if (!f && g->member && m && deal_number(c->decided) == g->number) {
		crew_say(c, LOG_INFO_, "crew_late", &g->to, "generation %llu goes on without it, it does not begin: %s",
			(unsigned long long)CREW_COUNT(g->number), e->text);
		m->adrift = g->number;
		bench_trouble(c, m, "it did not take a go");
		bench_late(c, &g->to);
	}
	list_del(&g->link);
	free(g);
	crew_kick(c);
}

static void go_to(struct crew *c, struct deal *d, const struct id *to, bool member)
{
	struct going *g = xcalloc(1, sizeof *g);
	*g = (struct going){ .c = c, .to = *to, .number = d->o.generation, .member = member };
	list_push(&c->gos, &g->link);
	MARK(c, "crew.go.before");
	g->call = net_call(c->net, to, KIND_CREW_GO, crew_head(c), deal_blob_go(d), CLASS_control, GO_US, gone_to, g);
	MARK(c, "crew.go.after");
}

/* All have promised the same. */
static void decide(struct crew *c, const uint8_t digest[CREW_DIGEST])
{
	struct lead *l = c->lead;
	struct deal *d = deal_hold(l->d);
	memcpy(d->said, digest, CREW_DIGEST);
	d->sig = xcalloc(d->o.n, SIG_BYTES);
	for (uint32_t i = 0; i < d->o.n; i++)
		memcpy(d->sig + (size_t)i * SIG_BYTES, l->a[i].sig, SIG_BYTES);
	c->answer_us[c->answers++ % (sizeof c->answer_us / sizeof *c->answer_us)] = now_of(c) - l->begun_us;
	lead_drop(c);
	list_each(it, &c->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		bool member = offer_find(&d->o, &m->id) >= 0;
		m->late = member ? 0 : m->late;
		go_to(c, d, &m->id, member);
	}
	if (deal_rank(c, d) >= 0)
		crew_begin_deal(c, d);
	else
		crew_adopt(c, d);
	deal_drop(&d);
	crew_kick(c);
}

/* ---- answers ---- */

static void leave_out(struct crew *c, const struct crew_member *x, const char *code, const char *text)
{
	const struct id *id = &x->id;
	struct mate *m = mate_of(c, id);
	if (m)
		m->wrong = x->life;
	if (id_eq(id, &c->me))
		c->odd = true;
	crew_say(c, LOG_WARN_, code, id, "it is left out of generations: %s", text);
}

/* What most have found; of equally many, what this peer has. */
static const uint8_t *most_found(const struct lead *l)
{
	const struct crew *c = l->c;
	const uint8_t *best = NULL;
	uint32_t top = 0;
	for (uint32_t i = 0; i < l->d->o.n; i++) {
		uint32_t n = 0;
		for (uint32_t k = 0; k < l->d->o.n; k++)
			n += l->a[i].said == SAID_YES && l->a[k].said == SAID_YES &&
				!memcmp(l->a[i].digest, l->a[k].digest, CREW_DIGEST);
		bool mine = n == top && id_eq(&l->d->o.m[i].id, &c->me);
		if (n > top || (n && mine)) {
			top = n;
			best = l->a[i].digest;
		}
	}
	return best;
}

/* A trial can be kept back by it for ever: of a generation that runs nobody is left out for being late. */
static void silent(struct lead *l, const struct id *id)
{
	struct mate *m = mate_of(l->c, id);
	if (m && l->trial)
		bench_trouble(l->c, m, "it has not said in time what it finds");
	bench_late(l->c, id);
}

/* ---- a number that is over ---- */

static uint32_t asked(const struct lead *l)
{
	return l->d->o.n - (offer_find(&l->d->o, &l->c->me) >= 0);
}

/* The greatest number that so many have seen, as they say; 0: none. */
static uint64_t seen_by(const struct lead *l, uint32_t many)
{
	uint64_t best = 0;
	for (uint32_t i = 0; i < l->d->o.n; i++) {
		uint32_t n = 0;
		if (l->a[i].said != SAID_OLD || l->a[i].seen <= best)
			continue;
		for (uint32_t k = 0; k < l->d->o.n; k++)
			n += l->a[k].said == SAID_OLD && l->a[k].seen >= l->a[i].seen;
		best = n >= many ? l->a[i].seen : best;
	}
	return best;
}

/* More than half of those asked; of one that is asked alone its word is one's, not that of most. */
static uint32_t most_of(const struct lead *l)
{
	uint32_t n = asked(l) / 2 + 1;
	return n > 2 ? n : 2;
}

static bool most_say_old(const struct lead *l)
{
	return seen_by(l, most_of(l)) > 0;
}

/* The same again, with a greater number: one that most have seen, or beyond it as much as others can follow. */
static void overtaken(struct crew *c)
{
	struct lead *l = c->lead;
	uint64_t most = seen_by(l, most_of(l)), any = seen_by(l, 1);
	c->seen = most > c->seen ? most : c->seen;
	most = PLANTED(CREW_ANY_CLAIM) ? any : c->seen + (CLAIM_MAX << CREW_TAG_BITS);
	any = any < most ? any : most;
	c->seen = any > c->seen ? any : c->seen;
	for (uint32_t i = 0; i < l->d->o.n; i++) {
		struct mate *m = mate_of(c, &l->d->o.m[i].id);
		if (m && l->a[i].said == SAID_OLD)
			bench_trouble(c, m, "it has seen a later number, as it says");
		else if (l->a[i].said == SAID_NOTHING && now_of(c) >= l->deadline_us)
			silent(l, &l->d->o.m[i].id);
	}
	lead_drop(c);
	crew_kick(c);
}

/* ---- a verdict ---- */

static bool all_said(const struct lead *l)
{
	for (uint32_t i = 0; i < l->d->o.n; i++)
		if (l->a[i].said == SAID_NOTHING)
			return false;
	return true;
}

/* Everybody has said something, or its time is over. */
static void judge(struct crew *c)
{
	struct lead *l = c->lead;
	const uint8_t *digest = most_found(l);
	uint32_t alike = 0;
	bool same = true;
	if (seen_by(l, 1)) {
		overtaken(c);
		return;
	}
	c->overtaken = 0;
	for (uint32_t i = 0; i < l->d->o.n; i++)
		alike += l->a[i].said == SAID_YES && !memcmp(l->a[i].digest, digest, CREW_DIGEST);
	for (uint32_t i = 0; i < l->d->o.n; i++) {
		const struct id *id = &l->d->o.m[i].id;
		struct answer *a = &l->a[i];
		if (a->said == SAID_YES && !memcmp(a->digest, digest, CREW_DIGEST))
			continue;
		same = false;
		if (a->said == SAID_YES)
			leave_out(c, &l->d->o.m[i], "crew_other_plans",
				"it finds other plans than most: another version, or another profile?");
		else if (a->said == SAID_CANNOT && l->blind && 2 * alike > l->d->o.n)
			leave_out(c, &l->d->o.m[i], "crew_cannot", "it says that it cannot, and most can");
		else if (a->said == SAID_NOTHING)
			silent(l, id);
	}
	if (PLANTED(CREW_ANY_DIGEST))
		same = digest != NULL;
	if (same && l->trial) {
		struct deal *d = deal_hold(l->d);
		bool blind = l->blind;
		lead_drop(c);
		crew_lead_propose(c, d, false, blind);
		deal_drop(&d);
	} else if (same && c->cb.commits && c->cb.commits(c->arg)) {
		env_after(c->env, &l->timer, DECIDED_US);
	} else if (same) {
		decide(c, digest);
	} else {
		lead_drop(c);
		crew_kick(c);
	}
}

static void arm(struct lead *l)
{
	uint64_t at = l->deadline_us;
	for (uint32_t i = 0; i < l->d->o.n; i++)
		if (l->a[i].again_us && l->a[i].again_us < at)
			at = l->a[i].again_us;
	if (!PLANTED(CREW_NO_DEADLINE))
		env_timer(l->c->env, &l->timer, at);
}

static void yes(struct lead *l, struct answer *a, const struct frame *f)
{
	struct crew *c = l->c;
	struct err e;
	bool ok = !json_get_hex(f->json, "digest", a->digest, CREW_DIGEST, &e);
	if (ok && !l->trial) {
		ok = f->blob_len == SIG_BYTES && deal_promised_by(l->d, a->rank, a->digest, f->blob);
		if (ok)
			memcpy(a->sig, f->blob, SIG_BYTES);
		else
			err_set(&e, ERR_AUTH, "a promise without its signature");
	}
	if (!ok) {
		guard_refused(c, &f->from, REFUSED_signature, &e, true);
		leave_out(c, &l->d->o.m[a->rank], "crew_cannot", e.text);
	}
	a->said = ok ? SAID_YES : SAID_CANNOT;
}

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct answer *a = arg;
	struct lead *l = a->l;
	struct crew *c = l->c;
	const char *what = f ? json_string_value(json_object_get(f->json, "says")) : NULL, *text = NULL;
	a->call = NULL;
	if (what && !strcmp(what, "yes")) {
		yes(l, a, f);
	} else if (what && !strcmp(what, "cannot")) {
		a->said = SAID_CANNOT;
		text = json_string_value(json_object_get(f->json, "text"));
		if (!l->blind)                  /* else perhaps nobody can, nor could this peer */
			leave_out(c, &l->d->o.m[a->rank], "crew_cannot", text ? text : "it says that it cannot");
	} else if (what && !strcmp(what, "old")) {
		a->seen = crew_ask_number(c, &f->from, f->json, "seen");
		a->said = a->seen >= l->d->o.generation ? SAID_OLD : SAID_NOTHING;
	}
	if (a->said == SAID_NOTHING) {              /* later, or it could not be reached */
		a->again_us = now_of(c) + a->wait_us;
		a->wait_us = 2 * a->wait_us < ASK_AGAIN_MOST_US ? 2 * a->wait_us : ASK_AGAIN_MOST_US;
		arm(l);
	} else if (all_said(l) || (a->said == SAID_OLD && most_say_old(l))) {
		judge(c);
	}
}

static void ask(struct lead *l, struct answer *a)
{
	struct crew *c = l->c;
	uint64_t now = now_of(c);
	json_t *j = crew_head(c);
	a->again_us = 0;
	if (l->trial)
		json_object_set_new(j, "trial", json_true());
	MARK(c, "crew.propose.before");
	a->call = net_call(c->net, &l->d->o.m[a->rank].id, KIND_CREW_PROPOSE, j, deal_blob(l->d), CLASS_control,
		l->deadline_us > now ? l->deadline_us - now + SECOND : SECOND, answered, a);
	MARK(c, "crew.propose.after");
}

static void fire(struct timer *t)
{
	struct lead *l = container_of(t, struct lead, timer);
	uint64_t now = now_of(l->c);
	if (now >= l->deadline_us || all_said(l)) {
		judge(l->c);
		return;
	}
	for (uint32_t i = 0; i < l->d->o.n; i++)
		if (l->a[i].again_us && l->a[i].again_us <= now)
			ask(l, &l->a[i]);
	arm(l);
}

static void ask_all(struct lead *l)
{
	for (uint32_t i = 0; i < l->d->o.n; i++)
		if (!id_eq(&l->d->o.m[i].id, &l->c->me))
			ask(l, &l->a[i]);
}

/* So long may answers take: three times what was measured here, or what these plans took here would take there. */
static uint64_t allowed(const struct lead *l)
{
	const struct crew *c = l->c;
	uint64_t us = c->conf.floor_us, worst = 0;
	unsigned late = 0, kept = sizeof c->answer_us / sizeof *c->answer_us;
	for (unsigned i = 0; i < c->answers && i < kept; i++)
		worst = c->answer_us[i] > worst ? c->answer_us[i] : worst;
	us = 3 * worst > us ? 3 * worst : us;
	us = l->blind && us < BLIND_US ? BLIND_US : us;
	for (uint32_t i = 0; i < l->d->o.n; i++) {
		const struct crew_member *x = &l->d->o.m[i];
		const struct mate *m = mate_of(c, &x->id);
		double slower = c->conf.speed / x->speed;
		double takes = 3 * (double)c->plan_us * (slower > 1 ? slower : 1);
		uint64_t there = takes < DAY_US ? (uint64_t)takes : DAY_US;
		there += m ? net_deadline(c->net, &x->id, 0) : 0;
		us = there > us ? there : us;
		late = m && m->late > late ? m->late : late;
	}
	us = us < ALLOWED_MOST_US ? us << (late < LATE_MOST ? late : LATE_MOST) : us;
	return us < ALLOWED_MOST_US || PLANTED(CREW_SLOW_AS_SAID) ? us : ALLOWED_MOST_US;
}

void crew_lead_propose(struct crew *c, struct deal *d, bool trial, bool blind)
{
	struct lead *l = xcalloc(1, sizeof *l);
	int me = deal_rank(c, d);
	*l = (struct lead){ .c = c, .d = deal_hold(d), .trial = trial, .blind = blind, .begun_us = now_of(c),
		.epoch = c->epoch, .term = c->term, .a = xcalloc(d->o.n, sizeof *l->a),
		.timer = { .fire = fire, .name = "crew.lead" } };
	c->lead = l;
	l->deadline_us = l->begun_us + allowed(l);
	for (uint32_t i = 0; i < d->o.n; i++)
		l->a[i] = (struct answer){ .l = l, .rank = i, .wait_us = ASK_AGAIN_US };
	if (!trial && me < 0)
		c->seen = d->o.generation;
	if (!trial && me >= 0)
		member_promise(c, d);
	if (me >= 0) {
		l->a[me].said = SAID_YES;
		memcpy(l->a[me].digest, d->found.digest, CREW_DIGEST);
		if (!trial)
			deal_promise(c, d, l->a[me].sig);
	}
	ask_all(l);
	arm(l);
	if (all_said(l))
		judge(c);
}

void crew_lead_step(struct crew *c)
{
	struct lead *l = c->lead;
	/* A COMMIT ends a trial, and with it whatever could have come of it, as often as somebody says nothing. */
	if (l && l->trial && leads(c) && l->epoch != c->epoch && now_of(c) - l->begun_us >= c->conf.floor_us)
		for (uint32_t i = 0; i < l->d->o.n; i++)
			if (l->a[i].said == SAID_NOTHING)
				silent(l, &l->d->o.m[i].id);
	if (l && (!leads(c) || l->epoch != c->epoch || l->term != c->term || !deal_whole(c, l->d) ||
			(!l->trial && c->seen != l->d->o.generation))) {
		c->overtaken += l->epoch != c->epoch;
		lead_drop(c);
	}
}

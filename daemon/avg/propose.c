/* Changes of hyperparameters: signed by who asks, ordered by (effective epoch, leader's counter),
 * carried
 * in every COMMIT until they are in force, so that the next leader has them. Who asks is answered when a COMMIT holds
 * it. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "avg/lead.h"

#define PROPOSE_US (2 * SECOND)
#define RECENT_MAX 256                          /* changes in force since RECENT epochs at most */
#define RECENT 1024                             /* epochs that a signed change may be brought in */

struct ask {
	struct list link; struct avg *a; struct wire_proposal p;
	struct call *call; struct id to; uint64_t next_us; bool over;
	uint64_t from_epoch /* 0: the next */, agreed; struct err why; avg_proposed_fn *done; void *arg;
};

static void proposal_copy(struct wire_proposal *to, const struct wire_proposal *from)
{
	*to = *from;
	to->patch = json_deep_copy(from->patch);
}

static bool same(const struct wire_proposal *a, const struct wire_proposal *b)
{
	return a->nonce == b->nonce && id_eq(&a->author, &b->author);
}

/* What the author signs: run, nonce, asked epoch, patch. */
static void signed_bytes(const struct avg *a, const struct wire_proposal *p, struct buf *b)
{
	buf_put(b, a->conf.run.b, 32);
	buf_u64(b, p->nonce);
	buf_u64(b, p->asked);
	wire_put_json(b, p->patch);
}

static void sign(struct avg *a, struct wire_proposal *p, uint64_t asked)
{
	struct buf b = { 0 };
	p->asked = p->epoch = asked;
	signed_bytes(a, p, &b);
	net_sign(a->net, b.p, b.len, p->sig);
	buf_free(&b);
}

static int verify(const struct avg *a, const struct wire_proposal *p, struct err *e)
{
	struct buf b = { 0 };
	signed_bytes(a, p, &b);
	bool ok = b.len <= WIRE_PATCH_MAX + 64 && net_verify(&p->author, b.p, b.len, p->sig);
	buf_free(&b);
	return ok ? 0 : err_set(e, ERR_AUTH, "the change is too long or its author's signature is wrong");
}

/* ---- what comes into force ---- */

static void name_of(const struct wire_proposal *p, char out[ID_HEX + 20])
{
	id_hex(&p->author, out);
	snprintf(out + strlen(out), 18, ":%016llx", (unsigned long long)p->nonce);
}

/* The same on every member that holds the same point: the author is who signed it, asked for that epoch or one shortly
 * before it, has not had it already, and may. */
static int lawful(const struct avg *a, const struct wire_proposal *p, struct err *e)
{
	char name[ID_HEX + 20];
	name_of(p, name);
	if (!p->asked || p->epoch < p->asked || p->epoch - p->asked > RECENT)
		return err_set(e, ERR_INVALID, "a change that was asked for epoch %llu and is brought for %llu",
			(unsigned long long)p->asked, (unsigned long long)p->epoch);
	if (json_object_get(a->point.recent, name))
		return err_set(e, ERR_EXISTS, "a change that has been made already");
	if (verify(a, p, e))
		return -1;
	return a->cb.may_change ? a->cb.may_change(a->arg, &p->author, p->patch, a->point.params, e) : 0;
}

/* In the order of their counters, which is that of the list: who asked first is written first. No more of them than a
 * point has room for: who may ask as often as it likes must not make one that nobody can read. */
static json_t *next_params(const struct avg *a, const struct wire_proposal *p, size_t n, uint64_t epoch,
	uint64_t *ret_version, json_t *recent)
{
	json_t *params = a->point.params ? json_deep_copy(a->point.params) : json_object();
	size_t changed = 0, held = json_object_size(a->point.recent), room = held < RECENT_MAX ? RECENT_MAX - held : 0;
	struct err e;
	for (size_t i = 0; i < n && changed < room; i++) {
		char name[ID_HEX + 20];
		if (p[i].epoch > epoch || lawful(a, &p[i], &e))
			continue;
		json_object_update(params, p[i].patch);
		name_of(&p[i], name);
		if (recent)
			json_object_set_new(recent, name, json_integer((json_int_t)epoch));
		changed++;
	}
	*ret_version = a->point.params_version + (changed > 0);
	return params;
}

int propose_check(const struct avg *a, const struct body *b, struct err *e)
{
	uint64_t version;
	json_t *want = next_params(a, b->prop, b->props, b->epoch + (b->what == BODY_BEGIN), &version, NULL);
	bool ok = PLANTED(PARAMS_FROM_ANYBODY) || (version == b->params_version && json_equal(want, b->params));
	json_decref(want);
	return ok ? 0 : err_set(e, ERR_AUTH, "hyperparameters of epoch %llu that nobody who may has asked for",
		(unsigned long long)b->epoch);
}

static void ask_end(struct ask *k)
{
	struct avg *a = k->a;
	list_del(&k->link);
	if (k->call)
		net_cancel(a->net, k->call);
	json_decref(k->p.patch);
	free(k);
}

void propose_free(struct avg *a)
{
	list_each_safe(it, &a->asks)
		ask_end(list_entry(it, struct ask, link));
	for (size_t i = 0; i < a->props; i++)
		json_decref(a->prop[i].patch);
	free(a->prop);
	a->prop = NULL;
	a->props = 0;
}

void avg_propose(struct avg *a, json_t *patch, uint64_t from_epoch, avg_proposed_fn *done, void *arg)
{
	struct ask *k = xcalloc(1, sizeof *k);
	char *text = json_dumps(patch, JSON_COMPACT);
	size_t n = text ? strlen(text) : 0;
	free(text);
	*k = (struct ask){ .a = a, .done = done, .arg = arg, .from_epoch = from_epoch,
		.p = { .author = a->me->id, .patch = patch } };
	a->env->ops->secure(a->env, &k->p.nonce, sizeof k->p.nonce);
	k->p.nonce >>= 1;
	if (!json_is_object(patch) || !n || n > WIRE_PATCH_MAX) {
		k->over = true;
		err_set(&k->why, ERR_INVALID, "a change is an object of at most %d bytes", WIRE_PATCH_MAX);
	}
	list_push(&a->asks, &k->link);
	kick(a);
}

/* ---- leader ---- */

/* The epoch that a proposal accepted now takes effect with: the next BEGIN's. */
static uint64_t earliest(const struct avg *a)
{
	return a->point.epoch + 1 + (a->round != NULL);
}

static int accept(struct avg *a, const struct wire_proposal *p, uint64_t *ret_epoch, struct err *e)
{
	uint64_t epoch = p->asked > earliest(a) ? p->asked : earliest(a);
	struct wire_proposal now = *p;
	size_t bytes = WIRE_PATCH_MAX, same_author = 0;
	const char *key;
	json_t *v;
	char who[9];
	now.epoch = epoch;
	if (lawful(a, &now, e) || (a->cb.may_change && a->cb.may_change(a->arg, &p->author, p->patch, NULL, e)))
		return -1;
	for (size_t i = 0; i < a->props; i++) {
		if (same(&a->prop[i], p)) {
			*ret_epoch = a->prop[i].epoch;
			return 0;
		}
		bytes += json_dumpb(a->prop[i].patch, NULL, 0, JSON_COMPACT);
		same_author += id_eq(&a->prop[i].author, &p->author);
		json_object_foreach(p->patch, key, v)
			if (a->prop[i].epoch == epoch && json_object_get(a->prop[i].patch, key))
				return err_set(e, ERR_EXISTS, "%s: superseded by %s at epoch %llu", key, id_short(&a->prop[i].author,
				who), (unsigned long long)epoch);
	}
	if (same_author >= WIRE_PROPOSALS_MAX / 4 || bytes > WIRE_PATCHES_MAX)
		return err_set(e, ERR_FULL, "%zu changes of this author are waiting already, %zu bytes of all", same_author,
			bytes - WIRE_PATCH_MAX);
	if (a->props + json_object_size(a->point.recent) >= RECENT_MAX)
		return err_set(e, ERR_FULL, "%zu changes within %d epochs are enough", json_object_size(a->point.recent),
			RECENT);
	if (a->props >= WIRE_PROPOSALS_MAX)
		return err_set(e, ERR_FULL, "%d changes are waiting already", WIRE_PROPOSALS_MAX);
	a->prop = xrealloc(a->prop, (a->props + 1) * sizeof *a->prop);
	proposal_copy(&a->prop[a->props], p);
	a->prop[a->props].epoch = epoch;
	a->prop[a->props++].counter = ++a->prop_counter;
	*ret_epoch = epoch;
	return 0;
}

void propose_on(struct avg *a, struct request *req)
{
	struct wire_proposal p = { 0 };
	struct err e;
	uint64_t epoch = 0;
	const json_t *j = req->f.json;
	int rc = json_get_hex(j, "author", p.author.b, 32, &e) || json_get_u64(j, "nonce", &p.nonce, &e) || json_get_u64(j,
		"epoch", &p.asked, &e) ||
		json_get_hex(j, "sig", p.sig, SIG_BYTES, &e);
	p.patch = json_object_get(j, "patch");
	if (!rc && (!json_is_object(p.patch) || !json_object_size(p.patch)))
		rc = err_set(&e, ERR_INVALID, "patch: expected an object");
	if (!rc && (a->state != AVG_IN || !is_leader(a)))
		rc = err_set(&e, ERR_BUSY, "changes go to the leader of the epoch");
	if (!rc)
		rc = accept(a, &p, &epoch, &e);
	if (rc)
		refuse_forged(a, req, &e, false);
	else
		net_reply(req, json_pack("{s:I}", "epoch", (json_int_t)epoch), NO_BLOB);
}

/* Those due with the epoch that this BEGIN makes, so that every member sees whose they are. */
void propose_into_begin(struct avg *a, struct body *b)
{
	b->params = next_params(a, a->prop, a->props, b->epoch + 1, &b->params_version, NULL);
	b->prop = xcalloc(a->props + 1, sizeof *b->prop);
	for (size_t i = 0; i < a->props; i++)
		if (a->prop[i].epoch <= b->epoch + 1)
			proposal_copy(&b->prop[b->props++], &a->prop[i]);
}

/* Those that its BEGIN has, which are in force with it, and those that wait. What has come since waits, too. */
void propose_into_commit(struct round *r, struct body *c)
{
	struct avg *a = r->a;
	c->prop = xcalloc(a->props + r->b.props + 1, sizeof *c->prop);
	for (size_t i = 0; i < r->b.props; i++)
		proposal_copy(&c->prop[c->props++], &r->b.prop[i]);
	for (size_t i = 0; i < a->props && c->props < WIRE_PROPOSALS_MAX; i++)
		if (a->prop[i].epoch > c->epoch)
			proposal_copy(&c->prop[c->props++], &a->prop[i]);
}

/* ---- everybody ---- */

static bool among(const struct wire_proposal *v, size_t n, const struct wire_proposal *p)
{
	for (size_t i = 0; i < n; i++)
		if (same(&v[i], p) && !memcmp(v[i].sig, p->sig, SIG_BYTES) && json_equal(v[i].patch, p->patch))
			return v[i].asked == p->asked;
	return false;
}

void propose_applied(struct avg *a, const struct body *c)
{
	struct err e;
	list_each(it, &a->asks) {
		struct ask *k = list_entry(it, struct ask, link);
		for (size_t i = 0; i < c->props; i++)
			if (same(&c->prop[i], &k->p)) {
				k->over = true;
				k->agreed = c->prop[i].epoch;
			}
		k->next_us = 0;                 /* whoever had accepted it did not write this COMMIT: the next is asked */
	}
	struct wire_proposal *old = a->prop;
	size_t n = a->props;
	a->prop = xcalloc(c->props + 1, sizeof *a->prop);
	a->props = 0;
	for (size_t i = 0; i < c->props; i++) {
		if (c->prop[i].epoch <= c->epoch || (!among(old, n, &c->prop[i]) && verify(a, &c->prop[i], &e)))
			continue;               /* in force, or signed by nobody */
		if (c->prop[i].counter > a->prop_counter)
			a->prop_counter = c->prop[i].counter;
		proposal_copy(&a->prop[a->props++], &c->prop[i]);
	}
	for (size_t i = 0; i < n; i++)
		json_decref(old[i].patch);
	free(old);
}

void propose_in_force(const struct avg *a, const struct body *c, json_t **ret_recent)
{
	uint64_t version;
	json_t *recent = json_object(), *v;
	const char *name;
	json_object_foreach(a->point.recent, name, v)
		if ((uint64_t)json_integer_value(v) + RECENT >= c->epoch)
			json_object_set(recent, name, v);
	json_decref(next_params(a, c->prop, c->props, c->epoch, &version, recent));
	*ret_recent = recent;
}

static void asked(void *arg, const struct frame *f, const struct err *e)
{
	struct ask *k = arg;
	k->call = NULL;
	k->next_us = now_of(k->a) + 100 * MS;
	if (f)
		k->next_us = now_of(k->a) + SECOND;     /* accepted; a COMMIT will say so, unless the leader dies first */
	else if (e->code == ERR_EXISTS || e->code == ERR_AUTH || e->code == ERR_INVALID || e->code == ERR_FULL) {
		k->over = true;
		k->why = *e;
	}
	kick(k->a);
}

static void send_ask(struct avg *a, struct ask *k)
{
	struct err e;
	if (!k->p.asked || (!k->from_epoch && k->p.asked + RECENT / 2 < a->point.epoch))
		sign(a, &k->p, k->from_epoch ? k->from_epoch : a->point.epoch + 1);
	if (is_leader(a)) {
		uint64_t epoch;
		k->next_us = now_of(a) + SECOND;
		if (accept(a, &k->p, &epoch, &e)) {
			k->over = true;
			k->why = e;
		}
		return;
	}
	json_t *j = hub_json(a);
	json_object_set_new(j, "author", json_hex(k->p.author.b, 32));
	json_object_set_new(j, "nonce", json_integer((json_int_t)k->p.nonce));
	json_object_set_new(j, "epoch", json_integer((json_int_t)k->p.asked));
	json_object_set_new(j, "sig", json_hex(k->p.sig, SIG_BYTES));
	json_object_set(j, "patch", k->p.patch);
	k->to = a->leader->id;
	MARK(a, "avg.propose.before");
	k->call = net_call(a->net, &a->leader->id, KIND_AVG_PROPOSE, j, NO_BLOB, CLASS_control,
		net_deadline(a->net, &a->leader->id, PROPOSE_US), asked, k);
	MARK(a, "avg.propose.after");
}

/* Of the parameters from that epoch on, as far as changes are known: every BEGIN that takes any makes one. */
static uint64_t version_at(const struct avg *a, uint64_t epoch)
{
	uint64_t version = a->point.params_version;
	for (size_t i = 0; i < a->props; i++) {
		bool first = a->prop[i].epoch > a->point.epoch && a->prop[i].epoch <= epoch;
		for (size_t k = 0; k < i && first; k++)
			first = a->prop[k].epoch != a->prop[i].epoch;
		version += first;
	}
	return version;
}

/* From the kick: sends what waits to whoever leads now, answers what is over. */
void propose_send(struct avg *a)
{
	list_each_safe(it, &a->asks) {
		struct ask *k = list_entry(it, struct ask, link);
		if (k->call && a->leader && !id_eq(&k->to, &a->leader->id)) {
			net_cancel(a->net, k->call);
			k->call = NULL;
			k->next_us = 0;
		}
		if (!k->over && !k->call && a->state == AVG_IN && a->leader && now_of(a) >= k->next_us)
			send_ask(a, k);
		if (!k->over)
			continue;
		avg_proposed_fn *done = k->done;
		void *arg = k->arg;
		uint64_t agreed = k->agreed;
		struct err why = k->why;
		ask_end(k);
		if (done)
			done(arg, agreed, agreed ? version_at(a, agreed) : 0, agreed ? NULL : &why);
		return;                         /* the owner may have done anything */
	}
}

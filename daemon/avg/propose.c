/* Changes of hyperparameters (amendments C7): signed by who asks, ordered by (effective epoch, leader's counter),
 * carried
 * in every COMMIT until they are in force, so that the next leader has them. Who asks is answered when a COMMIT holds
 * it. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "avg/lead.h"

#define PROPOSE_US (2 * SECOND)

struct ask {
	struct list link; struct avg *a; struct wire_proposal p;
	struct call *call; struct id to; uint64_t next_us; bool over;
	uint64_t agreed; struct err why; avg_proposed_fn *done; void *arg;
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
static void signed_bytes(const struct avg *a, const struct wire_proposal *p, uint64_t asked, struct buf *b)
{
	buf_put(b, a->conf.run.b, 32);
	buf_u64(b, p->nonce);
	buf_u64(b, asked);
	wire_put_json(b, p->patch);
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
	struct buf b = { 0 };
	char *text = json_dumps(patch, JSON_COMPACT);
	size_t n = text ? strlen(text) : 0;
	free(text);
	*k = (struct ask){ .a = a, .done = done, .arg = arg, .p = { .author = a->me->id, .epoch = from_epoch,
		.patch = patch } };
	a->env->ops->secure(a->env, &k->p.nonce, sizeof k->p.nonce);
	k->p.nonce >>= 1;
	if (!json_is_object(patch) || !n || n > WIRE_PATCH_MAX) {
		k->over = true;
		err_set(&k->why, ERR_INVALID, "a change is an object of at most %d bytes", WIRE_PATCH_MAX);
	} else {
		signed_bytes(a, &k->p, from_epoch, &b);
		net_sign(a->net, b.p, b.len, k->p.sig);
		buf_free(&b);
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
	uint64_t epoch = p->epoch > earliest(a) ? p->epoch : earliest(a);
	const char *key;
	json_t *v;
	char who[9];
	if (a->cb.may_change && a->cb.may_change(a->arg, &p->author, p->patch, e))
		return -1;
	for (size_t i = 0; i < a->props; i++) {
		if (same(&a->prop[i], p)) {
			*ret_epoch = a->prop[i].epoch;
			return 0;
		}
		json_object_foreach(p->patch, key, v)
			if (a->prop[i].epoch == epoch && json_object_get(a->prop[i].patch, key))
				return err_set(e, ERR_EXISTS, "%s: superseded by %s at epoch %llu", key, id_short(&a->prop[i].author,
				who), (unsigned long long)epoch);
	}
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
	struct buf b = { 0 };
	uint64_t epoch = 0;
	const json_t *j = req->f.json;
	int rc = json_get_hex(j, "author", p.author.b, 32, &e) || json_get_u64(j, "nonce", &p.nonce, &e) || json_get_u64(j,
		"epoch", &p.epoch, &e) ||
		json_get_hex(j, "sig", p.sig, SIG_BYTES, &e);
	p.patch = json_object_get(j, "patch");
	if (!rc && (!json_is_object(p.patch) || !json_object_size(p.patch)))
		rc = err_set(&e, ERR_INVALID, "patch: expected an object");
	if (!rc) {
		signed_bytes(a, &p, p.epoch, &b);
		if (b.len > WIRE_PATCH_MAX + 64 || !net_verify(&p.author, b.p, b.len, p.sig))
			rc = err_set(&e, ERR_AUTH, "the change is too long or its author's signature is wrong");
		buf_free(&b);
	}
	if (!rc && (a->state != AVG_IN || !is_leader(a)))
		rc = err_set(&e, ERR_BUSY, "changes go to the leader of the epoch");
	if (!rc)
		rc = accept(a, &p, &epoch, &e);
	if (rc)
		net_refuse(req, &e);
	else
		net_reply(req, json_pack("{s:I}", "epoch", (json_int_t)epoch), NO_BLOB);
}

/* Those due with the epoch that this BEGIN makes, in the order of their counters. */
void propose_into_begin(struct avg *a, struct body *b)
{
	bool changed = false;
	b->params = a->point.params ? json_deep_copy(a->point.params) : json_object();
	for (size_t i = 0; i < a->props; i++)
		if (a->prop[i].epoch <= b->epoch + 1) {
			json_object_update(b->params, a->prop[i].patch);
			changed = true;
		}
	b->params_version = a->point.params_version + changed;
}

void propose_into_commit(struct avg *a, struct body *c)
{
	c->prop = xcalloc(a->props + 1, sizeof *c->prop);
	for (size_t i = 0; i < a->props; i++)
		proposal_copy(&c->prop[c->props++], &a->prop[i]);
}

/* ---- everybody ---- */

void propose_applied(struct avg *a, const struct body *c)
{
	list_each(it, &a->asks) {
		struct ask *k = list_entry(it, struct ask, link);
		for (size_t i = 0; i < c->props; i++)
			if (same(&c->prop[i], &k->p)) {
				k->over = true;
				k->agreed = c->prop[i].epoch;
			}
		k->next_us = 0;                 /* whoever had accepted it did not write this COMMIT: the next is asked */
	}
	for (size_t i = 0; i < a->props; i++)
		json_decref(a->prop[i].patch);
	free(a->prop);
	a->prop = xcalloc(c->props + 1, sizeof *a->prop);
	a->props = 0;
	for (size_t i = 0; i < c->props; i++) {
		if (c->prop[i].counter > a->prop_counter)
			a->prop_counter = c->prop[i].counter;
		if (c->prop[i].epoch > c->epoch)        /* not in force yet */
			proposal_copy(&a->prop[a->props++], &c->prop[i]);
	}
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
	json_object_set_new(j, "epoch", json_integer((json_int_t)k->p.epoch));
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

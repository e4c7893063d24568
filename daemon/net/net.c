/* The room's door: creation, everything that arrives, what ends by time, status. What arrives is believed in steps:
 * magic and length, header, session, seal, sender; each refusal has its counter. */
#include <stdio.h>
#include <stdlib.h>
#include "common/mem.h"
#include "common/planted.h"
#include "net/inner.h"

#define SERVED_TICK_US (10 * SECOND)
#define IDLE_TICK_US (10 * SECOND)              /* nothing ends by time */

/* ---- what arrives ---- */

static void dispatch(struct net *n, struct peer *p, struct via via, const struct header *h, const uint8_t *body)
{
	const char *json = (const char *)body;
	const uint8_t *blob = body + h->json_len;
	struct msg *m;

	p->pins++;
	if (p->barred_told)
		hello_let_in(p);
	if (h->pre.kind == KIND_GOODBYE)
		live_left(p);
	else if (h->pre.kind == KIND_REPLY || h->pre.kind == KIND_REFUSE)
		rpc_answer(n, p, h, json, blob);
	else
		serve_request(n, p, via.chan == CHAN_DOOR && !(h->pre.flags & FLAG_ACK) ? via.door_token : 0, h, json, blob);
	p->pins--;
	if (!p->owes_ack || p->banned_until_us)
		return;
	p->owes_ack = false;                    /* nothing has gone out meanwhile: a bare sign */
	m = msg_new(KIND_PING, CLASS_control, NULL, NO_BLOB);
	out_send(p, m, OUT_ACK, 0, env_now(n->env) + SECOND, NULL, NULL);
	msg_unref(m);
}

/* It is opened where it lies: what has been read from the socket is in the cache still. */
static void on_sealed(struct net *n, struct via via, uint8_t *msg, size_t len)
{
	struct header h;
	struct session *s;
	struct peer *p;
	uint8_t *plain = msg + HEADER_BYTES;
	enum open_rc rc;
	struct err e;

	if (header_read(&h, msg, len, &e)) {
		n->count.bad_frame++;
		net_tell(n, LOG_DEBUG_, "bad_frame", NULL, "%s", e.text);
		return;
	}
	s = map_get(n->sessions, &h.session, sizeof h.session);
	if (!s) {
		greet_unknown(n, via, &h);
		return;
	}
	/* The channel is part of what is sealed: a frame for one mailbox is worth nothing at another. */
	if (PLANTED(ANY_CHANNEL))
		h.chan = (uint8_t)via.chan;
	rc = h.chan == via.chan && h.pre.version == s->version ? session_open(s, &h, msg, len, plain) : OPEN_FORGED;
	if (rc != OPEN_OK) {
		n->count.bad_seal += rc == OPEN_FORGED;
		n->count.replayed += rc == OPEN_REPLAYED;
		return;
	}
	p = s->half ? greet_on_m3(n, s->half, via, &h, h.pre.flags & FLAG_M3 ? plain : NULL) : s->peer;
	if (!p)
		return;
	if (!id_eq(&h.sender, &p->id) || h.boot != s->boot) {
		n->count.bad_seal++;
		return;
	}
	if (p->banned_until_us)
		return;
	s->confirmed = true;
	n->count.frames_in++;
	p->bytes.in[h.cls] += len;
	p->bytes.link_in[via.chan] += len;
	p->used_us = env_now(n->env);
	if (via.chan == CHAN_DOOR) {
		env_heard(n->env, p->at.ip, via.door_token);
		door_heard(p, via, &h);
	}
	if (h.pre.kind != KIND_GOODBYE)
		live_heard(p);
	if (h.pre.kind != KIND_REPLY && h.pre.kind != KIND_REFUSE && !guard_frame(p))
		return;
	dispatch(n, p, via, &h, plain + (h.pre.flags & FLAG_M3 ? M3_BYTES : 0));
}

static void on_message(void *arg, struct via via, uint8_t *msg, size_t len)
{
	struct net *n = arg;
	struct prelude pre;

	if (len > wire_max(via.chan)) {
		n->count.oversized++;
		net_tell(n, LOG_DEBUG_, "oversized", NULL, "%zu bytes: the largest frame has %zu", len,
			wire_max(via.chan));
		return;
	}
	switch (prelude_read(&pre, msg, len)) {
	case PRELUDE_OK:
		break;
	case PRELUDE_LENGTH:
		n->count.bad_frame++;
		return;
	default:
		n->count.bad_magic++;
		net_tell(n, LOG_DEBUG_, "garbage", NULL,
			"%zu bytes that are no frame of this protocol: does something else dial "
			"this port?", len);
		return;
	}
	n->count.plain_in += kind_plain(pre.kind) ? len : 0;
	switch (pre.kind) {                     /* the plain ones can be read in any version */
	case KIND_HELLO1: greet_on_m1(n, via, msg, len); return;
	case KIND_HELLO2: hello_on_m2(n, via, msg, len); return;
	case KIND_RESET: hello_on_reset(n, msg, len); return;
	case KIND_TOO_OLD: hello_on_too_old(n, via, msg, len); return;
	default: break;
	}
	if (pre.version < n->version_min || pre.version > n->version_max) {
		n->count.bad_version++;
		net_tell(n, LOG_WARN_, "version_mismatch", NULL,
			"a frame of protocol version %u, this daemon speaks %u to %u: upgrade "
			"the older of the two", pre.version, n->version_min, n->version_max);
		return;
	}
	on_sealed(n, via, msg, len);
}

/* ---- life ---- */

static void on_later(struct timer *t)
{
	rpc_run_ending(container_of(t, struct net, later));
}

/* False: nothing of it ends by time any more. */
static bool expire(struct peer *p, uint64_t now)
{
	bool retiring = door_expire(p, now);

	list_each_safe(it, &p->sessions) {
		struct session *s = list_entry(it, struct session, link);

		if (s->retire_us && s->retire_us < now)
			peer_drop_session(s);
		else
			retiring = retiring || s->retire_us;
	}
	out_drop_waiting(p, now);
	guard_expire(p, now);
	if (!list_empty(&p->unsure))
		hello_unsure(p, now, NULL);
	return retiring || p->banned_until_us || !list_empty(&p->waiting) || !list_empty(&p->unsure);
}

static void on_tick(struct timer *t)
{
	struct net *n = container_of(t, struct net, tick);
	uint64_t now = env_now(n->env);

	greet_expire(n, now);
	rotate_tick(n, now);
	if (now >= n->served_us) {
		served_expire(n, now);
		n->served_us = now + SERVED_TICK_US;
	}
	list_each_safe(it, &n->tended)
		if (!expire(list_entry(it, struct peer, tend_link), now))
			list_del(it);
	env_after(n->env, &n->tick, list_empty(&n->tended) && !n->has_old ? IDLE_TICK_US : TICK_US);
}

static void defaults(struct net *n)
{
	struct net_conf *c = &n->conf;

	c->peers_max = c->peers_max ? c->peers_max : 4096;
	c->calls_max = c->calls_max ? c->calls_max : 65536;
	c->peer_frames = c->peer_frames ? c->peer_frames : PEER_FRAMES_PER_S;
	c->rekey_frames = c->rekey_frames ? c->rekey_frames : SESSION_FRAMES_MAX;
	c->rekey_bytes = c->rekey_bytes ? c->rekey_bytes : SESSION_BYTES_MAX;
	n->suites = c->suites ? c->suites & SUITES_ALL : suites_of_cpu();
	n->version_min = c->version_min ? c->version_min : PROTOCOL_OLDEST;
	n->version_max = c->version_max ? c->version_max : PROTOCOL_VERSION;
	snprintf(n->software, sizeof n->software, "%s", c->software[0] ? c->software : "hivemindd");
}

static const struct net_does does = { .call = call_fire, .hello = hello_fire, .door = door_fire,
	.probe_done = live_probe_done };

struct net *net_new(struct env *env, const struct net_conf *conf, struct err *e)
{
	struct net *n = xcalloc(1, sizeof *n);

	n->env = env;
	n->does = &does;
	n->conf = *conf;
	defaults(n);
	if (signer_init(&n->self, conf->seed)) {
		free(n);
		err_set(e, ERR_INTERNAL, "libcrypto cannot make an Ed25519 key");
		return NULL;
	}
	keys_init(n);
	env->ops->secure(env, &n->map_key, sizeof n->map_key);
	n->peers = map_new(n->map_key);
	n->sessions = map_new(n->map_key);
	n->hellos = map_new(n->map_key);
	n->halves = map_new(n->map_key);
	n->calls = map_new(n->map_key);
	n->sources = map_new(n->map_key);
	n->allow = map_new(n->map_key);
	list_init(&n->peer_list);
	list_init(&n->care_list);
	list_init(&n->tended);
	list_init(&n->served);
	list_init(&n->hello_list);
	list_init(&n->half_list);
	list_init(&n->source_list);
	list_init(&n->outs);
	list_init(&n->ending);
	list_init(&n->kept);
	list_init(&n->cached);
	n->later = (struct timer){ .fire = on_later, .name = "net later" };
	n->tick = (struct timer){ .fire = on_tick, .name = "net tick" };
	n->care_timer = (struct timer){ .fire = live_care_fire, .name = "net care" };
	n->empty = json_object();
	env->recv = on_message;
	env->recv_arg = n;
	net_on(n, KIND_VIEW, serve_view, n);
	guard_load(n);
	env_after(env, &n->tick, TICK_US);
	return n;
}

static void end_everything(struct net *n)
{
	struct err e;

	err_set(&e, ERR_CANCELLED, "the daemon is stopping");
	list_each(it, &n->peer_list) {
		struct peer *p = list_entry(it, struct peer, link);

		hello_unsure(p, 0, &e);
		while (!list_empty(&p->calls))
			rpc_end(list_entry(p->calls.next, struct call, link), NULL, &e);
	}
	rpc_run_ending(n);
	while (!list_empty(&n->hello_list))
		hello_end(list_entry(n->hello_list.next, struct hello, link), NULL, &e);
	while (!list_empty(&n->half_list))
		half_free(list_entry(n->half_list.next, struct half, link));
}

void net_free(struct net *n)
{
	if (!n)
		return;
	n->freeing = true;
	n->env->recv = NULL;
	n->event = NULL;
	end_everything(n);
	reply_free_kept(n);
	out_detach(n);
	while (!list_empty(&n->peer_list))
		peer_free(list_entry(n->peer_list.next, struct peer, link));
	env_timer(n->env, &n->later, 0);
	env_timer(n->env, &n->tick, 0);
	env_timer(n->env, &n->care_timer, 0);
	greet_free(n);
	map_free(n->peers);
	map_free(n->sessions);
	map_free(n->hellos);
	map_free(n->halves);
	map_free(n->calls);
	map_free(n->allow);
	signer_done(&n->self);
	wipe(n->mac_key, sizeof n->mac_key);
	wipe(n->old_key, sizeof n->old_key);
	wipe(&n->conf, sizeof n->conf);
	json_decref(n->empty);
	free(n->watches);
	free(n);
}

const struct id *net_self(const struct net *n)
{
	return &n->self.id;
}

const struct endpoint *net_endpoint(const struct net *n)
{
	return &n->conf.self;
}

void net_sign(const struct net *n, const void *p, size_t len, uint8_t ret_sig[SIG_BYTES])
{
	signer_sign(&n->self, p, len, ret_sig);
}

bool net_verify(const struct id *who, const void *p, size_t len, const uint8_t sig[SIG_BYTES])
{
	return sig_verify(who, p, len, sig);
}

void net_counters(const struct net *n, struct net_counters *ret)
{
	*ret = n->count;
}

json_t *net_status(struct net *n)
{
	const struct net_counters *c = &n->count;
	char hex[ID_HEX], at[64];

	id_hex(&n->self.id, hex);
	return json_pack("{s:s,s:b,s:s,s:s,s:b,s:b,s:I,s:I,s:I,s:{"
		"s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}}", "id", hex,
		"duplicate_identity", n->twin,
		"address", at_text(&n->conf.self, CHAN_CTRL, at), "cipher", suite_name(suite_choose(n->suites, n->suites)),
		"client", n->conf.client, "swarm_key", n->conf.has_swarm_key, "peers", (json_int_t)map_len(n->peers),
		"sessions", (json_int_t)c->sessions, "calls_open", (json_int_t)c->calls_open, "counters",
		"frames_in", (json_int_t)c->frames_in, "frames_out", (json_int_t)c->frames_out, "bad_magic",
		(json_int_t)c->bad_magic,
		"bad_frame", (json_int_t)c->bad_frame, "oversized", (json_int_t)c->oversized,
		"bad_version", (json_int_t)c->bad_version, "bad_seal",
		(json_int_t)c->bad_seal,
		"replayed", (json_int_t)c->replayed, "bad_json", (json_int_t)c->bad_json,
		"unknown_session", (json_int_t)c->unknown_session, "hello_limited", (json_int_t)c->hello_limited,
		"wrong_swarm_key", (json_int_t)c->wrong_swarm_key, "over_quota", (json_int_t)c->over_quota,
		"door_dropped", (json_int_t)c->door_dropped,
		"not_allowed", (json_int_t)c->not_allowed, "bans", (json_int_t)c->bans, "hello_bytes_sent",
		(json_int_t)c->plain_out, "hello_bytes_received", (json_int_t)c->plain_in);
}

/* Two daemons with one key: a state directory was copied. Others see one peer that restarts again and again, and
 * neither of the two ever hears of the other, because nobody dials itself. So a third one that sees an earlier boot
 * number come back carries a question and its answer from one to the other, in VIEW: each names a number at random, and
 * the other signs it with the key and its own boot number. Nobody else can, and a number is good for one process only:
 * who hears its own key over its own number and another boot number knows that another process lives now. Whoever is
 * dialled, or dials, and finds its own key there has seen the same in HELLO. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "net/inner.h"

#define TWIN_US (60 * SECOND)
#define TELL_US (600 * SECOND)
#define VIEW_US (2 * SECOND)
#define SIGNS_PER_S 1.0
#define SIGNS_BURST 8.0

/* What a third one carries between two boots of a peer. ask: that process's number; sig: its signature over the other's
 * one. */
struct side { uint64_t boot; bool has_ask, has_sig; uint8_t ask[32], sig[SIG_BYTES]; };
struct twin { struct side of[2]; uint64_t until_us; };
struct carrying { struct net *net; struct id peer; uint64_t boot; };

static const char context[16] = "hivemind twin 1\0";

static void signed_bytes(uint8_t out[56], const uint8_t ask[32], uint64_t boot)
{
	memcpy(out, context, 16);
	memcpy(out + 16, ask, 32);
	for (int i = 0; i < 8; i++)
		out[48 + i] = (uint8_t)(boot >> 8 * i);
}

void twin_found(struct net *n, const char *where)
{
	uint64_t now = env_now(n->env);
	bool first = !n->twin;

	n->twin = true;
	if (now < n->twin_next_us)
		return;
	n->twin_next_us = now + TELL_US;
	net_tell(n, LOG_ERROR_, "duplicate_identity", &n->self.id, "another daemon%s%s runs with this daemon's own key: "
		"the state directory was copied; both leave their runs. Stop one of the two, or delete its key file and start "
		"it again, then join the runs again", *where ? " at " : "", where);
	if (first && n->on_twin)
		n->on_twin(n->on_twin_arg);
}

void net_on_twin(struct net *n, net_twin_fn *fn, void *arg)
{
	n->on_twin = fn;
	n->on_twin_arg = arg;
}

bool net_twin(const struct net *n) { return n->twin; }

/* ---- the third one ---- */

static void carried(void *arg, const struct frame *f, const struct err *e)
{
	struct carrying *c = arg;
	struct peer *p = f ? peer_find(c->net, &c->peer) : NULL;
	const json_t *j = f ? json_object_get(f->json, "twin") : NULL;

	for (int i = 0; i < 2 && p && p->twin && j; i++) {
		struct side *s = &p->twin->of[i];

		if (s->boot != c->boot)
			continue;
		s->has_ask = !json_get_hex(j, "ask", s->ask, sizeof s->ask, NULL);
		s->has_sig = !json_get_hex(j, "sig", s->sig, sizeof s->sig, NULL);
	}
	free(c);
}

/* A session with that process is there. */
static void carry(struct peer *p, const struct side *to, const struct side *other)
{
	struct carrying *c = xcalloc(1, sizeof *c);
	json_t *j = json_pack("{s:o}", "boot", json_hex(&other->boot, sizeof other->boot));

	*c = (struct carrying){ p->net, p->id, to->boot };
	if (other->has_ask)
		json_object_set_new(j, "sign", json_hex(other->ask, sizeof other->ask));
	if (other->has_sig)
		json_object_set_new(j, "sig", json_hex(other->sig, sizeof other->sig));
	net_call(p->net, &p->id, KIND_VIEW, json_pack("{s:o}", "twin", j), NO_BLOB, CLASS_control, VIEW_US, carried, c);
}

static void forget(struct peer *p)
{
	free(p->twin);
	p->twin = NULL;
}

void twin_rebooted(struct peer *p, uint64_t boot)
{
	struct net *n = p->net;
	uint64_t now = env_now(n->env);

	if (p->twin && p->twin->of[0].boot != boot && p->twin->of[1].boot != boot)
		forget(p);                 /* a third number: who knows which of them that is */
	if (!p->boot || boot != p->boot_before || now - p->boot_since_us >= TWIN_US)
		return;
	net_tell(n, LOG_WARN_, "duplicate_identity", &p->id, "two daemons run with this peer's key: somebody copied a "
		"state directory; stop one of them, or delete its key file and start it again");
	if (!p->twin) {
		p->twin = xcalloc(1, sizeof *p->twin);
		p->twin->of[0].boot = p->boot;
		p->twin->of[1].boot = boot;
	}
	p->twin->until_us = now + TWIN_US;
}

void twin_installed(struct peer *p)
{
	struct twin *t = p->twin;

	if (t && t->until_us < env_now(p->net->env))
		forget(p);
	else if (t)
		carry(p, &t->of[t->of[1].boot == p->boot], &t->of[t->of[1].boot != p->boot]);
}

/* ---- one of the two ---- */

json_t *twin_answer(struct net *n, const json_t *asked)
{
	uint8_t ask[32], sig[SIG_BYTES], bytes[56];
	uint64_t boot;
	json_t *j;

	if (!json_is_object(asked) || !limit_take(&n->twin_signs, env_now(n->env), SIGNS_PER_S, SIGNS_BURST) ||
	    json_get_hex(asked, "boot", &boot, sizeof boot, NULL) || boot == n->conf.boot_id)
		return NULL;
	if (!n->has_ask)
		n->env->ops->secure(n->env, n->ask, sizeof n->ask);
	n->has_ask = true;
	signed_bytes(bytes, n->ask, boot);
	if (!json_get_hex(asked, "sig", sig, sizeof sig, NULL) && sig_verify(&n->self.id, bytes, sizeof bytes, sig))
		twin_found(n, "");
	j = json_pack("{s:o}", "ask", json_hex(n->ask, sizeof n->ask));
	if (!json_get_hex(asked, "sign", ask, sizeof ask, NULL)) {
		signed_bytes(bytes, ask, n->conf.boot_id);
		signer_sign(&n->self, bytes, sizeof bytes, sig);
		json_object_set_new(j, "sig", json_hex(sig, sizeof sig));
	}
	return j;
}

/* A session is there: it is the peer's from now on, and what waited for one goes. A session of another process than the
 * one before ends all that hung on that. */
#include "common/planted.h"
#include "net/inner.h"

/* The process behind the id is another one: nothing of the old one is worth keeping. */
static void rebooted(struct peer *p, uint64_t boot)
{
	struct net *n = p->net;
	struct err e;
	bool again = p->boot != 0;

	twin_rebooted(p, boot);
	p->boot_before = p->boot;
	p->boot = boot;
	p->boot_since_us = env_now(n->env);
	peer_drop_sessions(p);
	served_forget_boot(p);
	p->floor = 0;
	p->misses = 0;
	p->mailbox = false;
	p->left_us = 0;
	if (!again)
		return;
	err_set(&e, ERR_UNREACHABLE, "the peer restarted before it answered");
	rpc_end_peer(p, true, &e);
	live_news(p, NEWS_RESTARTED);
}

void peer_install(struct peer *p, struct session *s, bool mailbox)
{
	struct net *n = p->net;
	struct session *best;
	bool sound = false;
	size_t k = 0;

	(void)FAILPOINT(n->env, "net.session.before");
	s->peer = p;
	s->made_us = env_now(n->env);
	if (p->boot != s->boot)
		rebooted(p, s->boot);
	p->boot_seen_us = s->seen_us > p->boot_seen_us ? s->seen_us : p->boot_seen_us;
	p->mailbox = p->mailbox || mailbox;
	p->key_no = s->key_no;
	list_each(it, &p->sessions) {           /* both sides still take what is on its way under it */
		const struct session *o = list_entry(it, struct session, link);

		sound = sound || (!o->dead && !o->doubted);
	}
	list_push(&p->sessions, &s->link);
	map_put(n->sessions, &s->id, sizeof s->id, s);
	n->count.sessions++;
	best = peer_session(p);
	list_each_safe(it, &p->sessions) {
		struct session *o = list_entry(it, struct session, link);

		if (o == best)
			o->retire_us = 0;
		else if (!o->retire_us)
			o->retire_us = s->made_us + BOTH_KEPT_US;
		if (o->retire_us)
			peer_tend(p);
		k++;
	}
	list_each_safe(it, &p->sessions) {
		struct session *o = list_entry(it, struct session, link);

		if (k > SESSIONS_PER_PEER && o != best && o != s) {
			peer_drop_session(o);
			k--;
		}
	}
	/* Begun while it could not be reached, they may wait for TCP's next SYN. */
	if (!sound && p->at_level != AT_NONE && p->at_level != AT_CLAIMED && !PLANTED(SYN_AWAITED))
		n->env->ops->close_link(n->env, &p->at, true);
	out_flush(p);
	rpc_hurry(p, p->torn || !sound);
	p->torn = false;
	twin_installed(p);
	(void)FAILPOINT(n->env, "net.session.after");
}

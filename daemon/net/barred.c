/* Not let in: M2 is fine, but the other side has banned this daemon, or has a list without it, and says so when M3 has
 * told it who we are. A dial of such a peer has succeeded only when something else than M2 has come. */
#include <stdlib.h>
#include <string.h>
#include "net/inner.h"

void hello_let_in(struct peer *p)
{
	p->barred_us = p->barred_told = 0;
	p->pins++;
	dials_end(&p->unsure, &p->id, NULL);
	p->pins--;
}

void hello_unsure(struct peer *p, uint64_t now, const struct err *e)
{
	struct err late;
	char who[9], at[64];

	if (e) {
		dials_end(&p->unsure, NULL, e);
		return;
	}
	err_set(&late, ERR_UNREACHABLE, "peer %s at %s has answered HELLO and nothing else", id_short(&p->id, who),
		at_text(&p->at, CHAN_CTRL, at));
	list_each_safe(it, &p->unsure) {
		struct dial *d = list_entry(it, struct dial, link);

		if (d->deadline_us > now)
			continue;
		list_del(&d->link);
		d->done(d->arg, NULL, &late);
		free(d);
	}
}

/* M2 was fine, but who we are was not: the other side has banned this daemon, or has a list without it. */
void hello_barred(struct net *n, const uint8_t ref[HELLO_REF])
{
	struct peer *p = NULL;
	char who[9], at[64];
	struct err e;

	list_each(it, &n->peer_list) {
		struct peer *x = list_entry(it, struct peer, link);

		if (!memcmp(x->m1_ref, ref, HELLO_REF))
			p = x;
	}
	if (!p)
		return;
	memset(p->m1_ref, 0, HELLO_REF);
	p->barred_us = env_now(n->env) + BARRED_US;
	err_set(&e, ERR_REFUSED, "peer %s at %s does not let this daemon in: it has banned it (hivectl peers unban there), "
		"or has a list without its id ([network] allow)", id_short(&p->id, who), at_text(&p->at, CHAN_CTRL, at));
	if (!p->barred_told++)
		net_tell(n, LOG_WARN_, "barred", &p->id, "%s", e.text);
	p->pins++;
	peer_cut(p, &e, "it does not let this daemon in");
	hello_unsure(p, 0, &e);
	p->pins--;
}

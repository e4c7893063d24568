/* VIEW: how this daemon sees the one who asks, which net check and the replacing of keys want to know. With "dial" it
 * finds out whether the other's mailboxes can be reached: the one for control by a HELLO, the one for bulk by a PING
 * of bulk size. Whoever asks again a moment later hears how that went. */
#include <stdlib.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "net/inner.h"

#define PING_US (1500 * MS)
#define AGAIN_US SECOND
#define KNOWN_US (30 * SECOND)          /* an answer to bulk is as good as another PING for so long */

struct bulk_ping { struct net *net; struct id to; };

static void pinged(void *arg, const struct frame *f, const struct err *e)
{
	struct bulk_ping *b = arg;
	struct peer *p = e && e->code == ERR_CANCELLED ? NULL : peer_find(b->net, &b->to);

	if (p) {
		p->bulk_view = f ? BULK_YES : BULK_NO;
		p->bulk_view_us = env_now(b->net->env);
	}
	free(b);
}

static bool known(const struct peer *p)
{
	return p->bulk_us && p->bulk_us + KNOWN_US > env_now(p->net->env);
}

static void try_bulk(struct peer *p)
{
	static const uint8_t zeros[BULK_BYTES + 1];
	struct bulk_ping *b;

	if (p->bulk_view == BULK_TRYING || known(p) || (p->bulk_view && p->bulk_view_us + AGAIN_US > env_now(p->net->env)))
		return;
	b = xcalloc(1, sizeof *b);
	*b = (struct bulk_ping){ p->net, p->id };
	p->bulk_view = BULK_TRYING;
	net_call(p->net, &p->id, KIND_PING, NULL, (struct blob){ .data = zeros, .len = sizeof zeros }, CLASS_control,
		PING_US, pinged, b);
}

void serve_view(void *arg, struct request *req)
{
	static const char *const words[] = { [BULK_UNKNOWN] = "unknown", [BULK_TRYING] = "trying", [BULK_YES] = "yes",
		[BULK_NO] = "no" };
	struct net *n = arg;
	struct peer *p = peer_find(n, &req->f.from);
	char print[KEY_PRINT], at[64];
	json_t *j, *twin;
	bool trying = false, dial = json_is_true(json_object_get(req->f.json, "dial"));

	if (!req->wants_reply || !p)
		return;
	if (dial && !p->mailbox && !p->client && !n->conf.client)
		trying = hello_prove(p);
	else if (dial && p->mailbox && !p->client && !n->conf.client)
		try_bulk(p);
	key_print(n->mac_key, print);
	j = json_pack("{s:s,s:I,s:s,s:b,s:s,s:b,s:b,s:b}", "key", print, "wall_ms",
		(json_int_t)env_wall(n->env), "at", p->at_level == AT_NONE ? "" : at_text(&p->at, CHAN_CTRL, at), "mailbox",
		p->mailbox, "bulk", words[known(p) ? BULK_YES : p->bulk_view], "client", p->client, "i_am_client",
		n->conf.client, "trying", trying || p->hello);
	twin = twin_answer(n, json_object_get(req->f.json, "twin"));
	if (twin)
		json_object_set_new(j, "twin", twin);
	net_reply(req, j, NO_BLOB);
}

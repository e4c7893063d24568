/* The swarm's key is replaced. For a window there are two: everybody who has a session of the old key is asked for its
 * new one now and then, and says HELLO again when both have it. At the end of the window whatever still hangs on the
 * old key is cut. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "net/inner.h"

#define ASK_US (2 * SECOND)

/* Sessions under keys that are no longer good end; who had one says HELLO again when it has something to say. */
static void cut(struct net *n)
{
	size_t lost = 0;

	list_each_safe(it, &n->peer_list) {
		struct peer *p = list_entry(it, struct peer, link);
		bool had = !list_empty(&p->sessions);

		peer_drop_keys(p, n->has_old ? n->key_no - 1 : n->key_no);
		lost += had && list_empty(&p->sessions);
		if (had && list_empty(&p->sessions) && !list_empty(&p->calls))
			hello_start(p);
	}
	while (!list_empty(&n->half_list)) {
		struct half *h = list_entry(n->half_list.next, struct half, link);

		half_free(h);
	}
	if (lost)
		net_tell(n, LOG_WARN_, "key.cut", NULL, "%zu peers had no session under the new swarm key when the old one "
			"ended: whoever of them does not have the new key stays outside", lost);
}

static void close_window(struct net *n)
{
	wipe(n->old_key, sizeof n->old_key);
	n->has_old = false;
	n->old_until_us = 0;
	cut(n);
	net_tell(n, LOG_INFO_, "key.window_over", NULL, "the old swarm key is no longer good");
}

void net_rotate(struct net *n, const uint8_t key[32], uint64_t window_us)
{
	char print[KEY_PRINT];
	uint64_t now = env_now(n->env);

	if (!mac_equal(key, n->mac_key)) {
		memcpy(n->old_key, n->mac_key, 32);
		memcpy(n->mac_key, key, 32);
		n->key_no++;
		n->has_old = true;
		n->conf.has_swarm_key = true;
		cut(n);                         /* what hung on the key before the last */
		key_print(key, print);
		net_tell(n, LOG_INFO_, "key.rotated", NULL, "the swarm key is %s now; the one before is good for %llu s",
			print, (unsigned long long)(window_us / SECOND));
	}
	n->keys_next_us = 0;
	n->old_until_us = window_us ? now + window_us : 0;
	if (n->has_old && !window_us)
		close_window(n);
	else if (n->has_old)
		rotate_tick(n, now);
	net_tick_soon(n);
}

/* ---- moving sessions to the new key ---- */

struct asking { struct net *net; struct id id; };

/* The answer to a ping says which key the other side says HELLO with. */
static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct asking *a = arg;
	struct net *n = a->net;
	struct peer *p = peer_find(n, &a->id);
	const char *theirs = f ? json_string_value(json_object_get(f->json, "key")) : NULL;
	char mine[KEY_PRINT];

	free(a);
	if (!p)
		return;
	p->key_asked = false;
	key_print(n->mac_key, mine);
	if (!theirs || strcmp(theirs, mine) || p->key_no == n->key_no)
		return;
	p->key_no = n->key_no;
	hello_start(p);
}

static void ask(struct net *n, struct peer *p)
{
	struct asking *a = xcalloc(1, sizeof *a);

	*a = (struct asking){ n, p->id };
	p->key_asked = true;
	net_call(n, &p->id, KIND_VIEW, NULL, NO_BLOB, CLASS_control, 5 * SECOND, answered, a);
}

void rotate_tick(struct net *n, uint64_t now)
{
	if (!n->has_old)
		return;
	if (now >= n->old_until_us) {
		close_window(n);
		return;
	}
	if (now < n->keys_next_us)
		return;
	n->keys_next_us = now + ASK_US;
	list_each(it, &n->peer_list) {
		struct peer *p = list_entry(it, struct peer, link);
		struct session *s = peer_session(p);

		if (s && s->key_no != n->key_no && !p->key_asked && !p->hello && !p->banned_until_us)
			ask(n, p);
	}
}

void net_keys(const struct net *n, struct net_keys *ret)
{
	uint64_t now = env_now(n->env);

	memset(ret, 0, sizeof *ret);
	key_print(n->mac_key, ret->now);
	if (!n->has_old)
		return;
	key_print(n->old_key, ret->old);
	ret->old_left_us = n->old_until_us > now ? n->old_until_us - now : 0;
	list_each(it, &n->peer_list) {
		struct session *s = peer_session(list_entry(it, struct peer, link));

		ret->old_peers += s && s->key_no != n->key_no;
	}
}

/* The swarm's keys. There is one, and while it is being replaced (rotate.c) there are two: M1 says HELLO under the key
 * that the other side is known to have. */
#include <string.h>
#include "common/hash.h"
#include "net/inner.h"

void key_print(const uint8_t key[32], char out[KEY_PRINT])
{
	static const char label[] = "hivemind fingerprint of a swarm key";
	struct id sum;
	char hex[ID_HEX];
	uint8_t mac[32];

	mac_of(key, label, sizeof label - 1, mac);
	memcpy(sum.b, mac, sizeof sum.b);
	id_hex(&sum, hex);
	memcpy(out, hex, KEY_PRINT - 1);
	out[KEY_PRINT - 1] = '\0';
}

void keys_init(struct net *n)
{
	if (n->conf.has_swarm_key)
		memcpy(n->mac_key, n->conf.swarm_key, 32);
	else                                    /* well known on purpose: such a daemon listens on loopback only */
		sha256_of("hivemind without a swarm key", 28, n->mac_key);
	n->key_no = 2;
	if (!n->conf.old_key_us)
		return;
	memcpy(n->old_key, n->conf.old_key, 32);
	n->has_old = true;
	n->old_until_us = env_now(n->env) + n->conf.old_key_us;
}

const uint8_t *key_bytes(const struct net *n, uint32_t no)
{
	return n->has_old && no == n->key_no - 1 ? n->old_key : n->mac_key;
}

uint32_t key_other(const struct net *n, uint32_t no)
{
	if (!n->has_old)
		return 0;
	return no == n->key_no ? n->key_no - 1 : n->key_no;
}

uint32_t key_for(const struct net *n, const struct peer *p)
{
	return p && n->has_old && p->key_no == n->key_no - 1 ? p->key_no : n->key_no;
}

bool net_swarm_key(const struct net *n, uint8_t ret_key[32], uint8_t ret_old[32])
{
	memcpy(ret_key, n->mac_key, 32);
	memcpy(ret_old, n->has_old ? n->old_key : n->mac_key, 32);
	return n->has_old;
}

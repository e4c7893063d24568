/* The real transport: what is remembered of addresses. Whose are peers', and which are banned; bounded, and not for
 * ever. */
#include <stdlib.h>
#include "common/mem.h"
#include "net/nano_int.h"

#define KNOWN_US ((uint64_t)3600 * 1000000)
#define NOTES_MAX 4096

struct until { uint64_t at; };

void sweep_note(struct map *m, const uint8_t ip[16], uint64_t until_us)
{
	struct until *u = map_get(m, ip, 16);

	if (!until_us) {
		free(map_del(m, ip, 16));
		return;
	}
	if (!u) {
		if (map_len(m) >= NOTES_MAX)
			return;
		u = xcalloc(1, sizeof(*u));
		map_put(m, ip, 16, u);
	}
	u->at = until_us;
}

void sweep_know(struct nano *n, const uint8_t ip[16])
{
	uint8_t group[16];

	ip_group(ip, group);
	sweep_note(n->known, group, env_now(n->env) + KNOWN_US);
}

bool sweep_noted(struct map *m, const uint8_t ip[16], uint64_t now)
{
	struct until *u = map_get(m, ip, 16);
	return u && u->at > now;
}

void sweep_forget(struct map *m, uint64_t now)
{
	const void *key;
	size_t klen, it = 0;
	struct until *u;
	while ((u = map_next(m, &it, &key, &klen)))
		if (u->at <= now) {
			map_del(m, key, klen);
			free(u);
		}
}

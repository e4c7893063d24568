/* What the configuration says about the transport: where to listen and whether that may be, and how fast. */
#include "options_net.h"
#include <string.h>
#include "node/reach.h"

/* Slower than this a piece of bulk takes longer than its sender waits for an answer. */
#define RATE_MIN (1 << 20)

int options_rates(const struct conf *c, uint64_t *ret_up, uint64_t *ret_down, struct err *e)
{
	static const char *const keys[] = { "rate_limit_up", "rate_limit_down" };

	for (int i = 0; i < 2; i++) {
		int64_t v = conf_int(c, "network", keys[i]);

		if (v && v < RATE_MIN)
			return err_set(e, ERR_INVALID, "%s: [network] %s = %s: at least 1MiB a second, or 0 for no limit",
				conf_origin(c, "network", keys[i]), keys[i], conf_str(c, "network", keys[i]));
		*(i ? ret_down : ret_up) = (uint64_t)v;
	}
	return 0;
}

int options_listen(const struct conf *c, struct nano_conf *nc, struct err *e)
{
	const char *listen = conf_str(c, "network", "listen"), *const *word;
	bool has_key = *conf_str(c, "network", "swarm_key_file") != '\0', outside;
	size_t n = conf_list(c, "network", "listen", &word);

	memset(nc, 0, sizeof *nc);
	for (size_t i = 0; i < n; i++)
		if ((i ? nano_listen_also(word[i], nc, e) : nano_listen_parse(word[i], nc, e)) < 0)
			return err_wrap(e, "%s: [network] listen", conf_origin(c, "network", "listen"));
	if (!n)
		return err_set(e, ERR_INVALID, "%s: [network] listen: no address; 127.0.0.1:auto is the default",
			conf_origin(c, "network", "listen"));
	nc->client = conf_bool(c, "network", "client");
	if (options_rates(c, &nc->rate_up, &nc->rate_down, e) < 0)
		return -1;
	outside = !ip_is_loopback(nc->listen);
	for (unsigned i = 0; i < nc->nalso; i++)
		outside = outside || !ip_is_loopback(nc->also[i]);
	if (!has_key && !nc->client && outside)
		return err_set(e, ERR_INVALID, "[network] listen = %s, but there is no swarm key: anybody could join. Make "
			"one and copy it to every peer (umask 077; openssl rand -hex 32 >swarm.key), then say --swarm-key-file "
			"swarm.key; or listen on 127.0.0.1", listen);
	return 0;
}

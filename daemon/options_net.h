/* [network] of the configuration, as the transport wants it. */
#ifndef DAEMON_OPTIONS_NET_H
#define DAEMON_OPTIONS_NET_H
#include "common/conf.h"
#include "net/nano.h"

/* listen, client, and the limits; refused: addresses beyond loopback without a swarm key. */
int options_listen(const struct conf *c, struct nano_conf *ret, struct err *e);
/* rate_limit_up and _down in bytes/s; 0: none. */
int options_rates(const struct conf *c, uint64_t *ret_up, uint64_t *ret_down, struct err *e);

#endif

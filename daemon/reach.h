/* Where this peer can be reached: what it listens on, and the address that it tells others. */
#ifndef DAEMON_REACH_H
#define DAEMON_REACH_H
#include <stdbool.h>
#include <stdint.h>
#include "common/conf.h"
#include "env.h"

bool reach_is_loopback(const uint8_t ip[16]);
/* [network] advertise (with a port: it and the next two), else what is bound, else (bound to every address) the first
 * IPv4 address of this machine that is not loopback. Ports are those bound, unless advertise has one. */
int reach_self(const struct conf *c, const struct endpoint *bound, struct endpoint *ret_at, struct err *e);

#endif

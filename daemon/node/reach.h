/* Where this peer can be reached: what it listens on, and the address that it tells others. */
#ifndef DAEMON_REACH_H
#define DAEMON_REACH_H
#include <stdbool.h>
#include <stdint.h>
#include "common/conf.h"
#include "net/net.h"

/* [network] advertise as far as it can be judged without asking for names. */
int reach_check_conf(const struct conf *c, struct err *e);
/* [network] advertise (with a port: it and the next two; further ones go into also, which has room for NET_ALSO), else
 * what is bound, else (bound to every address) the first IPv4 address of this machine that is not loopback. Ports are
 * those bound, unless advertise has one. */
int reach_self(const struct conf *c, const struct endpoint *bound, struct endpoint *ret_at, struct endpoint *ret_also,
	unsigned *ret_n, struct err *e);
/* Of what is listened on, n addresses, those besides self that others could dial: no loopback address beside one that
 * is not; instead of every address of a kind those of this machine. Ports are those bound. How many, at most max. */
unsigned reach_others(const uint8_t (*listen)[16], unsigned n, const struct endpoint *bound,
	const struct endpoint *self, struct endpoint *out, unsigned max);

#endif

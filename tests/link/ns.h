/* A network namespace with one TUN device in it. */
#ifndef TESTS_LINK_NS_H
#define TESTS_LINK_NS_H
#include <stdint.h>
#include "common/err.h"

#define NS_MTU 1500
/* The device is called link0, has ip/16 and, where the kernel has IPv6, fd77::ip/64. mtu 0: NS_MTU. cc: the congestion
 * control of TCP in there, NULL: the machine's. Both descriptors are the caller's to close. */
int ns_new(const uint8_t ip[4], unsigned mtu, const char *cc, int *ret_tun, int *ret_ns, struct err *e);
int ns_enter(int ns, int *ret_back, struct err *e);     /* the calling thread */
void ns_leave(int back);
void ns_ip6(const uint8_t ip[4], uint8_t ret_ip6[16]);

#endif

/* The link emulator: nodes, each a network namespace of its own whose only way out is a TUN device, and a hub that
 * reads every packet from there, sends it up the sender's link and down the receiver's (emu.h), and writes it to the
 * receiver's device. To the kernels' TCP that is a real network: it meets rates, queues, losses and cuts.
 *
 * Needs CAP_SYS_ADMIN (namespaces), CAP_NET_ADMIN and /dev/net/tun; nothing outside the process is changed, and when
 * the process and those it has let into the namespaces have ended, nothing is left. Single-threaded. */
#ifndef TESTS_LINK_HUB_H
#define TESTS_LINK_HUB_H
#include "link/emu.h"

#define HUB_NODES_MAX 64
#define HUB_NAME_MAX 32

/* up: what the node sends; down: what it gets. ip6 is derived from ip: fd77::a.b.c.d. */
struct hub_node { char name[HUB_NAME_MAX]; uint8_t ip[4]; int tun, ns; struct emu up, down; };

struct hub;
struct hub *hub_new(uint64_t seed);
void hub_free(struct hub *h);                   /* NULL is fine */
/* 0, or ERR_STATE: this process may not make namespaces or TUN devices (text says what is missing). */
int hub_possible(struct err *e);
/* One line of the language that link(1)'s help describes; ret gets the reply, a line without its end. */
int hub_command(struct hub *h, const char *line, char *ret, size_t cap, struct err *e);
struct hub_node *hub_node(struct hub *h, const char *name);     /* NULL: there is none */
int hub_enter(const struct hub_node *n, int *ret_back, struct err *e);  /* this thread; ret_back: for hub_leave */
void hub_leave(int back);
/* Moves packets and runs timed commands until now + us, or until fd (-1: none) has something to be read (then true), or
 * a signal comes. */
bool hub_run(struct hub *h, uint64_t us, int fd);
uint64_t hub_now_ns(void);                      /* CLOCK_MONOTONIC */

#endif

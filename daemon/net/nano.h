/* The real transport: two PULL mailboxes and the door bound here, one PUSH socket per live peer
 * and channel opened by need and closed least-recently-used, raw REQ sockets to other daemons' doors. It plugs itself
 * into the loop; protocol code sees only struct env.
 *
 * Accepted is not delivered. Order holds within one connection number; the number changes whenever the TCP connection
 * below may have. linkinfo reads nanomsg's statistics at the moment of asking, so who cares polls it (C14: 5 ms).
 *
 * Congestion control: bulk connections may delay others by about 25 ms (nano_pace.c: LEDBAT's aim, RFC 6817, FAST TCP's
 * law, BBR inside where the kernel lets us), so that heartbeats pass while bulk fills a link. */
#ifndef NET_NANO_H
#define NET_NANO_H
#include <stdbool.h>
#include <stdint.h>
#include "common/err.h"
#include "env.h"
#include "loop/loop.h"

#define NANO_PORT_CTRL 4237
#define NANO_ALSO 7
struct nano_conf {
	uint8_t listen[16];                     /* numeric; IPv4 mapped; all zero with mapped prefix = every interface */
	uint8_t also[NANO_ALSO][16]; unsigned nalso;    /* more addresses, with the same ports */
	/* ctrl; bulk = +1, door = +2; 0 = auto: the first free triple from auto_first on */
	uint16_t port;
	uint16_t auto_first, auto_last;         /* 0 = 4237 .. 4237 + 3 * 255 */
	bool client;                            /* binds nothing: dials doors and mailboxes only */
	uint32_t sockets_max;                   /* outgoing; 0 = 400 (nanomsg allows 512 a process) */
	uint32_t ctrl_buf, bulk_buf;            /* bytes; 0 = 256 KiB, 2 MiB */
	uint32_t ctrl_queue_max, bulk_queue_max;/* bytes waiting per link; 0 = 1 MiB, 16 MiB */
	uint64_t rate_up, rate_down;            /* bytes/s of everything together; 0 = no limit */
	uint64_t idle_us;                       /* a link is closable after this; 0 = 1 s */
	/* waiting packets of a link that is not connected are given back; 0 = 10 s */
	uint64_t stuck_us;
	uint64_t sweep_us;                      /* 0 = 1 s */
	uint64_t stranger_us;                   /* inbound connection without HELLO; 0 = 10 s */
	uint32_t per_address_max, inbound_max;  /* 0 = 16, 1024 */
	/* Connections that speak something else, at most one a minute; may be NULL. */
	void (*told)(void *arg, enum log_level level, const char *code, const char *text); void *told_arg;
};
/* 127.0.0.1:auto, 0.0.0.0:4237, [::1]:auto; a name is refused (C20: nanomsg cannot bind one). */
int nano_listen_parse(const char *text, struct nano_conf *ret, struct err *e);
/* One more address after the first; its port is the first one's, or auto. */
int nano_listen_also(const char *text, struct nano_conf *c, struct err *e);

struct nano;
struct nano *nano_new(struct loop *l, const struct nano_conf *conf, struct err *e);
void nano_free(struct nano *n);                         /* waiting packets come back unsent; NULL is fine */
const struct endpoint *nano_endpoint(const struct nano *n);     /* as bound; ports 0 for a client */

void nano_set_rates(struct nano *n, uint64_t up, uint64_t down);         /* as in nano_conf; in force at once */

struct nano_stats {
	uint64_t in[CHANS], out[CHANS], bytes_in[CHANS], bytes_out[CHANS];
	uint64_t refused, asked_refused;
	uint64_t breaks, lru_closed, stuck, ghosts, inbound, shut_address, shut_total, shut_stranger, shut_banned;
	uint32_t links, sockets, queued;
};
void nano_stats(const struct nano *n, struct nano_stats *ret);

/* ---- addresses ---- */
#define ENDPOINT_TEXT 96
/* "10.0.0.1:4237", "[::1]:4237" */
const char *endpoint_text(const struct endpoint *at, enum chan chan, char out[ENDPOINT_TEXT]);
int endpoint_ip(const char *numeric, uint8_t ret_ip[16]);       /* -1: not a numeric address */

#endif

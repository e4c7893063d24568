/* The real transport: addresses, as text, as options give them, and of the two ends of a descriptor. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "common/text.h"
#include "net/nano_int.h"

static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

const char *endpoint_text(const struct endpoint *at, enum chan chan, char out[ENDPOINT_TEXT])
{
	char ip[INET6_ADDRSTRLEN] = "?";
	bool v4 = ip_is_v4(at->ip);

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? at->ip + 12 : at->ip, ip, sizeof(ip));
	snprintf(out, ENDPOINT_TEXT, v4 ? "%s:%u" : "[%s]:%u", ip, at->port[chan]);
	return out;
}

int endpoint_ip(const char *numeric, uint8_t ret_ip[16])
{
	uint8_t v4[4];
	if (inet_pton(AF_INET, numeric, v4) == 1) {
		memcpy(ret_ip, mapped, sizeof(mapped));
		memcpy(ret_ip + 12, v4, 4);
		return 0;
	}
	return inet_pton(AF_INET6, numeric, ret_ip) == 1 ? 0 : -1;
}

int nano_listen_parse(const char *text, struct nano_conf *ret, struct err *e)
{
	char host[256];
	uint16_t port;

	if (text_hostport(text, host, sizeof(host), &port, e))
		return err_wrap(e, "listen");
	if (endpoint_ip(host, ret->listen))
		return err_set(e, ERR_INVALID, "listen: '%s' is a name; give the address of an interface, such as 127.0.0.1, "
			"0.0.0.0 or [::]", host);
	if (port > 65533)
		return err_set(e, ERR_INVALID, "listen: port %u: it and the next two are used, so at most 65533", port);
	ret->port = port;
	return 0;
}

int nano_listen_also(const char *text, struct nano_conf *c, struct err *e)
{
	struct nano_conf one = { .nalso = 0 };

	if (nano_listen_parse(text, &one, e))
		return -1;
	if (one.port && one.port != c->port)
		return err_set(e, ERR_INVALID, "listen: %s: all addresses have the ports of the first one", text);
	if (c->nalso == NANO_ALSO)
		return err_set(e, ERR_INVALID, "listen: more than %d addresses", NANO_ALSO + 1);
	memcpy(c->also[c->nalso++], one.listen, 16);
	return 0;
}

/* ---- the ends of a descriptor ---- */

static int address_of(int fd, int (*ask)(int, struct sockaddr *, socklen_t *), uint8_t ip[16], uint16_t *ret_port)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (ask(fd, (struct sockaddr *)&ss, &len))
		return -1;
	if (ss.ss_family == AF_INET6) {
		const struct sockaddr_in6 *a = (const void *)&ss;
		memcpy(ip, &a->sin6_addr, 16);
		*ret_port = ntohs(a->sin6_port);
	} else if (ss.ss_family == AF_INET) {
		const struct sockaddr_in *a = (const void *)&ss;
		memset(ip, 0, 10);
		memset(ip + 10, 0xff, 2);
		memcpy(ip + 12, &a->sin_addr, 4);
		*ret_port = ntohs(a->sin_port);
	} else {
		return -1;
	}
	return 0;
}

static int ask_self(int fd, struct sockaddr *a, socklen_t *n) { return getsockname(fd, a, n); }
static int ask_peer(int fd, struct sockaddr *a, socklen_t *n) { return getpeername(fd, a, n); }
int address_here(int fd, uint8_t ip[16], uint16_t *ret_port) { return address_of(fd, ask_self, ip, ret_port); }
int address_there(int fd, uint8_t ip[16], uint16_t *ret_port) { return address_of(fd, ask_peer, ip, ret_port); }

bool sweep_same(int fd, const uint8_t ip[16], uint16_t port, uint16_t local)
{
	uint8_t now_ip[16];
	uint16_t now_port, now_local;

	return !address_here(fd, now_ip, &now_local) && now_local == local &&
		!address_there(fd, now_ip, &now_port) && now_port == port && !memcmp(now_ip, ip, 16);
}

/* Which address of this machine others can dial. Called once, at start. */
#include "reach.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/text.h"

static bool is_any(const uint8_t ip[16])
{
	static const uint8_t mapped[16] = { [10] = 0xff, [11] = 0xff }, zero[16];

	return memcmp(ip, mapped, 16) == 0 || memcmp(ip, zero, 16) == 0;
}

static bool is_v6(const char *text)
{
	struct in6_addr a;

	return inet_pton(AF_INET6, text, &a) == 1;
}

static void ip_of(const struct sockaddr *sa, uint8_t out[16])
{
	memset(out, 0, 16);
	if (sa->sa_family == AF_INET6) {
		memcpy(out, &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
	} else {
		out[10] = out[11] = 0xff;
		memcpy(out + 12, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	}
}

/* HOST, an address of version 6 as it is, or HOST:PORT where a router forwards that port and the next two. */
static int advertised(const char *text, struct endpoint *at, struct err *e)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	char host[256];
	uint16_t port = 0;
	int rc;

	snprintf(host, sizeof host, "%s", text);
	if (strchr(text, ':') && !is_v6(text)) {
		if (text_hostport(text, host, sizeof host, &port, e))
			return err_wrap(e, "[network] advertise");
		if (!port || port > UINT16_MAX - CHANS)
			return err_set(e, ERR_INVALID, "[network] advertise: %s: a port from 1 to %d", text, UINT16_MAX - CHANS);
	}
	rc = getaddrinfo(host, NULL, &hints, &found);
	if (rc != 0)
		return err_set(e, ERR_INVALID, "[network] advertise: %s: %s", host, gai_strerror(rc));
	ip_of(found->ai_addr, at->ip);
	freeaddrinfo(found);
	for (int c = 0; port && c < CHANS && at->port[c]; c++)
		at->port[c] = (uint16_t)(port + c);
	return 0;
}

/* The address that others dial: advertise, else listen's, else the first one of this machine that is not loopback. */
int reach_self(const struct conf *c, const struct endpoint *bound, struct endpoint *at, struct err *e)
{
	const char *host = conf_str(c, "network", "advertise");
	struct ifaddrs *all = NULL;
	uint8_t ip[16];

	*at = *bound;
	if (*host)
		return advertised(host, at, e);
	if (!is_any(at->ip) || conf_bool(c, "network", "client"))
		return 0;
	if (getifaddrs(&all) == 0)
		for (struct ifaddrs *i = all; i; i = i->ifa_next) {
			if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
				continue;
			ip_of(i->ifa_addr, ip);
			if (!ip_is_loopback(ip)) {
				memcpy(at->ip, ip, 16);
				break;
			}
		}
	freeifaddrs(all);
	return is_any(at->ip) ? err_set(e, ERR_INVALID, "[network] listen is every address and this machine has none "
		"that others "
		"could dial: set [network] advertise") : 0;
}

/* ---- the others ---- */

struct others { const struct endpoint *bound, *self; struct endpoint *out; unsigned n, max; };

static void add(struct others *o, const uint8_t ip[16])
{
	struct endpoint at = *o->bound;

	if (is_any(ip) || (ip_is_loopback(ip) && !ip_is_loopback(o->self->ip)) || !memcmp(ip, o->self->ip, 16) ||
	    o->n == o->max)
		return;
	for (unsigned i = 0; i < o->n; i++)
		if (!memcmp(o->out[i].ip, ip, 16))
			return;
	memcpy(at.ip, ip, 16);
	o->out[o->n++] = at;
}

/* Addresses of this machine of one kind that others could dial: no link-local ones, which need the interface's name. */
static void add_machine(struct others *o, int family)
{
	struct ifaddrs *all = NULL;
	uint8_t ip[16];

	if (getifaddrs(&all))
		return;
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != family)
			continue;
		ip_of(i->ifa_addr, ip);
		if (!ip_is_loopback(ip) && !(ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80))
			add(o, ip);
	}
	freeifaddrs(all);
}

unsigned reach_others(const uint8_t (*listen)[16], unsigned n, const struct endpoint *bound,
	const struct endpoint *self, struct endpoint *out, unsigned max)
{
	static const uint8_t every6[16];
	struct others o = { .bound = bound, .self = self, .out = out, .max = max };

	for (unsigned i = 0; i < n; i++)
		if (is_any(listen[i]))
			add_machine(&o, memcmp(listen[i], every6, 16) ? AF_INET : AF_INET6);
		else
			add(&o, listen[i]);
	return o.n;
}

/* Which address of this machine others can dial. Called once, at start. */
#include "node/reach.h"

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
static int read_name(const char *text, char host[256], uint16_t *ret_port, struct err *e)
{
	*ret_port = 0;
	snprintf(host, 256, "%s", text);
	if (!strchr(text, ':') || is_v6(text))
		return 0;
	if (text_hostport(text, host, 256, ret_port, e))
		return -1;
	if (!*ret_port || *ret_port > UINT16_MAX - CHANS)
		return err_set(e, ERR_INVALID, "%s: a port from 1 to %d", text, UINT16_MAX - CHANS);
	return 0;
}

static int find(const char *text, struct endpoint *at, struct err *e)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	char host[256];
	uint16_t port;
	int rc;

	if (read_name(text, host, &port, e))
		return -1;
	rc = getaddrinfo(host, NULL, &hints, &found);
	if (rc != 0)
		return err_set(e, ERR_INVALID, "%s: %s", host, gai_strerror(rc));
	ip_of(found->ai_addr, at->ip);
	freeaddrinfo(found);
	for (int c = 0; port && c < CHANS && at->port[c]; c++)
		at->port[c] = (uint16_t)(port + c);
	return 0;
}

int reach_check_conf(const struct conf *c, struct err *e)
{
	const char *from = conf_origin(c, "network", "advertise"), *const *word;
	size_t n = conf_list(c, "network", "advertise", &word);
	char host[256];
	uint16_t port;

	if (n > 1 + NET_ALSO)
		return err_set(e, ERR_INVALID, "%s: [network] advertise: %zu addresses, at most %d", from, n, 1 + NET_ALSO);
	for (size_t i = 0; i < n; i++) {
		if (read_name(word[i], host, &port, e))
			return err_wrap(e, "%s: [network] advertise", from);
		for (size_t k = 0; k < i; k++)
			if (!strcasecmp(word[i], word[k]))
				return err_set(e, ERR_INVALID, "%s: [network] advertise: %s is there twice", from, word[i]);
	}
	return 0;
}

/* The first one into self, the others behind it. */
static int advertised(const struct conf *c, const struct endpoint *bound, struct endpoint *self,
	struct endpoint *also, unsigned *ret_n, struct err *e)
{
	const char *from = conf_origin(c, "network", "advertise"), *const *word;
	size_t n = conf_list(c, "network", "advertise", &word);
	struct endpoint all[1 + NET_ALSO];

	if (reach_check_conf(c, e))
		return -1;
	for (size_t i = 0; i < n; i++) {
		all[i] = *bound;
		if (find(word[i], &all[i], e))
			return err_wrap(e, "%s: [network] advertise", from);
		for (size_t k = 0; k < i; k++)
			if (!memcmp(&all[i], &all[k], sizeof all[i]))
				return err_set(e, ERR_INVALID, "%s: [network] advertise: %s and %s are the same address", from,
					word[k], word[i]);
	}
	*self = all[0];
	*ret_n = conf_bool(c, "network", "client") ? 0 : (unsigned)n - 1;
	memcpy(also, all + 1, *ret_n * sizeof *also);
	return 0;
}

/* The first one of this machine of that kind that others could dial. */
static bool first_of(const struct ifaddrs *all, int family, uint8_t ret[16])
{
	uint8_t ip[16];

	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != family)
			continue;
		ip_of(i->ifa_addr, ip);
		if (ip_is_loopback(ip) || (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80))
			continue;
		memcpy(ret, ip, 16);
		return true;
	}
	return false;
}

/* The address that others dial: advertise, else listen's, else the first one of this machine that is not loopback, of
 * IPv4 if there is one. */
int reach_self(const struct conf *c, const struct endpoint *bound, struct endpoint *at, struct endpoint *also,
	unsigned *ret_n, struct err *e)
{
	static const uint8_t every6[16];
	struct ifaddrs *all = NULL;
	bool found = false;

	*at = *bound;
	*ret_n = 0;
	if (*conf_str(c, "network", "advertise"))
		return advertised(c, bound, at, also, ret_n, e);
	if (!is_any(at->ip) || conf_bool(c, "network", "client"))
		return 0;
	if (getifaddrs(&all) == 0)
		found = first_of(all, AF_INET, at->ip) ||
			(memcmp(bound->ip, every6, 16) == 0 && first_of(all, AF_INET6, at->ip));
	freeifaddrs(all);
	return !found ? err_set(e, ERR_INVALID, "[network] listen is every address and this machine has none "
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

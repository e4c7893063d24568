/* getaddrinfo as a job. IPv4 is mapped into 16 bytes. A name with several addresses means the first that takes a
 * connection (RFC 8305, happy eyeballs, without its cache): each is dialled a quarter of a second after the one before,
 * so that a machine without IPv6, or with one that leads nowhere, still finds who has both. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "net/resolve.h"

#define ADDRESSES_MAX 8
#define STAGGER_MS 250
#define DIAL_MS 2000

struct lookup { struct job job; struct resolving *r; };

static uint16_t *port_of(struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)(void *)a)->sin6_port :
		&((struct sockaddr_in *)(void *)a)->sin_port;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* -1: cannot even begin. */
static int dial(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

/* The first that is connected; those that have failed are taken out. -1: none so far. */
static int connected(struct pollfd *p, int n)
{
	for (int i = 0; i < n; i++) {
		int e = 0;
		socklen_t len = sizeof(e);

		if (p[i].fd < 0 || !p[i].revents)
			continue;
		if (!getsockopt(p[i].fd, SOL_SOCKET, SO_ERROR, &e, &len) && !e && !(p[i].revents & (POLLERR | POLLHUP)))
			return i;
		close(p[i].fd);
		p[i].fd = -1;
	}
	return -1;
}

/* -1: none answers. */
static int race(const struct addrinfo *const *v, int n)
{
	struct pollfd p[ADDRESSES_MAX];
	int64_t end = now_ms() + DIAL_MS, next = 0;
	int begun = 0, won = -1, open = 0;

	while (won < 0 && now_ms() < end && (begun < n || open)) {
		if (begun < n && (!open || now_ms() >= next)) {
			p[begun] = (struct pollfd){ .fd = dial(v[begun]), .events = POLLOUT };
			begun++;
			next = now_ms() + STAGGER_MS;
		}
		poll(p, (nfds_t)begun, (int)((begun < n && next < end ? next : end) - now_ms()) + 1);
		won = connected(p, begun);
		open = 0;
		for (int i = 0; i < begun; i++)
			open += p[i].fd >= 0;
	}
	for (int i = 0; i < begun; i++)
		if (p[i].fd >= 0)
			close(p[i].fd);
	return won;
}

/* A single address is taken as it is: who is to be dialled there may come later. Of several that do not answer none is
 * better than the others, so the name is looked up again later. */
static const struct addrinfo *choose(const struct addrinfo *list, uint16_t port, struct resolving *r)
{
	const struct addrinfo *v[ADDRESSES_MAX];
	int n = 0, won = 0;

	for (const struct addrinfo *i = list; i && n < ADDRESSES_MAX; i = i->ai_next)
		if (i->ai_family == AF_INET || i->ai_family == AF_INET6) {
			*port_of(i->ai_addr) = htons(port);
			v[n++] = i;
		}
	if (n > 1 && port)
		won = race(v, n);
	if (n && won >= 0)
		return v[won];
	r->rc = n ? err_set(&r->error, ERR_UNREACHABLE, "%s: none of its %d addresses answers", r->name, n) :
		err_set(&r->error, ERR_NOT_FOUND, "%s: it has no address of IPv4 or IPv6", r->name);
	return NULL;
}

static void lookup_run(struct job *j)
{
	struct resolving *r = container_of(j, struct lookup, job)->r;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC }, *list = NULL;
	int rc = getaddrinfo(r->name, NULL, &hints, &list);
	const struct addrinfo *a;

	r->rc = 0;
	if (rc) {
		r->rc = err_set(&r->error, rc == EAI_NONAME || rc == EAI_NODATA ? ERR_NOT_FOUND : ERR_UNREACHABLE, "%s: %s",
			r->name, gai_strerror(rc));
		return;
	}
	a = choose(list, r->at.port[CHAN_DOOR], r);     /* where it will be dialled first */
	memset(r->at.ip, 0, sizeof(r->at.ip));
	if (a && a->ai_family == AF_INET6) {
		memcpy(r->at.ip, &((struct sockaddr_in6 *)(void *)a->ai_addr)->sin6_addr, 16);
	} else if (a) {
		r->at.ip[10] = r->at.ip[11] = 0xff;
		memcpy(r->at.ip + 12, &((struct sockaddr_in *)(void *)a->ai_addr)->sin_addr, 4);
	}
	freeaddrinfo(list);
}

static void lookup_done(struct job *j)
{
	struct lookup *l = container_of(j, struct lookup, job);
	struct resolving *r = l->r;
	free(l);
	r->done(r);
}

void resolve_start(struct env *env, int lane, struct resolving *r)
{
	struct lookup *l = xcalloc(1, sizeof(*l));
	l->r = r;
	l->job = (struct job){ .name = "resolve", .lane = lane, .run = lookup_run, .done = lookup_done };
	env_work(env, &l->job);
}

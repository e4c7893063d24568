/* getaddrinfo as a job. The first address wins; IPv4 is mapped into 16 bytes. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "common/mem.h"
#include "net/resolve.h"

struct lookup { struct job job; struct resolving *r; };

static void lookup_run(struct job *j)
{
	struct resolving *r = container_of(j, struct lookup, job)->r;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC }, *list = NULL;
	int rc = getaddrinfo(r->name, NULL, &hints, &list);

	r->rc = 0;
	if (rc) {
		r->rc = err_set(&r->error, rc == EAI_NONAME || rc == EAI_NODATA ? ERR_NOT_FOUND : ERR_UNREACHABLE, "%s: %s",
			r->name, gai_strerror(rc));
		return;
	}
	memset(r->at.ip, 0, sizeof(r->at.ip));
	if (list->ai_family == AF_INET6) {
		memcpy(r->at.ip, &((struct sockaddr_in6 *)(void *)list->ai_addr)->sin6_addr, 16);
	} else {
		r->at.ip[10] = r->at.ip[11] = 0xff;
		memcpy(r->at.ip + 12, &((struct sockaddr_in *)(void *)list->ai_addr)->sin_addr, 4);
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

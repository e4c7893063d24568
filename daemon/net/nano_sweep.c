/* The real transport: the sweep. nanomsg tells neither who is connected nor closes one connection, but the
 * descriptors are ours: once a second this file looks at each, turns keepalive on, measures round trips, and shuts down
 * connections that are too many, banned, or strangers who never say HELLO. nanomsg takes a shutdown as a lost peer. */
#include <dirent.h>
#include <linux/tcp.h>
#include <nanomsg/nn.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "common/mem.h"
#include "common/text.h"
#include "net/nano_int.h"

#define SP_HEADER 8                     /* bytes that each side of a connection sends before any message */
#define KEEPIDLE_S 15
#define USER_TIMEOUT_MS 30000
#ifndef TCP_RTO_MIN_US
#define TCP_RTO_MIN_US 45               /* since 2025; older kernels refuse it, and go on with 200 ms */
#endif
#define PROMPT_US 50000                 /* above the delayed acknowledgement's 40 ms */
#define KNOWN_ADDRESS_MAX 256           /* connections from one address that has peers: many daemons behind one NAT */
#define UNSEEN_LEAST 3                  /* a peer may be cut off while it dials, or only look whether we are here; */
#define UNSEEN_SWEEPS 10                /* so many of them within so many sweeps */
#define FAR_US 5000
#define TELL_US ((uint64_t)60 * 1000000)
#define QUIET 10                        /* sweeps without bulk: what was kept for it goes back */

/* On a long path the kernel finds out how much has to fit; else it keeps what nanomsg has set. The window of what is
 * sent stays ours (nano_pace.c). */
static void widen(int fd, uint32_t rtt_us)
{
	int keep = 1 /* SOCK_SNDBUF_LOCK */;

	if (rtt_us > FAR_US)
		setsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &keep, sizeof(keep));
}

/* A call or an answer that is lost has nothing behind it that would tell: only the retransmission timer does. */
static void tune(int fd, bool calls)
{
	int on = 1, idle = KEEPIDLE_S, timeout = USER_TIMEOUT_MS, was = 0, prompt = PROMPT_US;
	socklen_t len = sizeof(was);

	if (getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &was, &len) || was)
		return;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
	if (calls)
		setsockopt(fd, IPPROTO_TCP, TCP_RTO_MIN_US, &prompt, sizeof(prompt));
}

static int by_descriptor(const void *a, const void *b)
{
	return ((const struct inbound *)a)->fd - ((const struct inbound *)b)->fd;
}

/* old is in the order of descriptors. */
static void remember(struct inbound *c, const struct inbound *old, size_t nold, uint64_t now, uint64_t late_us)
{
	const struct inbound *o = nold ? bsearch(c, old, nold, sizeof(*old), by_descriptor) : NULL;

	c->since = now;
	c->late_us = late_us;
	if (!o || o->port != c->port || memcmp(o->ip, c->ip, 16))
		return;
	c->since = o->since;
	c->late_us = o->late_us;
	c->token = o->token;
}

/* The link that dialled there, and of several (lanes to one door) the least recently used; each is told. */
static struct nlink *own_link(struct nano *n, const uint8_t ip[16], uint16_t port)
{
	struct nlink *first = NULL;

	list_each(i, &n->links) {
		struct nlink *l = list_entry(i, struct nlink, link);
		if (l->to.port[l->chan] != port || memcmp(l->to.ip, ip, 16))
			continue;
		l->descriptors++;
		first = first ? first : l;
	}
	return first;
}

/* One descriptor: a connection to one of our ports goes into the table, one of our own gets its round trip read. */
static void look_at(struct nano *n, int fd, const struct inbound *old, size_t nold, uint64_t now)
{
	struct inbound c = { .fd = fd };
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	uint8_t ip[16];
	uint16_t local;
	int chan = 0;

	if (address_here(fd, ip, &local) || address_there(fd, c.ip, &c.port))
		return;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return;
	pace_path(n, c.ip, info.tcpi_min_rtt);
	while (chan < CHANS && (!n->at.port[chan] || n->at.port[chan] != local))
		chan++;
	if (chan == CHANS) {
		struct nlink *l = own_link(n, c.ip, c.port);
		if (l) {
			l->rtt_us = info.tcpi_rtt;
			tune(fd, l->chan != CHAN_BULK);
			pace_congestion(n, fd, c.ip, l->chan == CHAN_BULK);
			if (l->chan == CHAN_BULK)
				pace_see(n, fd, c.ip, c.port, local);
			if (l->chan == CHAN_DOOR)       /* bulk for us comes through it */
				widen(fd, info.tcpi_min_rtt);
		}
		return;
	}
	tune(fd, chan != CHAN_BULK);
	pace_congestion(n, fd, c.ip, chan == CHAN_DOOR);
	if (chan == CHAN_DOOR)          /* bulk for clients leaves through it */
		pace_see(n, fd, c.ip, c.port, local);
	c.chan = (enum chan)chan;
	if (chan == CHAN_BULK)
		widen(fd, info.tcpi_min_rtt);
	c.received = info.tcpi_bytes_received;
	remember(&c, old, nold, now, n->late_us);
	if (n->ninbound == n->cap_inbound) {
		n->cap_inbound = n->cap_inbound ? 2 * n->cap_inbound : 64;
		n->inbound = xrealloc(n->inbound, n->cap_inbound * sizeof(*n->inbound));
	}
	n->inbound[n->ninbound++] = c;
}

/* Peers before who may be none; of peers the oldest first, of others the newest: who only stands about does not keep
 * out who comes back. */
static int worthy_first(const void *a, const void *b)
{
	const struct inbound *x = a, *y = b;

	if (x->last != y->last)
		return x->last - y->last;
	if (x->since != y->since)
		return (x->since < y->since) != x->last ? -1 : 1;
	return x->fd - y->fd;
}

/* Known: a HELLO was completed, or we talk to it. */
static void look_up(struct nano *n, uint64_t now)
{
	struct map *talked = map_new(env_rand(n->env));
	uint8_t group[16];

	list_each(i, &n->links) {
		struct nlink *l = list_entry(i, struct nlink, link);

		ip_group(l->to.ip, group);
		if (l->current && !l->asked)
			map_put(talked, group, 16, l);
	}
	for (size_t i = 0; i < n->ninbound; i++) {
		struct inbound *c = &n->inbound[i];

		ip_group(c->ip, c->group);
		c->known = sweep_noted(n->known, c->group, now) || map_get(talked, c->group, 16);
	}
	map_free(talked);
}

/* No peer's, as far as one can see. Who sends to a mailbox nanomsg does not tell, but strangers have nothing to say to
 * it and come from elsewhere. */
static bool stranger(const struct inbound *c)
{
	return c->chan == CHAN_DOOR ? !c->token : c->received <= SP_HEADER || !c->known;
}

/* A process that does not run reads nothing: what it has missed of its sweeps is nobody's silence. */
static uint64_t age(const struct nano *n, const struct inbound *c, uint64_t now)
{
	return now - c->since - (n->late_us - c->late_us);
}

void sweep_judge(struct nano *n, uint64_t now)
{
	struct map *groups = map_new(env_rand(n->env));
	size_t kept = 0;

	look_up(n, now);
	for (size_t i = 0; i < n->ninbound; i++)
		n->inbound[i].last = stranger(&n->inbound[i]);
	if (n->ninbound)
		qsort(n->inbound, n->ninbound, sizeof(*n->inbound), worthy_first);
	for (size_t i = 0; i < n->ninbound; i++) {
		const struct inbound *c = &n->inbound[i];
		uint32_t max = c->known ? KNOWN_ADDRESS_MAX : n->conf.per_address_max;
		uintptr_t same = (uintptr_t)map_get(groups, c->group, 16);
		uint64_t *count = NULL;

		if (sweep_noted(n->banned, c->ip, now))
			count = &n->stats.shut_banned;
		else if (same >= max)
			count = &n->stats.shut_address;
		else if (kept >= n->conf.inbound_max)
			count = &n->stats.shut_total;
		else if (c->last && age(n, c, now) >= n->conf.stranger_us)
			count = &n->stats.shut_stranger;
		if (count) {
			(*count)++;
			shutdown(c->fd, SHUT_RDWR);
		} else {
			map_put(groups, c->group, 16, (void *)(same + 1));
			n->inbound[kept++] = *c;
		}
	}
	map_free(groups);
	n->ninbound = kept;
}

static void before_looking(struct nano *n)
{
	list_each(i, &n->links) {
		struct nlink *l = list_entry(i, struct nlink, link);
		nlink_look(l);
		l->stood = l->current ? l->established : 0;
		l->descriptors = 0;
	}
}

/* nanomsg 1.1.5 misses the end of a connection that was reset between the other side's greeting and its own first look
 * (a process that was stopped for a second finds all of its new ones so): it closes the descriptor, says for ever that
 * the connection stands, and takes nothing more for it. So who stood during the whole look around has a descriptor. */
static bool ghost(struct nano *n, const struct nlink *l)
{
	unsigned same = 0;

	if (!l->stood || !l->current || l->established != l->stood)
		return false;
	list_each(i, &n->links) {
		struct nlink *x = list_entry(i, struct nlink, link);
		same += x->stood && x->chan == l->chan && x->to.port[x->chan] == l->to.port[l->chan] &&
			!memcmp(x->to.ip, l->to.ip, 16);
	}
	return l->descriptors < same;
}

/* Links that wait in vain give their packets back; links to nobody go away. */
static void check_links(struct nano *n, bool all_seen, uint64_t now)
{
	list_each_safe(i, &n->links) {
		struct nlink *l = list_entry(i, struct nlink, link);
		bool waits = l->held || !list_empty(&l->queue);

		nlink_look(l);
		if (l->asked && now - l->used_at > n->conf.stranger_us) {
			nlink_free(l);          /* somebody is there, perhaps, but no peer */
		} else if (all_seen && ghost(n, l)) {
			n->stats.ghosts++;
			nlink_free(l);
		} else if (l->current)
			l->waiting_since = now;
		else if (now - (waits ? l->waiting_since : l->used_at) > n->conf.stuck_us) {
			n->stats.stuck += waits;
			nlink_free(l);
		}
	}
}

/* What does not speak nanomsg's protocol is dropped by nanomsg and never gets here; its counter tells that somebody
 * dialled. A connection that lives longer than a sweep is seen; several that are not, within a few seconds without any
 * packet, were garbage. But who dials a process that does not run, because it was stopped or its machine slept, gives
 * up and dials again, and all of that is there at once when it goes on: a sweep that is late counts nothing, nor do the
 * two after it, in which nanomsg goes on accepting what had waited. */
static void count_unseen(struct nano *n, const uint64_t accepted[CHANS], uint64_t now)
{
	uint64_t since = now - n->counted_at;
	bool late = n->counted_at && since > n->conf.sweep_us + n->conf.sweep_us / 2;

	if (since < n->conf.sweep_us / 2)                       /* a sweep out of turn */
		return;
	n->excused = late ? 3 : n->excused - (n->excused > 0);
	for (int c = 0; c < CHANS; c++) {
		struct box *b = &n->box[c];
		char text[200];
		int64_t came;

		came = (int64_t)(accepted[c] - b->accepted);
		for (size_t i = 0; i < n->ninbound; i++)
			came -= n->inbound[i].chan == b->chan && n->inbound[i].since > n->counted_at;
		b->quiet = came > 0 ? 0 : b->quiet + 1;
		b->unseen += came;
		if (n->excused || (b->unseen > 0 && (b->heard != n->stats.in[c] || b->quiet >= UNSEEN_SWEEPS)))
			b->unseen = 0;          /* peers come and go, too */
		b->accepted = accepted[c];
		b->heard = n->stats.in[c];
		if (b->unseen < UNSEEN_LEAST || !n->conf.told || now < b->tell_next_us)
			continue;
		snprintf(text, sizeof(text), "%lld connections to port %u came and went without a word of this protocol: does "
			"something else dial this port?", (long long)b->unseen, n->at.port[c]);
		n->conf.told(n->conf.told_arg, LOG_WARN_, "garbage", text);
		b->unseen = 0;
		b->tell_next_us = now + TELL_US;
	}
	n->counted_at = now;
}

/* The memory of frames is kept for the next ones while there are any (nano_new). */
static void give_back(struct nano *n)
{
	uint64_t moved = n->stats.bytes_in[CHAN_BULK] + n->stats.bytes_out[CHAN_BULK];

	if (moved != n->moved)
		n->quiet = 0;
	else if (n->quiet < QUIET && ++n->quiet == QUIET)
		mem_give_back();
	n->moved = moved;
}

void sweep_fire(struct timer *t)
{
	struct nano *n = container_of(t, struct nano, sweep);
	uint64_t now = env_now(n->env);
	struct inbound *old = n->inbound;
	size_t nold = n->ninbound;
	DIR *d = opendir("/proc/self/fd");
	bool all_seen = d;
	struct dirent *x;
	uint64_t fd, accepted[CHANS] = {0};

	if (n->swept_at && now - n->swept_at > n->conf.sweep_us)
		n->late_us += now - n->swept_at - n->conf.sweep_us;
	n->swept_at = now;
	for (int c = 0; c < CHANS; c++)         /* before the look around: who comes meanwhile is counted next time */
		if (n->at.port[c])
			accepted[c] = nn_get_statistic(n->box[c].s, NN_STAT_ACCEPTED_CONNECTIONS);
	if (nold)
		qsort(old, nold, sizeof(*old), by_descriptor);
	n->inbound = NULL;
	n->ninbound = n->cap_inbound = 0;
	before_looking(n);
	while (d && (x = readdir(d)))
		if (!text_u64(x->d_name, &fd, NULL))
			look_at(n, (int)fd, old, nold, now);
	for (fd = 0; !d && fd < 4096; fd++)     /* no /proc here */
		look_at(n, (int)fd, old, nold, now);
	if (d)
		closedir(d);
	free(old);
	pace_swept(n);
	count_unseen(n, accepted, now);
	door_match(n);
	sweep_judge(n, now);
	check_links(n, all_seen, now);
	door_prune(n, now);
	sweep_forget(n->known, now);
	sweep_forget(n->banned, now);
	give_back(n);
	env_after(n->env, &n->sweep, n->conf.sweep_us);
}

void sweep_free(struct nano *n)
{
	sweep_forget(n->known, UINT64_MAX);
	sweep_forget(n->banned, UINT64_MAX);
	free(n->inbound);
	n->inbound = NULL;
	n->ninbound = n->cap_inbound = 0;
}

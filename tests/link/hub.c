/* The hub of the link emulator: packets between namespaces (see hub.h). hub_words.c understands the commands. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "common/mem.h"
#include "hub_int.h"
#include "ns.h"

#define PACKET_MAX 65536
#define READ_AT_ONCE 128
#define NS 1000000000ull

uint64_t hub_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

struct hub *hub_new(uint64_t seed)
{
	struct hub *h = xcalloc(1, sizeof *h);

	h->seed = seed;
	h->begun_ns = hub_now_ns();
	list_init(&h->later);
	(void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);     /* wake up when a packet is due, not 50 us later */
	return h;
}

void hub_free(struct hub *h)
{
	struct list *x;

	if (!h)
		return;
	for (int i = 0; i < h->n; i++) {
		emu_free(&h->node[i].up);
		emu_free(&h->node[i].down);
		close(h->node[i].tun);
		close(h->node[i].ns);
	}
	while ((x = list_pop(&h->later)))
		free(list_entry(x, struct later, link));
	free(h);
}

int hub_possible(struct err *e)
{
	static const uint8_t ip[4] = { 10, 77, 255, 1 };
	int tun, ns;

	if (ns_new(ip, 0, NULL, &tun, &ns, e))
		return -1;
	close(tun);
	close(ns);
	return 0;
}

struct hub_node *hub_node(struct hub *h, const char *name)
{
	for (int i = 0; i < h->n; i++)
		if (!strcmp(h->node[i].name, name))
			return &h->node[i];
	return NULL;
}

int hub_enter(const struct hub_node *n, int *ret_back, struct err *e) { return ns_enter(n->ns, ret_back, e); }
void hub_leave(int back) { ns_leave(back); }

/* ---- packets ---- */

/* Whose it is; -1: nobody's (or multicast, which ends here). */
static int receiver(const struct hub *h, const uint8_t *p, size_t len)
{
	uint8_t ip6[16];

	for (int i = 0; i < h->n; i++) {
		if (len >= 20 && p[0] >> 4 == 4 && !memcmp(p + 16, h->node[i].ip, 4))
			return i;
		ns_ip6(h->node[i].ip, ip6);
		if (len >= 40 && p[0] >> 4 == 6 && !memcmp(p + 24, ip6, 16))
			return i;
	}
	return -1;
}

static bool is_cut(const struct hub *h, int from, int to)
{
	return h->cut[from][from] || h->cut[to][to] || h->cut[from][to];
}

static void read_from(struct hub *h, int from)
{
	struct hub_node *n = &h->node[from];
	uint8_t *buf = h->packet;

	for (int k = 0; k < READ_AT_ONCE; k++) {
		ssize_t len = read(n->tun, buf, PACKET_MAX);
		int to;

		if (len <= 0)
			return;
		to = receiver(h, buf, (size_t)len);
		if (to >= 0 && to != from)
			emu_put(&n->up, hub_now_ns(), buf, (size_t)len, to);
	}
}

/* What has come up goes down; what has come down is there. */
static void move(struct hub *h, uint64_t now)
{
	struct emu_packet *p;

	for (int i = 0; i < h->n; i++)
		while ((p = emu_take(&h->node[i].up, now))) {
			if (is_cut(h, i, p->to))
				h->node[i].up.stats.cut++;
			else
				emu_put(&h->node[p->to].down, now > p->due_ns ? p->due_ns : now, p->bytes, p->len, p->to);
			free(p);
		}
	for (int i = 0; i < h->n; i++)
		while ((p = emu_take(&h->node[i].down, now))) {
			if (h->cut[i][i])
				h->node[i].down.stats.cut++;
			else if (write(h->node[i].tun, p->bytes, p->len) < 0 && errno != EAGAIN && errno != EIO)
				h->node[i].down.stats.lost++;
			free(p);
		}
}

static uint64_t next_due(const struct hub *h, uint64_t end)
{
	uint64_t due = end, at;

	for (int i = 0; i < h->n; i++) {
		at = emu_next(&h->node[i].up);
		due = at < due ? at : due;
		at = emu_next(&h->node[i].down);
		due = at < due ? at : due;
	}
	list_each(it, &h->later) {
		at = list_entry(it, struct later, link)->at_ns;
		due = at < due ? at : due;
	}
	return due;
}

static void run_later(struct hub *h, uint64_t now)
{
	list_each_safe(it, &h->later) {
		struct later *l = list_entry(it, struct later, link);
		char reply[HUB_REPLY_MAX];
		struct err e;

		if (l->at_ns > now)
			continue;
		list_del(&l->link);
		if (hub_command(h, l->line, reply, sizeof reply, &e))
			dprintf(2, "%s: %s\n", l->line, e.text);
		free(l);
	}
}

bool hub_run(struct hub *h, uint64_t us, int fd)
{
	uint64_t now = hub_now_ns(), end = now + us * 1000;
	struct pollfd p[HUB_NODES_MAX + 1];

	do {
		uint64_t due = next_due(h, end);
		struct timespec t = {0};
		nfds_t n = 0;

		now = hub_now_ns();
		if (due > now)
			t = (struct timespec){ .tv_sec = (time_t)((due - now) / NS), .tv_nsec = (long)((due - now) % NS) };
		for (; n < (nfds_t)h->n; n++)
			p[n] = (struct pollfd){ .fd = h->node[n].tun, .events = POLLIN };
		p[n] = (struct pollfd){ .fd = fd, .events = POLLIN };
		if (ppoll(p, n + 1, &t, NULL) < 0)
			return false;           /* a signal: the caller knows */
		for (nfds_t i = 0; i < n; i++)
			if (p[i].revents)
				read_from(h, (int)i);
		now = hub_now_ns();
		move(h, now);
		run_later(h, now);
		if (p[n].revents)
			return true;
	} while (now < end);
	return false;
}

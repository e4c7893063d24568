/* The real transport (6/6): bulk leaves room for heartbeats. All connections of a machine share the queue in front of
 * its slowest link, and TCP fills that queue; a question then waits behind a second of tensors. So what a bulk
 * connection may have on its way is bounded by the delay that it causes (LEDBAT's aim, RFC 6817). */
#include <linux/tcp.h>
#include <nanomsg/nn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "common/mem.h"
#include "net/nano_int.h"

/* The law is FAST TCP's (Wei, Jin, Low, Hegde, "FAST TCP: motivation, architecture, algorithms, performance", IEEE/ACM
 * ToN 14(6), 2006, eq. 3): once a round trip
 *
 *      window = window/2 + (window * (base + TARGET) / rtt + 2 segments)/2
 *
 * where rtt is the kernel's smoothed round trip of that connection and base the smallest that any connection to that
 * address has seen (kernel: within 5 minutes). It begins with 64 KiB and grows by half until half of TARGET is waiting.
 * The window is the socket's send buffer, which holds what is unacknowledged and what is unsent; it never grows over
 * what nano_conf.bulk_buf gives, nor while less than half of it is on its way; with less than a quarter on its way it
 * does not shrink. Connections share TARGET, not each its
 * own: all see the same queue. So one that joins others to the same address begins with a share of the 64 KiB, and one
 * that has rested goes on with half of what it had, since others may have taken its place: several that begin a round
 * at once would fill the queue until the law has seen it.
 *
 * Loss is not a sign of a full queue on long paths, so where the kernel has BBR and lets us, bulk over paths of more
 * than 5 ms uses it; else the kernel's own congestion control goes on inside the window. Over shorter ones every
 * connection uses Reno, which every kernel has and lets everybody use: BBR paces what it sends by a timer, and needs
 * half as long again for the same bytes. */
#define TARGET_US 25000
#define FAR_US 5000                     /* paths longer than that begin with a small window */
#define WINDOW_FIRST (64 * 1024)
#define WINDOW_MIN 9216
#define TICK_US 10000
#define REST_US 50000                   /* one of many connections that has nothing to send is looked at so often */
#define RESTED_US 250000                /* without anything on the way: half the window */
#define IDLE_US 1000000                 /* without anything on the way: nobody is looked at any more */

struct base { uint32_t us; bool fresh; };

void pace_path(struct nano *n, const uint8_t ip[16], uint32_t min_rtt_us)
{
	struct base *b = map_get(n->bases, ip, 16);

	if (!min_rtt_us || min_rtt_us == UINT32_MAX)
		return;
	if (!b) {
		b = xcalloc(1, sizeof *b);
		map_put(n->bases, ip, 16, b);
	}
	if (!b->fresh || min_rtt_us < b->us)
		b->us = min_rtt_us;
	b->fresh = true;
}

/* The kernel doubles what it is told, and may keep the double: its own bookkeeping is counted, too, but is small. */
static void set_buffer(struct paced *p, uint32_t bytes)
{
	int v = (int)bytes / 2;

	if (bytes != p->buffer && !setsockopt(p->fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof v))
		p->buffer = bytes;
}

static uint32_t window_max(const struct nano *n)
{
	return 2 * n->conf.bulk_buf;
}

/* Its share among all that go there, itself included. */
static uint32_t first_window(const struct nano *n, const uint8_t ip[16])
{
	uint32_t all = 0;

	for (size_t i = 0; i < n->npaced; i++)
		all += !memcmp(n->paced[i].ip, ip, 16);
	return WINDOW_FIRST / all > WINDOW_MIN ? WINDOW_FIRST / all : WINDOW_MIN;
}

static bool far_away(const struct nano *n, const uint8_t ip[16])
{
	const struct base *b = map_get(n->bases, ip, 16);

	return b && b->us > FAR_US;
}

void pace_congestion(struct nano *n, int fd, const uint8_t ip[16], bool bulk)
{
	const struct base *b = map_get(n->bases, ip, 16);
	const char *law = !b ? NULL : b->us <= FAR_US ? "reno" : bulk ? "bbr" : NULL;

	if (law)                                /* to the kernel its own law, said again, is no change */
		(void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, law, (socklen_t)strlen(law));
}

/* Before the first byte: a new connection is in use before the sweep has seen it, and takes what there is. */
void pace_dial(struct nano *n, int s, const uint8_t ip[16])
{
	int v = WINDOW_FIRST / 2;

	if (far_away(n, ip))
		(void)nn_setsockopt(s, NN_SOL_SOCKET, NN_SNDBUF, &v, sizeof v);
}

void pace_drop(struct nano *n, const uint8_t ip[16], uint16_t port)
{
	struct linger at_once = { .l_onoff = 1 };

	for (size_t i = 0; i < n->npaced; i++) {
		struct paced *p = &n->paced[i];

		if (p->port == port && !memcmp(p->ip, ip, 16) && sweep_same(p->fd, p->ip, p->port, p->local))
			(void)setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	}
}

void pace_see(struct nano *n, int fd, const uint8_t ip[16], uint16_t port, uint16_t local)
{
	struct paced *p;

	for (size_t i = 0; i < n->npaced; i++) {
		p = &n->paced[i];
		if (p->fd == fd && p->port == port && p->local == local && !memcmp(p->ip, ip, 16)) {
			p->seen = true;
			return;
		}
	}
	if (n->npaced == n->cap_paced) {
		n->cap_paced = n->cap_paced ? 2 * n->cap_paced : 16;
		n->paced = xrealloc(n->paced, n->cap_paced * sizeof *n->paced);
	}
	p = &n->paced[n->npaced++];
	*p = (struct paced){ .fd = fd, .port = port, .local = local, .seen = true, .window = window_max(n) };
	p->buffer = 0;                          /* pace_dial or nanomsg have set it: whatever is right is set anew */
	memcpy(p->ip, ip, 16);
	p->begins = far_away(n, ip);
	if (p->begins) {
		p->window = first_window(n, ip);
		set_buffer(p, p->window);
	}
	pace_wake(n);
}

void pace_swept(struct nano *n)
{
	const void *key;
	size_t klen, it = 0, kept = 0;
	struct base *b;

	for (size_t i = 0; i < n->npaced; i++)
		if (n->paced[i].seen) {
			n->paced[kept] = n->paced[i];
			n->paced[kept++].seen = false;
		}
	n->npaced = kept;
	while ((b = map_next(n->bases, &it, &key, &klen))) {
		if (!b->fresh) {
			map_del(n->bases, key, klen);
			free(b);
		} else {
			b->fresh = false;
		}
	}
}

/* ---- the law ---- */

uint32_t pace_law(const struct pace_view *v, bool *begins)
{
	uint64_t base = v->base_us, rtt = v->rtt_us > v->base_us ? v->rtt_us : v->base_us, now = v->window, want;

	if (2 * (rtt - base) >= TARGET_US)
		*begins = false;
	want = *begins ? now + now / 2 : (now + now * (base + TARGET_US) / (rtt ? rtt : 1) + 2 * v->segment) / 2;
	if (want > now && 2 * v->on_way < now)  /* it is not what holds the sender back, */
		return v->window;
	if (want < now && 4 * v->on_way < now)  /* or what fills the queue: calls go through it, say */
		return v->window;
	want = want < WINDOW_MIN ? WINDOW_MIN : want;
	return (uint32_t)(want < v->window_max ? want : v->window_max);
}

static void rest(struct nano *n, struct paced *p)
{
	p->rested = true;
	if (!far_away(n, p->ip) || p->window < 2 * WINDOW_MIN)
		return;
	p->window /= 2;
	p->begins = true;
	set_buffer(p, p->window);
}

/* False: it is idle, or another connection by now. */
static bool look_at(struct nano *n, struct paced *p, uint64_t now)
{
	const struct base *b = map_get(n->bases, p->ip, 16);
	struct pace_view v = { .window = p->window, .window_max = window_max(n) };
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	uint32_t out, arrived;

	if (!sweep_same(p->fd, p->ip, p->port, p->local) || getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return false;
	arrived = info.tcpi_sacked + info.tcpi_lost;
	out = info.tcpi_unacked > arrived ? info.tcpi_unacked - arrived : 0;
	v.on_way = (uint64_t)(out + info.tcpi_retrans) * info.tcpi_snd_mss;
	if (!info.tcpi_unacked && !info.tcpi_notsent_bytes) {
		if (!p->rested && now - p->busy_us > RESTED_US)
			rest(n, p);
		p->rest_us = now + REST_US;
		return now - p->busy_us < IDLE_US;
	}
	p->busy_us = now;
	p->rested = false;
	if (now < p->next_us)
		goto apply;
	p->next_us = now + info.tcpi_rtt;
	v.segment = info.tcpi_snd_mss;
	v.rtt_us = info.tcpi_rtt;
	v.base_us = info.tcpi_min_rtt;
	if (b && b->us < v.base_us)
		v.base_us = b->us;
	p->window = pace_law(&v, &p->begins);
apply:
	/* What has arrived behind a loss is no longer on its way, but in the buffer until the loss is mended. */
	arrived = info.tcpi_sacked * info.tcpi_snd_mss;
	arrived += p->window;
	set_buffer(p, arrived < window_max(n) ? arrived : window_max(n));
	return true;
}

static void pace_fire(struct timer *t)
{
	struct nano *n = container_of(t, struct nano, pace);
	uint64_t now = env_now(n->env);
	bool busy = false;

	for (size_t i = 0; i < n->npaced; i++)
		busy |= now < n->paced[i].rest_us ? now - n->paced[i].busy_us < IDLE_US : look_at(n, &n->paced[i], now);
	if (busy)
		env_after(n->env, &n->pace, TICK_US);
}

void pace_wake(struct nano *n)
{
	if (n->npaced && !n->pace.at_us)
		env_after(n->env, &n->pace, TICK_US);
}

void pace_init(struct nano *n, uint64_t key)
{
	n->bases = map_new(key);
	n->pace = (struct timer){ .fire = pace_fire, .name = "bulk windows" };
}

void pace_free(struct nano *n)
{
	const void *key;
	size_t klen, it = 0;
	struct base *b;

	while ((b = map_next(n->bases, &it, &key, &klen))) {
		map_del(n->bases, key, klen);
		free(b);
	}
	map_free(n->bases);
	free(n->paced);
}

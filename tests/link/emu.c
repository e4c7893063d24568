/* One direction of an emulated link: see emu.h. The token bucket is kept as the time at which the bottleneck is through
 * with everything it has taken, from which follow the backlog and each packet's way out; no clock ticks. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/rng.h"
#include "common/text.h"
#include "emu.h"

#define NS 1000000000ull
#define QUEUE_MIN (32 * 1024)

void emu_init(struct emu *m, uint64_t seed)
{
	memset(m, 0, sizeof *m);
	m->seed = seed;
	list_init(&m->packets);
}

void emu_free(struct emu *m)
{
	struct list *x;

	while ((x = list_pop(&m->packets)))
		free(list_entry(x, struct emu_packet, link));
}

static uint64_t wire_ns(const struct emu_conf *c, uint64_t bytes)
{
	return c->rate_bps ? (uint64_t)((double)bytes * 8e9 / (double)c->rate_bps) : 0;
}

uint64_t emu_queue_bytes(const struct emu_conf *c)
{
	uint64_t b = c->rate_bps / 8 / 5;

	return c->queue_bytes ? c->queue_bytes : b > QUEUE_MIN ? b : QUEUE_MIN;
}

uint64_t emu_backlog(const struct emu *m, uint64_t now_ns)
{
	if (!m->conf.rate_bps || m->busy_ns <= now_ns)
		return 0;
	return (uint64_t)((double)(m->busy_ns - now_ns) * (double)m->conf.rate_bps / 8e9);
}

void emu_set(struct emu *m, const struct emu_conf *c, uint64_t now_ns)
{
	uint64_t backlog = emu_backlog(m, now_ns);

	m->conf = *c;
	m->busy_ns = now_ns + wire_ns(c, backlog);
}

/* ---- words ---- */

static int rate(const char *s, uint64_t *ret, struct err *e)
{
	static const struct { const char *unit; double times; } units[] = { { "kbit", 1e3 }, { "mbit", 1e6 },
		{ "gbit", 1e9 }, { "bit", 1 } };
	size_t len = strlen(s), u;
	char number[32];
	double v;

	for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
		u = strlen(units[i].unit);
		if (len <= u || len - u >= sizeof number || strcmp(s + len - u, units[i].unit))
			continue;
		memcpy(number, s, len - u);
		number[len - u] = '\0';
		if (text_double(number, &v, e) || !(v >= 0 && v * units[i].times < 1e12))
			break;
		*ret = (uint64_t)(v * units[i].times);
		return 0;
	}
	return err_set(e, ERR_INVALID, "rate=%s: expected bits per second, such as 10mbit or 512kbit", s);
}

static int share(const char *s, double *ret, struct err *e)
{
	size_t len = strlen(s);
	char number[32];

	if (len && len < sizeof number && s[len - 1] == '%') {
		memcpy(number, s, len - 1);
		number[len - 1] = '\0';
		if (!text_double(number, ret, e) && *ret >= 0 && *ret <= 100) {
			*ret /= 100;
			return 0;
		}
	}
	return err_set(e, ERR_INVALID, "loss=%s: expected a share of the packets, such as 0.5%%", s);
}

int emu_parse(struct emu_conf *c, const char *word, struct err *e)
{
	const char *v = strchr(word, '=');
	size_t len = v ? (size_t)(v - word) : 0;

	v = v ? v + 1 : word;
	if (len == 4 && !strncmp(word, "rate", len))
		return rate(v, &c->rate_bps, e);
	if (len == 5 && !strncmp(word, "queue", len))
		return text_size(v, &c->queue_bytes, e);
	if (len == 5 && !strncmp(word, "burst", len))
		return text_size(v, &c->burst_bytes, e);
	if (len == 5 && !strncmp(word, "delay", len))
		return text_duration(v, &c->delay_us, e);
	if (len == 6 && !strncmp(word, "jitter", len))
		return text_duration(v, &c->jitter_us, e);
	if (len == 4 && !strncmp(word, "loss", len))
		return share(v, &c->loss, e);
	if (len == 7 && !strncmp(word, "reorder", len))
		return text_bool(v, &c->reorder, e);
	return err_set(e, ERR_INVALID, "'%s': expected rate=, queue=, burst=, delay=, jitter=, loss= or reorder=", word);
}

/* ---- packets ---- */

static double chance(const struct emu *m, uint64_t what)
{
	return (double)(rng_at(m->seed + what, m->number) >> 11) * 0x1p-53;
}

/* In the order of delivery: at the end, unless reordering lets it overtake. */
static void insert(struct emu *m, struct emu_packet *p)
{
	struct list *at = m->packets.prev;

	while (at != &m->packets && list_entry(at, struct emu_packet, link)->due_ns > p->due_ns)
		at = at->prev;
	list_insert_(&p->link, at, at->next);
}

bool emu_put(struct emu *m, uint64_t now_ns, const void *bytes, size_t len, int to)
{
	const struct emu_conf *c = &m->conf;
	uint64_t burst = wire_ns(c, c->burst_bytes), start, out, delay = c->delay_us * 1000, jitter = c->jitter_us * 1000;
	struct emu_packet *p;

	m->stats.packets++;
	m->stats.bytes += len;
	m->number++;
	if (c->rate_bps && emu_backlog(m, now_ns) + len > emu_queue_bytes(c)) {
		m->stats.overflowed++;
		return false;
	}
	start = now_ns > burst ? now_ns - burst : 0;
	if (m->busy_ns > start)
		start = m->busy_ns;
	m->busy_ns = start + wire_ns(c, len);
	out = m->busy_ns > now_ns ? m->busy_ns : now_ns;
	if ((out - now_ns) / 1000 > m->stats.queue_us_max)
		m->stats.queue_us_max = (out - now_ns) / 1000;
	p = xmalloc(sizeof *p + len);
	*p = (struct emu_packet){ .len = len, .to = to, .lost = chance(m, 1) < c->loss };
	memcpy(p->bytes, bytes, len);
	p->due_ns = out + delay;
	if (jitter)
		p->due_ns += (uint64_t)(chance(m, 2) * 2 * (double)jitter);
	p->due_ns -= p->due_ns - out < jitter ? p->due_ns - out : jitter;
	if (!c->reorder && p->due_ns < m->last_ns)
		p->due_ns = m->last_ns;
	if (p->due_ns > m->last_ns)
		m->last_ns = p->due_ns;
	insert(m, p);
	return true;
}

uint64_t emu_next(const struct emu *m)
{
	return list_empty(&m->packets) ? UINT64_MAX : list_entry(m->packets.next, struct emu_packet, link)->due_ns;
}

struct emu_packet *emu_take(struct emu *m, uint64_t now_ns)
{
	while (emu_next(m) <= now_ns) {
		struct emu_packet *p = list_entry(list_pop(&m->packets), struct emu_packet, link);

		if (!p->lost)
			return p;
		m->stats.lost++;
		free(p);
	}
	return NULL;
}

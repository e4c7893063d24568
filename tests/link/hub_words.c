/* The commands of the link emulator, one a line: nodes, their links, cuts, and what happens when. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/mem.h"
#include "common/rng.h"
#include "common/text.h"
#include "hub_int.h"
#include "ns.h"

#define WORDS_MAX 24

struct words { char copy[HUB_LINE_MAX]; char *v[WORDS_MAX]; int n; };
struct reply { char *to; size_t cap; };

static int split(const char *line, struct words *w, struct err *e)
{
	char *rest = w->copy, *word;

	w->n = 0;
	if (strlen(line) >= sizeof w->copy)
		return err_set(e, ERR_LIMIT, "a line of more than %zu bytes", sizeof w->copy - 1);
	memcpy(w->copy, line, strlen(line) + 1);
	while ((word = strsep(&rest, " \t\n")))
		if (*word && w->n == WORDS_MAX)
			return err_set(e, ERR_LIMIT, "more than %d words", WORDS_MAX);
		else if (*word)
			w->v[w->n++] = word;
	return 0;
}

static struct hub_node *named(struct hub *h, const char *name, struct err *e)
{
	struct hub_node *n = hub_node(h, name);

	if (!n)
		err_set(e, ERR_NOT_FOUND, "there is no node %s", name);
	return n;
}

/* up.rate=, down.rate=; without a prefix rate, queue and burst are for both ways, the rest for what the node sends. */
static int one_option(struct emu_conf *up, struct emu_conf *down, const char *word, struct err *e)
{
	bool both = !strncmp(word, "rate=", 5) || !strncmp(word, "queue=", 6) || !strncmp(word, "burst=", 6);

	if (!strncmp(word, "up.", 3))
		return emu_parse(up, word + 3, e);
	if (!strncmp(word, "down.", 5))
		return emu_parse(down, word + 5, e);
	return emu_parse(up, word, e) || (both && emu_parse(down, word, e)) ? -1 : 0;
}

static int options(struct hub_node *n, const struct words *w, int from, struct err *e)
{
	struct emu_conf up = n->up.conf, down = n->down.conf;

	for (int i = from; i < w->n; i++)
		if (strncmp(w->v[i], "mtu=", 4) && strncmp(w->v[i], "cc=", 3) && one_option(&up, &down, w->v[i], e))
			return -1;
	emu_set(&n->up, &up, hub_now_ns());
	emu_set(&n->down, &down, hub_now_ns());
	return 0;
}

static const char *value(const struct words *w, const char *key)
{
	size_t len = strlen(key);

	for (int i = 3; i < w->n; i++)
		if (!strncmp(w->v[i], key, len) && w->v[i][len] == '=')
			return w->v[i] + len + 1;
	return NULL;
}

static int cmd_node(struct hub *h, const struct words *w, struct reply r, struct err *e)
{
	struct hub_node *n = &h->node[h->n];
	const char *text = w->n > 2 ? value(w, "mtu") : NULL;
	uint64_t mtu = 0;

	if (w->n < 3)
		return err_set(e, ERR_INVALID, "node NAME ADDRESS [mtu=N] [cc=NAME] [KEY=VALUE...]");
	if (h->n == HUB_NODES_MAX)
		return err_set(e, ERR_FULL, "there are %d nodes, and no more are possible", h->n);
	if (hub_node(h, w->v[1]) || strlen(w->v[1]) >= HUB_NAME_MAX)
		return err_set(e, ERR_EXISTS, "node %s: the name is taken, or too long", w->v[1]);
	memset(n, 0, sizeof *n);
	if (inet_pton(AF_INET, w->v[2], n->ip) != 1 || n->ip[0] != 10 || n->ip[1] != 77)
		return err_set(e, ERR_INVALID, "node %s: %s: expected an address such as 10.77.0.1", w->v[1], w->v[2]);
	if (text && (text_u64(text, &mtu, e) || mtu < 1280 || mtu > 65535))
		return err_set(e, ERR_INVALID, "mtu=%s: from 1280 to 65535", text);
	memcpy(n->name, w->v[1], strlen(w->v[1]) + 1);
	emu_init(&n->up, rng_mix(h->seed, 2 * (uint64_t)h->n + 1));
	emu_init(&n->down, rng_mix(h->seed, 2 * (uint64_t)h->n + 2));
	if (options(n, w, 3, e) || ns_new(n->ip, (unsigned)mtu, value(w, "cc"), &n->tun, &n->ns, e))
		return -1;
	for (int i = 0; i <= h->n; i++)
		h->cut[i][h->n] = h->cut[h->n][i] = false;
	h->n++;
	snprintf(r.to, r.cap, "node %s %s /proc/%d/fd/%d", n->name, w->v[2], (int)getpid(), n->ns);
	return 0;
}

static int cmd_set(struct hub *h, const struct words *w, struct reply r, struct err *e)
{
	struct hub_node *n = w->n > 2 ? named(h, w->v[1], e) : NULL;

	if (w->n < 3)
		return err_set(e, ERR_INVALID, "set NAME KEY=VALUE...");
	return n ? options(n, w, 2, e) : -1;
}

static int cut(struct hub *h, const struct words *w, bool how, struct err *e)
{
	struct hub_node *n = w->n > 1 ? named(h, w->v[1], e) : NULL;

	if (w->n < 2)
		return err_set(e, ERR_INVALID, "%s NAME [NAME...]", w->v[0]);
	if (!n)
		return -1;
	if (w->n == 2) {
		h->cut[n - h->node][n - h->node] = how;
		return 0;
	}
	for (int i = 2; i < w->n; i++) {
		struct hub_node *m = named(h, w->v[i], e);

		if (!m || m == n)
			return m ? err_set(e, ERR_INVALID, "%s from itself", n->name) : -1;
		h->cut[n - h->node][m - h->node] = h->cut[m - h->node][n - h->node] = how;
	}
	return 0;
}

static int cmd_cut(struct hub *h, const struct words *w, struct reply r, struct err *e) { return cut(h, w, true, e); }
static int cmd_heal(struct hub *h, const struct words *w, struct reply r, struct err *e) { return cut(h, w, false, e); }

static int print_way(char *to, size_t cap, const char *way, const struct emu *m)
{
	const struct emu_stats *s = &m->stats;

	return snprintf(to, cap, "\"%s\":{\"packets\":%llu,\"bytes\":%llu,\"overflowed\":%llu,\"lost\":%llu,\"cut\":%llu,"
		"\"queue_us_max\":%llu}", way, (unsigned long long)s->packets, (unsigned long long)s->bytes,
		(unsigned long long)s->overflowed, (unsigned long long)s->lost, (unsigned long long)s->cut,
		(unsigned long long)s->queue_us_max);
}

/* The largest queue starts anew with each question. */
static int cmd_stats(struct hub *h, const struct words *w, struct reply r, struct err *e)
{
	struct hub_node *n = w->n == 2 ? named(h, w->v[1], e) : NULL;
	int len;

	if (w->n != 2)
		return err_set(e, ERR_INVALID, "stats NAME");
	if (!n)
		return -1;
	len = snprintf(r.to, r.cap, "{\"node\":\"%s\",", n->name);
	len += print_way(r.to + len, r.cap - (size_t)len, "up", &n->up);
	len += snprintf(r.to + len, r.cap - (size_t)len, ",");
	len += print_way(r.to + len, r.cap - (size_t)len, "down", &n->down);
	snprintf(r.to + len, r.cap - (size_t)len, "}");
	n->up.stats.queue_us_max = n->down.stats.queue_us_max = 0;
	return 0;
}

/* at SECONDS COMMAND...: since the hub was made. */
static int cmd_at(struct hub *h, const struct words *w, struct reply r, struct err *e)
{
	struct later *l;
	uint64_t us;
	size_t len = 0;

	if (w->n < 3 || text_duration(w->v[1], &us, e))
		return err_set(e, ERR_INVALID, "at SECONDS COMMAND...");
	l = xcalloc(1, sizeof *l);
	l->at_ns = h->begun_ns + us * 1000;
	for (int i = 2; i < w->n; i++)          /* no longer than the line that it came from */
		len += (size_t)snprintf(l->line + len, sizeof l->line - len, "%s%s", i > 2 ? " " : "", w->v[i]);
	list_push(&h->later, &l->link);
	return 0;
}

int hub_command(struct hub *h, const char *line, char *ret, size_t cap, struct err *e)
{
	static const struct { const char *name; int (*fn)(struct hub *h, const struct words *w, struct reply r,
		struct err *e); } commands[] = { { "node", cmd_node }, { "set", cmd_set }, { "cut", cmd_cut },
		{ "heal", cmd_heal }, { "stats", cmd_stats }, { "at", cmd_at } };
	struct words w;

	snprintf(ret, cap, "ok");
	if (split(line, &w, e))
		return -1;
	for (size_t i = 0; w.n && i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(w.v[0], commands[i].name))
			return commands[i].fn(h, &w, (struct reply){ ret, cap }, e);
	return w.n ? err_set(e, ERR_NO_METHOD, "%s: expected node, set, cut, heal, stats or at", w.v[0]) : 0;
}

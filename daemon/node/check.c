/* hivectl net check: looks at what is configured, asks up to eight peers how they see this daemon (and to dial its
 * mailboxes, when they have not yet), and says in plain words what is wrong and what to do about it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "node/net_int.h"

#define ASKED_MAX 8
#define ASK_US (5 * 1000000ull)
#define DIALLED_US (2 * 1000000ull)             /* so long those who were to dial this daemon are asked how it went, */
						/* and so long from when they have come to bulk: */
#define DIALLED_MIN_US 20000                    /* first after four round trips, then after twice as long each time */
#define NEAR_US 30000                           /* for bulk nobody waits whose round trip is longer */
#define CLOCK_OFF_MS 60000

struct check;
struct asked {
	struct check *c; struct id id; bool answered, mailbox, client, dials_out, trying, tried, no_bulk;
	char at[64], error[sizeof ((struct err *)0)->text];
	uint64_t asked_us, rtt_us; int64_t ahead_ms;    /* this machine's clock, before the peer's */
};
struct check {
	struct list link; struct node_net *nn; struct reply *r; struct timer again; unsigned open;
	uint64_t waited_us, most_us;            /* most_us: no longer than that */
	size_t n, known; struct asked v[ASKED_MAX]; json_t *findings; char *text; bool bad;
};

/* ---- findings ---- */

enum level { OK, WARN, ERROR };

static void __attribute__((format(printf, 4, 5))) find(struct check *c, enum level level, const char *what,
	const char *fmt, ...)
{
	static const char *const names[] = { "ok", "warning", "error" };
	char text[700], *all;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	c->bad |= level == ERROR;
	json_array_append_new(c->findings, json_pack("{s:s,s:s,s:o}", "level", names[level], "what", what, "text",
		json_string(text)));
	all = xasprintf("%s%s%-8s%-7s %s", c->text ? c->text : "", c->text ? "\n" : "", names[level], what, text);
	free(c->text);
	c->text = all;
}

/* RFC 1918, RFC 6598, RFC 4193 and link-local: nobody outside can dial it. */
static bool is_private(const uint8_t ip[16])
{
	if (!ip_is_v4(ip))
		return (ip[0] & 0xfe) == 0xfc || (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80);
	return ip[12] == 10 || (ip[12] == 172 && (ip[13] & 0xf0) == 16) || (ip[12] == 192 && ip[13] == 168) ||
		(ip[12] == 100 && (ip[13] & 0xc0) == 64) || (ip[12] == 169 && ip[13] == 254);
}

static bool is_client(const struct check *c) { return conf_bool(c->nn->x.conf, "network", "client"); }

static const char *self_text(const struct check *c, char out[64])
{
	return net_endpoint_text(net_endpoint(c->nn->x.net), CHAN_CTRL, out);
}

static void about_listening(struct check *c)
{
	const struct endpoint *self = net_endpoint(c->nn->x.net);
	const char *const *join;
	size_t n = conf_list(c->nn->x.conf, "network", "join", &join), outside = 0;
	char at[64];

	for (size_t i = 0; i < n; i++)
		outside += strncmp(join[i], "127.", 4) && strncmp(join[i], "localhost", 9) && strncmp(join[i], "[::1]", 5);
	if (is_client(c))
		find(c, OK, "listen", "this daemon only dials out (client = yes); it needs peers that can be dialled");
	else if (ip_is_loopback(self->ip) && outside)
		find(c, ERROR, "listen", "it listens on %s, which only this machine can reach, but is to join peers elsewhere: "
			"set [network] listen = 0.0.0.0:4237 (and a swarm key), or client = yes", self_text(c, at));
	else if (ip_is_loopback(self->ip))
		find(c, WARN, "listen", "it listens on %s: only daemons of this machine can reach it. For others: [network] "
			"listen = 0.0.0.0:4237 and a swarm key", self_text(c, at));
	else
		find(c, OK, "listen", "others are told to dial %s (tcp ports %u, %u and %u)", self_text(c, at), self->port[0],
			self->port[1], self->port[2]);
}

static void about_keys(struct check *c)
{
	struct net_counters n;
	struct net_keys k;

	net_counters(c->nn->x.net, &n);
	net_keys(c->nn->x.net, &k);
	if (!*conf_str(c->nn->x.conf, "network", "swarm_key_file"))
		find(c, WARN, "key", "there is no swarm key: whoever can dial this daemon is in the swarm");
	else if (k.old[0])
		find(c, k.old_peers ? WARN : OK, "key", "the swarm key is being replaced: %s is new, %s is good for %.0f s "
			"more; peers that have not changed yet: %zu (hivectl key show)", k.now, k.old,
			(double)k.old_left_us / 1e6, k.old_peers);
	else
		find(c, OK, "key", "the swarm key is %s (hivectl key show on another machine must say the same)", k.now);
	if (n.wrong_swarm_key)
		find(c, WARN, "key", "%" PRIu64 " HELLOs came under another swarm key: from strangers, or from a machine of "
			"yours that has another key", n.wrong_swarm_key);
	if (n.not_allowed)
		find(c, WARN, "allow", "%" PRIu64 " times a peer was refused that is not in [network] allow (hivectl events)",
			n.not_allowed);
	if (n.bans)
		find(c, WARN, "bans", "banned peers: %" PRIu64 " (hivectl peers shows them and why)", n.bans);
}

static void about_joining(struct check *c)
{
	json_t *all = joins_json(c->nn->x.joins), *j;
	size_t i;

	json_array_foreach(all, i, j) {
		const char *address = json_string_value(json_object_get(j, "address"));
		const char *state = json_string_value(json_object_get(j, "state"));
		const char *error = json_string_value(json_object_get(j, "error"));

		if (!strcmp(state, "joined") || !strcmp(state, "this peer"))
			find(c, OK, "join", "%s: %s", address, state);
		else if (!strcmp(state, "unresolved") && error && strstr(error, "none of its"))
			find(c, ERROR, "join", "%s: %s. If one runs there, its firewall or one on the way may drop packets: this "
				"port and the next two are needed", address, error);
		else if (!strcmp(state, "unresolved"))
			find(c, ERROR, "join", "%s: the name is not known here: %s. Check the spelling and the name server (getent "
				"hosts NAME)", address, error ? error : "");
		else if (error && strstr(error, "another swarm key"))
			find(c, ERROR, "join", "%s: it has another swarm key than this daemon: copy the swarm's key file to this "
				"machine, or if the swarm's key was replaced, hivectl key rotate", address);
		else if (error && strstr(error, "does not let this daemon in"))
			find(c, ERROR, "join", "%s: %s. Whoever runs that machine can change it: hivectl peers unban, or [network] "
				"allow", address, error);
		else if (error)
			find(c, ERROR, "join", "%s: %s. If one runs there, its firewall or one on the way may drop packets: this "
				"port and the next two are needed", address, error);
		else
			find(c, WARN, "join", "%s: %s", address, state);
	}
	if (!json_array_size(all) && !c->known)
		find(c, ERROR, "join", "there is nobody to talk to: no peer is known, and no address to join is configured: "
			"set [network] join = HOST:4237, or wait until somebody joins through this one");
	json_decref(all);
}

static void about_reaching(struct check *c)
{
	const struct endpoint *self = net_endpoint(c->nn->x.net);
	size_t answered = 0, reached = 0, could = 0, no_bulk = 0, tried = 0;
	uint64_t rtt = 0;
	char at[64], who[9];
	const char *nat = "";

	for (size_t i = 0; i < c->n; i++) {
		struct asked *a = &c->v[i];

		if (!a->answered)
			continue;
		answered++;
		rtt = a->rtt_us > rtt ? a->rtt_us : rtt;
		could += !a->dials_out;
		reached += a->mailbox && !a->client;
		no_bulk += a->mailbox && !a->client && a->no_bulk;
		tried += a->mailbox && !a->client && a->trying;
	}
	for (size_t i = 0; i < c->n; i++)
		if (!c->v[i].answered)
			find(c, WARN, "peers", "%s did not answer: %s", id_short(&c->v[i].id, who), c->v[i].error);
	if (c->n && !answered)
		find(c, ERROR, "peers", "none of %zu peers answers", c->n);
	else if (answered)
		find(c, OK, "peers", "%zu of %zu peers answered, within %.1f ms", answered, c->n, (double)rtt / 1e3);
	else if (c->known)
		find(c, ERROR, "peers", "%zu peers are known, but there is a session with none of them", c->known);
	if (is_client(c) || !answered)
		return;
	if (!could) {
		find(c, WARN, "reach", "nobody could try to dial this daemon: the peers that were asked only dial out "
			"themselves");
		return;
	}
	if (is_private(self->ip))
		nat = " That address is a private one: if peers are in other networks, this machine is behind a NAT.";
	if (!reached)
		find(c, ERROR, "reach", "no peer can dial this daemon at %s (%zu tried): open tcp ports %u, %u and %u in its "
			"firewall. Behind a NAT forward them, and set [network] advertise to the outer address; when that cannot "
			"be done: client = yes.%s", self_text(c, at), could, self->port[0], self->port[1], self->port[2], nat);
	else if (reached < could)
		find(c, WARN, "reach", "%zu of %zu peers can dial this daemon at %s, the others cannot: a firewall between "
			"them, or they are behind a NAT of their own.%s", reached, could, self_text(c, at), nat);
	else
		find(c, OK, "reach", "dialled at %s by %zu of %zu peers", self_text(c, at), reached, could);
	if (no_bulk)
		find(c, ERROR, "reach", "%zu of %zu peers that reach tcp port %u do not reach port %u, the next, through which "
			"gradients and state come: open it in the firewall, or forward it, too, and port %u", no_bulk, reached,
			self->port[CHAN_CTRL], self->port[CHAN_BULK], self->port[CHAN_DOOR]);
	else if (tried)
		find(c, OK, "reach", "whether port %u, for gradients and state, is reached, too, is being tried: ask again in "
			"two seconds", self->port[CHAN_BULK]);
}

static int by_ahead(const void *a, const void *b)
{
	const struct asked *const *x = a, *const *y = b;

	return ((*x)->ahead_ms > (*y)->ahead_ms) - ((*x)->ahead_ms < (*y)->ahead_ms);
}

static const char *direction(int64_t ms) { return ms > 0 ? "ahead" : "behind"; }

static double seconds(int64_t ms) { return (double)(ms < 0 ? -ms : ms) / 1e3; }

/* When most say the same, it is this one's clock; when one differs from the others, it is that one's. */
static void about_clocks(struct check *c)
{
	const struct asked *v[ASKED_MAX];
	size_t n = 0;
	int64_t mine;
	char who[9];

	for (size_t i = 0; i < c->n; i++)
		if (c->v[i].answered)
			v[n++] = &c->v[i];
	if (!n)
		return;
	qsort(v, n, sizeof *v, by_ahead);
	mine = v[n / 2]->ahead_ms;
	if (mine > CLOCK_OFF_MS || mine < -CLOCK_OFF_MS)
		find(c, WARN, "clock", "this machine's clock is %.0f s %s of most peers': set it (timedatectl set-ntp true). "
			"Records of the swarm are good for less time, or for none, when clocks differ by many minutes",
			seconds(mine), direction(mine));
	else
		find(c, OK, "clock", "this machine's clock agrees with the peers', within %.1f s", seconds(mine));
	for (size_t i = 0; i < n; i++) {
		int64_t off = mine - v[i]->ahead_ms;

		if (off > CLOCK_OFF_MS || off < -CLOCK_OFF_MS)
			find(c, WARN, "clock", "the clock of peer %s is %.0f s %s of the others'", id_short(&v[i]->id, who),
				seconds(off), direction(off));
	}
}

/* ---- asking ---- */

static void check_free(struct check *c)
{
	env_timer(c->nn->x.env, &c->again, 0);
	list_del(&c->link);
	json_decref(c->findings);
	free(c->text);
	free(c);
}

static void conclude(struct check *c)
{
	about_listening(c);
	about_keys(c);
	about_joining(c);
	about_reaching(c);
	about_clocks(c);
	reply_ok(c->r, json_pack("{s:b,s:O,s:s}", "ok", !c->bad, "findings", c->findings, "text", c->text));
	check_free(c);
}

static void ask_again(struct timer *t);

static void all_answered(struct check *c)
{
	bool wait = false;
	uint64_t us = DIALLED_MIN_US;

	for (size_t i = 0; i < c->n; i++) {
		struct asked *a = &c->v[i];

		wait |= a->answered && !a->client && !a->dials_out && (!a->mailbox || (a->trying && a->rtt_us < NEAR_US));
		us = a->answered && 4 * a->rtt_us > us ? 4 * a->rtt_us : us;
		if (a->mailbox && a->trying && !a->tried && c->waited_us < DIALLED_US) {
			a->tried = true;
			c->most_us = c->waited_us + DIALLED_US;
		}
	}
	if (c->waited_us >= c->most_us || !wait || is_client(c)) {
		conclude(c);
		return;
	}
	us = c->waited_us > us ? c->waited_us : us;
	us = us < c->most_us - c->waited_us ? us : c->most_us - c->waited_us;
	c->waited_us += us;
	c->again = (struct timer){ .fire = ask_again, .name = "net check" };
	env_after(c->nn->x.env, &c->again, us);
}

static void answered(void *arg, const struct frame *f, const struct err *e)
{
	struct asked *a = arg;
	struct check *c = a->c;
	struct env *env = c->nn->x.env;
	struct peer_info info;
	const char *at, *bulk;

	c->open--;
	if (e && e->code == ERR_CANCELLED)      /* the daemon is stopping */
		return;
	a->answered = f != NULL;
	if (f) {
		a->rtt_us = env_now(env) - a->asked_us;
		a->ahead_ms = (int64_t)env_wall(env) - (int64_t)(a->rtt_us / 2000) -
			(int64_t)json_integer_value(json_object_get(f->json, "wall_ms"));
		a->mailbox = json_is_true(json_object_get(f->json, "mailbox"));
		a->client = json_is_true(json_object_get(f->json, "client"));
		bulk = json_string_value(json_object_get(f->json, "bulk"));     /* an older one does not say */
		/* Who has said no tries again when it is asked again. */
		a->no_bulk = bulk && (!strcmp(bulk, "no") || (a->no_bulk && strcmp(bulk, "yes")));
		a->trying = bulk && !a->no_bulk && (!strcmp(bulk, "unknown") || !strcmp(bulk, "trying"));
		/* Who cannot be dialled from here hears no answer at its mailbox, whatever it can dial: it cannot judge. */
		a->dials_out = json_is_true(json_object_get(f->json, "i_am_client")) ||
			(net_peer(c->nn->x.net, &a->id, &info) && info.client);
		at = json_string_value(json_object_get(f->json, "at"));
		snprintf(a->at, sizeof a->at, "%s", at ? at : "");
	} else {
		snprintf(a->error, sizeof a->error, "%s", e->text);
		if (e->code == ERR_NO_METHOD)
			snprintf(a->error, sizeof a->error, "its version cannot say");
	}
	if (!c->open)
		all_answered(c);
}

static void ask(struct check *c)
{
	struct net *net = c->nn->x.net;

	c->open = (unsigned)c->n;
	for (size_t i = 0; i < c->n; i++) {
		c->v[i].asked_us = env_now(c->nn->x.env);
		net_call(net, &c->v[i].id, KIND_VIEW, json_pack("{s:b}", "dial", 1), NO_BLOB, CLASS_control, ASK_US, answered,
			&c->v[i]);
	}
	if (!c->n)
		all_answered(c);
}

static void ask_again(struct timer *t)
{
	ask(container_of(t, struct check, again));
}

void node_net_net_check(struct node_net *nn, const json_t *params, struct reply *r)
{
	struct check *c = xcalloc(1, sizeof *c);
	size_t known = net_peers(nn->x.net, NULL, 0);
	struct peer_info *p = xcalloc(known + 1, sizeof *p);

	c->nn = nn;
	c->r = r;
	c->most_us = DIALLED_US;
	c->findings = json_array();
	list_push(&nn->checks, &c->link);
	known = net_peers(nn->x.net, p, known);
	for (size_t i = 0; i < known; i++) {
		c->known += !p[i].banned_until_us && (p[i].session || p[i].at.port[0]);
		if (p[i].session && !p[i].maybe_dead && !p[i].banned_until_us && c->n < ASKED_MAX)
			c->v[c->n++] = (struct asked){ .c = c, .id = p[i].id };
	}
	free(p);
	ask(c);
}

void node_check_end_all(struct node_net *nn)
{
	struct err e;

	err_set(&e, ERR_CANCELLED, "the daemon is stopping");
	list_each_safe(it, &nn->checks) {
		struct check *c = list_entry(it, struct check, link);

		reply_fail(c->r, &e);
		check_free(c);
	}
}

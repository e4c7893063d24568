/* The stage: actors (net room, handlers, trace), the simulated world under it, and the steps of scripts. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "net/frame.h"
#include "sim.h"
#include "stage.h"

#define WAIT_US 3000000
#define DIAL_US 700000

/* ---- actors ---- */
void stage_note(struct actor *a, const char *fmt, ...)
{
	char line[256];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	buf_printf(&a->trace, "%d: %s\n", a->index, line);
}

static int index_of(struct actor *a, const struct id *id)
{
	for (int i = 0; i < a->stage->n; i++)
		if (id_eq(&a->stage->cast[i].id, id))
			return i;
	return -1;
}

static void on_wire(void *arg, struct via via, uint8_t *msg, size_t len)
{
	static const char *const chans[] = { "ctrl", "bulk", "door" };
	struct actor *a = arg;
	struct prelude p;

	/* Pings come when the clock says so, and their answers look like others: only what scripts cause is traced. */
	if (prelude_read(&p, msg, len) == PRELUDE_OK && p.kind != KIND_PING && p.kind != KIND_REPLY)
		stage_note(a, "wire %s %s", chans[via.chan], kind_name((enum kind)p.kind));
	a->recv(a->recv_arg, via, msg, len);
}

static void on_echo(void *arg, struct request *r)
{
	struct actor *a = arg;
	a->handled++;
	stage_note(a, "%s from %d, %zu bytes", kind_name(r->f.kind), index_of(a, &r->f.from), r->f.blob_len);
	if (r->wants_reply)
		net_reply(r, json_pack("{s:I}", "bytes", (json_int_t)r->f.blob_len), NO_BLOB);
}

static void on_refuse(void *arg, struct request *r)
{
	struct err e;
	err_set(&e, ERR_FORK, "not my history");
	stage_note(arg, "%s from %d, refused", kind_name(r->f.kind), index_of(arg, &r->f.from));
	net_refuse(r, &e);
}

static void on_never(void *arg, struct request *r)
{
	struct actor *a = arg;
	a->handled++;
	stage_note(a, "%s from %d, kept", kind_name(r->f.kind), index_of(a, &r->f.from));
	net_keep(r);                            /* freed with the room */
}

static void on_news(void *arg, const struct id *peer, enum net_news what)
{
	static const char *const names[] = { "dead", "goodbye", "alive", "restarted" };
	struct actor *a = arg;
	int i = index_of(a, peer);

	if (what == NEWS_DEAD && i >= 0)
		a->dead[i]++;
	if (what != NEWS_ALIVE)                 /* how often it is told depends on time */
		stage_note(a, "news %s %d", names[what], i);
}

void stage_enter(struct actor *a, struct env *env)
{
	struct net_conf c = { .client = a->client, .self = a->at };
	struct err e;

	a->env = env;
	c.seed[0] = (uint8_t)(a->index + 1);
	env->ops->secure(env, &c.boot_id, sizeof(c.boot_id));
	a->net = net_new(env, &c, &e);
	if (!a->net) {
		fprintf(stderr, "net_new: %s\n", e.text);
		abort();
	}
	a->id = *net_self(a->net);
	a->chunks = chunks_new(env, a->net);
	net_on(a->net, KIND_DHT_GET, on_echo, a);
	net_on(a->net, KIND_DHT_STORE, on_echo, a);
	net_on(a->net, KIND_AVG_JOIN, on_refuse, a);
	net_on(a->net, KIND_AVG_ACK, on_never, a);
	net_watch(a->net, on_news, a);
	a->recv = env->recv;
	a->recv_arg = env->recv_arg;
	env->recv = on_wire;
	env->recv_arg = a;
	a->alive = true;
	stage_note(a, "starts");
}

void stage_leave(struct actor *a)
{
	stage_note(a, "ends");
	a->alive = false;
	a->env->ops->detach(a->env);
	chunks_free(a->chunks);
	net_free(a->net);
	a->net = NULL;
	a->chunks = NULL;
}

/* ---- the simulated world ---- */
static void *sim_actor_start(struct env *env, int node, void *arg)
{
	struct actor *a = &((struct stage *)arg)->cast[node];
	stage_enter(a, env);
	return a;
}

static void sim_actor_stop(void *app) { stage_leave(app); }

static int sim_raise(struct stage *s, int node)
{
	struct sim_app app = { sim_actor_start, sim_actor_stop, s };
	struct actor *a = &s->cast[node];

	if (node < sim_nodes(s->world)) {
		sim_restart(s->world, node);
		return 0;
	}
	memset(&a->at, 0, sizeof(a->at));
	a->at.ip[10] = a->at.ip[11] = 0xff;
	a->at.ip[12] = 10;
	a->at.ip[15] = (uint8_t)node;
	for (int c = 0; c < CHANS; c++)
		a->at.port[c] = a->client ? 0 : (uint16_t)(4237 + c);
	return sim_node_add(s->world, &a->at, &app) == node ? 0 : -1;
}

static void sim_fell(struct stage *s, int node) { sim_kill(s->world, node); }

struct asked { bool (*cond)(void *arg); void *arg; };
static bool sim_cond(struct sim *sim, void *arg) { struct asked *q = arg; return q->cond(q->arg); }

static bool sim_until(struct stage *s, bool (*cond)(void *arg), void *arg, uint64_t limit_us)
{
	struct asked q = { cond, arg };
	return sim_run_until(s->world, sim_cond, &q, limit_us);
}

static void sim_close(struct stage *s) { sim_free(s->world); }
static const struct world_ops sim_ops = { sim_raise, sim_fell, sim_until, sim_close };

struct stage *stage_sim(int n, const char *clients, uint64_t seed)
{
	struct stage *s = xcalloc(1, sizeof(*s));
	s->ops = &sim_ops;
	s->world = sim_new(seed);
	sim_costs(s->world)->door_drop = 0;
	s->n = n;
	for (int i = 0; i < n; i++) {
		s->cast[i].stage = s;
		s->cast[i].index = i;
		s->cast[i].client = clients[i] == 'c';
	}
	for (int i = 0; i < n; i++)
		sim_raise(s, i);
	return s;
}

void stage_free(struct stage *s)
{
	s->ops->close(s);
	for (int i = 0; i < s->n; i++)
		buf_free(&s->cast[i].trace);
	free(s);
}

/* ---- steps ---- */
struct step { struct stage *s; struct actor *a; const char *what; int left, ok, peer; unsigned handled; };

static bool step_over(void *arg) { return ((struct step *)arg)->left == 0; }

static void call_done(void *arg, const struct frame *answer, const struct err *e)
{
	struct step *t = arg;
	t->left--;
	t->ok += e == NULL;
	if (t->what)
		stage_note(t->a, "%s: %s", t->what, e ? err_name(e->code) : "ok");
}

static void dial_done(void *arg, const struct id *peer, const struct err *e)
{
	struct step *t = arg;
	t->left--;
	stage_note(t->a, "dial: %s", e ? err_name(e->code) : id_eq(peer, &t->s->cast[t->peer].id) ? "the peer" : "another");
}

static void xfer_done(void *arg, struct xfer *x, const struct err *e)
{
	struct step *t = arg;
	t->left--;
	t->ok += e == NULL;
	if (e)
		stage_note(t->a, "transfer: %s", err_name(e->code));
}

static bool handled_more(void *arg) { struct step *t = arg; return t->s->cast[t->peer].handled > t->handled; }
static bool told_dead(void *arg) { struct step *t = arg; return t->a->dead[t->peer] > 0; }
static bool never(void *arg) { return false; }

static bool do_calls(struct step *t, struct actor *b, enum kind k, int count, size_t bytes, uint64_t timeout_us)
{
	void *data = xcalloc(1, bytes ? bytes : 1);
	struct id to = b->id;
	bool over;

	t->left = count;
	if (count > 1)
		t->what = NULL;
	for (int i = 0; i < count; i++)
		net_call(t->a->net, &to, k, NULL, (struct blob){ .data = data, .len = bytes }, CLASS_control, timeout_us,
			call_done, t);
	over = t->s->ops->until(t->s, step_over, t, timeout_us + WAIT_US);
	if (count > 1)
		stage_note(t->a, "%d calls, %d ok", count, t->ok);
	free(data);
	return over;
}

static bool do_transfer(struct step *t, struct actor *b, size_t bytes, bool kill)
{
	uint8_t *in = xcalloc(1, bytes + 1), *out = xcalloc(1, bytes + 1);
	struct id tag = { .b = { 't', (uint8_t)bytes, (uint8_t)(bytes >> 8) } }, to = b->id, from = t->a->id;
	uint64_t deadline = env_now(t->a->env) + WAIT_US;
	bool over;

	for (size_t i = 0; i < bytes; i++)
		in[i] = (uint8_t)(i * 31 + (i >> 9));
	t->left = kill ? 1 : 2;
	xfer_send(t->a->chunks, &to, &tag, in, bytes, CLASS_weight, deadline, xfer_done, t);
	if (!kill)
		xfer_recv(b->chunks, &from, &tag, out, bytes, env_now(b->env) + WAIT_US, xfer_done, t);
	else
		t->s->ops->fell(t->s, b->index);
	over = t->s->ops->until(t->s, step_over, t, 2 * WAIT_US);
	if (t->ok == 2)
		stage_note(t->a, "transfer: %s", memcmp(in, out, bytes) ? "other bytes" : "ok");
	free(in);
	free(out);
	return over;
}

/* Calls until one is answered: the way back after a death. */
static bool do_back(struct step *t, struct actor *b)
{
	for (int i = 0; i < 40; i++) {
		struct step one = { .s = t->s, .a = t->a, .left = 1 };
		net_call(t->a->net, &b->id, KIND_DHT_GET, NULL, NO_BLOB, CLASS_control, 200000, call_done, &one);
		if (!t->s->ops->until(t->s, step_over, &one, WAIT_US))
			return false;
		if (one.ok)
			return true;
	}
	return false;
}

/* Two at once, each way. */
static bool do_cross(struct step *t, struct actor *b)
{
	struct step back = { .s = t->s, .a = b, .left = 1, .what = "call" };
	t->left = 1;
	t->what = "call";
	net_call(t->a->net, &b->id, KIND_DHT_GET, NULL, NO_BLOB, CLASS_control, WAIT_US, call_done, t);
	net_call(b->net, &t->a->id, KIND_DHT_GET, NULL, NO_BLOB, CLASS_control, WAIT_US, call_done, &back);
	return t->s->ops->until(t->s, step_over, t, 2 * WAIT_US) && t->s->ops->until(t->s, step_over, &back, 2 * WAIT_US);
}

static bool play_one(struct stage *s, const char *verb, struct actor *a, struct actor *b, int x)
{
	struct step t = { .s = s, .a = a, .what = verb, .peer = b->index };
	struct id id = b->id;

	t.handled = b->handled;
	if (!strcmp(verb, "know"))
		return net_learn(a->net, &id, &b->at), true;
	if (!strcmp(verb, "dial")) {
		t.left = 1;
		net_dial(a->net, &b->at, DIAL_US, dial_done, &t);
		return s->ops->until(s, step_over, &t, 2 * WAIT_US);
	}
	if (!strcmp(verb, "call"))
		return do_calls(&t, b, KIND_DHT_GET, 1, (size_t)x, WAIT_US);
	if (!strcmp(verb, "calls"))
		return do_calls(&t, b, KIND_DHT_GET, x, 100, WAIT_US);
	if (!strcmp(verb, "refuse"))
		return do_calls(&t, b, KIND_AVG_JOIN, 1, 0, WAIT_US);
	if (!strcmp(verb, "nobody"))
		return do_calls(&t, b, KIND_AVG_LEAVE, 1, 0, WAIT_US);
	if (!strcmp(verb, "silence"))
		return do_calls(&t, b, KIND_AVG_ACK, 1, 0, 150000);
	if (!strcmp(verb, "post"))
		return net_post(a->net, &id, KIND_DHT_STORE, NULL, NO_BLOB, CLASS_control) == 0 &&
			s->ops->until(s, handled_more, &t, WAIT_US);
	if (!strcmp(verb, "move"))
		return do_transfer(&t, b, (size_t)x, false);
	if (!strcmp(verb, "drop"))
		return do_transfer(&t, b, (size_t)x, true);
	if (!strcmp(verb, "cross"))
		return do_cross(&t, b);
	if (!strcmp(verb, "back"))
		return do_back(&t, b);
	if (!strcmp(verb, "care"))
		return net_care(a->net, &id, 1), true;
	if (!strcmp(verb, "dead"))
		return s->ops->until(s, told_dead, &t, WAIT_US);
	if (!strcmp(verb, "fresh"))
		return a->env->ops->close_link(a->env, &b->at, false), true;
	if (!strcmp(verb, "ban"))
		return net_ban(a->net, &id, (uint64_t)60 * 1000000, "script", NULL), true;
	if (!strcmp(verb, "kill"))
		return s->ops->fell(s, a->index), true;
	if (!strcmp(verb, "start"))
		return s->ops->raise(s, a->index) == 0;
	if (!strcmp(verb, "wait"))
		return s->ops->until(s, never, NULL, 1000 * (uint64_t)x), true;
	fprintf(stderr, "no step '%s'\n", verb);
	return false;
}

bool stage_play(struct stage *s, const char *script)
{
	char verb[16];
	int a, b, x, used;

	while (*script) {
		b = x = 0;
		used = 0;
		if (sscanf(script, " %15s %d %d %d%n", verb, &a, &b, &x, &used) != 4)
			return false;
		script += used;
		script += strspn(script, " ;");
		if (!play_one(s, verb, &s->cast[a], &s->cast[b], x)) {
			stage_note(&s->cast[a], "%s %d: did not end", verb, b);
			return false;
		}
	}
	return true;
}

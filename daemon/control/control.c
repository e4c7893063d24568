/* Clients of the control room: lines in, calls out to commands, replies and notifications back. Reading order:
 * client_bytes, take_line, call_new, call_done, control_news. */
#include "control/control.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/jrpc.h"
#include "common/list.h"
#include "common/mem.h"
#include "common/text.h"
#include "store/store.h"

#define SILENT_US 2000000ull            /* half open for so long: another may have its place */
#define IDLE_US 60000000ull

struct control {
	struct cmd_ctx ctx;
	struct list clients;
	struct list orphans;            /* struct call whose connection has gone */
	int log_handle;                 /* -1: nobody follows the log */
	size_t alone, alone_view;       /* CMD_ALONE under way, also of clients that have gone; those of view_only */
	uint64_t view_paid_us;          /* until then the loop's time of view_only clients is used up */
};

struct follow { char *topic, *key; };

struct client {
	struct list link;
	struct control *control;
	struct list calls;              /* struct call, unanswered */
	size_t ncalls;
	bool view_only, skipping;       /* skipping: until the end of a line that is too long */
	bool busy;                      /* inside client_bytes or client_sent: no wake */
	struct buf in, out;
	struct follow follow[CONTROL_FOLLOWS_MAX];
	size_t nfollow;
	int log_min;                    /* -1: does not follow the log */
	uint64_t lost;                  /* notifications dropped since the last one sent */
	uint64_t heard_us;              /* when it came, or said something whole */
	bool spoke;                     /* it has, once */
	struct timer rest;              /* of view_only, until there is time for them again */
	void (*wake)(void *arg);
	void *arg;
};

/* One request under way. client is NULL when its connection has gone, control when the whole room has. */
struct call {
	struct reply reply;
	struct list link;
	struct client *client;
	struct control *control;
	const struct cmd *cmd;          /* NULL: there is none of that name */
	bool alone, view;               /* counted in control.alone and alone_view */
	json_t *id;
	json_t *params;
};

struct control *control_new(const struct cmd_ctx *ctx)
{
	struct control *c = xcalloc(1, sizeof *c);

	c->ctx = *ctx;
	c->ctx.control = c;
	c->log_handle = -1;
	list_init(&c->clients);
	list_init(&c->orphans);
	return c;
}

void control_free(struct control *c)
{
	if (!c)
		return;
	assert(list_empty(&c->clients));
	while (!list_empty(&c->orphans)) {
		struct call *k = list_entry(list_pop(&c->orphans), struct call, link);

		k->control = NULL;
		list_init(&k->link);
	}
	if (c->log_handle >= 0)
		log_unwatch(c->ctx.log, c->log_handle);
	free(c);
}

void control_set_api(struct control *c, const struct api *api)
{
	c->ctx.api = api;
}

/* --- bytes out */

static void wake(struct client *cl)
{
	if (!cl->busy)
		cl->wake(cl->arg);
}

static void put_line(struct client *cl, json_t *j)
{
	size_t n;
	char *text = json_line(j, &n);

	buf_put(&cl->out, text, n);
	buf_u8(&cl->out, '\n');
	free(text);
	json_decref(j);
	wake(cl);
}

const void *client_out(const struct client *cl, size_t *ret_n)
{
	*ret_n = cl->out.len;
	return cl->out.p;
}

/* What must pass before it is looked at again. */
static uint64_t rests_us(const struct client *cl)
{
	uint64_t now, paid = cl->control->view_paid_us;

	if (!cl->view_only || !paid)
		return 0;
	now = env_now(cl->control->ctx.env) + CONTROL_VIEW_BURST_US;
	return paid > now ? paid - now : 0;
}

bool client_hungry(const struct client *cl)
{
	return cl->out.len < CONTROL_OUT_MAX && cl->ncalls < CONTROL_CALLS_MAX && !rests_us(cl);
}

bool client_only_views(const struct client *cl) { return cl->view_only; }

bool client_gives_way(const struct client *cl)
{
	uint64_t since = env_now(cl->control->ctx.env) - cl->heard_us;

	return client_idle(cl) && !cl->nfollow && cl->log_min < 0 && since > (cl->spoke ? IDLE_US : SILENT_US);
}

bool client_idle(const struct client *cl)
{
	return cl->ncalls == 0 && cl->out.len == 0;
}

static void notify(struct client *cl, const char *topic, const json_t *news)
{
	json_t *params;

	if (cl->out.len >= CONTROL_OUT_MAX) {
		cl->lost++;
		return;
	}
	params = json_copy((json_t *)news);
	if (cl->lost) {
		json_object_set_new(params, "lost", json_integer((json_int_t)cl->lost));
		cl->lost = 0;
	}
	put_line(cl, jrpc_note(topic, params));
}

/* --- calls */

static void call_done(struct reply *r, json_t *result, const struct err *e)
{
	struct call *c = container_of(r, struct call, reply);
	struct client *cl = c->client;

	list_del(&c->link);
	if (c->control) {
		c->control->alone -= c->alone;
		c->control->alone_view -= c->alone && c->view;
	}
	if (cl) {
		cl->ncalls--;
		assert(e || json_is_object(result));
		if (c->control && c->control->ctx.store)
			store_settle_told(c->control->ctx.store);
		put_line(cl, e ? jrpc_error(c->id, e, NULL) : jrpc_result(c->id, result));
	} else {
		json_decref(result);
	}
	json_decref(c->id);
	json_decref(c->params);
	free(c);
}

/* A costly one begins: false when there are too many. */
static bool begins_alone(struct call *c, struct err *e)
{
	struct control *r = c->control;
	bool view = c->client->view_only;

	list_each(i, &c->client->calls) {
		struct call *other = list_entry(i, struct call, link);

		if (other != c && other->cmd == c->cmd) {
			err_set(e, ERR_BUSY, "%s: one at a time on a connection; the one before is not answered yet", c->cmd->name);
			return false;
		}
	}
	if (r->alone >= CONTROL_ALONE_MAX || (view && r->alone_view >= CONTROL_ALONE_MAX / 2)) {
		err_set(e, ERR_BUSY, "%s: %zu of others are under way already; ask again in a moment", c->cmd->name,
			view ? r->alone_view : r->alone);
		return false;
	}
	c->alone = true;
	c->view = view;
	r->alone++;
	r->alone_view += view;
	return true;
}

static void call_start(struct client *cl, struct jrpc *m)
{
	const struct cmd *cmd = cmd_find(m->method);
	struct call *c = xcalloc(1, sizeof *c);
	struct cmd_call call = { &cl->control->ctx, cl, NULL, &c->reply };
	struct err e;

	c->reply.done = call_done;
	c->client = cl;
	c->control = cl->control;
	c->cmd = cmd;
	c->id = json_incref(m->id);
	c->params = m->params ? json_incref(m->params) : json_object();
	list_push(&cl->calls, &c->link);
	cl->ncalls++;
	call.params = c->params;
	if (!cmd) {
		err_set(&e, ERR_NO_METHOD, "there is no command %.60s; \"help\" lists them", m->method);
		reply_fail(&c->reply, &e);
	} else if (cl->view_only && !(cmd->flags & CMD_VIEW)) {
		err_set(&e, ERR_AUTH, "%s is not allowed on the read-only socket; use the control socket", cmd->name);
		reply_fail(&c->reply, &e);
	} else if (cmd_check(cmd, c->params, &e) < 0) {
		reply_fail(&c->reply, &e);
	} else if ((cmd->flags & CMD_ALONE) && !begins_alone(c, &e)) {
		reply_fail(&c->reply, &e);
	} else {
		cmd->run(&call);
	}
}

static void take_line(struct client *cl, const char *line, size_t n)
{
	struct jrpc m;
	struct err e;

	if (n > 0 && line[n - 1] == '\r')
		n--;
	if (n == 0)
		return;
	if (jrpc_parse(&m, line, n, &e) < 0) {
		put_line(cl, jrpc_error(NULL, &e, NULL));
		return;
	}
	if (m.kind == JRPC_REQUEST) {
		call_start(cl, &m);
	} else {
		err_set(&e, ERR_INVALID, "expected a request: {\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"status\"}");
		put_line(cl, jrpc_error(NULL, &e, NULL));
	}
	jrpc_done(&m);
}

/* A line, on the bill of all who may only look. */
static void take_paid(struct client *cl, const char *line, size_t n)
{
	struct control *c = cl->control;
	uint64_t begun = env_now(c->ctx.env), took;

	cl->heard_us = begun;
	cl->spoke = true;
	take_line(cl, line, n);
	took = env_now(c->ctx.env) - begun;
	if (cl->view_only)
		c->view_paid_us = (c->view_paid_us > begun ? c->view_paid_us : begun) + took * CONTROL_VIEW_SHARE;
}

static void too_long(struct client *cl)
{
	struct err e;

	err_set(&e, ERR_LIMIT, "a request has at most %d bytes; the rest of the line was skipped", CONTROL_LINE_MAX);
	put_line(cl, jrpc_error(NULL, &e, NULL));
}

/* Takes whole lines while the client may ask. */
static void eat(struct client *cl)
{
	size_t at = 0;

	while (at < cl->in.len && client_hungry(cl)) {
		const uint8_t *p = cl->in.p + at, *end = memchr(p, '\n', cl->in.len - at);
		size_t n = end ? (size_t)(end - p) : cl->in.len - at;

		if (!end && n <= CONTROL_LINE_MAX && !cl->skipping)
			break;
		if (n > CONTROL_LINE_MAX && !cl->skipping)
			too_long(cl);
		else if (!cl->skipping)
			take_paid(cl, (const char *)p, n);
		cl->skipping = !end;
		at += n + (end ? 1 : 0);
	}
	buf_drop(&cl->in, at);
	if (rests_us(cl))
		env_after(cl->control->ctx.env, &cl->rest, rests_us(cl));
	if (cl->in.len == 0 && cl->in.cap > 2 * CONTROL_LINE_MAX)
		buf_free(&cl->in);
}

void client_bytes(struct client *cl, const void *p, size_t n)
{
	cl->busy = true;
	buf_put(&cl->in, p, n);
	eat(cl);
	cl->busy = false;
}

void client_sent(struct client *cl, size_t n)
{
	cl->busy = true;
	buf_drop(&cl->out, n);
	if (cl->out.len == 0 && cl->out.cap > 65536)
		buf_free(&cl->out);
	eat(cl);
	cl->busy = false;
}

static void rested(struct timer *t)
{
	struct client *cl = container_of(t, struct client, rest);

	cl->busy = true;
	eat(cl);
	cl->busy = false;
	cl->wake(cl->arg);
}

struct client *client_new(struct control *c, bool view_only, void (*wake_fn)(void *arg), void *arg)
{
	struct client *cl = xcalloc(1, sizeof *cl);

	cl->control = c;
	cl->view_only = view_only;
	cl->log_min = -1;
	cl->heard_us = env_now(c->ctx.env);
	cl->rest = (struct timer){ .fire = rested, .name = "control rest" };
	cl->wake = wake_fn;
	cl->arg = arg;
	list_init(&cl->calls);
	list_push(&c->clients, &cl->link);
	return cl;
}

static void log_follow_end(struct control *c)
{
	list_each(i, &c->clients)
		if (list_entry(i, struct client, link)->log_min >= 0)
			return;
	if (c->log_handle >= 0)
		log_unwatch(c->ctx.log, c->log_handle);
	c->log_handle = -1;
}

void client_free(struct client *cl)
{
	if (!cl)
		return;
	env_timer(cl->control->ctx.env, &cl->rest, 0);
	while (!list_empty(&cl->calls)) {
		struct call *c = list_entry(list_pop(&cl->calls), struct call, link);

		c->client = NULL;
		list_push(&cl->control->orphans, &c->link);
	}
	for (size_t i = 0; i < cl->nfollow; i++) {
		free(cl->follow[i].topic);
		free(cl->follow[i].key);
	}
	list_del(&cl->link);
	log_follow_end(cl->control);
	buf_free(&cl->in);
	buf_free(&cl->out);
	free(cl);
}

/* --- followers */

static bool follows(const struct client *cl, const char *topic, const char *key)
{
	for (size_t i = 0; i < cl->nfollow; i++)
		if (strcmp(cl->follow[i].topic, topic) == 0 && (!cl->follow[i].key || strcmp(cl->follow[i].key, key) == 0))
			return true;
	return false;
}

void control_news(void *arg, const char *topic, const char *key, const json_t *news)
{
	struct control *c = arg;

	list_each_safe(i, &c->clients) {
		struct client *cl = list_entry(i, struct client, link);

		if (follows(cl, topic, key))
			notify(cl, topic, news);
	}
}

bool control_heard(void *arg, const char *topic, const char *key)
{
	struct control *c = arg;

	list_each(i, &c->clients)
		if (follows(list_entry(i, struct client, link), topic, key))
			return true;
	return false;
}

int control_follow(struct control *c, struct reply *r, const char *topic, const char *key, struct err *e)
{
	struct client *cl = container_of(r, struct call, reply)->client;

	(void)c;
	if (!cl || follows(cl, topic, key ? key : ""))
		return 0;
	if (cl->nfollow == CONTROL_FOLLOWS_MAX)
		return err_set(e, ERR_LIMIT, "this connection follows %d things already; open another", CONTROL_FOLLOWS_MAX);
	cl->follow[cl->nfollow++] = (struct follow){ xstrdup(topic), key ? xstrdup(key) : NULL };
	return 0;
}

static void on_log(void *arg, const struct log_line *l)
{
	struct control *c = arg;

	list_each_safe(i, &c->clients) {
		struct client *cl = list_entry(i, struct client, link);

		if (cl->log_min >= 0 && (int)l->level >= cl->log_min) {
			json_t *news = json_pack("{s:I, s:I, s:s}", "seq", (json_int_t)l->seq, "wall_ms", (json_int_t)l->wall_ms,
				"level", log_level_name(l->level));

			json_object_set_new(news, "text", json_text(l->text));
			notify(cl, "log", news);
			json_decref(news);
		}
	}
}

int control_follow_log(struct control *c, struct reply *r, enum log_level min, struct err *e)
{
	struct client *cl = container_of(r, struct call, reply)->client;

	if (!cl)
		return 0;
	if (c->log_handle < 0 && (c->log_handle = log_watch(c->ctx.log, on_log, c)) < 0)
		return err_set(e, ERR_LIMIT, "too many readers follow the log");
	cl->log_min = (int)min;
	return 0;
}

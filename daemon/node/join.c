/* Joining through the addresses of the configuration: each on its way through name resolution, then the DHT's. */
#include "node/join.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"

#define BACKOFF_MIN_US 100000
#define BACKOFF_MAX_US 30000000
#define ANEW_MIN_US 10000000            /* nobody answers where the name led to: it may lead elsewhere now */
#define ANEW_MAX_US 300000000

struct joining { struct resolving r; struct joins *js /* NULL: closed */; struct timer again;
	uint64_t backoff_us, next_us, anew_us; bool resolved, open; char text[300];
	struct endpoint at /* once it is resolved */; };
struct joins {
	struct env *env; struct net *net; struct dht *dht;
	struct joining **v; size_t n;
	join_event_fn *event; void *arg;
};

static void resolve(struct joining *j)
{
	j->open = true;
	j->js->env->ops->resolve(j->js->env, &j->r);
}

static void resolve_again(struct timer *t)
{
	resolve(container_of(t, struct joining, again));
}

static void __attribute__((format(printf, 5, 6))) tell(const struct joins *js, enum log_level level, const char *code,
	const struct id *peer, const char *fmt, ...)
{
	char text[600];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	js->event(js->arg, level, code, peer, text);
}

static void anew(struct joining *j)
{
	j->anew_us = !j->anew_us ? ANEW_MIN_US : 2 * j->anew_us < ANEW_MAX_US ? 2 * j->anew_us : ANEW_MAX_US;
	env_after(j->js->env, &j->again, j->anew_us);
}

/* It was resolved before, and nobody has answered there since. */
static void resolved_again(struct joining *j)
{
	struct joins *js = j->js;
	const struct endpoint *at = &j->r.at;
	struct dht_address now = { 0 };
	bool shared = false;
	dht_address(js->dht, &j->at, &now);
	if (now.joined)
		return;
	for (size_t i = 0; i < js->n; i++)
		shared |= js->v[i] != j && js->v[i]->resolved && !memcmp(&js->v[i]->at, &j->at, sizeof j->at);
	if (!j->r.rc && memcmp(at, &j->at, sizeof *at)) {
		if (shared)
			dht_join(js->dht, at, 1);
		if (shared || dht_join_moved(js->dht, &j->at, at)) {
			tell(js, LOG_INFO_, "join.moved", NULL, "join %s: the name leads to another address now", j->text);
			j->at = *at;
			j->anew_us = 0;
		}
	}
	anew(j);
}

static void resolved(struct resolving *r)
{
	struct joining *j = container_of(r, struct joining, r);
	struct joins *js = j->js;
	j->open = false;
	if (!js) {                              /* the last one out frees */
		free(j);
		return;
	}
	if (j->resolved) {
		resolved_again(j);
		return;
	}
	if (!r->rc) {
		j->resolved = true;
		j->at = r->at;
		dht_join(js->dht, &r->at, 1);
		return;
	}
	if (!j->backoff_us)
		tell(js, LOG_WARN_, "join.unresolved", NULL, "join %s: not yet, it is tried for ever: %s", j->text,
			r->error.text);
	j->backoff_us = j->backoff_us ? j->backoff_us * 2 : BACKOFF_MIN_US;
	if (j->backoff_us > BACKOFF_MAX_US)
		j->backoff_us = BACKOFF_MAX_US;
	j->next_us = env_now(js->env) + j->backoff_us;
	env_timer(js->env, &j->again, j->next_us);
}

/* News from the DHT: one line when an address cannot be reached, one when it can. Names that mean the same address
 * share its fate. */
static void address_changed(void *arg, const struct endpoint *at, const struct dht_address *now)
{
	struct joins *js = arg;
	for (size_t i = 0; i < js->n; i++) {
		struct joining *j = js->v[i];
		if (!j->resolved || memcmp(&j->at, at, sizeof *at) || now->self)
			continue;
		j->anew_us = 0;
		env_timer(js->env, &j->again, 0);
		if (!now->joined && !j->open)
			anew(j);
		if (now->joined)
			tell(js, LOG_INFO_, "join.joined", &now->id, "joined through %s", j->text);
		else
			tell(js, LOG_WARN_, "join.unreachable", NULL, "join %s: not yet, it is tried for ever: %s", j->text,
				now->error);
	}
}

static int parse(const char *name, char *host, size_t cap, uint16_t *ret_port, struct err *e)
{
	if (text_hostport(name, host, cap, ret_port, e) || !*ret_port || *ret_port > UINT16_MAX - CHANS)
		return err_set(e, ERR_INVALID, "join %s: expected host:port, for example 192.0.2.7:4237", name);
	return 0;
}

static int check(const char *const *name, size_t n, struct err *e)
{
	char host[256];
	uint16_t port = 0;
	for (size_t i = 0; i < n; i++)
		if (parse(name[i], host, sizeof host, &port, e))
			return -1;
	if (n > DHT_ADDRESSES)
		return err_set(e, ERR_INVALID, "join: %zu addresses, at most %d; a few that are always there are enough", n,
			DHT_ADDRESSES);
	return 0;
}

int joins_check(const struct conf *c, struct err *e)
{
	const char *const *name;
	size_t n = conf_list(c, "network", "join", &name);
	return check(name, n, e) ? err_wrap(e, "%s", conf_origin(c, "network", "join")) : 0;
}

static void add(struct joins *js, const char *name)
{
	struct joining *j = xcalloc(1, sizeof *j);
	uint16_t port = 0;
	struct err none;
	snprintf(j->text, sizeof j->text, "%s", name);
	parse(name, j->r.name, sizeof j->r.name, &port, &none);
	for (int c = 0; c < CHANS; c++)
		j->r.at.port[c] = (uint16_t)(port + c);
	j->r.done = resolved;
	j->js = js;
	j->again = (struct timer){ .fire = resolve_again, .name = "node.resolve" };
	js->v[js->n++] = j;
	resolve(j);
}

struct joins *joins_new(struct env *env, struct net *net, struct dht *d, const char *const *name, size_t n,
	join_event_fn *event, void *arg, struct err *e)
{
	if (check(name, n, e))
		return NULL;
	struct joins *js = xcalloc(1, sizeof *js);
	*js = (struct joins){ .env = env, .net = net, .dht = d, .v = xcalloc(n + 1, sizeof *js->v), .event = event,
		.arg = arg };
	dht_on_address(d, address_changed, js);
	for (size_t i = 0; i < n; i++)
		add(js, name[i]);
	return js;
}

void joins_free(struct joins *js)
{
	if (!js)
		return;
	dht_on_address(js->dht, NULL, NULL);
	for (size_t i = 0; i < js->n; i++) {
		struct joining *j = js->v[i];
		env_timer(js->env, &j->again, 0);
		j->js = NULL;
		if (!j->open)
			free(j);
	}
	free(js->v);
	free(js);
}

static void put_retry(json_t *o, const char *state, const char *error, uint64_t next_us)
{
	json_object_set_new(o, "state", json_string(state));
	if (error[0])
		json_object_set_new(o, "error", json_string(error));
	if (next_us)
		json_object_set_new(o, "next_s", json_real((double)next_us / 1e6));
}

json_t *joins_json(struct joins *js)
{
	json_t *all = json_array();
	for (size_t i = 0; i < js->n; i++) {
		struct joining *j = js->v[i];
		json_t *o = json_pack("{s:s}", "address", j->text);
		struct dht_address at = { 0 };
		char hex[ID_HEX];
		uint64_t now = env_now(js->env);
		json_array_append_new(all, o);
		if (!j->resolved) {
			put_retry(o, j->backoff_us ? "unresolved" : "resolving", j->backoff_us ? j->r.error.text : "",
				!j->open && j->next_us > now ? j->next_us - now : 0);
			continue;
		}
		dht_address(js->dht, &j->at, &at);
		if (at.self)
			json_object_set_new(o, "state", json_string("this peer"));
		else if (!at.joined)
			put_retry(o, at.error[0] ? "unreachable" : "connecting", at.error, at.next_us);
		else {
			json_object_set_new(o, "state", json_string("joined"));
			json_object_set_new(o, "peer", json_string((id_hex(&at.id, hex), hex)));
			net_look(js->net, &at.id);      /* is it gone, the next answer says so */
		}
	}
	return all;
}

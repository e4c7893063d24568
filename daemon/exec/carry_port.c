/* Whom a RECV of any asks. A port is one label of one generation: it asks each peer of the group what it has
 * (carry_value.c), one answer at a time, so that whoever has much does not push others away. Who takes hears of it from
 * net and the clock (port_use). */
#include "exec/carry_port.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"

#define ASK_US 20000000ull

void teller_forget(struct teller *t)
{
	if (t->offered && !t->under)
		list_del(&t->link);
	t->offered = t->under = false;
}

static void call(struct teller *t, uint64_t beyond, bool at_once)
{
	struct port *p = t->port;
	json_t *j = json_pack("{s:o,s:I,s:s,s:I,s:I,s:I,s:b}", "run", json_hex(p->c->c.run.b, 32), "g",
		(json_int_t)p->generation, "l", p->label, "b", (json_int_t)t->boot, "a", (json_int_t)beyond, "d",
		(json_int_t)t->drop, "q", at_once);

	if (t->drop && t->why[0])
		json_object_set_new(j, "w", json_string(t->why));
	t->drop = 0;
	t->call = net_call(p->c->c.net, &t->id, KIND_PLAN_DATA, j, NO_BLOB, CLASS_control, ASK_US, p->use->answered,
		t);
}

void teller_look(struct teller *t)
{
	if (!t->call)
		call(t, t->serial - 1, true);
}

void teller_ask(struct teller *t)
{
	if (t->call || t->offered || t->mute || (list_empty(&t->port->open) && !t->drop))
		return;
	env_timer(t->port->c->c.env, &t->timer, 0);
	call(t, t->serial, false);
}

void port_ask(struct port *p)
{
	for (uint32_t k = 0; k < p->n; k++)
		teller_ask(p->teller[k]);
}

/* It is told with the next question. */
void teller_refuse(struct teller *t, const char *why)
{
	teller_forget(t);
	t->drop = t->serial;
	(void)snprintf(t->why, sizeof(t->why), "%s", why);
	teller_ask(t);
}

static int read_offer(struct teller *t, const json_t *j, struct err *e)
{
	uint64_t stream, serial, boot;

	if (json_get_u64(j, "b", &boot, e) || json_get_u64(j, "s", &serial, e) || json_get_i64(j, "i", &t->index, e) ||
	    json_get_u64(j, "m", &stream, e) || json_get_i64(j, "v", &t->version, e) ||
	    json_get_u64(j, "n", &t->bytes, e))
		return -1;
	if (!serial || serial > INT64_MAX || boot > INT64_MAX || stream >= PLAN_SLOTS_MAX || t->bytes > PLAN_BYTES_MAX ||
	    (boot == t->boot && serial <= t->serial))
		return err_set(e, ERR_PROTOCOL, "it offers what cannot be");
	t->boot = boot;
	t->serial = serial;
	t->stream = (uint32_t)stream;
	return 0;
}

static bool same(const struct teller *t, const json_t *j)
{
	uint64_t serial, boot;

	return !json_get_u64(j, "b", &boot, NULL) && !json_get_u64(j, "s", &serial, NULL) && boot == t->boot &&
		serial == t->serial;
}

enum heard teller_heard(struct teller *t, const struct frame *f, const struct err *e)
{
	struct port *p = t->port;
	struct err why;

	t->call = NULL;
	if (t->offered)                         /* is it still there? */
		return !e && !same(t, f->json) ? HEARD_GONE : HEARD_NOTHING;
	if (!e && json_object_size(f->json) && read_offer(t, f->json, &why) == 0) {
		t->offered = true;
		t->turns = 0;
		list_push(&p->queue, &t->link);
		return HEARD_OFFER;
	}
	if (!e && json_object_size(f->json)) {
		net_strike(p->c->c.net, &t->id, why.text);
		t->mute = ++t->vain > CARRY_VAIN_MAX;
	}
	env_after(p->c->c.env, &t->timer, CARRY_AGAIN_US);
	return HEARD_NOTHING;
}

static void port_free(struct port *p)
{
	for (uint32_t k = 0; k < p->n; k++) {
		struct teller *t = p->teller[k];

		if (t->call)
			net_cancel(p->c->c.net, t->call);
		env_timer(p->c->c.env, &t->timer, 0);
		teller_forget(t);
		free(t);
	}
	list_del(&p->link);
	map_free(p->seen);
	free(p->ring);
	free(p->teller);
	free(p);
}

/* Others of older generations are of no use any more. */
struct port *port_of(struct haul *h, const struct port_use *use)
{
	struct carry *c = h->c;
	struct port *found = NULL;

	list_each_safe(it, &c->ports) {
		struct port *p = list_entry(it, struct port, link);

		if (p->generation == h->n.generation && !strcmp(p->label, h->n.tag))
			found = p;
		else if (p->generation != h->n.generation && !p->hauls)
			port_free(p);
	}
	if (found)
		return found;
	found = xcalloc(1, sizeof(*found));
	found->c = c;
	found->use = use;
	found->generation = h->n.generation;
	(void)snprintf(found->label, sizeof(found->label), "%s", h->n.tag);
	list_init(&found->queue);
	list_init(&found->open);
	list_push(&c->ports, &found->link);
	return found;
}

struct teller *teller_of(struct port *p, const struct id *id, uint32_t rank, uint32_t guess)
{
	struct teller *t;

	if (guess < p->n && id_eq(&p->teller[guess]->id, id))
		return p->teller[guess];
	for (uint32_t k = 0; k < p->n; k++)
		if (id_eq(&p->teller[k]->id, id))
			return p->teller[k];
	if (p->n == p->room) {
		p->room = p->room ? 2 * p->room : 8;
		p->teller = xrealloc(p->teller, p->room * sizeof(struct teller *));
	}
	t = xcalloc(1, sizeof(*t));
	*t = (struct teller){ .port = p, .id = *id, .rank = rank, .number = p->n,
		.timer = { .fire = p->use->turn, .name = "carry any" } };
	return p->teller[p->n++] = t;
}

void any_close(struct carry *c)
{
	while (!list_empty(&c->ports))
		port_free(list_entry(c->ports.next, struct port, link));
}

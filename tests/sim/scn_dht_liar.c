/* One member of three tells the others what is not so: what does it cost them? */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "dht/int.h"
#include "dht_world.h"
#include "net/inner.h"

enum { READER, LIAR, OWNER, NODES };
static struct rec *tale;                        /* what it answers whoever asks for a record */
static unsigned asked; static int step;         /* the next page begins so many further; 0: there is none */

static void on_get(void *arg, struct request *req)
{
	struct dht *d = arg;
	struct buf b = { 0 };
	uint64_t at = json_integer_value(json_object_get(req->f.json, "at"));
	asked++;
	buf_u8(&b, 0);
	buf_u16(&b, 1);
	rec_write(&b, tale, env_now(d->env));
	net_reply(req, step ? json_pack("{s:I}", "next", (json_int_t)at + step) : NULL,
		(struct blob){ .data = b.p, .len = b.len, .release = free, .arg = b.p });
}

static void begin(struct sim *s, struct dht_world *w)
{
	dht_add(s, w, NODES);
	dht_joined(s);
	asked = 0;
	step = 0;
	net_on(dht_net(s, LIAR), KIND_DHT_GET, on_get, dht_of(s, LIAR));
}

/* A record of the owner's, signed by it, `old` ms ago. */
static struct rec *told(struct sim *s, const char *key, uint64_t old)
{
	char hex[ID_HEX];
	struct err e;
	id_hex(net_self(dht_net(s, OWNER)), hex);
	json_t *one = json_integer(1);
	struct rec *r = rec_make(dht_of(s, OWNER), key, hex, one, 60000, true, &e);
	json_decref(one);
	r->rank -= old;
	rec_sign(dht_of(s, OWNER), r);
	return r;
}

/* What a peer said of itself an hour ago, for a minute, is no record any more, although its signature is good. */
static void scn_old_record(struct sim *s)
{
	struct dht_world w = { 0 };
	begin(s, &w);
	tale = told(s, "who", 0);
	struct dht_get_end g = dht_get_wait(s, READER, "who", true);
	sim_check(s, g.n == 1);
	rec_free(tale);
	tale = told(s, "who then", 3600000);
	g = dht_get_wait(s, READER, "who then", true);
	if (g.n)
		sim_fail(s, "a record of an hour ago counts");
	sim_check(s, asked >= 2);
	rec_free(tale);
}

/* It says that there is more, and more: a question is answered by as many pages as a dictionary can have, full ones. */
static void scn_pages(struct sim *s)
{
	struct dht_world w = { 0 };
	begin(s, &w);
	tale = told(s, "who", 0);
	for (step = 1; step <= 3 && !sim_failed(s); step++) {
		asked = 0;
		struct dht_get_end g = dht_get_wait(s, READER, "who", true);
		sim_check(s, g.done);
		if (asked > 3)
			sim_fail(s, "it was asked %u times", asked);
	}
	rec_free(tale);
}

static void stored(void *arg, const struct frame *f, const struct err *e)
{
	unsigned *good = arg;
	*good += f && store_accepted(f);
}

/* Records whose signature is wrong: none is taken, and who goes on with them is banned; the third is served all along.
 * A STORE that wants no answer is not even looked at. */
static void scn_forged(struct sim *s)
{
	struct dht_world w = { 0 };
	struct peer *p;
	unsigned good = 0;
	begin(s, &w);
	tale = told(s, "who", 0);
	struct buf b = { 0 };
	store_add(&b, tale, sim_now(s));
	net_post(dht_net(s, LIAR), net_self(dht_net(s, READER)), KIND_DHT_STORE, json_object(),
		(struct blob){ .data = b.p, .len = b.len, .release = free, .arg = b.p }, CLASS_control);
	sim_run_for(s, SEC);
	sim_check(s, dht_records(s, READER) == 0);
	tale->sig[3] ^= 1;
	for (int i = 0; i < 300; i++) {
		b = (struct buf){ 0 };
		store_add(&b, tale, sim_now(s));
		store_send(dht_of(s, LIAR), net_self(dht_net(s, READER)), &b, stored, &good);
		sim_run_for(s, 10000);
	}
	sim_run_for(s, SEC);
	p = peer_find(dht_net(s, READER), net_self(dht_net(s, LIAR)));
	if (good || dht_records(s, READER))
		sim_fail(s, "%u were taken", good);
	if (!p || !p->banned_until_us)
		sim_fail(s, "it is not banned");
	sim_check(s, dht_put_wait(s, OWNER, "mine", NULL, json_integer(4), 60000, false).accepted >= 2);
	dht_want(s, READER, "mine", 4);
	rec_free(tale);
}

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(old_record), SCN(pages), SCN(forged), { 0 } };
	return scn_main(list, argc, argv);
}

/* Scenarios of HELLO: who may talk to whom, by which way, and what the operator is told when it does not work. */
#include "net/inner.h"
#include "net_app.h"

static struct net_world w;              /* outlives the nodes, which tell it of their end */
static struct ended d[600];
static int callers[600], called[600];   /* of d */
static struct moved m[2];

static void begin(void)
{
	memset(&w, 0, sizeof w);
	memset(d, 0, sizeof d);
	memset(m, 0, sizeof m);
}

static bool ended(struct sim *s, void *arg)
{
	for (struct ended *e = d; e->sim; e++)
		if (!e->times)
			return false;
	return true;
}

static struct ended *call(struct sim *s, int from, int to, uint64_t timeout_us)
{
	struct ended *e = d;
	struct id id;
	uint8_t seed[32];
	struct signer k;

	net_app_seed(to, seed);
	signer_init(&k, seed);
	id = k.id;
	signer_done(&k);
	while (e->sim)
		e++;
	e->sim = s;
	callers[e - d] = from;
	called[e - d] = to;
	net_app_call(sim_app(s, from), &id, 1, NO_BLOB, timeout_us, e);
	return e;
}

static void expect(struct sim *s, struct ended *e, enum err_code code, const char *text)
{
	sim_await(s, ended, NULL, 20000000);
	if (!net_app_expect(s, callers[e - d], called[e - d], e, code, ""))
		return;
	if (text && !strstr(e->text, text))
		sim_fail(s, "ended %u times with %s (%s), expected %s (%s)", e->times, err_name(e->code), e->text,
		err_name(code), text ? text : "");
}

static struct net *net_of(struct sim *s, int node)
{
	return ((struct net_app *)sim_app(s, node))->net;
}

static size_t sessions(struct sim *s, int node)
{
	struct net_counters c;

	net_counters(net_of(s, node), &c);
	return c.sessions;
}

/* 1 has come in by 0's door, then that connection breaks unseen; 0 reaches it all the same, by dialling. */
static void scn_door_gone(struct sim *s)
{
	begin();
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 1, 0);
	expect(s, call(s, 1, 0, 3000000), ERR_NONE, NULL);
	sim_run_for(s, 500000);
	sim_check(s, peer_find(net_of(s, 0), net_self(net_of(s, 1)))->door_token != 0);
	sim_break(s, 0, 1);
	expect(s, call(s, 0, 1, 3000000), ERR_NONE, NULL);
}

static bool one_session(struct sim *s, void *arg) { return sessions(s, 0) == 1 && sessions(s, 1) == 1; }

/* Both dial at once: both calls are answered, and after 30 s one session is left, the same on both sides. */
static void scn_simultaneous(struct sim *s)
{
	struct session *a, *b;
	uint64_t quiet;

	begin();
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 0, 1);
	net_app_know(s, 1, 0);
	call(s, 0, 1, 2000000);
	call(s, 1, 0, 2000000);
	expect(s, &d[0], ERR_NONE, NULL);
	expect(s, &d[1], ERR_NONE, NULL);
	sim_run_for(s, 500000);
	quiet = peer_find(net_of(s, 0), net_self(net_of(s, 1)))->frames_out;
	sim_run_for(s, 2000000);
	/* signs ask for no signs */
	sim_in_time(s, peer_find(net_of(s, 0), net_self(net_of(s, 1)))->frames_out == quiet);
	a = peer_session(peer_find(net_of(s, 0), net_self(net_of(s, 1))));
	b = peer_session(peer_find(net_of(s, 1), net_self(net_of(s, 0))));
	sim_check(s, a && b && a->id == b->id);
	sim_run_for(s, 35000000);
	sim_await(s, one_session, NULL, 0);
	expect(s, call(s, 0, 1, 2000000), ERR_NONE, NULL);
}

static void scn_wrong_key(struct sim *s)
{
	begin();
	w.other_key[1] = 1;
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 0, 1);
	expect(s, call(s, 0, 1, 5000000), ERR_AUTH, "--swarm-key-file");
	sim_check(s, net_app_told(&w, "wrong_swarm_key"));
	sim_check(s, net_of(s, 1)->count.wrong_swarm_key > 0 && !sessions(s, 0) && !sessions(s, 1));
}

static void scn_versions(struct sim *s)
{
	begin();
	w.version[0] = 9;
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 0, 1);
	expect(s, call(s, 0, 1, 5000000), ERR_VERSION, "upgrade the older");
	sim_check(s, net_app_told(&w, "version_mismatch"));
}

static struct err dialled;
static unsigned dials;
static struct id dialled_id;
static void on_dial(void *arg, const struct id *peer, const struct err *e)
{
	dials++;
	if (e)
		dialled = *e;
	else
		dialled_id = *peer;
}

static bool dial_over(struct sim *s, void *arg)
{
	return dials;
}

static void dial(struct sim *s, int from, int to, uint64_t timeout_us)
{
	dials = 0;
	memset(&dialled, 0, sizeof dialled);
	net_dial(net_of(s, from), sim_endpoint(s, to), timeout_us, on_dial, NULL);
	sim_check(s, !dials && sim_await(s, dial_over, NULL, timeout_us + 1000000));
}

/* Ended with that code and such a text. Late when it was in vain. */
static bool dialled_as(struct sim *s, enum err_code code, const char *text)
{
	bool so = dialled.code == code && (!text || strstr(dialled.text, text));

	if (!so && dialled.code != code && net_app_in_vain(dialled.code))
		sim_late(s, "a dial, expected %s: %s", err_name(code), dialled.text);
	else if (!so)
		sim_fail(s, "a dial, expected %s: %s", err_name(code), dialled.text);
	return so;
}

static void scn_dial(struct sim *s)
{
	begin();
	net_app_add(s, &w);
	net_app_add(s, &w);
	w.twin[2] = true;
	net_app_add(s, &w);
	dial(s, 0, 1, 2000000);
	if (!dialled_as(s, ERR_NONE, NULL))
		return;                         /* then neither knows the other */
	sim_check(s, id_eq(&dialled_id, net_self(net_of(s, 1))));
	sim_run_for(s, 50000);
	expect(s, call(s, 1, 0, 1000000), ERR_NONE, NULL);              /* the dialled one can answer calls to us too */
	dial(s, 0, 0, 1000000);
	sim_check(s, dialled.code == ERR_INVALID && strstr(dialled.text, "own address"));
	dial(s, 0, 2, 1000000);
	if (dialled_as(s, ERR_AUTH, "own key"))
		sim_check(s, net_app_told(&w, "duplicate_identity"));
	sim_kill(s, 1);
	dial(s, 0, 1, 3000000);
	sim_check(s, dialled.code == ERR_UNREACHABLE && dials == 1);
	sim_run_for(s, 5000000);
	sim_check(s, dials == 1 && !map_len(net_of(s, 0)->hellos));
}

static void whatever(void *arg, const struct frame *f, const struct err *e) { }

/* Calls, as the table makes them: who only posts never misses an answer, and finds out nothing when the other side has
 * its session no more and can tell only the twin, whose address it has. */
static void say(struct sim *s, int from, int to)
{
	net_call(net_of(s, from), net_self(net_of(s, to)), KIND_DHT_FIND, json_pack("{s:i}", "n", 1), NO_BLOB,
		CLASS_control, 2000000, whatever, NULL);
}

/* A state directory was copied: two daemons with one key, neither of which hears of the other, and a third one that
 * both speak to. Both are to know; the third one is not. */
static void scn_twins(struct sim *s)
{
	uint64_t end;
	bool late = false;

	begin();
	net_app_add(s, &w);
	net_app_add(s, &w);
	w.twin[2] = true;
	net_app_add(s, &w);
	net_app_know(s, 0, 1);
	net_app_know(s, 2, 1);
	end = sim_now(s) + 30000000;
	while (sim_now(s) < end + SIM_NEVER_US && !(net_twin(net_of(s, 0)) && net_twin(net_of(s, 2))) && !sim_failed(s)) {
		late = sim_now(s) >= end;
		say(s, 0, 1);
		say(s, 2, 1);
		sim_run_for(s, 300000 + rng_below(sim_rng(s), 400000));
	}
	if (late)
		sim_late(s, "both twins know after %llu ms more", (unsigned long long)(sim_now(s) - end) / 1000);
	sim_check(s, net_twin(net_of(s, 0)) && net_twin(net_of(s, 2)) && !net_twin(net_of(s, 1)));
	sim_check(s, net_app_told(&w, "duplicate_identity"));
	sim_run_for(s, 5000000);
}

/* One that dies and starts again, and again, within the minute is no twin of its own. */
static void scn_no_twin(struct sim *s)
{
	begin();
	net_app_add(s, &w);
	net_app_add(s, &w);
	for (int i = 0; i < 5 && !sim_failed(s); i++) {
		net_app_know(s, 0, 1);
		net_app_know(s, 1, 0);
		for (int k = 0; k < 4; k++) {
			say(s, 0, 1);
			say(s, 1, 0);
			sim_run_for(s, 200000 + rng_below(sim_rng(s), 800000));
		}
		sim_kill(s, 0);
		sim_run_for(s, rng_below(sim_rng(s), 1000000));
		sim_restart(s, 0);
	}
	sim_check(s, !net_twin(net_of(s, 0)) && !net_twin(net_of(s, 1)));
	sim_check(s, !net_app_told(&w, "duplicate_identity"));
}

static void transfer(struct sim *s, int from, int to, size_t n)
{
	struct net_app *a = sim_app(s, from), *b = sim_app(s, to);
	uint8_t *data = xcalloc(1, n), *out = xcalloc(1, n);
	struct id tag = { .b = { (uint8_t)from, (uint8_t)to } };
	uint64_t deadline = sim_now(s) + 20000000;

	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)(i * 31 + i / 251);
	memset(m, 0, sizeof m);
	m[0].sim = m[1].sim = s;
	xfer_send(a->chunks, net_self(b->net), &tag, data, n, CLASS_weight, deadline, net_app_moved, &m[0]);
	xfer_recv(b->chunks, net_self(a->net), &tag, out, n, deadline, net_app_moved, &m[1]);
	net_app_arrives(s, m, data, out, n, 25000000, from ? "a transfer from 1" : "a transfer from 0");
	free(data);
	free(out);
}

/* A client has no address; calls go both ways, and transfers, all over connections that it has made. */
static void scn_client(struct sim *s)
{
	struct peer_info info;

	begin();
	w.client[1] = true;
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 1, 0);
	expect(s, call(s, 1, 0, 3000000), ERR_NONE, NULL);
	sim_run_for(s, 50000);
	sim_check(s, net_peer(net_of(s, 0), net_self(net_of(s, 1)), &info) && info.client);
	for (int i = 0; i < 20; i++)
		call(s, 0, 1, 5000000);
	for (int i = 1; i <= 20; i++)
		expect(s, &d[i], ERR_NONE, NULL);
	for (int i = 0; i < 20; i++)
		expect(s, call(s, 1, 0, 3000000), ERR_NONE, NULL);
	transfer(s, 0, 1, 1500000);
	transfer(s, 1, 0, 1500000);
}

static bool is_client(struct sim *s, void *arg)
{
	return peer_find(net_of(s, 0), net_self(net_of(s, 1)))->client;
}

/* It believes to be reachable but is not: after two unanswered HELLOs it goes through the door, and is told so. */
static void scn_nat(struct sim *s)
{
	begin();
	w.behind_nat[1] = true;
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 1, 0);
	expect(s, call(s, 1, 0, 5000000), ERR_NONE, NULL);
	sim_run_for(s, 50000);
	expect(s, call(s, 0, 1, 5000000), ERR_NONE, NULL);
	for (int i = 0; i < 30; i++)
		expect(s, call(s, i & 1, !(i & 1), 5000000), ERR_NONE, NULL);
	transfer(s, 0, 1, 700000);
	transfer(s, 1, 0, 700000);
	sim_run_for(s, 3000000);
	/* the proof of its address has failed */
	sim_await(s, is_client, NULL, 0);
	expect(s, call(s, 0, 1, 5000000), ERR_NONE, NULL);
	expect(s, call(s, 1, 0, 5000000), ERR_NONE, NULL);
}

/* The other side has lost the session (here: a ban that was lifted): RESET, a new HELLO, the call is answered. */
static void scn_reset(struct sim *s)
{
	uint64_t at;

	begin();
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 0, 1);
	expect(s, call(s, 0, 1, 2000000), ERR_NONE, NULL);
	sim_run_for(s, 2000000);
	net_ban(net_of(s, 1), net_self(net_of(s, 0)), 1000000, "a test", NULL);
	net_ban(net_of(s, 1), net_self(net_of(s, 0)), 0, NULL, NULL);
	at = sim_now(s);
	expect(s, call(s, 0, 1, 3000000), ERR_NONE, NULL);
	sim_check(s, net_of(s, 1)->count.unknown_session > 0);
	if (d[1].at_us - at > 300000)           /* the door may have dropped M2 once */
		sim_late(s, "RESET saved nothing: %llu us", (unsigned long long)(d[1].at_us - at));
	/* and by a ban that stays, nothing comes through */
	net_ban(net_of(s, 1), net_self(net_of(s, 0)), 100000000, "a test", NULL);
	expect(s, call(s, 1, 0, 1000000), ERR_REFUSED, "banned");
	/* it hears so by the next RESET, of which an address gets one a second, and a new HELLO */
	expect(s, call(s, 0, 1, 3000000), ERR_REFUSED, "it has banned it");
}

/* Keys are replaced after so many frames, without a call being lost. */
static void scn_rekey(struct sim *s)
{
	struct session *first, *last;

	begin();
	w.conf.rekey_frames = 40;
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 0, 1);
	expect(s, call(s, 0, 1, 2000000), ERR_NONE, NULL);
	first = session_ref(peer_session(peer_find(net_of(s, 0), net_self(net_of(s, 1)))));
	for (int i = 1; i <= 300; i++)
		expect(s, call(s, i & 1, !(i & 1), 2000000), ERR_NONE, NULL);
	last = peer_session(peer_find(net_of(s, 0), net_self(net_of(s, 1))));
	sim_check(s, first != last && sessions(s, 0) <= SESSIONS_PER_PEER);
	sim_in_time(s, first->tx_counter[0] < 80);
	session_unref(first);
}

/* The node that does not use the other's mailbox, or that takes the other or itself for a client; -1: none. */
static int far_client(struct sim *s)
{
	for (int i = 0; i < 2; i++) {
		const struct peer *p = peer_find(net_of(s, i), net_self(net_of(s, !i)));

		if (!p->mailbox || p->client || p->as_client)
			return i;
	}
	return -1;
}

/* As far apart as the earth allows, 300 ms there and back: a HELLO over the mailboxes takes five round trips, and has
 * the time for them; nobody is taken for one that only dials out. */
static void scn_far(struct sim *s)
{
	begin();
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 150000, .jitter_us = 10000 });
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 1, 0);
	for (int i = 0; i < 16; i++) {
		expect(s, call(s, 1, 0, 8000000), ERR_NONE, NULL);
		expect(s, call(s, 0, 1, 8000000), ERR_NONE, NULL);
		memset(d, 0, sizeof d);
	}
	sim_run_for(s, 4000000);
	int who = far_client(s);
	if (who < 0)
		return;
	const struct peer *p = peer_find(net_of(s, who), net_self(net_of(s, !who)));
	sim_late(s, "node %d: mailbox %d, client %d, as client %d", who, p->mailbox, p->client, p->as_client);
	for (int i = 0; i < 60 && far_client(s) >= 0 && !sim_failed(s); i++) {
		expect(s, call(s, i & 1, !(i & 1), 8000000), ERR_NONE, NULL);
		sim_run_for(s, 1000000);
	}
	if (far_client(s) >= 0)
		sim_fail(s, "node %d is not used as one that can be dialled", far_client(s));
}

static const struct scn list[] = { SCN(door_gone), SCN(simultaneous), SCN(wrong_key), SCN(versions), SCN(dial),
	SCN(twins), SCN(no_twin), SCN(client), SCN(nat), SCN(reset), SCN(rekey), SCN(far), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }

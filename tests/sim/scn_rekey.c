/* Scenarios of worn keys: while calls, posts and transfers go both ways over a link of some length, sessions end by
 * their bytes or by their hour, and nobody notices: nothing is lost, refused or run twice. */
#include "net/inner.h"
#include "net_app.h"

#define BYTES (8u << 20)
#define POSTS 2000

static struct net_world w;              /* outlives the nodes, which tell it of their end */
static struct moved m[4];
static uint8_t data[2][BYTES], out[2][BYTES];

static struct net_app *app(struct sim *s, int i) { return sim_app(s, i); }
static struct net *net_of(struct sim *s, int i) { return app(s, i)->net; }
static struct peer *peer_of(struct sim *s, int of) { return peer_find(net_of(s, of), net_self(net_of(s, !of))); }

static bool one_ended(struct sim *s, void *arg) { return ((struct ended *)arg)->times; }

static void call(struct sim *s, int from, uint64_t n)
{
	static struct ended d;

	memset(&d, 0, sizeof d);
	net_app_call(app(s, from), net_self(net_of(s, !from)), n, NO_BLOB, 5000000, &d);
	sim_await(s, one_ended, &d, 6000000);
	if (!d.ok)
		sim_fail(s, "call %llu of %d: %s", (unsigned long long)n, from, d.text);
}

static void begin(struct sim *s)
{
	memset(m, 0, sizeof m);
	sim_costs(s)->door_drop = 0;
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 10000, .jitter_us = 3000, .bytes_per_s = 20000000 });
	for (int i = 0; i < 2; i++) {
		net_app_add(s, &w);
		for (unsigned k = 0; k < BYTES; k++)
			data[i][k] = (uint8_t)((k + (unsigned)i) * 2654435761u >> 9);
	}
	memset(out, 0, sizeof out);
	net_app_know(s, 0, 1);
	for (uint64_t n = 0; n < 30; n++)
		call(s, n & 1, n);
	sim_run_for(s, 2000000);
	sim_in_time(s, peer_of(s, 0)->mailbox && peer_of(s, 1)->mailbox);
}

/* The sessions under which something was sent, and how much in each direction. */
static struct used { uint64_t session, bytes[2]; } used[16];
static unsigned nused;

static void on_wire(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct header h;
	unsigned i = 0;

	if (header_read(&h, wire, len, NULL))
		return;                         /* HELLO */
	while (i < nused && used[i].session != h.session)
		i++;
	if (i == sizeof used / sizeof *used)
		return;
	nused += i == nused;
	used[i].session = h.session;
	used[i].bytes[from] += len;
}

static bool moved(struct sim *s, void *arg) { return m[0].times && m[1].times && m[2].times && m[3].times; }

static void transfers(struct sim *s)
{
	uint64_t end = sim_now(s) + 60000000;

	for (int i = 0; i < 2; i++) {
		struct id tag = { .b = { 9, (uint8_t)i } };

		xfer_recv(app(s, !i)->chunks, net_self(net_of(s, i)), &tag, out[i], BYTES, end, net_app_moved, &m[2 * i]);
		xfer_send(app(s, i)->chunks, net_self(net_of(s, !i)), &tag, data[i], BYTES, CLASS_weight, end, net_app_moved,
			&m[2 * i + 1]);
	}
}

static void nothing_lost(struct sim *s, uint32_t posts)
{
	for (int i = 0; i < 2; i++) {
		const struct net_counters *c = &net_of(s, i)->count;

		if (c->bad_seal || c->replayed || c->unknown_session)
			sim_fail(s, "node %d: %llu with a bad seal, %llu replayed, %llu of no session", i,
				(unsigned long long)c->bad_seal, (unsigned long long)c->replayed,
				(unsigned long long)c->unknown_session);
		if (app(s, i)->posted != posts)
			sim_fail(s, "node %d got %u of %u posts", i, app(s, i)->posted, posts);
		sim_check(s, !app(s, i)->twice && !app(s, i)->news[NEWS_DEAD] && !peer_of(s, i)->failures);
	}
}

/* Every 2 MiB, in both directions at the same time; what goes before the next one is there is less than that again. */
static void scn_bytes(struct sim *s)
{
	memset(&w, 0, sizeof w);
	memset(used, 0, sizeof used);
	nused = 0;
	w.conf.rekey_bytes = 2u << 20;
	begin(s);
	sim_tap(s, on_wire, NULL);
	transfers(s);
	for (unsigned i = 0; i < POSTS && !sim_failed(s); i++) {
		for (int k = 0; k < 2; k++)
			net_post(net_of(s, k), net_self(net_of(s, !k)), KIND_RUN_STATE, json_pack("{s:i}", "n", (int)i), NO_BLOB,
				CLASS_control);
		if (i % 100 == 99)
			call(s, (int)(i / 100) & 1, 40 + i / 100);
		sim_run_for(s, 500);
	}
	sim_await(s, moved, NULL, 60000000);
	for (int i = 0; i < 2; i++)
		net_app_arrived(s, &m[2 * i], data[i], out[i], BYTES, "a transfer");
	sim_run_for(s, 1000000);
	nothing_lost(s, POSTS);
	if (nused < 4)
		sim_fail(s, "%u sessions for twice %u bytes", nused, BYTES);
	for (unsigned i = 0; i < 2 * nused; i++)
		if (used[i / 2].bytes[i % 2] > 2 * w.conf.rekey_bytes)
			sim_late(s, "%llu bytes under one session", (unsigned long long)used[i / 2].bytes[i % 2]);
}

static bool one_session(struct sim *s, void *arg)
{
	return net_of(s, 0)->count.sessions == 1 && net_of(s, 1)->count.sessions == 1;
}

/* The hour ends for both at once, while posts go both ways all the time. */
static void scn_hour(struct sim *s)
{
	uint64_t first, made;
	unsigned posts = 0;

	memset(&w, 0, sizeof w);
	begin(s);
	first = peer_session(peer_of(s, 0))->id;
	made = peer_session(peer_of(s, 0))->made_us;
	sim_run_for(s, made + 3598000000 - sim_now(s));
	sim_check(s, peer_session(peer_of(s, 0))->id == first);
	for (; posts < POSTS && !sim_failed(s); posts++) {
		for (int k = 0; k < 2; k++)
			net_post(net_of(s, k), net_self(net_of(s, !k)), KIND_RUN_STATE, json_pack("{s:i}", "n", (int)posts),
				NO_BLOB, CLASS_control);
		sim_run_for(s, 1000 + rng_below(sim_rng(s), 2000));
	}
	sim_run_for(s, 1000000);
	nothing_lost(s, posts);
	for (int i = 0; i < 2; i++) {
		sim_check(s, peer_session(peer_of(s, i))->id != first);
		sim_in_time(s, sim_now(s) - peer_session(peer_of(s, i))->made_us < 10000000);
	}
	sim_check(s, peer_session(peer_of(s, 0))->id == peer_session(peer_of(s, 1))->id);
	sim_run_for(s, 40000000);
	sim_await(s, one_session, NULL, 0);
	call(s, 0, 500);
	call(s, 1, 501);
	nothing_lost(s, posts);
}

static const struct scn list[] = { SCN(bytes), SCN(hour), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }

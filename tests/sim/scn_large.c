/* Scenarios of transfers in large chunks: only where both take them and the path is short, whole under faults, and
 * through a change of the sender's mind. */
#include "net/inner.h"
#include "net_app.h"

#define BIG (((size_t)3 << 20) + 77)
#define NEAR_US 300
#define FAR_AWAY_US 20000

static struct net_world w;
static struct ended d[2];                       /* the second ends them */
static struct moved m[2];
static uint8_t data[BIG], out[BIG];
static uint64_t path_us;
static int client;                              /* which of the two, from 1 on; 0: none */
static struct { size_t most[CHANS]; unsigned count; } seen;

static struct net_app *app(struct sim *s, int node) { return sim_app(s, node); }

static void on_wire(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	seen.most[chan] = len > seen.most[chan] ? len : seen.most[chan];
	seen.count += len > 64 * 1024;
}

/* Calls until the round trip is known for what it is: the first ones have a HELLO before them. */
static void know(struct sim *s)
{
	const struct id *other = net_self(app(s, 1)->net);
	struct peer_info p = { 0 };

	for (int i = 0; i < 40 && (!i || p.rtt_us > 4 * path_us + 1000); i++) {
		d[0] = (struct ended){ .sim = s };
		net_app_call(app(s, 0), other, 1, NO_BLOB, 5000000, d);
		net_app_answers(s, 0, 1, d, 6000000, "first, ");
		net_peer(app(s, 0)->net, other, &p);
	}
}

static void begin(struct sim *s, unsigned moves_0, unsigned moves_1, uint64_t latency_us)
{
	memset(&w, 0, sizeof w);
	memset(m, 0, sizeof m);
	memset(&seen, 0, sizeof seen);
	m[0].sim = m[1].sim = s;
	path_us = latency_us;
	w.moves[0] = moves_0;
	w.moves[1] = moves_1;
	if (client)
		w.client[client - 1] = true;
	net_app_add(s, &w);
	net_app_add(s, &w);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = latency_us, .bytes_per_s = 50000000 });
	net_app_know(s, client == 2, client != 2);
	if (client == 2) {                      /* nobody can dial it */
		d[0] = (struct ended){ .sim = s };
		net_app_call(app(s, 1), net_self(app(s, 0)->net), 1, NO_BLOB, 5000000, d);
		net_app_answers(s, 1, 0, d, 6000000, "from the client, ");
	}
	know(s);
	for (size_t i = 0; i < BIG; i++)
		data[i] = (uint8_t)rng_at(sim_seed(s), i);
	memset(out, 0, BIG);
	sim_tap(s, on_wire, NULL);
}

static void give(struct sim *s)
{
	struct id tag = { .b = { 1 } };

	xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, BIG, CLASS_weight, sim_now(s) + 60000000,
		net_app_moved, &m[0]);
}

static void take(struct sim *s)
{
	struct id tag = { .b = { 1 } };

	xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), &tag, out, BIG, sim_now(s) + 60000000, net_app_moved, &m[1]);
}

/* 6 frames of 512 KiB, or 12 of 256, and one of what is left. */
static void was(struct sim *s, bool large, enum chan chan)
{
	size_t chunk = large ? NET_CHUNK_MAX : NET_BLOB_MAX, most = seen.most[chan];

	if (most < chunk || most > chunk + 1024)
		sim_fail(s, "frames of %zu bytes, for chunks of %zu", most, chunk);
	if (seen.count < BIG / chunk)
		sim_fail(s, "%u chunks have gone", seen.count);
}

/* Each pair of versions, near and far. */
static void scn_sizes(struct sim *s)
{
	unsigned cell = (unsigned)(sim_seed(s) % 32), a = cell / 2 % 4, b = cell / 8;
	bool near = cell % 2;

	begin(s, a, b, near ? NEAR_US : FAR_AWAY_US);
	take(s);
	give(s);
	net_app_arrives(s, m, data, out, BIG, 60000000, "by itself, a transfer");
	was(s, near && a & b & MOVES_LARGE, CHAN_BULK);
}

static void scn_torn(struct sim *s)
{
	begin(s, MOVES_ALL, sim_seed(s) % 2 ? MOVES_ALL : MOVES_LARGE, NEAR_US);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = NEAR_US, .jitter_us = 200, .bytes_per_s = 20000000,
		.break_every = 12 });
	take(s);
	give(s);
	net_app_arrives(s, m, data, out, BIG, 70000000, "while connections break, a transfer");
}

static bool half(struct sim *s, void *arg) { return seen.count >= 2; }

static bool ended(struct sim *s, void *arg) { return m[1].times; }

/* A part of it is there when its sender dies, and comes back in a version that cuts it otherwise. */
static void scn_other(struct sim *s)
{
	bool first = sim_seed(s) % 2;

	begin(s, first ? MOVES_ALL : MOVES_UNHASHED, MOVES_ALL, NEAR_US);
	take(s);
	give(s);
	sim_await(s, half, NULL, 5000000);
	sim_kill(s, 0);
	w.moves[0] ^= MOVES_LARGE;
	sim_restart(s, 0);
	net_app_know(s, 0, 1);
	know(s);
	sim_await(s, ended, NULL, 5000000);
	memset(m, 0, sizeof m);
	m[0].sim = m[1].sim = s;
	for (size_t i = 0; i < BIG; i++)
		data[i] ^= 0x5a;
	memset(&seen, 0, sizeof seen);
	take(s);
	give(s);
	net_app_arrives(s, m, data, out, BIG, 60000000, "in another version, a transfer");
	was(s, !first, CHAN_BULK);
}

/* To a client, through this one's door, by several connections; and from one, whose bulk has a mailbox. */
static void scn_door(struct sim *s)
{
	bool through = sim_seed(s) % 2;

	client = through ? 2 : 1;
	begin(s, MOVES_ALL, MOVES_ALL, NEAR_US);
	client = 0;
	for (int i = 0; i < 3; i++) {
		memset(m, 0, sizeof m);
		memset(out, 0, BIG);
		m[0].sim = m[1].sim = s;
		data[i]++;
		take(s);
		give(s);
		net_app_arrives(s, m, data, out, BIG, 60000000, "through a door, a transfer");
	}
	was(s, true, through ? CHAN_DOOR : CHAN_BULK);
}

static const struct scn list[] = { SCN(sizes), SCN(torn), SCN(other), SCN(door), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }

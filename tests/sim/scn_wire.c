/* Instrument T4: bytes by peer, class and link are those that the wire has carried, as the simulator has seen them. */
#include "net/inner.h"
#include "net_app.h"

#define COUNTED 3
struct wire { uint64_t link[COUNTED][COUNTED][CHANS], class[COUNTED][COUNTED][CLASS_COUNT_], plain[COUNTED]; };

static void weigh(void *arg, int from, int to, enum chan chan, const uint8_t *wire, size_t len)
{
	struct wire *v = arg;
	struct header h;

	if (header_read(&h, wire, len, NULL)) {
		v->plain[from] += len;
		return;
	}
	v->link[from][to][chan] += len;
	v->class[from][to][h.cls] += len;
}

/* What a door's queue dropped (nanomsg's does, too, without a word) was given to it all the same. */
static void same(struct sim *s, const char *what, int from, int to, uint64_t counted, uint64_t carried)
{
	struct sim_stats st;

	sim_stats(s, &st);
	if (counted != carried && !(st.door_drops && counted > carried))
		sim_fail(s, "%s from node %d to node %d: %llu bytes were counted, the wire has carried %llu", what, from, to,
			(unsigned long long)counted, (unsigned long long)carried);
}

static void counts_are(struct sim *s, const struct wire *v)
{
	for (int i = 0; i < COUNTED; i++) {
		struct net_app *me = sim_app(s, i);
		struct net_counters c;

		net_counters(me->net, &c);
		same(s, "HELLO", i, i, c.plain_out, v->plain[i]);
		for (int k = 0; k < COUNTED; k++) {
			struct peer_info p;

			if (k == i || !net_peer(me->net, net_self(((struct net_app *)sim_app(s, k))->net), &p))
				continue;
			for (int l = 0; l < CHANS; l++) {
				same(s, "a link", i, k, p.bytes.link_out[l], v->link[i][k][l]);
				same(s, "a link", k, i, p.bytes.link_in[l], v->link[k][i][l]);
			}
			for (int l = 0; l < CLASS_COUNT_; l++) {
				same(s, "a class", i, k, p.bytes.out[l], v->class[i][k][l]);
				same(s, "a class", k, i, p.bytes.in[l], v->class[k][i][l]);
			}
		}
	}
}

/* Two that can be dialled and a client; calls, and transfers of two classes; at rest everything sent has come. */
static void scn_wire(struct sim *s)
{
	struct net_world w = { .client = { [2] = true } };
	struct wire v = { 0 };
	struct net_app *a[COUNTED];
	uint64_t bulk = 0;

	sim_tap(s, weigh, &v);
	for (int i = 0; i < COUNTED; i++)
		a[i] = net_app_add(s, &w);
	net_app_know(s, 0, 1);
	net_app_know(s, 1, 0);
	net_app_know(s, 2, 0);
	for (int round = 0; round < 6; round++) {
		int from = round % 2 ? 0 : (int)rng_below(sim_rng(s), 3), to = from ? 0 : round % 3 ? 1 : 2;
		size_t n = 1 + rng_below(sim_rng(s), 600000);
		uint8_t *data = net_app_noise(s, n), *out = xcalloc(1, n);
		struct moved m[2] = { { .sim = s }, { .sim = s } };
		struct ended d[2] = { { .sim = s }, { 0 } };
		struct id tag = { .b = { (uint8_t)round } };
		uint64_t deadline = sim_now(s) + 30000000;

		net_app_call(a[2], net_self(a[0]->net), (uint64_t)round, NO_BLOB, 20000000, &d[0]);
		sim_await(s, net_app_all_ended, d, 25000000);
		xfer_recv(a[to]->chunks, net_self(a[from]->net), &tag, out, n, deadline, net_app_moved, &m[1]);
		xfer_send(a[from]->chunks, net_self(a[to]->net), &tag, data, n, round % 2 ? CLASS_weight : CLASS_weight_grad,
			deadline, net_app_moved, &m[0]);
		if (net_app_arrives(s, m, data, out, n, 35000000, from ? "to node 0, a transfer" : "from node 0, a transfer"))
			bulk += n;
		free(data);
		free(out);
	}
	sim_run_for(s, 200000);
	counts_are(s, &v);
	for (int i = 0; i < COUNTED; i++)
		for (int k = 0; k < COUNTED; k++)
			for (int l = 0; l < CLASS_COUNT_; l++)
				bulk -= l == CLASS_weight || l == CLASS_weight_grad ? v.class[i][k][l] : 0;
	if (bulk <= 1ull << 63)                 /* frames, seals and acknowledgements make them more than was moved */
		sim_fail(s, "the wire carried less than was moved");
	sim_tap(s, NULL, NULL);
}

static const struct scn list[] = { SCN(wire), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

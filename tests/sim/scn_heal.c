/* After a partition of any kind has healed, everybody reaches everybody within ten seconds: who called in vain
 * meanwhile, who took the other for dead, whose sessions ran out, and who had never spoken to the other before. */
#include "net/inner.h"
#include "net_app.h"

#define PEERS_MAX 20
#define WITHIN_US 10000000ull

static struct net_world w;              /* outlives the nodes, which tell it of their end */
static struct id ids[PEERS_MAX];
static struct ended noise[4096];
static unsigned noises;
static int peers;
static bool stopped;

/* Everybody calls somebody about ten times a second, whether he can be reached or not. */
static void chatter(struct sim *s, void *arg)
{
	struct rng *r = sim_rng(s);
	int a = (int)rng_below(r, (uint64_t)peers), b = (a + 1 + (int)rng_below(r, (uint64_t)peers - 1)) % peers;

	if (stopped || noises == 4096)
		return;
	noise[noises].sim = s;
	net_app_call(sim_app(s, a), &ids[b], noises % 1024, NO_BLOB, 100000 + rng_below(r, 5000000), &noise[noises]);
	noises++;
	sim_at(s, sim_now(s) + 100000 / (uint64_t)peers + rng_below(r, 5000), chatter, NULL);
}

static void begin(struct sim *s, int n, unsigned clients)
{
	memset(&w, 0, sizeof w);
	memset(noise, 0, sizeof noise);
	noises = 0;
	peers = n;
	stopped = false;
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 500 + rng_below(sim_rng(s), 20000), .jitter_us = 300 });
	for (int i = 0; i < n; i++) {
		w.client[i] = (unsigned)(n - i) <= clients;
		ids[i] = *net_self(net_app_add(s, &w)->net);
	}
	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++)
			if (i != k && !w.client[k] && rng_below(sim_rng(s), 10))        /* some have to be told by HELLO */
				net_app_know(s, i, k);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++)
			if (i != k && !rng_below(sim_rng(s), 3))
				net_care(((struct net_app *)sim_app(s, i))->net, &ids[k], 1);
}

/* One pair: calls again until it is answered, as whoever needs the other would. */
struct want { struct sim *sim; int from, to; bool ok, flying; uint64_t until_us; unsigned tries; char text[320]; };
static struct want wants[PEERS_MAX * PEERS_MAX];
static unsigned nwants, unmet;

static void want_ended(void *arg, const struct frame *f, const struct err *e)
{
	struct want *x = arg;

	x->flying = false;
	if (f && !x->ok)
		unmet--;
	x->ok = x->ok || f;
	if (e)
		snprintf(x->text, sizeof x->text, "%s", e->text);
}

static void want_try(struct sim *s, void *arg)
{
	struct want *x = arg;
	uint64_t left = x->until_us - sim_now(s);

	if (x->ok || sim_now(s) >= x->until_us)
		return;
	if (!x->flying) {
		x->flying = true;
		x->tries++;
		net_call(((struct net_app *)sim_app(s, x->from))->net, &ids[x->to], KIND_DHT_FIND,
			json_pack("{s:i}", "n", 1), NO_BLOB, CLASS_control, left, want_ended, x);
	}
	sim_at(s, sim_now(s) + 200000, want_try, x);
}

static bool met(struct sim *s, void *arg) { return !unmet; }

/* They go on until it is never. */
static void again(struct sim *s)
{
	unsigned then = unmet;
	struct want first = wants[0];

	for (unsigned i = nwants; i--;)
		if (!wants[i].ok) {
			first = wants[i];
			wants[i].until_us = sim_now(s) + SIM_NEVER_US;
			sim_at(s, sim_now(s) + rng_below(sim_rng(s), 50000), want_try, &wants[i]);
		}
	if (sim_run_until(s, met, NULL, SIM_NEVER_US + 100000)) {
		sim_late(s, "%u of %u do not reach each other: %d to %d, tried %u times: %s", then, nwants, first.from,
			first.to, first.tries, first.text);
		return;
	}
	for (unsigned i = 0; i < nwants; i++)
		if (!wants[i].ok)
			sim_fail(s, "%u of %u never reach each other: %d to %d, tried %u times: %s", unmet, nwants, wants[i].from,
				wants[i].to, wants[i].tries, wants[i].text);
}

/* Every pair, both ways; clients cannot be dialled, and do not reach each other. */
static void everybody(struct sim *s)
{
	stopped = true;
	nwants = 0;
	for (int i = 0; i < peers; i++)
		for (int k = 0; k < peers; k++)
			if (i != k && !(w.client[i] && w.client[k])) {
				if (!w.client[k])
					net_app_know(s, i, k);
				wants[nwants] = (struct want){ .sim = s, .from = i, .to = k,
					.until_us = sim_now(s) + WITHIN_US };
				sim_at(s, sim_now(s) + rng_below(sim_rng(s), 50000), want_try, &wants[nwants++]);
			}
	unmet = nwants;
	if (!sim_run_until(s, met, NULL, WITHIN_US + 100000) && !sim_failed(s))
		again(s);
}

/* ---- partitions ---- */

static void halves(struct sim *s)
{
	int side[PEERS_MAX];

	for (int i = 0; i < peers; i++)
		side[i] = (int)rng_below(sim_rng(s), 2);
	sim_partition(s, side, peers);
}

static void many(struct sim *s)
{
	int side[PEERS_MAX];

	for (int i = 0; i < peers; i++)
		side[i] = (int)rng_below(sim_rng(s), (uint64_t)peers);
	sim_partition(s, side, peers);
}

static void alone(struct sim *s)
{
	int side[PEERS_MAX] = { 0 };

	side[rng_below(sim_rng(s), (uint64_t)peers)] = 1;
	sim_partition(s, side, peers);
}

/* Some directions of some links: what is heard is not answered. */
static void one_way(struct sim *s)
{
	for (int i = 0; i < peers; i++)
		for (int k = 0; k < peers; k++)
			if (i != k && !rng_below(sim_rng(s), 3))
				sim_cut(s, i, k);
}

static void deaf(struct sim *s)
{
	sim_cut(s, -1, (int)rng_below(sim_rng(s), (uint64_t)peers));
}

static void mute(struct sim *s)
{
	sim_cut(s, (int)rng_below(sim_rng(s), (uint64_t)peers), -1);
}

static void links(struct sim *s)
{
	for (int i = 0; i < peers; i++)
		for (int k = 0; k < i; k++)
			if (!rng_below(sim_rng(s), 3))
				sim_cut_both(s, i, k);
}

static void (*const kinds[])(struct sim *s) = { halves, many, alone, one_way, deaf, mute, links };

static void once(struct sim *s, int n, unsigned clients, uint64_t cut_max_us)
{
	begin(s, n, clients);
	chatter(s, NULL);
	sim_run_for(s, rng_below(sim_rng(s), 3000000));
	for (unsigned i = 1 + (unsigned)rng_below(sim_rng(s), 2); i--;) {
		kinds[rng_below(sim_rng(s), sizeof kinds / sizeof *kinds)](s);
		sim_run_for(s, 200000 + rng_below(sim_rng(s), cut_max_us));
		if (rng_below(sim_rng(s), 2)) {
			sim_heal(s);                    /* and again, before everybody has noticed */
			sim_run_for(s, rng_below(sim_rng(s), 1000000));
		}
	}
	sim_heal(s);
	everybody(s);
}

static void scn_ten(struct sim *s) { once(s, 10, 0, 8000000); }
static void scn_ten_long(struct sim *s) { once(s, 10, 0, 70000000); }
static void scn_twenty(struct sim *s) { once(s, 20, 0, 15000000); }
static void scn_clients(struct sim *s) { once(s, 10, 3, 15000000); }

int main(int argc, char **argv)
{
	static const struct scn list[] = { SCN(ten), SCN(ten_long), SCN(twenty), SCN(clients), { 0 } };

	return scn_main(list, argc, argv);
}

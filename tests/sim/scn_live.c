/* Scenarios of life and death: how soon a death is told, that nothing is told twice or falsely, and that whatever
 * waited for the dead ends at once. Transfers under faults too: they end once on each side, and never with wrong
 * bytes. */
#include "common/hash.h"
#include "net/inner.h"
#include "net_app.h"

static struct net_world w;
static struct ended d[64];
static struct moved m[3];

static void begin(struct sim *s)
{
	memset(&w, 0, sizeof w);
	memset(d, 0, sizeof d);
	memset(m, 0, sizeof m);
	m[0].sim = m[1].sim = s;
}

static struct net_app *app(struct sim *s, int node) { return sim_app(s, node); }

static bool first_ended(struct sim *s, void *arg) { return d[0].times; }
static bool sent_moved(struct sim *s, void *arg) { return m[0].times; }
static bool received_moved(struct sim *s, void *arg) { return m[1].times; }
static bool told_dead(struct sim *s, void *arg) { return app(s, 0)->news[NEWS_DEAD]; }
static bool told_dead_1(struct sim *s, void *arg) { return app(s, 1)->news[NEWS_DEAD]; }
static bool told_alive(struct sim *s, void *arg) { return app(s, 0)->news[NEWS_ALIVE]; }

/* 0 and 1 know each other, have a session, and 0 cares for 1. Bits of those whose transfers need no hash. */
static struct id pair_of(struct sim *s, unsigned unhashed)
{
	struct id id;

	begin(s);
	for (int i = 0; i < 2; i++)
		w.moves[i] = unhashed >> i & 1 ? MOVES_UNHASHED : 0;
	net_app_add(s, &w);
	net_app_add(s, &w);
	net_app_know(s, 0, 1);
	id = *net_self(app(s, 1)->net);
	d[0].sim = s;
	net_app_call(app(s, 0), &id, 1, NO_BLOB, 2000000, &d[0]);
	net_app_answers(s, 0, 1, d, 3000000, "first, ");
	net_care(app(s, 0)->net, &id, 1);
	d[0] = (struct ended){ .sim = s };
	return id;
}

static struct id pair(struct sim *s) { return pair_of(s, 0); }

static void within(struct sim *s, uint64_t since, uint64_t limit, const char *what)
{
	if (sim_now(s) - since > limit)
		sim_late(s, "%s after %llu us, at most %llu", what, (unsigned long long)(sim_now(s) - since),
			(unsigned long long)limit);
}

static void scn_kill(struct sim *s)
{
	struct id id = pair(s);

	app(s, 1)->hold = true;                 /* it works on the call when it dies */
	net_app_call(app(s, 0), &id, 1, NO_BLOB, 20000000, &d[0]);
	sim_run_for(s, rng_below(sim_rng(s), 400000));
	sim_check(s, !d[0].times);
	uint64_t at = sim_now(s);
	sim_kill(s, 1);
	sim_await(s, told_dead, NULL, 5000000);
	within(s, at, 200000, "the death was told");
	sim_check(s, sim_await(s, first_ended, NULL, 1000000) && d[0].code == ERR_UNREACHABLE);
	within(s, at, 210000, "the call ended");
	sim_run_for(s, 5000000);
	sim_check(s, app(s, 0)->news[NEWS_DEAD] == 1 && d[0].times == 1);
}

/* Who was dialled has no connection of his own to the one he cares for: he makes one, and sees the death in it. */
static void scn_kill_dialler(struct sim *s)
{
	pair(s);
	struct id id = *net_self(app(s, 0)->net);
	net_care(app(s, 0)->net, net_self(app(s, 1)->net), -1);
	net_care(app(s, 1)->net, &id, 1);
	sim_run_for(s, 300000 + rng_below(sim_rng(s), 1000000));
	uint64_t at = sim_now(s);
	sim_kill(s, 0);
	sim_await(s, told_dead_1, NULL, 5000000);
	within(s, at, 200000, "the death was told");
}

static void scn_power(struct sim *s)
{
	pair(s);
	sim_run_for(s, 3000000);                /* silence is no reason: pings are answered */
	sim_check(s, !app(s, 0)->news[NEWS_DEAD]);
	uint64_t at = sim_now(s);
	sim_power_off(s, 1);
	sim_await(s, told_dead, NULL, 10000000);
	within(s, at, 2500000, "the power loss was told");
}

/* Breaks that heal are no deaths. */
static void scn_flicker(struct sim *s)
{
	pair(s);
	for (int i = 0; i < 20; i++) {
		sim_break(s, 0, 1);
		sim_run_for(s, 30000 + rng_below(sim_rng(s), 200000));
	}
	sim_check(s, !app(s, 0)->news[NEWS_DEAD]);
}

static void scn_pause(struct sim *s)
{
	struct id id = pair(s);

	sim_pause(s, 1);
	sim_await(s, told_dead, NULL, 10000000);
	sim_resume(s, 1);
	net_app_call(app(s, 0), &id, 1, NO_BLOB, 10000000, &d[0]);
	sim_await(s, told_alive, NULL, 10000000);
	net_app_answers(s, 0, 1, d, 10000000, "after a pause, ");
}

static void scn_leave(struct sim *s)
{
	struct id id = pair(s);

	app(s, 1)->hold = true;
	net_app_call(app(s, 0), &id, 1, NO_BLOB, 20000000, &d[0]);
	sim_run_for(s, 100000);
	net_post(app(s, 1)->net, net_self(app(s, 0)->net), KIND_GOODBYE, NULL, NO_BLOB, CLASS_control);
	sim_run_for(s, 20000);
	sim_in_time(s, app(s, 0)->news[NEWS_GOODBYE]);
	if (app(s, 0)->news[NEWS_GOODBYE])      /* posts may be lost */
		sim_check(s, app(s, 0)->news[NEWS_GOODBYE] == 1 && d[0].times == 1 && d[0].code == ERR_UNREACHABLE);
}

static void scn_restart(struct sim *s)
{
	struct id id = pair(s);

	sim_restart(s, 1);
	uint64_t at = sim_now(s);
	net_app_call(app(s, 0), &id, 1, NO_BLOB, 10000000, &d[0]);
	sim_check(s, sim_await(s, first_ended, NULL, 20000000) && d[0].times == 1);
	within(s, at, 1500000, "a call to the restarted peer ended");
	sim_run_for(s, 2000000);
	d[0] = (struct ended){ .sim = s };
	net_app_call(app(s, 0), &id, 5, NO_BLOB, 10000000, &d[0]);
	if (net_app_answers(s, 0, 1, d, 20000000, "after a restart, "))
		sim_check(s, d[0].n == 6);
	sim_check(s, app(s, 0)->news[NEWS_RESTARTED] == 1);
}

/* Answered late, by a kept request; the caller learns meanwhile that its call is being worked on, and it runs once. */
static void scn_late(struct sim *s)
{
	struct id id = pair(s);

	app(s, 1)->hold = true;
	app(s, 1)->handled = 0;
	net_app_call(app(s, 0), &id, 1, NO_BLOB, 60000000, &d[0]);
	sim_run_for(s, 20000000);
	sim_check(s, !d[0].times && app(s, 1)->handled == 1 && app(s, 1)->nheld == 1);
	net_reply(app(s, 1)->held[0], json_pack("{s:i}", "n", 99), NO_BLOB);
	sim_check(s, sim_await(s, first_ended, NULL, 5000000) && d[0].ok && d[0].n == 99);
	/* cancelled: done is not called, the late answer hits nothing */
	d[0] = (struct ended){ .sim = s };
	struct call *c = net_app_call(app(s, 0), &id, 1, NO_BLOB, 60000000, &d[0]);
	sim_run_for(s, 100000);
	net_cancel(app(s, 0)->net, c);
	net_reply(app(s, 1)->held[1], NULL, NO_BLOB);
	sim_run_for(s, 5000000);
	sim_check(s, !d[0].times);
}

/* ---- transfers ---- */

#define BIG ((size_t)4 << 20)
static uint8_t data[BIG], out[BIG];

static void start(struct sim *s, uint64_t deadline_us)
{
	struct id tag = { .b = { 1 } };

	for (size_t i = 0; i < BIG; i += 8)
		memcpy(data + i, &(uint64_t){ rng_at(sim_seed(s), i) }, 8);
	memset(out, 0, BIG);
	xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), &tag, out, BIG, sim_now(s) + deadline_us, net_app_moved,
		&m[1]);
	xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, BIG, CLASS_weight, sim_now(s) + deadline_us,
		net_app_moved, &m[0]);
}

static void scn_torn(struct sim *s)
{
	pair(s);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 5000, .jitter_us = 2000, .bytes_per_s = 20000000,
		.break_every = 15 });
	start(s, 60000000);
	net_app_arrives(s, m, data, out, BIG, 70000000, "while connections break, a transfer");
}

static void scn_narrow(struct sim *s)
{
	struct sim_stats before, after;

	pair(s);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 50000, .jitter_us = 5000, .bytes_per_s = 1000000 });
	sim_stats(s, &before);
	start(s, 60000000);
	net_app_arrives(s, m, data, out, BIG, 70000000, "over a narrow link, a transfer");
	sim_stats(s, &after);
	/* an estimate that is too short would flood the link with re-sends */
	if (after.bytes_sent - before.bytes_sent > BIG * 3 / 2)
		sim_late(s, "%llu bytes for %zu", (unsigned long long)(after.bytes_sent - before.bytes_sent), BIG);
}

static void scn_transfer_kill(struct sim *s)
{
	int victim = (int)rng_below(sim_rng(s), 2);

	pair(s);
	net_care(app(s, 1)->net, net_self(app(s, 0)->net), 1);
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 1000,
		/* what is under way arrives after the death */ .bytes_per_s = 20000000 });
	start(s, 60000000);
	sim_run_for(s, 80000);
	sim_check(s, !m[0].times && !m[1].times);
	uint64_t at = sim_now(s);
	sim_kill(s, victim);
	sim_check(s, m[victim].times == 1 && m[victim].code == ERR_CANCELLED);
	sim_await(s, victim ? sent_moved : received_moved, NULL, 10000000);
	sim_check(s, m[!victim].times == 1 && m[!victim].code == ERR_UNREACHABLE);
	within(s, at, 250000, "the survivor's side ended");
}

static uint64_t weight_out(struct sim *s)
{
	struct peer_info p = {0};

	net_peer(app(s, 0)->net, net_self(app(s, 1)->net), &p);
	return p.bytes.out[CLASS_weight];
}

/* Who waits for a taker and is not called (the receiver has forgotten its name over a thousand others) asks by itself:
 * it costs no data, and the transfer begins within two seconds. */
static void scn_transfer_asked(struct sim *s)
{
	struct id tag = { .b = { 7 } }, other = { .b = { 8 } };

	pair(s);
	xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, BIG, CLASS_weight, sim_now(s) + 60000000,
		net_app_moved, &m[0]);
	sim_run_for(s, 100000);
	for (unsigned i = 0; i < 1100; i++) {
		other.b[1] = (uint8_t)i;
		other.b[2] = (uint8_t)(i >> 8);
		struct xfer *x = xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &other, data, 10, CLASS_weight,
			sim_now(s) + 60000000, net_app_moved, &m[2]);
		sim_run_for(s, 1000);
		xfer_cancel(x);
	}
	uint64_t before = weight_out(s);
	sim_run_for(s, 10000000);
	sim_check(s, weight_out(s) == before && !m[0].times);
	xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), &tag, out, BIG, 0, net_app_moved, &m[1]);
	net_app_arrives(s, m, data, out, BIG, 4000000, "without a call, a transfer");
}

static void scn_transfer_wrong(struct sim *s)
{
	struct id tag = { .b = { 2 } };
	struct xfer *x;
	uint64_t at;

	pair(s);
	/* lengths that differ: told to both */
	xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), &tag, out, 1000, 0, net_app_moved, &m[1]);
	xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, 2000, CLASS_weight, sim_now(s) + 5000000,
		net_app_moved, &m[0]);
	sim_await(s, net_app_both_moved, m, 4000000);
	sim_check(s, m[0].code == ERR_MISMATCH && m[1].code == ERR_MISMATCH && strstr(m[0].text, "2000") &&
		strstr(m[0].text, "1000"));
	/* nobody takes it: TIMEOUT at the deadline, saying so */
	begin(s);
	tag.b[0] = 3;
	at = sim_now(s);
	xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, BIG, CLASS_weight, at + 3000000, net_app_moved,
		&m[0]);
	uint64_t before = weight_out(s);
	sim_check(s, sim_await(s, sent_moved, NULL, 4000000) && m[0].code == ERR_TIMEOUT && strstr(m[0].text,
		"does not expect"));
	if (weight_out(s) - before > 3 * 256 * 1024)
		sim_late(s, "%llu bytes went to who takes nothing", (unsigned long long)(weight_out(s) - before));
	/* the sender gives up: the receiver hears of it */
	begin(s);
	tag.b[0] = 4;
	sim_link(s, -1, -1, &(struct sim_link){ .latency_us = 1000, .bytes_per_s = 4000000 });
	xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), &tag, out, BIG, 0, net_app_moved, &m[1]);
	x = xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, BIG, CLASS_weight, sim_now(s) + 60000000,
		net_app_moved, &m[0]);
	sim_run_for(s, 300000);
	xfer_cancel(x);
	sim_check(s, sim_await(s, received_moved, NULL, 4000000) && m[1].code == ERR_CANCELLED && !m[0].times);
	/* the receiver goes and comes back with other memory: everything is sent again, from the start */
	begin(s);
	tag.b[0] = 5;
	x = xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), &tag, out, BIG, 0, net_app_moved, &m[1]);
	xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, BIG, CLASS_weight, sim_now(s) + 60000000,
		net_app_moved, &m[0]);
	sim_run_for(s, 400000);
	sim_in_time(s, xfer_bytes(x) > 0 && xfer_bytes(x) < BIG);
	xfer_cancel(x);
	memset(out, 0, BIG);
	sim_run_for(s, 400000);
	xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), &tag, out, BIG, 0, net_app_moved, &m[1]);
	net_app_arrives(s, m, data, out, BIG, 20000000, "to other memory, a transfer");
}

/* Bytes that change under way are found out, on both sides. */
static void scn_transfer_changed(struct sim *s)
{
	pair(s);
	start(s, 5000000);
	data[5] ^= 1;                           /* it has been hashed, but not yet sealed */
	sim_await(s, net_app_both_moved, m, 6000000);
	sim_check(s, m[0].code == ERR_CORRUPT && m[1].code == ERR_CORRUPT);
}

/* Bytes that change under way arrive as they were sealed where no hash is made. */
static void changed(struct sim *s, bool hashed)
{
	memset(m, 0, sizeof m);
	m[0].sim = m[1].sim = s;
	start(s, 5000000);
	data[5] ^= 1;
	sim_await(s, net_app_both_moved, m, 6000000);
	if (hashed)
		sim_check(s, m[0].code == ERR_CORRUPT && m[1].code == ERR_CORRUPT);
	else
		net_app_arrived(s, m, data, out, BIG, "without a hash, a transfer");
}

/* None is where both have said that they take what was sealed for whole; one of them comes back in another version. */
static void scn_transfer_unhashed(struct sim *s)
{
	unsigned who = (unsigned)(sim_seed(s) % 4);
	int other = (int)(sim_seed(s) / 4 % 2);

	pair_of(s, who);
	changed(s, who != 3);
	sim_kill(s, other);
	w.moves[other] ^= MOVES_UNHASHED;
	sim_restart(s, other);
	net_app_know(s, other, !other);
	sim_run_for(s, 1000000);
	d[0].sim = s;
	net_app_call(app(s, 0), net_self(app(s, 1)->net), 1, NO_BLOB, 5000000, &d[0]);
	net_app_answers(s, 0, 1, d, 6000000, "in another version, ");
	changed(s, (who ^ 1u << other) != 3);
}

/* The same name used again carries the new bytes. */
static void scn_transfer_again(struct sim *s)
{
	pair(s);
	for (int i = 0; i < 3; i++) {
		struct id tag = { .b = { 9 } };
		size_t n = 300000;

		begin(s);
		memset(data, i + 1, n);
		xfer_send(app(s, 0)->chunks, net_self(app(s, 1)->net), &tag, data, n, CLASS_weight, sim_now(s) + 5000000,
			net_app_moved, &m[0]);
		sim_run_for(s, 20000);
		sim_check(s, !m[0].times);
		xfer_recv(app(s, 1)->chunks, net_self(app(s, 0)->net), &tag, out, n, 0, net_app_moved, &m[1]);
		net_app_arrives(s, m, data, out, n, 6000000, "again, a transfer");
	}
}

/* Killed, and back a moment later at the same address: whoever cares for it knows within 250 ms that what it had of it
 * is gone, however short the moment was, and goes on talking to the others meanwhile. */
static void revive(struct sim *s, void *arg)
{
	sim_restart(s, 2);
	for (int i = 0; i < 2; i++) {
		net_app_know(s, 2, i);
		net_care(app(s, 2)->net, net_self(app(s, i)->net), 1);
	}
}

static bool all_know_it(struct sim *s, void *arg)
{
	struct peer_info p;

	for (int i = 0; i < 2; i++)
		if ((!app(s, i)->news[NEWS_DEAD] && !app(s, i)->news[NEWS_RESTARTED]) ||
		    !net_peer(app(s, i)->net, arg, &p) || p.maybe_dead)
			return false;
	return true;
}

static void scn_back_at_once(struct sim *s)
{
	struct net_app *a[3];
	uint64_t t, back;

	begin(s);
	for (int i = 0; i < 3; i++)
		a[i] = net_app_add(s, &w);
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 3; k++)
			if (i != k) {
				net_app_know(s, i, k);
				net_care(a[i]->net, net_self(a[k]->net), 1);
			}
	struct id id = *net_self(a[2]->net);
	sim_run_for(s, 2000000);
	for (int round = 0; round < 5 && !sim_failed(s); round++) {
		back = rng_below(sim_rng(s), 2) ? rng_below(sim_rng(s), 60000) : rng_below(sim_rng(s), 600000);
		memset(a[0]->news, 0, sizeof a[0]->news);
		memset(a[1]->news, 0, sizeof a[1]->news);
		memset(d, 0, sizeof d);
		t = sim_now(s);
		sim_kill(s, 2);
		sim_at(s, t + back, revive, NULL);
		while (sim_now(s) < t + 250000 && !sim_failed(s)) {
			if (!d[0].times || (d[0].ok && d[0].n)) {
				memset(d, 0, sizeof d);
				net_app_call(a[0], net_self(a[1]->net), 1, NO_BLOB, 100000, d);
			}
			sim_run_for(s, 20000);
			if (!d[0].times)
				sim_late(s, "one survivor to the other: no answer yet");
			else
				net_app_expect(s, 0, 1, &d[0], ERR_NONE, "one survivor to the other, ");
		}
		for (int i = 0; i < 2; i++)
			if (!a[i]->news[NEWS_DEAD] && !a[i]->news[NEWS_RESTARTED])
				sim_late(s, "back after %llu ms: node %d has not heard of it", (unsigned long long)back / 1000, i);
		sim_run_for(s, 3000000);
		sim_await_or(s, all_know_it, &id, 0, "back after %llu ms: it is held for dead",
			(unsigned long long)back / 1000);
	}
}

/* What a broken connection took with it is sent again as soon as the measured round trip says so, though nobody cares
 * for that peer and the call has time. */
static void scn_lost(struct sim *s)
{
	struct id id = pair(s);

	net_care(app(s, 0)->net, &id, -1);
	for (unsigned i = 0; i < 40 && !sim_failed(s); i++) {
		bool lost = i % 2;              /* by turns with one that is not, by which the round trip is measured */
		uint64_t at = sim_now(s);

		d[0] = (struct ended){ .sim = s };
		net_app_call(app(s, 0), &id, 2 + i, NO_BLOB, 20000000, &d[0]);
		sim_run_for(s, 50 + rng_below(sim_rng(s), 150));
		if (lost)
			sim_break(s, 0, 1);
		net_app_answers(s, 0, 1, d, 21000000, "a call whose frame was lost, ");
		within(s, at, 500000, "a call whose frame was lost ended");
		sim_run_for(s, 100000);
	}
}

/* How long an answer is waited for: the caller's floor where that is ample, three measured round trips where they are
 * longer, two seconds as long as nothing is measured. */
static void scn_deadline(struct sim *s)
{
	struct id id = pair(s), nobody = { .b = { 9 } };
	struct net *n = app(s, 0)->net;
	struct sim_link far = { 0 };
	sim_check(s, net_deadline(n, &nobody, 100000) == 2000000 && net_deadline(n, &nobody, 3000000) == 3000000);
	sim_check(s, net_deadline(n, &id, 500000) == 500000);   /* a near one */
	for (unsigned i = 0; i < 60 && !sim_failed(s); i++) {
		if (far.latency_us < 900000)    /* all at once it would be taken for dead */
			far.latency_us += 30000;
		sim_link(s, 0, 1, &far);
		sim_link(s, 1, 0, &far);
		d[0] = (struct ended){ .sim = s };
		net_app_call(app(s, 0), &id, 2 + i, NO_BLOB, 20000000, &d[0]);
		net_app_answers(s, 0, 1, d, 21000000, "far away, ");
	}
	uint64_t us = net_deadline(n, &id, 2000000);
	if (us < 5 * 1000000 || us > 3 * 2000000)
		sim_late(s, "1.8 s away, and an answer is waited for for %llu us", (unsigned long long)us);
	sim_check(s, net_deadline(n, &id, 30000000) == 30000000);
}

static const struct scn list[] = { SCN(kill), SCN(kill_dialler), SCN(power), SCN(flicker), SCN(pause), SCN(leave),
	SCN(restart), SCN(back_at_once), SCN(late), SCN(lost), SCN(deadline), SCN(torn), SCN(narrow), SCN(transfer_kill),
	SCN(transfer_wrong), SCN(transfer_asked), SCN(transfer_again), SCN(transfer_changed), SCN(transfer_unhashed), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }

/* Scenarios of who may come in: a swarm's key while it is replaced, bans, the allow-list, and a member that floods. */
#include "net/inner.h"
#include "net_app.h"

static struct net_world w;              /* outlives the nodes, which tell it of their end */

static const uint8_t keys[3][32] = { { 0x11 }, { 0x22 }, { 0x33 } };

static struct net *net_of(struct sim *s, int node)
{
	return ((struct net_app *)sim_app(s, node))->net;
}

static struct peer *peer_of(struct sim *s, int of, int node)
{
	return peer_find(net_of(s, of), net_self(net_of(s, node)));
}

static void begin(struct sim *s, int nodes)
{
	memset(&w, 0, sizeof w);
	for (int i = 0; i < nodes; i++)
		net_app_add(s, &w);
	for (int i = 0; i < nodes; i++)
		for (int k = 0; k < nodes; k++)
			if (i != k)
				net_app_know(s, i, k);
}

static bool one_ended(struct sim *s, void *arg)
{
	return ((struct ended *)arg)->times;
}

static struct ended call(struct sim *s, int from, int to, uint64_t timeout_us)
{
	static struct ended d;
	uint8_t seed[32];
	struct signer k;

	memset(&d, 0, sizeof d);
	d.sim = s;
	net_app_seed(to, seed);
	signer_init(&k, seed);
	net_app_call(sim_app(s, from), &k.id, 1, NO_BLOB, timeout_us, &d);
	signer_done(&k);
	sim_check(s, sim_await(s, one_ended, &d, timeout_us + 1000000) && d.times == 1);
	return d;
}

/* Both say whether it was in time. */
static bool good(struct sim *s, int from, int to)
{
	struct ended d = call(s, from, to, 5000000);

	return net_app_expect(s, from, to, &d, ERR_NONE, "");
}

static bool bad(struct sim *s, int from, int to, enum err_code code)
{
	struct ended d = call(s, from, to, 3000000);

	return net_app_expect(s, from, to, &d, code, "");
}

static void everybody(struct sim *s, int nodes)
{
	for (int i = 0; i < nodes; i++)
		for (int k = 0; k < nodes; k++)
			if (i != k)
				good(s, i, k);
}

static bool same_key(struct sim *s, int i, int j)
{
	struct session *x = peer_session(peer_of(s, i, j));

	return x && x->key_no == net_of(s, i)->key_no;
}

/* Five peers get the new key one after the other while everybody talks; a sixth never does, and a seventh, who has the
 * old key, comes too late. */
static void scn_rotate(struct sim *s)
{
	struct net_keys k;

	begin(s, 6);
	everybody(s, 6);
	for (int i = 0; i < 5; i++) {
		net_rotate(net_of(s, i), keys[0], 40000000);
		everybody(s, 6);
		sim_run_for(s, 1000000 + rng_below(sim_rng(s), 2000000));
		everybody(s, 6);
	}
	sim_run_for(s, 6000000);
	for (int i = 0; i < 5; i++) {
		net_keys(net_of(s, i), &k);
		if (k.old_peers > 1)            /* node 5 */
			sim_late(s, "%d has %zu peers with the old key: the others should have moved", i, k.old_peers);
		sim_check(s, k.old_peers && k.old[0] && k.old_left_us > 0);
		for (int j = 0; j < 5; j++)
			sim_in_time(s, i == j || same_key(s, i, j));
	}
	/* Whoever starts in the window with either key is let in. */
	net_app_add(s, &w);
	net_app_know(s, 6, 0);
	good(s, 6, 0);
	sim_kill(s, 6);
	sim_run_for(s, 45000000);
	for (int i = 0; i < 5; i++) {
		net_keys(net_of(s, i), &k);
		sim_check(s, !k.old[0] && !k.old_peers);
		sim_check(s, !peer_session(peer_of(s, i, 5)));
	}
	everybody(s, 5);
	bad(s, 5, 0, ERR_AUTH);
	bad(s, 0, 5, ERR_AUTH);
	sim_restart(s, 6);
	net_app_know(s, 6, 1);
	bad(s, 6, 1, ERR_AUTH);
	sim_check(s, net_app_told(&w, "key.window_over") && net_app_told(&w, "wrong_swarm_key"));
	net_rotate(net_of(s, 5), keys[0], 0);   /* late, but here it comes */
	everybody(s, 6);
}

/* Calls are under way all the time, in both directions, while two peers change keys: none is lost. */
static void scn_rotate_busy(struct sim *s)
{
	enum { CALLS = 400 };
	static struct ended d[CALLS];
	unsigned lost = 0;

	begin(s, 2);
	memset(d, 0, sizeof d);
	everybody(s, 2);
	for (int i = 0; i < CALLS; i++) {
		struct net_app *from = sim_app(s, i & 1), *to = sim_app(s, !(i & 1));

		net_app_call(from, net_self(to->net), (uint64_t)i, NO_BLOB, 10000000, &d[i]);
		if (i == 100)
			net_rotate(net_of(s, 0), keys[0], 15000000);
		if (i == 150)
			net_rotate(net_of(s, 1), keys[0], 15000000);
		sim_run_for(s, 60000 + rng_below(sim_rng(s), 20000));
	}
	sim_run_for(s, 11000000);
	for (int i = 0; i < CALLS; i++)
		lost += !d[i].ok;
	if (lost)
		sim_fail(s, "%u of %d calls were lost", lost, CALLS);
	sim_check(s, !net_of(s, 0)->has_old && !net_of(s, 1)->has_old);
	sim_check(s, peer_of(s, 0, 1)->failures == 0 && peer_of(s, 1, 0)->failures == 0);
	sim_check(s, ((struct net_app *)sim_app(s, 0))->news[NEWS_DEAD] == 0);
}

/* Changed twice within the window, and back: only the last two keys are good. */
static void scn_rotate_again(struct sim *s)
{
	begin(s, 3);
	everybody(s, 3);
	for (int i = 0; i < 2; i++)
		net_rotate(net_of(s, i), keys[1], 60000000);
	everybody(s, 3);
	for (int i = 0; i < 2; i++)
		net_rotate(net_of(s, i), keys[2], 60000000);
	good(s, 0, 1);
	bad(s, 2, 0, ERR_AUTH);                 /* its key is the one before the last */
	for (int i = 0; i < 2; i++)
		net_rotate(net_of(s, i), keys[1], 60000000);
	net_rotate(net_of(s, 2), keys[1], 60000000);
	everybody(s, 3);
	for (int i = 0; i < 3; i++)
		net_rotate(net_of(s, i), keys[1], 0);           /* the window is closed by hand */
	sim_check(s, !net_of(s, 0)->has_old);
	everybody(s, 3);
}

/* A ban cuts at once, is heard of by watchers, survives a restart, and can be lifted. */
static void scn_ban(struct sim *s)
{
	struct net_app *a;
	struct peer_info info;
	struct id id;
	struct err e;

	begin(s, 3);
	everybody(s, 3);
	id = *net_self(net_of(s, 1));
	a = sim_app(s, 0);
	sim_check(s, !net_ban(a->net, &id, UINT64_MAX, "it bores us", &e));
	sim_check(s, a->news[NEWS_DEAD] == 1);
	bad(s, 0, 1, ERR_REFUSED);
	bad(s, 1, 0, ERR_REFUSED);              /* and is told why */
	sim_check(s, net_app_told(&w, "barred"));
	good(s, 1, 2);
	good(s, 0, 2);
	sim_restart(s, 0);
	a = sim_app(s, 0);
	sim_check(s, net_peer(a->net, &id, &info) && info.banned_until_us == UINT64_MAX);
	sim_check(s, !strcmp(info.ban_why, "it bores us"));
	net_app_know(s, 0, 1);
	sim_check(s, !call(s, 1, 0, 3000000).ok);       /* with a timeout, or told of the restart */
	sim_check(s, !net_ban(a->net, &id, 0, NULL, &e));
	good(s, 0, 1);
	sim_run_for(s, 20000000);
	good(s, 1, 0);
	sim_restart(s, 0);
	a = sim_app(s, 0);
	sim_check(s, !net_peer(a->net, &id, &info));
	/* One that ends by itself; and nobody bans himself, or without end. */
	net_app_know(s, 0, 1);
	sim_check(s, !net_ban(a->net, &id, 5000000, "a while", &e));
	bad(s, 0, 1, ERR_REFUSED);
	sim_run_for(s, 8000000);
	good(s, 0, 1);
	sim_check(s, net_ban(a->net, net_self(a->net), UINT64_MAX, "me", &e) && e.code == ERR_INVALID);
	for (unsigned i = 0; i < NET_BANS_MAX; i++) {
		struct id x = { .b = { 0xba, (uint8_t)i, (uint8_t)(i >> 8) } };

		sim_check(s, !net_ban(a->net, &x, UINT64_MAX, "many", &e));
	}
	sim_check(s, net_ban(a->net, &id, UINT64_MAX, "one more", &e) && e.code == ERR_FULL && strstr(e.text, "allow"));
	good(s, 0, 1);
}

static struct { unsigned times; bool ok; enum err_code code; } dialled;

static void on_dial(void *arg, const struct id *peer, const struct err *e)
{
	dialled.times++;
	dialled.ok = peer;
	dialled.code = e ? e->code : ERR_NONE;
}

static void dial(struct sim *s)
{
	memset(&dialled, 0, sizeof dialled);
	net_dial(net_of(s, 1), sim_endpoint(s, 0), 2000000, on_dial, NULL);
}

static bool dial_unsure(struct sim *s, void *arg) { return !list_empty(&peer_of(s, 1, 0)->unsure); }
static bool dial_over(struct sim *s, void *arg) { return dialled.times; }

/* Who dials and is barred hears it, every time but the first; nobody dials in circles; and a lifted ban is noticed. */
static void scn_barred(struct sim *s)
{
	uint64_t before;
	struct err e;

	begin(s, 2);
	everybody(s, 2);
	sim_check(s, !net_ban(net_of(s, 0), net_self(net_of(s, 1)), UINT64_MAX, "a test", &e));
	bad(s, 1, 0, ERR_REFUSED);
	before = net_of(s, 1)->count.frames_out;
	for (int i = 0; i < 6; i++) {
		dial(s);
		sim_check(s, sim_await(s, dial_over, NULL, 5000000) && dialled.times == 1);
		if (dialled.ok || (dialled.code != ERR_REFUSED && !net_app_in_vain(dialled.code)))
			sim_fail(s, "dial %d of a barred peer: %s", i, dialled.ok ? "done" : err_name(dialled.code));
		else if (dialled.code != ERR_REFUSED)
			sim_late(s, "dial %d of a barred peer: %s", i, err_name(dialled.code));
		sim_run_for(s, 6000000);
	}
	sim_in_time(s, net_of(s, 1)->count.frames_out < before + 12);
	sim_check(s, !net_ban(net_of(s, 0), net_self(net_of(s, 1)), 0, NULL, &e));
	sim_run_for(s, 10000000);
	dial(s);
	sim_await(s, dial_over, NULL, 5000000);
	sim_in_time(s, dialled.ok);
	for (int i = 0; i < 10 && !dialled.ok; i++) {
		sim_run_for(s, 5000000);
		dial(s);
		sim_await(s, dial_over, NULL, 5000000);
	}
	sim_check(s, dialled.ok);               /* a minute after the ban */
	everybody(s, 2);
	/* One that answers HELLO and dies then: the dial ends all the same. */
	peer_drop_sessions(peer_of(s, 1, 0));
	peer_of(s, 1, 0)->barred_told = 1;
	dial(s);
	if (!sim_run_until(s, dial_unsure, NULL, 2000000)) {    /* its HELLOs or their answers are lost, and it is over */
		sim_late(s, "nothing answers a HELLO");
		return;
	}
	sim_check(s, !dialled.times);
	sim_power_off(s, 0);
	sim_check(s, sim_await(s, dial_over, NULL, 8000000) && dialled.code == ERR_UNREACHABLE);
}

static bool lifted_1(struct sim *s, void *arg)
{
	return peer_session(peer_of(s, 0, 1)) && peer_session(peer_of(s, 1, 0));
}

static bool lifted_2(struct sim *s, void *arg) { return peer_session(peer_of(s, 0, 2)); }

/* Whoever was banned, by the operator's word or for a while, is dialled when that is over, and may call at once. */
static void scn_lifted(struct sim *s)
{
	struct err e;

	begin(s, 3);
	everybody(s, 3);
	sim_check(s, !net_ban(net_of(s, 0), net_self(net_of(s, 1)), UINT64_MAX, "a test", &e));
	sim_check(s, !net_ban(net_of(s, 0), net_self(net_of(s, 2)), 4000000, "a while", &e));
	if (!bad(s, 1, 0, ERR_REFUSED) || !bad(s, 2, 0, ERR_REFUSED))
		return;                         /* the while may be over: what follows depends on it */
	sim_check(s, !net_ban(net_of(s, 0), net_self(net_of(s, 1)), 0, NULL, &e));
	sim_run_for(s, 300000);
	if (!lifted_1(s, NULL)) {
		sim_await(s, lifted_1, NULL, 0);
		return;
	}
	if (!good(s, 1, 0))
		return;
	sim_check(s, !peer_session(peer_of(s, 0, 2)));
	sim_run_for(s, 6500000);
	sim_await(s, lifted_2, NULL, 0);
	good(s, 2, 0);
}

/* Only who is on the list; who is taken off it is cut. */
static void scn_allow(struct sim *s)
{
	struct id list[2];

	begin(s, 3);
	list[0] = *net_self(net_of(s, 1));
	list[1] = *net_self(net_of(s, 2));
	net_allow(net_of(s, 0), list, 1);
	good(s, 1, 0);
	bad(s, 2, 0, ERR_REFUSED);
	bad(s, 0, 2, ERR_REFUSED);
	sim_check(s, net_of(s, 0)->count.not_allowed > 0 && net_app_told(&w, "not_allowed"));
	net_allow(net_of(s, 0), list, 2);
	sim_run_for(s, 10000000);
	good(s, 2, 0);
	net_allow(net_of(s, 0), list + 1, 1);
	sim_check(s, list_empty(&peer_of(s, 0, 1)->sessions));
	bad(s, 1, 0, ERR_REFUSED);
	good(s, 0, 2);
	net_allow(net_of(s, 0), NULL, 0);
	sim_run_for(s, 10000000);
	everybody(s, 3);
}

static void post(struct sim *s, int from, int to, unsigned n, const char *json)
{
	struct peer *p = peer_of(s, from, to);

	for (unsigned i = 0; i < n; i++) {
		struct msg *m = msg_new(KIND_RUN_STATE, CLASS_control, json_pack("{s:i}", "n", (int)i), NO_BLOB);

		if (json) {
			free(m->json);
			m->json = xstrdup(json);
			m->json_len = strlen(json);
		}
		out_send(p, m, 0, 0, 0, NULL, NULL);
		msg_unref(m);
	}
}

/* A member says ten times its share: that is dropped, and it is banned when it goes on. The others feel nothing. */
static void scn_flood(struct sim *s)
{
	struct peer_info info;
	struct net *n;
	uint32_t before;
	int seconds = 0;                        /* until it is banned */

	begin(s, 3);
	n = net_of(s, 0);
	net_set_peer_frames(n, 100);
	everybody(s, 3);
	post(s, 1, 0, 150, NULL);                               /* a burst is nobody's crime */
	sim_run_for(s, 3000000);
	sim_check(s, n->count.over_quota == 0);
	sim_in_time(s, ((struct net_app *)sim_app(s, 0))->posted > 100);        /* posts may be lost */
	for (int i = 0; i < 20; i++) {                          /* twice its share, but it pauses */
		post(s, 1, 0, 25, NULL);
		sim_run_for(s, 100000);
	}
	sim_check(s, n->count.over_quota > 0);
	sim_run_for(s, 5000000);
	good(s, 1, 0);
	sim_check(s, net_app_told(&w, "peer_slowed") && !net_app_told(&w, "peer_banned"));
	before = ((struct net_app *)sim_app(s, 0))->posted;
	for (; seconds < 70 && !peer_of(s, 0, 1)->banned_until_us && !sim_failed(s); seconds++) {
		post(s, 1, 0, 1000, NULL);
		sim_run_for(s, 500000);
		good(s, 2, 0);
		sim_run_for(s, 500000);
	}
	if (!peer_of(s, 0, 1)->banned_until_us)
		sim_fail(s, "not banned after %d s", seconds);
	else if (seconds < 4 || seconds > 9)
		sim_late(s, "banned after %d s", seconds);
	/* served: its share, and a burst */
	sim_check(s, ((struct net_app *)sim_app(s, 0))->posted - before <= 200 + 110 * (unsigned)seconds);
	sim_check(s, net_peer(n, net_self(net_of(s, 1)), &info) && strstr(info.ban_why, "100 frames"));
	sim_run_for(s, 62000000);
	good(s, 1, 0);                                          /* a while is over */
	sim_check(s, peer_of(s, 0, 1)->guard.ban_us == 60000000);
}

/* Garbage under a member's own seal: a little is forgiven, much is not; strangers' garbage is nobody's fault. */
static void scn_garbage(struct sim *s)
{
	struct net *n;

	begin(s, 3);
	n = net_of(s, 0);
	everybody(s, 3);
	post(s, 1, 0, 60, "{\"n\":");
	sim_run_for(s, 2000000);
	sim_in_time(s, n->count.bad_json > 55);                 /* posts may be lost */
	sim_check(s, !peer_of(s, 0, 1)->banned_until_us);
	good(s, 1, 0);
	post(s, 1, 0, 120, "{\"n\":");
	sim_run_for(s, 2000000);
	sim_check(s, peer_of(s, 0, 1)->banned_until_us && strstr(peer_of(s, 0, 1)->ban_why, "garbage"));
	bad(s, 0, 1, ERR_REFUSED);
	good(s, 2, 0);
}

static const struct scn list[] = { SCN(rotate), SCN(rotate_busy), SCN(rotate_again), SCN(ban), SCN(barred), SCN(lifted),
	SCN(allow), SCN(flood), SCN(garbage), {0} };
int main(int argc, char **argv) { return scn_main(list, argc, argv); }

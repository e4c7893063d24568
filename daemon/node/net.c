/* What operators ask of the network, 1/2: bans and the swarm's key (check.c: what is wrong with connectivity). */
#include "node/net.h"
#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "node/key.h"
#include "node/net_int.h"

#define PREFIX_MIN 4
#define WINDOW_US (3600 * 1000000ull)
#define WINDOW_MAX_US (30 * 24 * WINDOW_US)
#define ALLOW_MAX 1024

/* ---- who ---- */

static bool starts(const struct id *id, const char *digits)
{
	char hex[ID_HEX];

	id_hex(id, hex);
	return !strncasecmp(hex, digits, strlen(digits));
}

/* A whole id, known or not; or the first digits of one that is known. */
static int find(struct node_net *nn, const char *text, struct id *ret, struct err *e)
{
	size_t known, hits = 0, len = strlen(text);
	struct peer_info *p;

	if (len == ID_HEX - 1)
		return id_parse(ret, text, e);
	if (len < PREFIX_MIN || len > ID_HEX - 1 || strspn(text, "0123456789abcdefABCDEF") != len)
		return err_set(e, ERR_INVALID, "peer %.70s: expected an id, or at least its first %d digits (hivectl peers "
			"--all)", text, PREFIX_MIN);
	known = net_peers(nn->x.net, NULL, 0);
	p = xcalloc(known + 1, sizeof *p);
	known = net_peers(nn->x.net, p, known);
	for (size_t i = 0; i < known; i++)
		if (starts(&p[i].id, text)) {
			*ret = p[i].id;
			hits++;
		}
	free(p);
	if (hits == 1)
		return 0;
	return hits ? err_set(e, ERR_STATE, "%zu peers begin with %s: give more digits", hits, text) :
		err_set(e, ERR_NOT_FOUND, "no peer begins with %s (hivectl peers --all); one that is not known yet is banned "
			"by its whole id", text);
}

/* ---- bans ---- */

/* What an operator was told is done is on the disk. */
static bool settled(struct node_net *nn, struct reply *r)
{
	struct err e;

	if (!nn->x.store || !store_sync(nn->x.store, &e))
		return true;
	reply_fail(r, &e);
	return false;
}

void node_net_peers_ban(struct node_net *nn, const json_t *params, struct reply *r)
{
	const char *why = json_string_value(json_object_get(params, "why"));
	const json_t *time = json_object_get(params, "time");
	double s = time ? json_number_value(time) : 0;
	uint64_t us = UINT64_MAX;
	char hex[ID_HEX], text[40];
	struct id id;
	struct err e;

	if (time && !(s > 0 && s < 1e9)) {
		err_set(&e, ERR_INVALID, "time: more than nothing, such as 1h; without it the ban has no end");
		reply_fail(r, &e);
		return;
	}
	if (time)
		us = (uint64_t)(s * 1e6);
	if (find(nn, json_string_value(json_object_get(params, "peer")), &id, &e) ||
	    net_ban(nn->x.net, &id, us, why ? why : "by the operator", &e)) {
		reply_fail(r, &e);
		return;
	}
	if (!settled(nn, r))
		return;
	id_hex(&id, hex);
	reply_ok(r, json_pack("{s:s,s:o,s:s}", "peer", hex, "seconds", time ? json_real(s) : json_null(), "until",
		time ? text_print_time(env_wall(nn->x.env) + us / 1000, text, sizeof text) : "lifted"));
}

void node_net_peers_unban(struct node_net *nn, const json_t *params, struct reply *r)
{
	struct peer_info p;
	char hex[ID_HEX];
	struct id id;
	struct err e;

	if (find(nn, json_string_value(json_object_get(params, "peer")), &id, &e)) {
		reply_fail(r, &e);
		return;
	}
	id_hex(&id, hex);
	if (!net_peer(nn->x.net, &id, &p) || !p.banned_until_us) {
		err_set(&e, ERR_STATE, "peer %.8s is not banned", hex);
		reply_fail(r, &e);
		return;
	}
	net_ban(nn->x.net, &id, 0, NULL, NULL);
	if (!settled(nn, r))
		return;
	nn->x.event(nn->x.event_arg, LOG_INFO_, "peer_unbanned", &id, "the ban was lifted by the operator");
	reply_ok(r, json_pack("{s:s}", "peer", hex));
}

/* ---- the swarm's key ---- */

static json_t *peers_on_old(struct node_net *nn)
{
	size_t known = net_peers(nn->x.net, NULL, 0);
	struct peer_info *p = xcalloc(known + 1, sizeof *p);
	json_t *a = json_array();
	char hex[ID_HEX];

	known = net_peers(nn->x.net, p, known);
	for (size_t i = 0; i < known; i++)
		if (p[i].old_key)
			json_array_append_new(a, json_string((id_hex(&p[i].id, hex), hex)));
	free(p);
	return a;
}

void node_net_key_show(struct node_net *nn, const json_t *params, struct reply *r)
{
	const char *file = conf_str(nn->x.conf, "network", "swarm_key_file");
	char hex[ID_HEX];
	struct net_keys k;
	json_t *j;

	net_keys(nn->x.net, &k);
	id_hex(net_self(nn->x.net), hex);
	j = json_pack("{s:s,s:b}", "id", hex, "swarm_key", *file != '\0');
	if (*file) {
		json_object_set_new(j, "fingerprint", json_string(k.now));
		json_object_set_new(j, "file", json_string(file));
	}
	if (k.old[0]) {
		json_object_set_new(j, "old_fingerprint", json_string(k.old));
		json_object_set_new(j, "old_good_for_s", json_real((double)k.old_left_us / 1e6));
		json_object_set_new(j, "peers_with_old_key", peers_on_old(nn));
	}
	reply_ok(r, j);
}

void node_net_key_new_swarm_key(struct node_net *nn, const json_t *params, struct reply *r)
{
	struct id key;
	char hex[ID_HEX], print[KEY_PRINT];

	nn->x.env->ops->secure(nn->x.env, key.b, sizeof key.b);
	id_hex(&key, hex);
	key_print(key.b, print);
	reply_ok(r, json_pack("{s:s,s:s}", "key", hex, "fingerprint", print));
	explicit_bzero(&key, sizeof key);
	explicit_bzero(hex, sizeof hex);
}

/* Reading the new key and keeping it is work for the disk lane. */
struct rotating {
	struct job job; struct node_net *nn; struct reply *r; uint64_t window_us;
	struct env *env; char *file, *record; struct key_rotation rot; uint8_t now[32], before[32]; int rc; struct err e;
};

static void rotate_run(struct job *j)
{
	struct rotating *q = container_of(j, struct rotating, job);

	q->rc = key_swarm(q->env, q->file, q->rot.key, &q->e);
	/* The key in force again: only its time changes, and what was before it stays before it. */
	memcpy(q->rot.old, memcmp(q->rot.key, q->now, 32) ? q->now : q->before, 32);
	if (q->rc == 0 && q->record)
		q->rc = key_rotation_write(q->env, q->record, &q->rot, &q->e);
}

static void rotate_answer(struct rotating *q)
{
	const char *conf = conf_str(q->nn->x.conf, "network", "swarm_key_file");
	struct net_keys k;
	char window[32], *text;
	json_t *j;

	net_rotate(q->nn->x.net, q->rot.key, q->window_us);
	net_keys(q->nn->x.net, &k);
	text_print_duration(q->window_us, window, sizeof window);
	text = k.old[0] ? xasprintf("the swarm key is %s now; %s is good for %s more.\nDo the same on every other machine "
		"within that time; hivectl key show says who is missing.\nFor later starts put the new key into %s; until then "
		"this daemon remembers it.", k.now, k.old, window, conf) :
		xasprintf("the swarm key is %s now, and no other one is good.", k.now);
	j = json_pack("{s:s,s:f,s:s}", "fingerprint", k.now, "window_s", (double)q->window_us / 1e6, "text", text);
	if (k.old[0])
		json_object_set_new(j, "old_fingerprint", json_string(k.old));
	free(text);
	reply_ok(q->r, j);
}

static void rotate_done(struct job *j)
{
	struct rotating *q = container_of(j, struct rotating, job);

	q->nn->rotating = false;
	if (!q->rc)                             /* kept on the disk, told to nobody yet */
		(void)FAILPOINT(q->env, "key.rotate.after");
	if (q->rc)
		reply_fail(q->r, &q->e);
	else
		rotate_answer(q);
	free(q->file);
	free(q->record);
	explicit_bzero(q, sizeof *q);           /* three keys are in it */
	free(q);
}

void node_net_key_rotate(struct node_net *nn, const json_t *params, struct reply *r)
{
	const json_t *files = json_object_get(params, "file"), *window = json_object_get(params, "window");
	double s = window ? json_number_value(window) : (double)WINDOW_US / 1e6;
	struct rotating *q;
	struct err e;

	if (!*conf_str(nn->x.conf, "network", "swarm_key_file"))
		err_set(&e, ERR_STATE, "this daemon runs without a swarm key, so there is nothing to replace: set [network] "
			"swarm_key_file and start it again");
	else if (json_array_size(files) != 1 || !json_is_string(json_array_get(files, 0)))
		err_set(&e, ERR_INVALID, "file: one file with the new key");
	else if (!(s >= 0 && s * 1e6 <= (double)WINDOW_MAX_US))
		err_set(&e, ERR_INVALID, "window: from 0 (the old key ends at once) to 30d");
	else if (nn->rotating)
		err_set(&e, ERR_BUSY, "the key is being replaced at this moment");
	else if (FAILPOINT(nn->x.env, "key.rotate.before"))
		err_set(&e, ERR_IO, "fail point key.rotate.before");
	else
		e.code = ERR_NONE;
	if (e.code) {
		reply_fail(r, &e);
		return;
	}
	q = xcalloc(1, sizeof *q);
	*q = (struct rotating){ .nn = nn, .env = nn->x.env, .r = r, .window_us = (uint64_t)(s * 1e6),
		.file = xstrdup(json_string_value(json_array_get(files, 0))) };
	q->job = (struct job){ .name = "key rotate", .lane = env_lane(nn->x.env, "disk"), .cost_us = 1000,
		.run = rotate_run, .done = rotate_done };
	net_swarm_key(nn->x.net, q->now, q->before);
	q->rot.until_ms = env_wall(nn->x.env) + q->window_us / 1000;
	if (nn->x.state_dir)
		q->record = xasprintf("%s/" KEY_ROTATION_FILE, nn->x.state_dir);
	nn->rotating = true;
	env_work(nn->x.env, &q->job);
}

/* ---- what was refused ---- */

#define REFUSED_FIRST_US 10000000ull            /* then twice as long, while it goes on */
#define REFUSED_MAX_US (600 * 1000000ull)

/* How many frames and HELLOs were refused since the last time becomes an event, so that it outlives the daemon. */
static void refused_fire(struct timer *t)
{
	static const struct { size_t at; const char *what; } kinds[] = {
#define K(field, text) { offsetof(struct net_counters, field), text }
		K(bad_magic, "no frames of this protocol"), K(bad_frame, "broken frames"),
		K(oversized, "too large"), K(bad_version, "of another version"),
		K(bad_seal, "with a wrong seal"), K(replayed, "replayed"), K(bad_json, "with bad JSON"),
		K(wrong_swarm_key, "under another swarm key"), K(hello_limited, "HELLOs too many"),
		K(over_quota, "over a peer's quota"), K(door_dropped, "dropped at the door for want of room"),
		K(not_allowed, "of peers that are not allowed") };
#undef K
	struct node_net *nn = container_of(t, struct node_net, refused.timer);
	struct node_refused *r = &nn->refused;
	struct net_counters now;
	char text[512];
	size_t len = 0;

	net_counters(nn->x.net, &now);
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		uint64_t a, b;

		memcpy(&a, (const char *)&r->was + kinds[i].at, sizeof a);
		memcpy(&b, (const char *)&now + kinds[i].at, sizeof b);
		if (b > a)
			len += (size_t)snprintf(text + len, sizeof text - len, "%s%" PRIu64 " %s", len ? ", " : "", b - a,
				kinds[i].what);
	}
	r->was = now;
	if (len)
		nn->x.event(nn->x.event_arg, LOG_INFO_, "net_refused", NULL, text);
	r->every_us = !len ? REFUSED_FIRST_US : 2 * r->every_us < REFUSED_MAX_US ? 2 * r->every_us : REFUSED_MAX_US;
	env_after(nn->x.env, &r->timer, r->every_us);
}

/* ---- settings ---- */

static int read_allow(const struct conf *c, struct id *out, size_t *ret_n, struct err *e)
{
	const char *const *word;
	size_t n = conf_list(c, "network", "allow", &word);

	if (n > ALLOW_MAX)
		return err_set(e, ERR_INVALID, "%s: [network] allow: %zu ids, at most %d",
			conf_origin(c, "network", "allow"), n, ALLOW_MAX);
	for (size_t i = 0; i < n; i++)
		if (id_parse(&out[i], word[i], NULL))
			return err_set(e, ERR_INVALID, "%s: [network] allow: %.70s is no id: expected 64 hex digits (hivectl "
				"status on that machine shows its id)", conf_origin(c, "network", "allow"), word[i]);
	*ret_n = n;
	return 0;
}

int node_net_check_conf(const struct conf *c, struct err *e)
{
	struct id *ids = xcalloc(ALLOW_MAX, sizeof *ids);
	size_t n;
	int rc = read_allow(c, ids, &n, e);

	free(ids);
	return rc;
}

void node_net_reload(struct node_net *nn)
{
	struct id *ids = xcalloc(ALLOW_MAX, sizeof *ids);
	int64_t max = conf_int(nn->x.conf, "network", "peer_frames_max");
	struct err e;
	size_t n;

	net_set_peer_frames(nn->x.net, max ? (uint32_t)max : UINT32_MAX);
	if (!read_allow(nn->x.conf, ids, &n, &e))
		net_allow(nn->x.net, ids, n);
	else
		nn->x.event(nn->x.event_arg, LOG_ERROR_, "config.refused", NULL, e.text);
	free(ids);
}

struct node_net *node_net_new(const struct node_net_ctx *x)
{
	struct node_net *nn = xcalloc(1, sizeof *nn);

	nn->x = *x;
	list_init(&nn->checks);
	nn->refused = (struct node_refused){ .timer = { .fire = refused_fire, .name = "node.refused" },
		.every_us = REFUSED_FIRST_US };
	env_after(nn->x.env, &nn->refused.timer, REFUSED_FIRST_US);
	node_net_reload(nn);
	return nn;
}

void node_net_free(struct node_net *nn)
{
	if (!nn)
		return;
	node_check_end_all(nn);
	env_timer(nn->x.env, &nn->refused.timer, 0);
	free(nn);
}

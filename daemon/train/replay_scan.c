/* What run logs say before anything is computed: of which run they are, who wrote them, with which states they begin,
 * how far they go, and whether all are there whose samples were counted: a replay takes as long as its run did. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"
#include "train/replay_int.h"

#define HEAD_LINES 4                    /* in which a log says whose it is */
#define EV_WITHIN 64                    /* bytes of a line */
#define ABSENT_MAX 64
#define ABSENT_SHOWN 5

struct line { const char *at; size_t len; };
struct absent { char id[17]; uint64_t epoch; };
struct absents { size_t n; struct absent v[ABSENT_MAX]; };

/* at NULL: the first. Without its end, which is missing where its peer died. */
static bool next_line(const struct replay_log *log, struct line *l)
{
	const char *end = log->text + log->len, *at = l->at ? l->at + l->len + 1 : log->text, *nl;

	if (at >= end)
		return false;
	nl = memchr(at, '\n', (size_t)(end - at));
	*l = (struct line){ at, (size_t)((nl ? nl : end) - at) };
	return true;
}

/* What is behind that name of an event; NULL: it is another. */
static const char *behind(const struct line *l, const char *ev)
{
	char word[32];
	int n = snprintf(word, sizeof(word), "\"ev\":\"%s\",", ev);
	const char *at = memmem(l->at, l->len < EV_WITHIN ? l->len : EV_WITHIN, word, (size_t)n);

	return at ? at + n : NULL;
}

/* Of "epoch":N there. */
static bool epoch_at(const struct line *l, const char *at, uint64_t *ret)
{
	static const char key[] = "\"epoch\":";
	char digits[24] = "";
	size_t left = (size_t)(l->at + l->len - at), n = sizeof(key) - 1;

	if (left <= n || memcmp(at, key, n))
		return false;
	left -= n;
	memcpy(digits, at + n, left < sizeof(digits) - 1 ? left : sizeof(digits) - 1);
	*ret = strtoull(digits, NULL, 10);
	return true;
}

static void who(struct peer *p, const struct line *l, const char *at)
{
	static const char key[] = "\"id\":\"";
	size_t left = (size_t)(l->at + l->len - at), n = sizeof(key) - 1;

	if (!*p->id && left >= n + sizeof(p->id) - 1 && !memcmp(at, key, n))
		memcpy(p->id, at + n, sizeof(p->id) - 1);
}

static void scan_one(struct replayer *r, struct peer *p)
{
	for (struct line l = { 0 }; next_line(p->log, &l); ) {
		const char *at;
		uint64_t epoch;

		if ((at = behind(&l, "peer"))) {
			who(p, &l, at);
		} else if ((at = behind(&l, "applied")) && epoch_at(&l, at, &epoch)) {
			r->last = epoch > r->last ? epoch : r->last;
		} else if ((at = behind(&l, "adopted")) && epoch_at(&l, at, &epoch)) {
			p->adopts = xrealloc(p->adopts, (p->nadopts + 1) * sizeof(*p->adopts));
			p->adopts[p->nadopts++] = epoch;
		}
	}
}

static bool has_log(const struct replayer *r, const char id[17])
{
	for (size_t i = 0; i < r->npeers; i++)
		if (!memcmp(r->peer[i].id, id, 16))
			return true;
	return false;
}

static void note(struct absents *a, const char *id, uint64_t epoch)
{
	for (size_t i = 0; i < a->n; i++)
		if (!memcmp(a->v[i].id, id, 16)) {
			a->v[i].epoch = epoch < a->v[i].epoch ? epoch : a->v[i].epoch;
			return;
		}
	if (a->n == ABSENT_MAX)
		return;
	a->v[a->n].epoch = epoch;
	memcpy(a->v[a->n++].id, id, 16);
}

/* Who was in a round: ["16 hex digits",samples] of each. What is none is an error where the line is taken. */
static void round_members(const struct replayer *r, const struct line *l, const char *at, struct absents *a)
{
	const char *end = l->at + l->len;
	uint64_t epoch;

	if (!epoch_at(l, at, &epoch))
		return;
	while ((at = memmem(at, (size_t)(end - at), "[\"", 2)) && end - at > 18) {
		at += 2;
		if (at[16] == '"' && !memchr(at, '"', 16) && !has_log(r, at) && !PLANTED(LOG_UNMISSED))
			note(a, at, epoch);
	}
}

static int absent_error(const struct absents *a, struct err *e)
{
	char list[ABSENT_SHOWN * 48 + 32] = "";
	size_t n = 0;

	for (size_t i = 0; i < a->n && i < ABSENT_SHOWN; i++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s from epoch %llu on", i ? ", " : "", a->v[i].id,
			(unsigned long long)a->v[i].epoch);
	if (a->n > ABSENT_SHOWN)
		(void)snprintf(list + n, sizeof(list) - n, " and %zu more", a->n - ABSENT_SHOWN);
	return err_set(e, ERR_NOT_FOUND, "these peers were counted and no log of theirs is here: %s", list);
}

static size_t count_peers(const struct replayer *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->npeers; i++) {
		size_t k = 0;

		while (k < i && (!*r->peer[i].id || strcmp(r->peer[k].id, r->peer[i].id)))
			k++;
		n += k == i;
	}
	return n;
}

int replay_scan(struct replayer *r, struct err *e)
{
	struct absents absent = { 0 };

	for (size_t i = 0; i < r->npeers; i++)
		scan_one(r, &r->peer[i]);
	r->ret->peers = count_peers(r);
	for (size_t i = 0; i < r->npeers; i++)
		for (struct line l = { 0 }; next_line(r->peer[i].log, &l); ) {
			const char *at = behind(&l, "round");

			if (at)
				round_members(r, &l, at, &absent);
		}
	return absent.n ? absent_error(&absent, e) : 0;
}

/* --- the run */

int replay_can(const struct spec *s, struct err *e)
{
	const struct planner_ops *strategy = strategy_find(s->strategy);
	const char *codec = json_string_value(s->codec);

	if (!strategy || strategy->crew)
		return err_set(e, ERR_INVALID, "replay: strategy %s, whose members each have a part of the model, is not "
			"replayed", s->strategy);
	if (s->independent)
		return err_set(e, ERR_INVALID, "replay: positions in an order of each peer's own (data.order) are not "
			"replayed");
	if (s->codec && (!codec || strcmp(codec, "none")))
		return err_set(e, ERR_INVALID, "replay: means of encoded vectors (averaging.codec) are not replayed");
	if (s->has_weights)
		return err_set(e, ERR_INVALID, "replay: what began with a file of weights (weights) is not replayed: they are "
			"in no log");
	if (s->robust != ROBUST_NONE)
		return err_set(e, ERR_INVALID, "replay: means that leave something out (averaging.robust) are not replayed");
	return 0;
}

static int named(const struct replay_log *log, struct err *e)
{
	return log->name ? err_wrap(e, "%.160s", log->name) : -1;
}

/* The line that says of which run the log is. NULL and e. */
static json_t *head_of(const struct replay_log *log, struct err *e)
{
	struct line l = { 0 };

	for (int i = 0; i < HEAD_LINES && next_line(log, &l); i++) {
		json_t *j = behind(&l, "run") ? json_read(l.at, l.len, JSON_FILE, e) : NULL;

		if (j && *replay_text(j, "id") && *replay_text(j, "name"))
			return j;
		json_decref(j);
	}
	(void)err_set(e, ERR_CORRUPT, !log->len ? "it is empty: no run log" : "it does not say in its first lines of which "
		"run it is: no run log, or one whose beginning is missing");
	(void)named(log, e);
	return NULL;
}

static int same_run(const json_t *a, const json_t *b, const struct replay_log *first, struct err *e)
{
	if (!strcmp(replay_text(a, "id"), replay_text(b, "id")))
		return 0;
	return err_set(e, ERR_INVALID, "it is of run %.60s (%.16s), and %.100s of run %.60s (%.16s): all logs have to be "
		"of one run", replay_text(b, "name"), replay_text(b, "id"), first->name ? first->name : "the first",
		replay_text(a, "name"), replay_text(a, "id"));
}

/* Who computes nothing does only what is the same everywhere. */
static int deterministic(const json_t *j, struct err *e)
{
	const json_t *local = json_object_get(j, "local");

	if (json_is_true(json_object_get(local, "deterministic")) || json_is_true(json_object_get(local, "aux")))
		return 0;
	return err_set(e, ERR_INVALID, "this peer did not have \"deterministic\": true in its local part, so its bits "
		"depend on its threads and libraries: all who compute need it when they start or join the run");
}

/* The local part of somebody who has data: *best, or j's. */
static void better(json_t **best, json_t *j)
{
	if (!json_is_true(json_object_get(json_object_get(*best, "local"), "aux")))
		return;
	json_decref(*best);
	*best = json_incref(j);
}

static struct spec *spec_in(const json_t *head, struct err *e)
{
	const json_t *spec = json_object_get(head, "spec"), *local = json_object_get(head, "local");
	struct spec *s = spec_of(replay_text(head, "name"), spec, local, e);

	if (!s || !replay_can(s, e))
		return s;
	spec_free(s);
	return NULL;
}

struct spec *replay_spec(const struct replay_log *log, size_t n, struct err *e)
{
	json_t *first = n ? head_of(&log[0], e) : NULL;
	struct spec *s = first ? spec_in(first, e) : NULL;      /* before anybody is asked for what would not help */
	int rc = s ? 0 : first ? named(&log[0], e) : n ? -1 : err_set(e, ERR_INVALID, "there is no log");

	spec_free(s);
	s = NULL;

	for (size_t i = 0; i < n && !rc; i++) {
		json_t *j = head_of(&log[i], e);

		rc = !j ? -1 : same_run(first, j, &log[0], e) < 0 || deterministic(j, e) < 0 ? named(&log[i], e) : 0;
		if (!rc)
			better(&first, j);
		json_decref(j);
	}
	if (!rc && !(s = spec_in(first, e)))
		(void)named(&log[0], e);
	json_decref(first);
	return s;
}

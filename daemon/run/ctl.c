/* What the author of a run tells the world: its specification in the DHT, and signed words to the swarm (pause, resume,
 * stop), sent to every member and kept in the DHT for those who come later:
 *   run:NAME      subkey = author   {name, author, run, shared}       signed by it; packed.h; ended.c: ended
 *   run:ID        the same record, for joining by id
 *   runctl:ID     subkey = signer   {op, counter}                     signed; the lawful with the greatest counter
 * The signer's epoch goes with the word, unsigned: whoever stops behind it says so. */
#include <stdio.h>
#include <string.h>
#include "common/buf.h"
#include "common/jrpc.h"
#include "run/int.h"
#include "run/packed.h"

#define CALL_US 2000000
#define GONE_US 20000000                /* nobody has come who could hand over how it ended */

/* ---- words to the swarm ---- */

static const char *const op_name[] = { "pause", "resume", "stop" };

static int refuse_to_obey(const struct run *r, const char *op, const struct id *by, struct err *e)
{
	char who[9], may[200];
	return err_set(e, ERR_AUTH, "only %s may %s run %s, not %s", run_who_may(r, may, sizeof may), op, r->name,
		id_short(by, who));
}

static int obey(struct run *r, const char *op, uint64_t counter, uint64_t epoch, const struct id *by,
	struct err *e)
{
	char who[9];
	if (!run_lawful(r, by))
		return refuse_to_obey(r, op, by, e);
	if (counter <= r->ctl_counter)
		return 0;                       /* heard before, or older than what rules now */
	r->ctl_counter = counter;
	if (!strcmp(op, r->paused ? "pause" : "resume"))
		return 0;                       /* as it is */
	run_log(r, LOG_INFO_, "run.ctl", "%s by %s", op, id_short(by, who));
	if (!strcmp(op, "stop")) {
		if (epoch > r->point.epoch)
			run_log(r, LOG_WARN_, "run.behind", "stopped here at epoch %llu, and at %s, who said it, at epoch %llu: "
				"the state here is the older one", (unsigned long long)r->point.epoch, id_short(by, who),
				(unsigned long long)epoch);
		run_event(r, EV_STOP);
		return 0;
	}
	r->paused = !strcmp(op, "pause");
	run_effective_pause(r);
	return 0;
}

static bool op_known(const char *op)
{
	for (size_t i = 0; i < sizeof op_name / sizeof *op_name; i++)
		if (!strcmp(op, op_name[i]))
			return true;
	return false;
}

static int hear(struct runs *rs, const json_t *j, struct err *e)
{
	struct id run, by;
	uint8_t sig[SIG_BYTES];
	const char *op;
	uint64_t counter, epoch = 0;
	struct buf b = { 0 };
	if (json_get_hex(j, "run", run.b, 32, e) || json_get_str(j, "op", &op, e) ||
			json_get_u64(j, "counter", &counter, e) || json_get_hex(j, "by", by.b, 32, e) ||
			json_get_hex(j, "sig", sig, sizeof sig, e))
		return -1;
	if (!op_known(op))
		return err_set(e, ERR_INVALID, "op \"%.20s\": expected pause, resume or stop", op);
	struct run *r = runs_by_id(rs, &run);
	if (!r || run_over(r))
		return err_set(e, ERR_NOT_FOUND, "this peer is not in that run");
	if (run_lawful(r, &by) && counter <= r->ctl_counter)
		return 0;                       /* heard before, or older than what rules now */
	if (!run_lawful(r, &by))                /* before the signature, which takes longer */
		return refuse_to_obey(r, op, &by, e);
	ctl_signed(&b, &run, op, counter);
	bool ok = net_verify(&by, b.p, b.len, sig);
	buf_free(&b);
	json_get_u64(j, "epoch", &epoch, NULL);
	return ok ? obey(r, op, counter, epoch, &by, e) : err_set(e, ERR_AUTH, "the signature of %s is wrong", op);
}

/* What the DHT has kept. A word to stop of before its operator has begun it once more holds for nobody any more. */
static void hear_old(struct runs *rs, struct run *r, const json_t *word, uint64_t counter)
{
	const char *op = json_string_value(json_object_get(word, "op"));
	uint64_t now = env_wall(rs->ctx.env);
	struct err ignored;
	if (!op || strcmp(op, "stop") || counter > r->begun_ms) {
		hear(rs, word, &ignored);
	} else if (counter > r->ctl_counter) {
		r->ctl_counter = now > counter ? now : counter + 1;
		json_decref(ctl_word(r, "resume", r->ctl_counter));
		run_log(r, LOG_INFO_, "run.ctl", "it was stopped before, and begins once more");
	}
}

static void on_ctl(void *arg, struct request *req)
{
	struct err e;
	if (hear(arg, req->f.json, &e))
		net_refuse(req, &e);
	else
		net_reply(req, NULL, NO_BLOB);
}

void ctl_serve(struct runs *rs)
{
	net_on(rs->ctx.net, KIND_RUN_CTL, on_ctl, rs);
}

static void told_all(struct ask *a)
{
	struct run *r = a->rs ? runs_by_id(a->rs, &a->run) : NULL;
	if (a->reply && a->rs)
		run_answer(a->rs, a->reply, json_pack("{s:s,s:s,s:i}", "run", r ? r->hex : "", "state",
			r ? run_state_name(r) : "gone", "peers_told", (int)a->told));
	ask_free(a);
}

static void told(void *arg, const struct frame *f, const struct err *e)
{
	struct ask *a = arg;
	a->told += f != NULL;
	if (--a->open == 0 && !a->sending)
		told_all(a);
}

static void say(struct runs *rs, const json_t *params, struct reply *reply, const char *op)
{
	struct run *r = runs_find_open(rs, params, reply);
	struct net *net = rs->ctx.net;
	struct err e;
	char may[200];
	if (!r)
		return;
	if (!run_lawful(r, net_self(net))) {
		err_set(&e, ERR_AUTH, "only %s may %s run %s: say it there; on this peer alone: run leave, run hold",
			run_who_may(r, may, sizeof may), op, r->name);
		reply_fail(reply, &e);
		return;
	}
	if (run_checked(r, params, reply))
		return;
	uint64_t counter = env_wall(rs->ctx.env);
	if (counter <= r->ctl_counter)
		counter = r->ctl_counter + 1;
	json_t *word = ctl_word(r, op, counter);
	struct ask *a = ask_new(rs, r, reply);
	struct avg_member m[RUN_PEERS_SHOWN];
	size_t n = r->avg ? avg_members(r->avg, m, RUN_PEERS_SHOWN) : 0;
	a->sending = true;
	for (size_t i = 0; i < n && i < RUN_PEERS_SHOWN; i++)
		if (!id_eq(&m[i].id, net_self(net)) && m[i].live) {
			a->open++;
			net_call(net, &m[i].id, KIND_RUN_CTL, json_incref(word), NO_BLOB, CLASS_control, CALL_US, told, a);
		}
	json_decref(word);
	obey(r, op, counter, r->point.epoch, net_self(net), &e);
	a->told++;                              /* ourselves */
	a->sending = false;
	if (!a->open)
		told_all(a);
}

void runs_pause(struct runs *rs, const json_t *params, struct reply *reply) { say(rs, params, reply, "pause"); }
void runs_resume(struct runs *rs, const json_t *params, struct reply *reply) { say(rs, params, reply, "resume"); }
void runs_stop(struct runs *rs, const json_t *params, struct reply *reply) { say(rs, params, reply, "stop"); }

/* ---- newcomers ask what was said before they came ---- */

void ctl_watched(void *arg, const struct record *rec, size_t n, const struct err *e)
{
	struct ask *a = arg;
	struct run *r = a->rs ? runs_by_id(a->rs, &a->run) : NULL;
	uint64_t best = 0, counter;
	struct err ignored;
	a->open--;
	for (size_t i = 0; r && i < n; i++)
		if (run_lawful(r, &rec[i].owner) && !json_get_u64(rec[i].value, "counter", &counter, &ignored) &&
				counter > best)
			best = counter;
	for (int older = 0; older < 2; older++) /* the newest first: it makes the others void */
		for (size_t i = 0; r && i < n; i++)
			if (run_lawful(r, &rec[i].owner) && !json_get_u64(rec[i].value, "counter", &counter, &ignored) &&
					(older || counter == best))
				hear_old(a->rs, r, rec[i].value, counter);
	ask_free(a);
}

void ctl_ended(void *arg, const struct record *rec, size_t n, const struct err *error)
{
	struct ask *a = arg;
	struct run *r = a->rs ? runs_by_id(a->rs, &a->run) : NULL;
	struct err e;
	uint64_t epoch = 0, now;
	bool seen = false, ended = false;
	a->open--;
	for (size_t i = 0; r && !error && i < n && !seen; i++) {
		seen = record_own(&rec[i]) && id_eq(&rec[i].owner, &r->author);
		ended = seen && ended_says(&rec[i], r->name, &epoch, &e) && epoch > r->point.epoch;
	}
	ask_free(a);
	if (!r || !(r->state == RUN_ENTER || r->state == RUN_SYNC || r->state == RUN_TRAIN) || r->reached)
		return;
	bool given = ended_given(r);
	now = env_now(r->rs->ctx.env);
	if (r->ended_us && (given || (seen && !ended))) {
		r->ended_us = 0;
		run_effective_pause(r);
	} else if (r->ended_us && now - r->ended_us >= GONE_US) {
		run_fail(r, &r->ended);
	} else if (!r->ended_us && ended && !given) {
		r->ended_us = now;
		r->ended = e;
		run_effective_pause(r);         /* nor with others who come as late */
		run_log(r, LOG_INFO_, "run.ended", "its author says that it has ended, at epoch %llu: whoever may still hand "
			"that over is waited for, %d s at most", (unsigned long long)epoch, GONE_US / 1000000);
	}
}

/* ---- run join ---- */

/* The run's id proves the record: it is the hash of author, name and shared part. */
static struct spec *spec_of_record(const struct record *rec, const json_t *local, struct id *ret_author,
	struct id *ret_run, struct err *e)
{
	const char *name;
	struct id claimed;
	if (json_get_str(rec->value, "name", &name, e) || json_get_hex(rec->value, "author", ret_author->b, 32, e) ||
			json_get_hex(rec->value, "run", claimed.b, 32, e))
		return NULL;
	json_t *shared = spec_unpacked(json_object_get(rec->value, "shared"), e);
	struct spec *s = shared ? spec_of(name, shared, local, e) : NULL;
	json_decref(shared);
	if (!s)
		return NULL;
	spec_run_id(s, ret_author, ret_run);
	if (id_eq(ret_run, &claimed) && id_eq(ret_author, &rec->owner))
		return s;
	spec_free(s);
	err_set(e, ERR_MISMATCH, "the published specification does not match the run's id");
	return NULL;
}

static void join_found(void *arg, const struct record *rec, size_t n, const struct err *error)
{
	struct ask *a = arg;
	struct err e = { 0 };
	struct id author, run;
	const struct record *pick = NULL;
	unsigned fits = 0;
	char authors[256] = "";
	a->open--;
	for (size_t i = 0; i < n; i++) {
		/* a run is offered by its author, or it is not that run */
		if (!record_own(&rec[i]) || strncmp(rec[i].subkey, a->author, strlen(a->author)))
			continue;
		fits++;
		pick = &rec[i];
		size_t at = strlen(authors);
		snprintf(authors + at, sizeof authors - at, " %.8s", rec[i].subkey);
	}
	if (!a->rs) {
		ask_free(a);
		return;
	}
	struct dht_state d;
	dht_state(a->rs->ctx.dht, &d);
	struct spec *s = fits == 1 ? spec_of_record(pick, a->local, &author, &run, &e) : NULL;
	if (error)
		err_set(&e, error->code, "no run %s in the DHT, as far as is known: %s", a->what, error->text);
	else if (!fits)
		err_set(&e, ERR_NOT_FOUND, "no run %s%s%s in the DHT%s", a->what, a->author[0] ? " of author " : "", a->author,
			d.joined ? "" : "; this peer has not joined a swarm yet (see hivectl status)");
	else if (fits > 1)
		err_set(&e, ERR_STATE, "run %s exists %u times; choose with --author one of:%s", a->what, fits, authors);
	uint64_t epoch;
	if (s && !id_eq(&author, net_self(a->rs->ctx.net)) && ended_says(pick, s->name, &epoch, &e)) {
		spec_free(s);
		s = NULL;
	}
	struct run *same = s ? runs_by_id(a->rs, &run) : NULL;
	if (same && !run_over(same)) {
		err_set(&e, ERR_EXISTS, "this peer is in run %s already (%s)", same->name, run_state_name(same));
		spec_free(s);
		s = NULL;
	}
	if (s)
		run_new(a->rs, s, &author, &run, a->reply);
	else
		runs_refuse(a->rs, "join", a->what, a->reply, &e);
	ask_free(a);
}

void runs_join(struct runs *rs, const json_t *params, struct reply *reply)
{
	char key[160];
	const char *author = json_string_value(json_object_get(params, "author"));
	struct ask *a;
	struct err e;
	if (runs_closed(rs, &e)) {
		reply_fail(reply, &e);
		return;
	}
	a = ask_new(rs, NULL, reply);
	snprintf(a->what, sizeof a->what, "%.64s", json_string_value(json_object_get(params, "run")));
	snprintf(a->author, sizeof a->author, "%s", author ? author : "");
	a->local = runs_local(NULL, params);
	a->open++;
	ctl_key("run", json_string_value(json_object_get(params, "run")), key);
	dht_get_patient(rs->ctx.dht, key, true, join_found, a);
}

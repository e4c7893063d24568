/* Pieces of checkpoints for others, one at a time on the disk lane: saved.h. */
#include "run/saved.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/planted.h"

#define LINE_MAX 64                     /* requests that wait; */
#define LINE_OF_ONE 16
#define LIST_MAX (NET_BLOB_MAX / 2)     /* bytes of what is said about checkpoints */

struct lend {
	struct list link;
	struct job job;
	struct lends *d;
	struct files *files;
	struct saved_ask is;
	struct request *req;            /* NULL: this peer's own */
	saved_fn *done; void *arg;
	struct id from;
	char dir[4096];
	bool look_first, sound;         /* the file's hash is to be checked; the file is whole */
	struct buf out;
	int rc; struct err e;
};

/* ---- in the lane ---- */

/* The digest of the COMMIT that made it, and which parts of the state it has: an array, or true for all of it. */
static int about(const json_t *meta, const char *hex, uint8_t prev[DIGEST], json_t **ret_held, struct err *e)
{
	const char *point = json_string_value(json_object_get(meta, "point"));
	const char *run = json_string_value(json_object_get(meta, "run"));
	const char *parts = json_string_value(json_object_get(meta, "crew_parts"));
	json_t *p = point ? json_loads(point, JSON_REJECT_DUPLICATES, NULL) : NULL;
	int rc = !run || strcmp(run, hex) ? err_set(e, ERR_MISMATCH, "a checkpoint of another run") :
		json_get_hex(p, "prev", prev, DIGEST, e);
	json_decref(p);
	if (!rc && ret_held)
		*ret_held = parts ? json_loads(parts, JSON_REJECT_DUPLICATES, NULL) : json_true();
	return rc ? rc : ret_held && !*ret_held ? err_set(e, ERR_CORRUPT, "it does not say which parts it has") : 0;
}

static int tell(struct lend *l, struct err *e)
{
	struct ckpt_seen v[SAVED_EPOCHS];
	uint8_t prev[DIGEST];
	char hex[ID_HEX];
	int n = ckpt_see(l->files, l->dir, v, SAVED_EPOCHS, e);
	size_t len;
	json_t *list = json_array(), *held;
	id_hex(&l->is.run, hex);
	for (int i = 0; i < n; i++)
		if (!about(v[i].meta, hex, prev, &held, NULL))
			json_array_append_new(list, json_pack("{s:I,s:o,s:o}", "epoch", (json_int_t)v[i].epoch, "prev",
				json_hex(prev, DIGEST), "held", held));
	ckpt_seen_done(v, n > 0 ? (size_t)n : 0);
	char *text = json_line(list, &len);
	while (len > LIST_MAX && json_array_size(list)) {       /* the newest matter most */
		json_array_remove(list, json_array_size(list) - 1);
		free(text);
		text = json_line(list, &len);
	}
	buf_put(&l->out, text, len);
	free(text);
	json_decref(list);
	return n < 0 ? -1 : 0;
}

/* Where those elements lie in it: the tensor, or the piece of it that has them all. */
static const struct ckpt_tensor *find(const struct ckpt_head *h, const struct saved_ask *is, uint64_t *ret_skip)
{
	size_t n = strlen(is->tensor);
	for (size_t i = 0; i < h->n; i++) {
		const struct ckpt_tensor *t = &h->v[i];
		uint64_t unit = t->dtype == CKPT_F64 ? 8 : 4, all = t->bytes / unit, lo;
		if (strncmp(t->name, is->tensor, n) || (t->name[n] && t->name[n] != '@') || t->dtype > CKPT_F64)
			continue;
		lo = t->name[n] ? strtoull(t->name + n + 1, NULL, 10) : 0;
		if (is->lo < lo || is->lo - lo > all || is->n > all - (is->lo - lo))
			continue;
		*ret_skip = (is->lo - lo) * unit;
		return t;
	}
	return NULL;
}

static int read_bytes(struct lend *l, const struct ckpt_head *h, const char *path, struct err *e)
{
	uint64_t skip;
	const struct ckpt_tensor *t = find(h, &l->is, &skip);
	size_t bytes = t ? (size_t)l->is.n * (t->dtype == CKPT_F64 ? 8 : 4) : 0;
	if (!t)
		return err_set(e, ERR_NOT_FOUND, "%s does not have that piece of %s", path, l->is.tensor);
	if (!bytes || bytes > NET_BLOB_MAX)
		return err_set(e, ERR_INVALID, "n: a piece has 1 to %d bytes", NET_BLOB_MAX);
	int fd = l->files->open(l->files, path, O_RDONLY | O_CLOEXEC, 0, e);
	if (fd < 0)
		return -1;
	int64_t got = l->files->pread(l->files, fd, buf_grow(&l->out, bytes), bytes, h->data_at + t->at + skip, e);
	l->files->close(l->files, fd, NULL);
	return got < 0 ? -1 : (size_t)got == bytes ? 0 : err_set(e, ERR_CORRUPT, "%s ends in %s", path, t->name);
}

static int piece(struct lend *l, struct err *e)
{
	struct ckpt_head h = { 0 };
	uint8_t prev[DIGEST], digest[TREE256];
	char path[4200], hex[ID_HEX];
	id_hex(&l->is.run, hex);
	ckpt_path(l->dir, l->is.epoch, path, sizeof path);
	if (l->look_first && ckpt_read(l->files, path, NULL, 0, NULL, e))
		return -1;
	l->sound = true;
	int rc = ckpt_head_read(&h, l->files, path, e) || about(h.meta, hex, prev, NULL, e) ? -1 : 0;
	if (!rc && memcmp(prev, l->is.prev, DIGEST))
		rc = err_set(e, ERR_NOT_FOUND, "%s is of another history", path);
	if (!rc)
		rc = read_bytes(l, &h, path, e);
	ckpt_head_done(&h);
	if (rc || !l->is.look)
		return rc;
	tree256_of(l->is.hashes, l->out.p, l->out.len, digest);
	buf_clear(&l->out);
	buf_put(&l->out, digest, sizeof digest);
	return 0;
}

static void lend_run(struct job *j)
{
	struct lend *l = container_of(j, struct lend, job);
	l->rc = l->is.epoch ? piece(l, &l->e) : tell(l, &l->e);
}

/* ---- one after the other ---- */

static void lend_done(struct job *j);

static void next(struct lends *d)
{
	struct env *env = d->rs->ctx.env;
	struct list *it = d->running ? NULL : list_pop(&d->line);
	if (!it)
		return;
	struct lend *l = d->running = list_entry(it, struct lend, link);
	struct saved_lease *x = l->is.epoch ? lends_lease(d, &l->is) : NULL;
	if (x)
		x->until_us = env_now(env) + LEASE_US;
	l->look_first = !x || !x->sound;
	l->job = (struct job){ .name = "run.saved", .lane = env_lane(env, "disk"), .run = lend_run, .done = lend_done,
		.cost_us = 500 };
	env_work(env, &l->job);
}

/* Whoever asks which checkpoints there are is told how pieces of them can be hashed. */
static json_t *said_of(const struct lend *l)
{
	json_t *j = json_object();
	if (!l->is.epoch)
		json_put_hashes(j, l->d->rs->ctx.hashes);
	return j;
}

static void answer(struct lend *l)
{
	if (l->req && l->rc)
		net_refuse(l->req, &l->e);
	else if (l->req && l->is.look)
		net_reply(l->req, json_pack("{s:o}", "digest", json_hex(l->out.p, TREE256)), NO_BLOB);
	else if (l->req)
		net_reply(l->req, said_of(l), blob_steal(&l->out));
	else if (l->done)
		l->done(l->arg, &l->out, l->rc ? &l->e : NULL);
	buf_free(&l->out);
	free(l);
}

static void lend_done(struct job *j)
{
	struct lend *l = container_of(j, struct lend, job);
	struct lends *d = l->d;
	struct saved_lease *x = l->is.epoch && l->sound ? lends_lease(d, &l->is) : NULL;
	if (x)
		x->sound = true;
	d->running = NULL;
	answer(l);
	next(d);
}

static void enter(struct lends *d, const struct saved_ask *is, struct lend *l)
{
	char hex[ID_HEX];
	l->d = d;
	l->files = d->rs->ctx.env->files;
	l->is = *is;
	id_hex(&is->run, hex);
	runs_dir(d->rs, hex, l->dir, sizeof l->dir);
	list_push(&d->line, &l->link);
	next(d);
}

void lends_ask(struct lends *d, const struct saved_ask *what, saved_fn *done, void *arg)
{
	struct lend *l = xcalloc(1, sizeof *l);
	l->done = done;
	l->arg = arg;
	enter(d, what, l);
}

void lends_forget(struct lends *d, const void *arg)
{
	if (d->running && d->running->arg == arg)
		d->running->done = NULL;
	list_each(it, &d->line)
		if (list_entry(it, struct lend, link)->arg == arg)
			list_entry(it, struct lend, link)->done = NULL;
}

/* ---- what is asked ---- */

static bool member(const struct run *r, const struct id *who)
{
	return (r->avg && avg_lives(r->avg, who)) || (r->crew && run_crew_names(r, who));
}

/* While it trains it is busy enough: strangers could keep its disk at work. */
static int may(struct lends *d, const struct request *req, const struct id *run, struct err *e)
{
	struct run *r = runs_by_id(d->rs, run);
	size_t all = 0, of_one = 0;
	if (!d->rs->ctx.state_dir)
		return err_set(e, ERR_STATE, "this peer keeps no checkpoints");
	if (r && !run_over(r) && !member(r, &req->f.from) && !PLANTED(SAVED_TO_ANYBODY))
		return err_set(e, ERR_AUTH, "parts of the model are for members of the run, and this peer knows of none named "
			"%.8s", id_short(&req->f.from, (char[9]){ 0 }));
	list_each(it, &d->line) {
		const struct lend *l = list_entry(it, struct lend, link);
		all++;
		of_one += l->req && id_eq(&l->from, &req->f.from);
	}
	if (all >= LINE_MAX || of_one >= LINE_OF_ONE)
		return err_set(e, ERR_BUSY, "%zu requests wait for this peer's disk already", all);
	return 0;
}

static int read_ask(struct saved_ask *ret, const json_t *j, struct err *e)
{
	const char *name;
	if (json_get_hex(j, "run", ret->run.b, 32, e))
		return -1;
	if (!json_object_get(j, "epoch"))
		return 0;
	if (json_get_u64(j, "epoch", &ret->epoch, e) || json_get_hex(j, "prev", ret->prev, DIGEST, e) ||
			json_get_str(j, "tensor", &name, e) || json_get_u64(j, "lo", &ret->lo, e) ||
			json_get_u64(j, "n", &ret->n, e))
		return -1;
	if (!ret->epoch || !*name || strlen(name) >= sizeof ret->tensor || strchr(name, '@'))
		return err_set(e, ERR_INVALID, "an epoch is 1 or more, and a tensor has a name of at most %zu bytes",
			sizeof ret->tensor - 1);
	(void)snprintf(ret->tensor, sizeof ret->tensor, "%s", name);
	ret->look = json_is_true(json_object_get(j, "look"));
	return ret->n && ret->n <= NET_BLOB_MAX / 4 ? 0 : err_set(e, ERR_INVALID, "n: a piece has 1 to %d elements",
		NET_BLOB_MAX / 4);
}

static void on_saved(void *arg, struct request *req)
{
	struct lends *d = arg;
	struct saved_ask is = { .epoch = 0 };
	struct err e;
	if (!req->wants_reply)
		return;
	is.hashes = json_get_hashes(req->f.json, d->rs->ctx.hashes);
	if (read_ask(&is, req->f.json, &e) || may(d, req, &is.run, &e)) {
		net_refuse(req, &e);
		return;
	}
	struct lend *l = xcalloc(1, sizeof *l);
	l->from = req->f.from;
	l->req = net_keep(req);
	enter(d, &is, l);
}

struct lends *lends_new(struct runs *rs)
{
	struct lends *d = xcalloc(1, sizeof *d);
	d->rs = rs;
	list_init(&d->line);
	net_on(rs->ctx.net, KIND_RUN_SAVED, on_saved, d);
	return d;
}

void lends_free(struct lends *d)
{
	net_on(d->rs->ctx.net, KIND_RUN_SAVED, NULL, NULL);
	free(d);
}

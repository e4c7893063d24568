/* Whose data is not the run's is told where it begins to differ: it asks a member for hashes of
 * stretches of the list of files, divides the first stretch that is another here, and asks for the one file at the end.
 *
 *   RUN_DATA {run, lo, hi}  ->  a member     <-  {files, hi}, blob: hashes of the stretches of [lo, hi)
 *   RUN_DATA {run, file}    ->               <-  {files, name, bytes, sum}, without name when its list is shorter */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "common/text.h"
#include "run/differ.h"

#define CALL_US 3000000
#define PATIENCE_US 8000000             /* then the run ends without the file's name */
#define ANSWERS_MAX 12                  /* of one member */
#define SERVED_MAX 4                    /* stretches being hashed for others */

static void ask(struct differ *d);

/* What is known is told, and the run ends. */
static void tell(struct differ *d)
{
	struct run *r = d->r;
	struct err e = d->e;
	err_wrap(&e, "data %s", d->path);
	r->differ = NULL;
	differ_free(d);
	run_fail(r, &e);
}

static void next_peer(struct differ *d)
{
	d->at++;
	d->answers = 0;
	d->lo = 0;
	d->hi = UINT64_MAX;
	ask(d);
}

/* ---- the file ---- */

static void differs_at(struct differ *d, uint64_t i, const struct data_file *theirs)
{
	const char *name = d->r->spec->data_name;
	uint64_t n = manifest_files(d->here);
	struct data_file mine;
	char a[112], b[112], who[9];
	id_short(&d->who[d->at], who);
	if (i < n) {
		manifest_file(d->here, i, &mine);
		manifest_text(&mine, a);
	} else
		snprintf(a, sizeof a, "nothing");
	if (theirs)
		manifest_text(theirs, b);
	else
		snprintf(b, sizeof b, "nothing");
	err_set(&d->e, ERR_MISMATCH, "data.digest: %.20s is not the run's: file %llu is the first that differs: here %s, "
		"at %s %s; %llu files here, %llu there", name, (unsigned long long)i + 1, a, who, b, (unsigned long long)n,
		(unsigned long long)d->there);
	tell(d);
}

static void file_came(void *arg, const struct frame *f, const struct err *e)
{
	struct differ *d = arg;
	struct data_file file = { .bytes = 0 };
	const char *name;
	struct err mine;
	d->call = NULL;
	if (!f) {
		next_peer(d);
		return;
	}
	if (!json_object_get(f->json, "name")) {
		differs_at(d, d->lo, NULL);
		return;
	}
	if (json_get_str(f->json, "name", &name, &mine) || json_get_u64(f->json, "bytes", &file.bytes, &mine) ||
			json_get_hex(f->json, "sum", file.sum, sizeof file.sum, &mine)) {
		next_peer(d);
		return;
	}
	snprintf(file.name, sizeof file.name, "%s", name);
	differs_at(d, d->lo, &file);
}

static void ask_file(struct differ *d, uint64_t i)
{
	d->lo = i;
	d->call = net_call(d->rs->ctx.net, &d->who[d->at], KIND_RUN_DATA, json_pack("{s:s,s:I}", "run", d->r->hex, "file",
		(json_int_t)i), NO_BLOB, CLASS_control, CALL_US, file_came, d);
}

/* ---- stretches ---- */

static void hash_run(struct job *j)
{
	struct differ *d = container_of(j, struct differ, job);
	manifest_hashes(d->here, d->lo, d->hi, d->ours);
}

static void hash_done(struct job *j)
{
	struct differ *d = container_of(j, struct differ, job);
	uint32_t k = 0;
	d->hashing = false;
	if (!d->r) {
		differ_end(d);
		return;
	}
	while (k < d->nparts && !memcmp(d->ours[k], d->theirs[k], MANIFEST_HASH))
		k++;
	if (k == d->nparts) {                   /* all that both have is the same: one list is longer */
		if (manifest_files(d->here) != d->there)
			ask_file(d, d->hi);
		else
			next_peer(d);
		return;
	}
	uint64_t lo = manifest_part(d->lo, d->hi, k), hi = manifest_part(d->lo, d->hi, k + 1);
	d->lo = lo;
	d->hi = hi;
	if (hi - lo == 1)
		ask_file(d, lo);
	else
		ask(d);
}

static void hashes_came(void *arg, const struct frame *f, const struct err *e)
{
	struct differ *d = arg;
	uint64_t hi, n = manifest_files(d->here);
	struct err mine;
	d->call = NULL;
	if (!f || json_get_u64(f->json, "hi", &hi, &mine) || json_get_u64(f->json, "files", &d->there, &mine) ||
			hi > n || hi > d->there || hi > d->hi || hi < d->lo || ++d->answers > ANSWERS_MAX ||
			f->blob_len != (size_t)manifest_parts(d->lo, hi) * MANIFEST_HASH) {
		next_peer(d);
		return;
	}
	d->hi = hi;
	d->nparts = manifest_parts(d->lo, hi);
	if (d->nparts)
		memcpy(d->theirs, f->blob, f->blob_len);
	d->hashing = true;
	d->job = (struct job){ .name = "run.differ", .lane = env_lane(d->rs->ctx.env, "data"), .run = hash_run,
		.done = hash_done, .cost_us = 100 + (hi - d->lo) / 20 };
	env_work(d->rs->ctx.env, &d->job);
}

static void ask(struct differ *d)
{
	uint64_t n = manifest_files(d->here);
	if (d->at >= d->npeers || !n) {
		tell(d);
		return;
	}
	d->hi = d->hi < n ? d->hi : n;
	d->call = net_call(d->rs->ctx.net, &d->who[d->at], KIND_RUN_DATA, json_pack("{s:s,s:I,s:I}", "run", d->r->hex, "lo",
		(json_int_t)d->lo, "hi", (json_int_t)d->hi), NO_BLOB, CLASS_control, CALL_US, hashes_came, d);
}

static void found(void *arg, const struct record *rec, size_t n, const struct err *e)
{
	struct seek *s = arg;
	struct differ *d = s->d;
	free(s);
	if (!d)
		return;
	d->seek = NULL;
	for (size_t i = 0; i < n && d->npeers < DIFFER_PEERS; i++)
		d->npeers += avg_peer_of(d->rs->ctx.net, &rec[i], &d->who[d->npeers]);
	ask(d);
}

static void out_of_time(struct timer *t)
{
	tell(container_of(t, struct differ, timer));
}

void differ_start(struct run *r, struct data_source *here, const char *path, const struct err *e)
{
	struct differ *d = r->differ = xcalloc(1, sizeof *d);
	char key[96];
	*d = (struct differ){ .r = r, .rs = r->rs, .here = here, .e = *e, .hi = UINT64_MAX };
	snprintf(d->path, sizeof d->path, "%.79s", path);
	d->timer = (struct timer){ .fire = out_of_time, .name = "run.differ" };
	env_after(r->rs->ctx.env, &d->timer, PATIENCE_US);
	d->seek = xcalloc(1, sizeof *d->seek);
	d->seek->d = d;
	snprintf(key, sizeof key, "run:%s:peers", r->hex);
	dht_get(r->rs->ctx.dht, key, true, found, d->seek);
}

/* ---- the member's side ---- */

struct serve { struct job job; struct runs *rs; struct data *data; struct request *req; uint64_t lo, hi;
	uint8_t hash[MANIFEST_PARTS][MANIFEST_HASH]; };

static void serve_run(struct job *j)
{
	struct serve *s = container_of(j, struct serve, job);
	manifest_hashes(data_source(s->data), s->lo, s->hi, s->hash);
}

static void serve_done(struct job *j)
{
	struct serve *s = container_of(j, struct serve, job);
	size_t n = (size_t)manifest_parts(s->lo, s->hi) * MANIFEST_HASH;
	void *copy = xmemdup(s->hash, n ? n : 1);
	s->rs->differs--;
	net_reply(s->req, json_pack("{s:I,s:I}", "files", (json_int_t)manifest_files(data_source(s->data)), "hi",
		(json_int_t)s->hi), (struct blob){ .data = copy, .len = n, .release = free, .arg = copy });
	data_free(s->data);
	free(s);
}

static void give_file(struct request *req, const struct data_source *d, uint64_t i)
{
	struct data_file f;
	json_t *o = json_pack("{s:I}", "files", (json_int_t)manifest_files(d));
	if (i < manifest_files(d)) {
		manifest_file(d, i, &f);
		text_clean(f.name);
		json_object_set_new(o, "name", json_string(f.name));
		json_object_set_new(o, "bytes", json_integer((json_int_t)f.bytes));
		json_object_set_new(o, "sum", json_hex(f.sum, sizeof f.sum));
	}
	net_reply(req, o, NO_BLOB);
}

static void on_data(void *arg, struct request *req)
{
	struct runs *rs = arg;
	struct id id;
	struct run *r = NULL;
	struct err e;
	uint64_t file, lo, hi;
	if (!req->wants_reply)
		return;
	if (json_get_hex(req->f.json, "run", id.b, 32, &e)) {
		net_refuse(req, &e);
		return;
	}
	r = runs_by_id(rs, &id);
	if (!r || !r->data || data_is_absent(r->data))
		err_set(&e, ERR_STATE, "this peer has no data of that run");
	else if (json_object_get(req->f.json, "file")) {
		if (!json_get_u64(req->f.json, "file", &file, &e)) {
			give_file(req, data_source(r->data), file);
			return;
		}
	} else if (rs->differs >= SERVED_MAX)
		err_set(&e, ERR_BUSY, "%d others are being answered", SERVED_MAX);
	else if (!json_get_u64(req->f.json, "lo", &lo, &e) && !json_get_u64(req->f.json, "hi", &hi, &e)) {
		uint64_t n = manifest_files(data_source(r->data));
		hi = hi < n ? hi : n;
		struct serve *s = xcalloc(1, sizeof *s);
		*s = (struct serve){ .rs = rs, .data = data_ref(r->data), .req = net_keep(req), .lo = lo < hi ? lo : hi,
			.hi = hi };
		s->job = (struct job){ .name = "run.differ", .lane = env_lane(rs->ctx.env, "data"), .run = serve_run,
			.done = serve_done, .cost_us = 100 + (hi - s->lo) / 20 };
		rs->differs++;
		env_work(rs->ctx.env, &s->job);
		return;
	}
	net_refuse(req, &e);
}

void differ_serve(struct runs *rs)
{
	net_on(rs->ctx.net, KIND_RUN_DATA, on_data, rs);
}

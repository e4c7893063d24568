/* What a peer says of where it stands and what it has, and how the words of others are read. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/mover.h"
#include "run/rally.h"

#define JSON_MOST 48000                 /* bytes of claims in one answer */

static bool runs(const struct run *r)
{
	return r->state == RUN_TRAIN && run_crew_stands(r) && run_crew_seated(r);
}

/* Of one that goes on, what is beyond its point on the disk is of a history that nobody follows. */
json_t *rally_have(const struct rally *w)
{
	const struct run *r = w->r;
	json_t *list = json_array(), *held = r->point.epoch ? mover_held(run_crew_mover(r)) : json_array();
	size_t bytes = 0;
	if (json_array_size(held))
		json_array_append_new(list, claim_pack(r->point.epoch, r->point.prev, false, held));
	else
		json_decref(held);
	for (size_t i = 0; i < w->nfiles && i < RALLY_CLAIMS - 1; i++) {
		const struct claim *c = &w->file[i].is;
		if (runs(r) && c->epoch > r->point.epoch)
			continue;
		bytes += 160 + 64 * (size_t)c->n;
		if (bytes > JSON_MOST)
			break;
		json_array_append_new(list, claim_json(c));
	}
	return list;
}

/* ---- answers ---- */

static void where(const struct rally *w, struct request *req)
{
	const struct run *r = w->r;
	bool stands = run_crew_stands(r);
	struct avg_view v;
	avg_view(r->avg, &v);
	char *text = stands ? run_point_text(r, &r->point, NET_BLOB_MAX) : NULL;
	size_t n = text ? strlen(text) : 0;
	struct err e;
	if (n > NET_BLOB_MAX) {
		err_set(&e, ERR_LIMIT, "the ledger has too many holes to send (%zu bytes)", n);
		net_refuse(req, &e);
	} else if (w->reading) {
		err_set(&e, ERR_BUSY, "what is on the disk here is being read");
		net_refuse(req, &e);
	} else {
		json_t *j = json_pack("{s:b,s:b,s:I,s:I,s:I,s:o,s:o}", "stands", stands, "runs", runs(r), "generation",
			(json_int_t)run_crew_base(r), "members", (json_int_t)(v.last_members ? v.last_members : r->was_members),
			"epoch", (json_int_t)r->point.epoch, "prev", json_hex(r->point.prev, DIGEST), "have", rally_have(w));
		net_reply(req, j, n ? blob_copy(text, n) : NO_BLOB);
	}
	free(text);
}

static int give_point(const struct rally *w, struct request *req, struct err *e)
{
	uint64_t epoch;
	uint8_t prev[DIGEST];
	if (json_get_u64(req->f.json, "epoch", &epoch, e) || json_get_hex(req->f.json, "prev", prev, DIGEST, e))
		return -1;
	const struct kept *k = rally_file(w, epoch, prev);
	if (!k || strlen(k->point) > NET_BLOB_MAX)
		return err_set(e, ERR_NOT_FOUND, "there is no checkpoint of that point here, or its ledger is too long");
	net_reply(req, json_object(), blob_copy(k->point, strlen(k->point)));
	return 0;
}

void rally_hand(struct rally *w, struct request *req)
{
	const json_t *saved = json_object_get(req->f.json, "saved");
	struct err e;
	if (!req->wants_reply) {
		if (saved && run_crew_names(w->r, &req->f.from))
			rally_hear(w, saved);
	} else if (!json_object_get(req->f.json, "epoch")) {
		where(w, req);
	} else if (give_point(w, req, &e)) {
		net_refuse(req, &e);
	}
}

/* ---- what others say ---- */

static void read_point(struct said *x, const struct frame *f)
{
	struct err e;
	json_t *j = f->blob_len ? json_read((const char *)f->blob, f->blob_len, JSON_POINT, &e) : NULL;
	if (!j)
		return;
	avg_point_init(&x->point);
	x->has_point = !avg_point_parse(&x->point, j, &e) && x->point.epoch == x->epoch &&
		!memcmp(x->point.prev, x->prev, DIGEST);
	if (!x->has_point)
		avg_point_done(&x->point);
	json_decref(j);
}

void rally_hear_said(struct said *x, const struct frame *f)
{
	const json_t *have = json_object_get(f->json, "have");
	size_t n = json_array_size(have);
	struct err e;
	if (json_get_u64(f->json, "generation", &x->generation, &e) || json_get_u64(f->json, "epoch", &x->epoch, &e) ||
			json_get_hex(f->json, "prev", x->prev, DIGEST, &e) || json_get_u64(f->json, "members", &x->members, &e) ||
			json_get_bool(f->json, "stands", &x->stands, &e) || json_get_bool(f->json, "runs", &x->runs, &e)) {
		x->stands = x->runs = false;
		return;
	}
	x->heard = true;
	x->members = x->members < RALLY_PEERS ? x->members : RALLY_PEERS;
	if (x->stands)
		read_point(x, f);
	x->v = xcalloc(RALLY_CLAIMS, sizeof *x->v);
	for (size_t i = 0; i < n && i < RALLY_CLAIMS; i++)
		x->n += !claim_read(&x->v[x->n], rally_layout(x->w), json_array_get(have, i), &e);
}

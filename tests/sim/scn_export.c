/* `model export` of a pipeline in whole nodes: whoever is asked, holder or spare, has in one folder the bits that one
 * peer alone has at that epoch, though a holder dies meanwhile; and when it can not be had, that is said, and nothing
 * is left behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"
#include "common/jrpc.h"
#include "common/mem.h"
#include "line_world.h"

#define DIR "/state/model"
#define FIRST 20                                /* epochs: then all have saved */

static struct question *begin(struct line *l, int node)
{
	return node_ask_soon(l->w, node, node_model_export, json_pack("{s:s,s:[s]}", "run", "line", "dir", DIR));
}

/* The epoch of what it has written; 0: it has failed, and *e says why. */
static uint64_t end(struct line *l, struct question *x, struct err *e)
{
	*e = (struct err){ 0 };
	json_t *result = node_answer(l->w, x, 120 * SEC, e);
	uint64_t epoch = (uint64_t)json_integer_value(json_object_get(result, "epoch"));
	json_decref(result);
	return epoch;
}

static int row(void *arg, const char *name) { return 0; }

static bool is_there(struct line *l, int node, const char *dir)
{
	struct files *f = node_peer(l->w, node)->env->files;
	return !f->list(f, dir, row, NULL, NULL);
}

/* Every tensor of the one file as it is in the other. */
static void compare(struct line *l, struct files *f, const struct ckpt_head *h, struct files *alone, const char *whole)
{
	struct ckpt_head w;
	struct err e;
	size_t n = 0;
	if (ckpt_head_read(&w, alone, whole, &e)) {
		sim_fail(l->s, "the one alone: %s", e.text);
		return;
	}
	for (size_t i = 0; i < w.n; i++)
		n += strncmp(w.v[i].name, "optimizer.", 10) != 0;
	if (n != h->n)
		sim_fail(l->s, "%zu tensors were written, and one alone has %zu", h->n, n);
	for (size_t i = 0; i < h->n && !sim_failed(l->s); i++) {
		struct ckpt_tensor a = h->v[i], b = h->v[i];
		a.data = xmalloc(a.bytes + 1);
		b.data = xmalloc(b.bytes + 1);
		if (!ckpt_find(&w, a.name))
			sim_fail(l->s, "one alone has no %s", a.name);
		else if (ckpt_read(f, DIR "/model.safetensors", &a, 1, NULL, &e) || ckpt_read(alone, whole, &b, 1, NULL, &e))
			sim_fail(l->s, "%s", e.text);
		else if (memcmp(a.data, b.data, a.bytes))
			sim_fail(l->s, "what was written has other bits of %s than one alone", a.name);
		free(a.data);
		free(b.data);
	}
	ckpt_head_done(&w);
}

struct wanted { struct node_world *w; uint64_t epoch; };

static bool has_saved(struct sim *s, void *arg)
{
	const struct wanted *x = arg;
	const struct run *r = node_run(x->w, 0);
	return r && r->saved_epoch >= x->epoch;
}

static void same_as_alone(struct line *l, int node, uint64_t epoch)
{
	struct files *f = node_peer(l->w, node)->env->files;
	struct ckpt_head h;
	struct err e;
	char dir[256], whole[300];
	struct wanted saved = { l->a.w, epoch };
	if (!sim_run_until(l->a.s, has_saved, &saved, 3600 * SEC)) {
		sim_fail(l->s, "one alone does not save epoch %llu", (unsigned long long)epoch);
		return;
	}
	run_dir(node_run(l->a.w, 0), dir, sizeof dir);
	ckpt_path(dir, epoch, whole, sizeof whole);
	if (ckpt_head_read(&h, f, DIR "/model.safetensors", &e))
		sim_fail(l->s, "nothing was written: %s", e.text);
	else
		compare(l, f, &h, node_peer(l->a.w, 0)->env->files, whole);
	ckpt_head_done(&h);
	if (is_there(l, node, DIR ".part"))
		sim_fail(l->s, "something is left behind");
}

/* A pipeline all of whose members have saved what they hold. */
static struct line *saved(struct sim *s, const char *more, int n)
{
	struct line *l = line_begin(s, more, n);
	node_run_to(l->w, FIRST + 2, 180 * SEC);
	return l;
}

static void written(struct line *l, int node, struct question *x)
{
	struct err e;
	uint64_t epoch = end(l, x, &e);
	if (epoch)
		same_as_alone(l, node, epoch);
	else
		sim_fail(l->s, "it is not written: %s", e.text);
}

/* At once, or late; failed when it never is. */
static void written_soon(struct line *l, int node)
{
	struct err e;
	uint64_t epoch = end(l, begin(l, node), &e);
	if (!epoch)
		sim_late(l->s, "it is not written yet: %s", e.text);
	for (int k = 0; k < 60 && !epoch && !sim_failed(l->s); k++) {
		sim_run_for(l->s, SEC);
		epoch = end(l, begin(l, node), &e);
	}
	if (epoch)
		same_as_alone(l, node, epoch);
	else
		sim_fail(l->s, "it is never written: %s", e.text);
}

/* Anybody is asked, with a stage or without, while all train. */
static void scn_anybody(struct sim *s)
{
	struct line *l = saved(s, PIPELINE, 5);
	int node = node_any(l->w);
	written(l, node, begin(l, node));
	line_goes_on(l, 2);
	line_end(l);
}

/* Some of the holders know another way of hashing what they hold than the others. */
static void scn_versions(struct sim *s)
{
	struct line *l = saved(s, PIPELINE, 5);
	int from = (int)rng_below(sim_rng(s), 5);
	for (int i = from; i < from + 3; i++) {
		sim_kill(s, i % 5);
		l->w->hashes[i % 5] = HASHES_NEWEST;
		sim_restart(s, i % 5);
		line_goes_on(l, 3);
	}
	node_run_to(l->w, node_newest(l->w) + 12, 180 * SEC);
	int node = node_any(l->w);
	written(l, node, begin(l, node));
	line_goes_on(l, 2);
	line_end(l);
}

/* A holder dies on the way, and another has what it held. */
static void scn_holder_dies(struct sim *s)
{
	struct line *l = saved(s, PIPELINE, 5);
	int node = node_any(l->w), dies;
	do
		dies = line_any_seated(l->w);
	while (dies == node);
	struct question *x = begin(l, node);
	sim_run_for(s, rng_below(sim_rng(s), 60 * MSEC));
	sim_kill(s, dies);
	written(l, node, x);
	line_goes_on(l, 2);
	line_end(l);
}

static void refused(struct line *l, int node, const char *text)
{
	struct err e;
	struct question *x = begin(l, node);
	if (end(l, x, &e) || !strstr(e.text, text))
		sim_fail(l->s, "it is not refused with \"%s\": %s", text, e.text);
	if (is_there(l, node, DIR) || is_there(l, node, DIR ".part"))
		sim_fail(l->s, "something is left behind");
}

/* Each part is held once. Who has one dies on the way: the run waits for ever, since nobody has what that one had
 * learned last, and what it had saved is there again when it comes back. */
static void scn_missing(struct sim *s)
{
	struct line *l = saved(s, PIPELINE ", \"redundancy\": 1", 3);
	struct err e;
	int node = node_any(l->w), dies = (node + 1) % 3;
	struct question *x = begin(l, node);
	l->w->forks_allowed = true;             /* with one copy they go on from what is on the disks */
	sim_run_for(s, rng_below(sim_rng(s), 20 * MSEC));
	sim_kill(s, dies);
	uint64_t epoch = end(l, x, &e);
	if (!epoch && !strstr(e.text, "have no holder among them"))
		sim_fail(s, "it does not say what is missing: %s", e.text);
	if (!epoch && (is_there(l, node, DIR) || is_there(l, node, DIR ".part")))
		sim_fail(s, "something is left behind");
	if (!epoch)
		refused(l, node, "have no holder among them");
	sim_restart(s, dies);
	sim_run_for(s, 10 * SEC);
	if (epoch)
		same_as_alone(l, node, epoch);
	else
		written_soon(l, node);
	line_free(l);
}

/* What is there stays as it is. */
static void refused_again(struct line *l, int node)
{
	struct err e;
	if (end(l, begin(l, node), &e) || e.code != ERR_EXISTS)
		sim_fail(l->s, "a folder that is there is written over: %s", e.text);
}

/* There is no room; then there is, and what was written is not written over. */
static void scn_no_room(struct sim *s)
{
	struct line *l = saved(s, PIPELINE, 4);
	int node = node_any(l->w);
	sim_disk_full(s, node, 4096);
	refused(l, node, "are free there");
	sim_disk_full(s, node, -1);
	written(l, node, begin(l, node));
	refused_again(l, node);
	line_goes_on(l, 2);
	line_end(l);
}

static int each_name(void *arg, const char *name)
{
	if (!strncmp(name, "epoch-", 6) && strlen(name) == strlen("epoch-0000000001.safetensors"))
		json_array_append_new(arg, json_string(name));
	return 0;
}

/* Whole files, with other numbers in them. */
static void lie(struct line *l, int node)
{
	struct files *f = node_peer(l->w, node)->env->files;
	char dir[256], path[600];
	json_t *names = json_array(), *name;
	struct ckpt_head h;
	struct err e;
	size_t i;
	run_dir(node_run(l->w, node), dir, sizeof dir);
	f->list(f, dir, each_name, names, NULL);
	json_array_foreach(names, i, name) {
		(void)snprintf(path, sizeof path, "%s/%s", dir, json_string_value(name));
		if (ckpt_head_read(&h, f, path, &e)) {
			ckpt_head_done(&h);
			continue;
		}
		for (size_t k = 0; k < h.n; k++)
			h.v[k].data = xcalloc(1, h.v[k].bytes + 1);
		if (ckpt_read(f, path, h.v, h.n, NULL, &e))
			sim_fail(l->s, "%s", e.text);
		for (size_t k = 0; k < h.n; k++)
			*(uint8_t *)h.v[k].data ^= 1;
		if (ckpt_write(f, path, h.v, h.n, h.meta, NULL, NULL, &e))
			sim_fail(l->s, "%s", e.text);
		for (size_t k = 0; k < h.n; k++)
			free(h.v[k].data);
		ckpt_head_done(&h);
	}
	json_decref(names);
}

/* Three have saved each part. One has other numbers, and is not believed, not even by itself. */
static void scn_liar(struct sim *s)
{
	struct line *l = saved(s, PIPELINE ", \"redundancy\": 3", 4);
	int liar = line_any_seated(l->w), node = (liar + 1 + (int)rng_below(sim_rng(s), 3)) % 4;
	lie(l, liar);
	written(l, node, begin(l, node));
	written(l, liar, begin(l, liar));
	line_free(l);
}

/* Two have saved each part, and not the same: nobody is believed. */
static void scn_differ(struct sim *s)
{
	struct line *l = saved(s, PIPELINE, 4);
	lie(l, line_any_seated(l->w));
	refused(l, node_any(l->w), "have saved different");
	line_free(l);
}

/* ---- garbage ---- */

struct garbage { struct sim *s; struct id run; unsigned n; };

/* What it has, and things that cannot be: an epoch that nobody knows, with all of it. */
static json_t *wild_list(struct garbage *g)
{
	struct rng *r = sim_rng(g->s);
	uint8_t prev[DIGEST];
	json_t *list = json_array();
	for (unsigned i = 0, n = (unsigned)rng_below(r, 12); i < n; i++) {
		json_t *held = rng_below(r, 3) ? json_true() : json_pack("[[I,I,I,I],i,[]]", (json_int_t)rng_u64(r) / 2,
			(json_int_t)rng_u64(r) / 2, (json_int_t)0, (json_int_t)rng_below(r, 99), 3);
		for (size_t k = 0; k < DIGEST; k++)
			prev[k] = (uint8_t)rng_u64(r);
		json_array_append_new(list, json_pack("{s:I,s:o,s:o}", "epoch", (json_int_t)rng_below(r, 1000000), "prev",
			json_hex(prev, rng_below(r, 9) ? DIGEST : 3), "held", held));
	}
	return list;
}

static void on_garbage(void *arg, struct request *req)
{
	struct garbage *g = arg;
	struct rng *r = sim_rng(g->s);
	struct err e;
	uint8_t bytes[64] = { 0 };
	size_t n = (size_t)rng_below(r, sizeof bytes);
	if (!req->wants_reply)
		return;
	g->n++;
	if (!json_object_get(req->f.json, "epoch") && rng_below(r, 4)) {
		json_t *list = wild_list(g);
		char *text = json_dumps(list, JSON_COMPACT);
		net_reply(req, json_object(), blob_copy(text, strlen(text)));
		json_decref(list);
		free(text);
	} else if (rng_below(r, 3)) {
		net_reply(req, json_pack("{s:s}", "digest", "no digest"), blob_copy(bytes, n));
	} else {
		err_set(&e, rng_below(r, 2) ? ERR_BUSY : ERR_CORRUPT, "garbage");
		net_refuse(req, &e);
	}
}

/* An epoch that nobody has made yet, or another history of one that all know, and all of it: zeros. */
static void on_forged(void *arg, struct request *req)
{
	struct garbage *g = arg;
	uint64_t n = 0;
	uint8_t prev[DIGEST] = { 1 }, digest[TREE256];
	real *zeros;
	struct err e;
	g->n++;
	if (!json_object_get(req->f.json, "epoch")) {
		json_t *list = json_pack("[{s:I,s:o,s:b},{s:I,s:o,s:b}]", "epoch", (json_int_t)1000, "prev",
			json_hex(prev, DIGEST), "held", 1, "epoch", (json_int_t)FIRST + 1, "prev",
			json_hex(prev, DIGEST), "held", 1);
		char *text = json_dumps(list, JSON_COMPACT);
		net_reply(req, json_object(), blob_copy(text, strlen(text)));
		json_decref(list);
		free(text);
		return;
	}
	(void)json_get_u64(req->f.json, "n", &n, &e);
	zeros = xcalloc((size_t)n + 1, sizeof *zeros);
	tree256_of(HASHES_SHA256, zeros, (size_t)n * sizeof *zeros, digest);
	if (json_is_true(json_object_get(req->f.json, "look")))
		net_reply(req, json_pack("{s:o}", "digest", json_hex(digest, TREE256)), NO_BLOB);
	else
		net_reply(req, json_object(), blob_copy(zeros, (size_t)n * sizeof *zeros));
	free(zeros);
}

/* A member makes up what it has saved, of epochs that others know otherwise, or of none that there is. */
static void scn_forger(struct sim *s)
{
	struct line *l = saved(s, PIPELINE, 5);
	static struct garbage g;
	int bad = line_any_seated(l->w), node = (bad + 1 + (int)rng_below(sim_rng(s), 4)) % 5;
	g = (struct garbage){ .s = s };
	net_on(node_net(node_peer(l->w, bad)->node), KIND_RUN_SAVED, on_forged, &g);
	written(l, node, begin(l, node));
	sim_in_time(s, g.n > 0);
	line_free(l);
}

static void told(void *arg, const struct frame *f, const struct err *e)
{
	struct garbage *g = arg;
	if (f)
		sim_fail(g->s, "it answers what nobody can ask");
}

/* Asks for what cannot be. */
static void ask_garbage(struct line *l, struct garbage *g, int from, int of)
{
	static const char *const words[] = { "{\"epoch\": 0}", "{\"epoch\": -1}", "{\"epoch\": 20, \"prev\": \"00\"}",
		"{\"epoch\": 20, \"tensor\": \"0.weight@5\", \"lo\": 0, \"n\": 1}",
		"{\"epoch\": 20, \"tensor\": \"../x\", \"lo\": 0, \"n\": 1}",
		"{\"epoch\": 20, \"tensor\": \"0.weight\", \"lo\": 18446744073709551615, \"n\": 1}",
		"{\"epoch\": 20, \"tensor\": \"0.weight\", \"lo\": 9223372036854775807, \"n\": 9223372036854775807}",
		"{\"epoch\": 20, \"tensor\": \"0.weight\", \"lo\": 9223372036854775807, \"n\": 60000}",
		"{\"epoch\": 20, \"tensor\": \"0.weight\", \"lo\": 0, \"n\": 0}",
		"{\"epoch\": 20, \"tensor\": \"\", \"lo\": 0, \"n\": 1}" };
	const struct run *r = node_run(l->w, of);
	struct avg_point p = r->point;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		json_t *j = json_loads(words[i], 0, NULL);
		if (!j)
			j = json_object();
		json_object_set_new(j, "run", i ? json_string(r->hex) : json_integer(3));
		if (i > 2)
			json_object_set_new(j, "prev", json_hex(p.prev, DIGEST));
		if (!json_object_get(j, "epoch"))
			json_object_set_new(j, "epoch", json_string("x"));
		net_call(node_net(node_peer(l->w, from)->node), node_id(node_peer(l->w, of)->node), KIND_RUN_SAVED, j,
			NO_BLOB, CLASS_control, 5 * SEC, told, g);
	}
}

/* A member says anything, and asks for anything. What it holds others hold, too. */
static void scn_garbage(struct sim *s)
{
	struct line *l = saved(s, PIPELINE, 5);
	static struct garbage g;
	int bad = line_any_seated(l->w), node = (bad + 1 + (int)rng_below(sim_rng(s), 4)) % 5;
	g = (struct garbage){ .s = s };
	net_on(node_net(node_peer(l->w, bad)->node), KIND_RUN_SAVED, on_garbage, &g);
	ask_garbage(l, &g, bad, node);
	struct question *x = begin(l, node);
	ask_garbage(l, &g, bad, node);
	written(l, node, x);
	sim_in_time(s, g.n > 0);
	line_goes_on(l, 2);
	line_end(l);
}

static const struct scn list[] = { SCN(anybody), SCN(versions), SCN(liar), SCN(differ), SCN(holder_dies), SCN(missing),
	SCN(garbage), SCN(forger), SCN(no_room), {0} };

int main(int argc, char **argv)
{
	return scn_main(list, argc, argv);
}

/* What a run's model does: texts continued and pictures named, with a copy of the weights of one epoch, on a lane of
 * its own, while training goes on. A request belongs to nobody but the list: the run may end before it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/mem.h"
#include "run/int.h"
#include "train/serve/classifier.h"
#include "train/serve/sampler.h"

#define AT_ONCE 8                       /* requests of one daemon: each holds a copy of weights */
#define TOKENS 200
#define TOKENS_MAX 100000
#define PROMPT_MAX 1000000              /* bytes; the socket allows less */
#define FILES_MAX 256
#define TELL_US 50000                   /* text is told at most so often */

struct serving {
	struct list link;               /* of runs.serving */
	struct job job;
	struct runs *rs;                /* NULL: the daemon ends, nobody waits any more */
	struct env *env;
	struct reply *reply;            /* NULL: it has been answered */
	struct id run;
	struct data *data;              /* a reference */
	json_t *params;                 /* of a text */
	uint64_t epoch;
	int rc; struct err e;           /* of the job */
	/* a text */
	struct sampler *sampler; struct sampler_opts opts; struct ids prompt;
	char key[17];
	uint64_t tokens, made, told_us, begun_us;
	int32_t id;
	struct buf text;                /* made and not told */
	/* pictures */
	struct classifier *classifier;
	json_t *files, *rows; size_t at, failed;
	struct guess guess[CLASSIFIER_TOP]; int nguesses;
};

static void serving_free(struct serving *s)
{
	list_del(&s->link);
	sampler_free(s->sampler);
	classifier_free(s->classifier);
	data_free(s->data);
	free(s->prompt.v);
	buf_free(&s->text);
	json_decref(s->params);
	json_decref(s->files);
	json_decref(s->rows);
	free(s);
}

static void answer_error(struct serving *s, const struct err *e)
{
	if (s->reply)
		reply_fail(s->reply, e);
	s->reply = NULL;
}

void runs_serving_free(struct runs *rs)
{
	struct err e;
	err_set(&e, ERR_CANCELLED, "the daemon is stopping");
	list_each_safe(it, &rs->serving) {
		struct serving *s = list_entry(it, struct serving, link);
		answer_error(s, &e);
		s->rs = NULL;
		list_del(&s->link);     /* its copy or its job comes back, and it goes then */
		list_init(&s->link);
	}
}

static void launch(struct serving *s, void (*run)(struct job *j), void (*done)(struct job *j))
{
	s->job = (struct job){ .name = "serve", .lane = env_lane(s->env, "serve"), .run = run, .done = done,
		.cost_us = 1000 };
	env_work(s->env, &s->job);
}

static json_t *head_of(const struct serving *s)
{
	struct run *r = runs_by_id(s->rs, &s->run);
	char hex[ID_HEX];
	id_hex(&s->run, hex);
	return json_pack("{s:s,s:s,s:I}", "run", hex, "name", r ? r->name : "", "epoch", (json_int_t)s->epoch);
}

/* ---- texts ---- */

/* Bytes from the front that are whole characters; what cannot become one counts as whole. */
static size_t whole_characters(const struct buf *b)
{
	size_t n = b->len, back = 0;
	while (back < n && back < 3 && (b->p[n - 1 - back] & 0xc0) == 0x80)
		back++;
	if (back == n)
		return n;
	uint8_t lead = b->p[n - 1 - back];
	size_t wants = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
	return wants > back ? n - 1 - back : n;
}

static void tell_text(struct serving *s, bool final, const struct err *e)
{
	struct runs_ctx *c = &s->rs->ctx;
	size_t n = final ? s->text.len : whole_characters(&s->text);
	char *text = xmalloc(n + 1);
	for (size_t i = 0; i < n; i++)
		text[i] = s->text.p[i] ? (char)s->text.p[i] : ' ';
	text[n] = 0;
	json_t *o = json_pack("{s:s,s:o,s:I}", "generate", s->key, "text", json_text(text), "tokens", (json_int_t)s->made);
	free(text);
	buf_drop(&s->text, n);
	s->told_us = env_now(s->env);
	if (final) {
		double us = (double)(s->told_us - s->begun_us);
		json_object_set_new(o, "final", json_true());
		json_object_set_new(o, "tokens_per_s", json_real(us > 0 ? (double)s->made * 1e6 / us : 0));
	}
	if (e)
		json_object_set_new(o, "error", json_string(e->text));
	if (c->news)
		c->news(c->news_arg, "generate", s->key, o);
	json_decref(o);
}

static void next_run(struct job *j)
{
	struct serving *s = container_of(j, struct serving, job);
	s->rc = sampler_next(s->sampler, &s->id, &s->e);
}

/* A text whose reader has gone is not worth the rest of its tokens. */
static bool heard(const struct serving *s)
{
	const struct runs_ctx *c = &s->rs->ctx;
	return !c->heard || c->heard(c->news_arg, "generate", s->key);
}

static void next_done(struct job *j)
{
	struct serving *s = container_of(j, struct serving, job);
	size_t n = 0;
	if (!s->rs || !heard(s)) {
		serving_free(s);
		return;
	}
	if (s->rc) {
		tell_text(s, true, &s->e);
		serving_free(s);
		return;
	}
	const char *piece = alphabet_piece(data_source(s->data)->alphabet, s->id, &n);
	bool end = alphabet_special(data_source(s->data)->alphabet, s->id);
	if (!end && n)
		buf_put(&s->text, piece, n);
	end |= ++s->made >= s->tokens;
	if (end || env_now(s->env) >= s->told_us + TELL_US)
		tell_text(s, end, NULL);
	if (end)
		serving_free(s);
	else
		launch(s, next_run, next_done);
}

static int text_params(struct serving *s, const json_t *params, struct err *e);

static void text_ready(struct serving *s, const struct run *r, const struct par *par, struct snapshot *weights)
{
	struct err e;
	if (sampler_can(r->spec, data_source(s->data), &e))
		err_wrap(&e, "run %s continues no text", r->name);
	else if (!text_params(s, s->params, &e))
		s->sampler = sampler_new(r->spec, data_source(s->data), par, weights, &s->prompt, &s->opts, &e);
	if (!s->sampler) {
		answer_error(s, &e);
		serving_free(s);
		return;
	}
	json_t *o = head_of(s);
	json_object_set_new(o, "generate", json_string(s->key));
	json_object_set_new(o, "seed", json_integer((json_int_t)s->opts.seed));
	json_object_set_new(o, "prompt_tokens", json_integer((json_int_t)s->prompt.n));
	if (pairs_is(data_source(s->data)))
		json_object_set_new(o, "answers", json_true());
	reply_ok(s->reply, o);
	s->reply = NULL;
	s->begun_us = s->told_us = env_now(s->env);
	launch(s, next_run, next_done);
}

/* ---- pictures ---- */

static void look_run(struct job *j)
{
	struct serving *s = container_of(j, struct serving, job);
	s->rc = classifier_look(s->classifier, s->env->files, json_string_value(json_array_get(s->files, s->at)), s->guess,
		&s->nguesses, &s->e);
}

static json_t *guess_json(const struct serving *s, const struct guess *g)
{
	const char *name = classifier_name(s->classifier, g->label);
	json_t *o = json_pack("{s:i}", "class", (int)g->label);
	if (name)
		json_object_set_new(o, "name", json_text(name));
	json_object_set_new(o, "probability", json_real(g->probability));
	return o;
}

static json_t *row_of(const struct serving *s)
{
	json_t *o = json_object(), *top = json_array(), *also = json_array();
	json_object_set(o, "file", json_array_get(s->files, s->at));
	if (s->rc) {
		json_object_set_new(o, "error", json_string(s->e.text));
		json_decref(top);
		json_decref(also);
		return o;
	}
	for (int i = 0; i < s->nguesses; i++) {
		const char *name = classifier_name(s->classifier, s->guess[i].label);
		char text[120], number[16];
		json_array_append_new(top, guess_json(s, &s->guess[i]));
		snprintf(number, sizeof number, "%d", (int)s->guess[i].label);
		snprintf(text, sizeof text, "%.90s %.1f %%", name ? name : number, 100 * s->guess[i].probability);
		if (i)
			json_array_append_new(also, json_text(text));
	}
	json_object_update_missing(o, json_array_get(top, 0));
	json_object_set_new(o, "top", top);
	json_object_set_new(o, "also", also);
	return o;
}

static void look_done(struct job *j)
{
	struct serving *s = container_of(j, struct serving, job);
	if (!s->rs) {
		serving_free(s);
		return;
	}
	json_array_append_new(s->rows, row_of(s));
	s->failed += s->rc != 0;
	if (++s->at < json_array_size(s->files)) {
		launch(s, look_run, look_done);
		return;
	}
	if (s->failed == s->at) {               /* nothing to show but the reason */
		err_wrap(&s->e, "%.200s", json_string_value(json_array_get(s->files, s->at - 1)));
		answer_error(s, &s->e);
	} else {
		json_t *o = head_of(s);
		json_object_set(o, "predictions", s->rows);
		reply_ok(s->reply, o);
	}
	serving_free(s);
}

static void pictures_ready(struct serving *s, const struct run *r, const struct par *par, struct snapshot *weights)
{
	struct err e;
	s->classifier = classifier_new(r->spec, s->data, par, weights, &e);
	if (s->classifier) {
		launch(s, look_run, look_done);
		return;
	}
	err_wrap(&e, "run %s names no pictures", r->name);
	answer_error(s, &e);
	serving_free(s);
}

/* ---- both ---- */

/* The copy of the weights, made between two micro-batches; of a run that catches up, when it has. */
static void weighed(void *arg, struct snapshot *weights, const struct err *error)
{
	struct serving *s = arg;
	struct run *r = s->rs ? runs_by_id(s->rs, &s->run) : NULL;
	struct compute *c = s->rs ? &s->rs->ctx.compute : NULL;
	struct err e = { .code = ERR_NONE };
	const struct par *par = NULL;
	if (error)
		e = *error;
	else if (!r || !r->spec)
		err_set(&e, ERR_CANCELLED, "the run has ended");
	else
		par = c->par(c->arg, 0, &e);
	if (!par) {
		answer_error(s, &e);
		serving_free(s);
	} else {
		s->epoch = weights->epoch;
		if (s->files)
			pictures_ready(s, r, par, weights);
		else
			text_ready(s, r, par, weights);
	}
	snapshot_unref(weights);
}

static struct run *run_with_weights(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = runs_find(rs, params, reply);
	struct err e;
	size_t n = 0;
	if (!r)
		return NULL;
	list_each(it, &rs->serving)
		n++;
	bool live = r->state == RUN_SYNC || r->state == RUN_TRAIN || r->state == RUN_FINISH;
	if (r->data && data_is_absent(r->data))
		err_set(&e, ERR_STATE, "run %s is here without its data (run join --aux): ask another peer", r->name);
	else if (run_over(r) ? !r->spec : !r->trainer || !r->data || !live)
		err_set(&e, ERR_STATE, "run %s has no weights yet: its state is %s", r->name, run_state_name(r));
	else if (n >= AT_ONCE)
		err_set(&e, ERR_LIMIT, "%zu texts and pictures are under way: that is the most at once", n);
	else
		return r;
	reply_fail(reply, &e);
	return NULL;
}

static void from_checkpoint(void *arg, struct data *data, struct snapshot *weights, const struct err *error)
{
	struct serving *s = arg;
	struct err e;
	s->data = data;
	if (error) {
		e = *error;
		err_wrap(&e, "the run is over");
	}
	weighed(s, weights, error ? &e : NULL);
}

/* Weights for a request, then it goes on in weighed; it may be gone when this returns. */
static void serve(struct run *r, struct serving *s)
{
	struct err e;
	s->rs = r->rs;
	s->env = r->rs->ctx.env;
	s->run = r->id;
	list_push(&r->rs->serving, &s->link);
	if (run_over(r)) {
		run_revive(r, from_checkpoint, s);
		return;
	}
	s->data = data_ref(r->data);
	if (r->crew) {
		err_set(&e, ERR_STATE, "members of run %s hold parts of its model, and nobody the whole", r->name);
		weighed(s, NULL, &e);
		return;
	}
	trainer_weights(r->trainer, weighed, s);
}

static int count_of(const json_t *params, const char *key, uint64_t none, uint64_t lo, uint64_t hi, uint64_t *ret,
	struct err *e)
{
	const json_t *v = json_object_get(params, key);
	json_int_t n = json_integer_value(v);
	*ret = v ? (uint64_t)n : none;
	if (n < 0 || *ret < lo || *ret > hi)
		return err_set(e, ERR_INVALID, "generate: %s must be %llu to %llu", key, (unsigned long long)lo,
			(unsigned long long)hi);
	return 0;
}

static int text_params(struct serving *s, const json_t *params, struct err *e)
{
	const json_t *heat = json_object_get(params, "temperature");
	const char *prompt = json_string_value(json_object_get(params, "prompt"));
	uint64_t top_k;
	bool pairs = pairs_is(data_source(s->data));
	if (pairs && (!prompt || !*prompt || strpbrk(prompt, "\t\n")))
		return err_set(e, ERR_INVALID, "generate: the prompt is the text to answer, as a line of the data has it: "
			"without a TAB, and not empty");
	if (!prompt || !*prompt)
		prompt = "\n";
	s->opts.temperature = heat ? json_number_value(heat) : 0.8;
	if (!(s->opts.temperature >= 0 && s->opts.temperature <= 100))
		return err_set(e, ERR_INVALID, "generate: temperature must be 0 to 100");
	if (count_of(params, "tokens", TOKENS, 1, TOKENS_MAX, &s->tokens, e) ||
			count_of(params, "top_k", 0, 0, UINT32_MAX, &top_k, e) ||
			count_of(params, "seed", env_rand(s->env) >> 32, 0, INT64_MAX, &s->opts.seed, e))
		return -1;
	s->opts.top_k = (uint32_t)top_k;
	alphabet_encode(data_source(s->data)->alphabet, prompt, strnlen(prompt, PROMPT_MAX), &s->prompt);
	return 0;
}

void runs_generate(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = run_with_weights(rs, params, reply);
	if (!r)
		return;
	struct serving *s = xcalloc(1, sizeof *s);
	s->reply = reply;
	s->params = json_incref((json_t *)params);
	snprintf(s->key, sizeof s->key, "%016llx", (unsigned long long)env_rand(rs->ctx.env));
	serve(r, s);
}

void runs_predict(struct runs *rs, const json_t *params, struct reply *reply)
{
	struct run *r = run_with_weights(rs, params, reply);
	json_t *files = json_object_get(params, "files"), *file;
	struct err e = { .code = ERR_NONE };
	size_t i;
	if (!r)
		return;
	if (!json_array_size(files) || json_array_size(files) > FILES_MAX)
		err_set(&e, ERR_INVALID, "predict: 1 to %d files at once", FILES_MAX);
	json_array_foreach(files, i, file)
		if (!json_is_string(file) || json_string_value(file)[0] != '/')
			err_set(&e, ERR_INVALID, "predict: files must be absolute paths");
	if (e.code) {
		reply_fail(reply, &e);
		return;
	}
	struct serving *s = xcalloc(1, sizeof *s);
	s->reply = reply;
	s->files = json_incref(files);
	s->rows = json_array();
	serve(r, s);
}

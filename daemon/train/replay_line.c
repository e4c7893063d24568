/* What a line of a run log means: each does to the peer's fields what the trainer did when it wrote the line
 * (trainer_round.c, trainer_flight.c), and what a line says that follows from those before it is compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/replay_int.h"
#include "train/trainer_int.h"

/* --- instructions */

static int take_load(struct peer *p, const json_t *j, struct err *e)
{
	const json_t *ranges = json_object_get(j, "positions");
	int64_t index = json_integer_value(json_object_get(j, "index"));
	struct micro *m = &p->micro[(uint64_t)index % REPLAY_LOADS];
	uint32_t n = (uint32_t)replay_number(j, "n"), have = 0;

	if (!n || n > 1 << 20)
		return err_set(e, ERR_CORRUPT, "a LOAD of %u samples", n);
	free(m->position);
	*m = (struct micro){ .n = n, .index = index, .position = xcalloc(n, sizeof(*m->position)) };
	for (size_t i = 0; i < json_array_size(ranges); i++) {
		const json_t *r = json_array_get(ranges, i);
		uint64_t lo = (uint64_t)json_integer_value(json_array_get(r, 0));
		uint64_t hi = (uint64_t)json_integer_value(json_array_get(r, 1));

		for (; lo < hi && have < n; lo++)
			m->position[have++] = lo;
	}
	return have == n ? 0 : err_set(e, ERR_CORRUPT, "a LOAD of %u samples names %u positions", n, have);
}

static const char *ref_name(const json_t *refs, size_t k)
{
	const char *s = json_string_value(json_array_get(json_array_get(refs, k), 0));

	return s ? replay_name(s) : "";
}

/* What it reads is what was written last: the log has the keys of both. */
static int same_keys(struct peer *p, const json_t *refs, struct err *e)
{
	for (size_t k = 0; k < json_array_size(refs); k++) {
		int place = replay_place(ref_name(refs, k));
		int64_t key = json_integer_value(json_array_get(json_array_get(refs, k), 1));

		if (place >= 0 && place != PLACE_g && place != PLACE_grad && p->v[place].program == p->program &&
		    p->v[place].key != key)
			return err_set(e, ERR_CORRUPT, "%s: value %lld is read, and %lld was written last", ref_name(refs, k),
				(long long)key, (long long)p->v[place].key);
	}
	return 0;
}

static void begin_forward(struct peer *p, const json_t *j)
{
	const json_t *refs = json_object_get(j, "in");
	int64_t index = json_integer_value(json_object_get(j, "index"));
	struct micro *m = &p->micro[(uint64_t)index % REPLAY_LOADS];

	if (!m->n || m->index != index || m->begun)
		return;
	for (size_t k = 0; k < json_array_size(refs); k++) {
		int place = replay_place(ref_name(refs, k));

		if (place != PLACE_w && place != PLACE_work)
			continue;
		m->begun = true;
		m->from = (enum place)place;
		m->writes = p->v[place].writes;
	}
}

/* The trainer's vec_env. */
static void vec_env(const struct replayer *r, const struct peer *p, struct vec_env *ret)
{
	const struct told *c = p->applying;
	const struct spec *s = r->s;
	uint64_t epoch = c ? c->epoch - 1 : p->epoch;

	*ret = (struct vec_env){ .model = r->model, .loss = s->loss, .objective = &s->objective, .optim = s->optim,
		.decay_all = s->decay_all, .clip_norm = c ? c->clip_norm : p->clip_norm, .unit = p->samples ? p->unit : 0,
		.samples = p->samples, .loss_scale = p->scale, .scale_interval = p->scale > 0 ? s->scale_interval : 0,
		.settings = { s->nsettings, s->setting } };
	round_part_of(s, r->model, epoch, &ret->part_lo, &ret->part_n);
	memcpy(ret->hyper, c ? c->hyper : p->hyper, sizeof(ret->hyper));
	ret->hyper[0] = round_lr_of(s, ret->hyper[0], c ? c->batch : p->target, epoch);
	memcpy(ret->state, r->used, sizeof(ret->state));
}

static int take_start(struct replayer *r, struct peer *p, const json_t *j, const char *kind, struct err *e)
{
	const json_t *refs = json_object_get(j, "in");
	uint64_t i = replay_number(j, "i");
	struct begun *op = &p->op[i % REPLAY_OPS];

	if (replay_number(j, "program") != p->program)
		return err_set(e, ERR_CORRUPT, "an instruction of program %llu in program %llu",
			(unsigned long long)replay_number(j, "program"), (unsigned long long)p->program);
	if (same_keys(p, refs, e) < 0)
		return -1;
	*op = (struct begun){ .op = i, .there = true };
	for (size_t k = 0; k < json_array_size(refs); k++) {
		const char *name = ref_name(refs, k);

		op->parts += replay_place(name) == PLACE_grad;
		if (op->nin && replay_place(name) == PLACE_grad && !strcmp(op->in[op->nin - 1], name))
			continue;               /* the next part */
		if (op->nin == REPLAY_REFS)
			return err_set(e, ERR_CORRUPT, "an instruction of %zu inputs", json_array_size(refs));
		(void)snprintf(op->in[op->nin++], sizeof(op->in[0]), "%s", name);
	}
	op->batch = !strcmp(kind, "COMMIT") && op->nin;
	op->vec = !strcmp(kind, "VEC");
	if (!strcmp(kind, "FWD"))
		begin_forward(p, j);
	else if (!strcmp(kind, "VEC"))
		vec_env(r, p, &op->v);
	else if (!strcmp(kind, "SUM"))
		(void)snprintf(p->sum, sizeof(p->sum), "%s", op->nin ? op->in[0] : "");
	return 0;
}

/* The samples of a micro-batch count. */
static int count(const struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	int64_t index = json_integer_value(json_object_get(j, "index"));
	struct micro *m = &p->micro[(uint64_t)index % REPLAY_LOADS];

	if (!m->n || m->index != index || m->counted || !(m->summed || r->s->mode.grows))
		return err_set(e, ERR_CORRUPT, "micro-batch %lld counts and %s", (long long)index,
			m->counted ? "has counted before" : "is in no sum");
	if (!p->samples)
		p->oldest = p->renewed ? p->work_epoch : p->epoch;
	p->samples += m->n;
	p->growing += m->summed ? 0 : m->n;
	m->counted = true;
	return 0;
}

/* The first commit of those that wait is taken: where its SUM wants it. */
static int deliver(struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	int place = replay_place(ref_name(json_object_get(j, "out"), 0)), rc;
	struct told *c = list_empty(&p->commits) ? NULL : replay_told(&p->commits);
	struct value *v = place < 0 ? NULL : &p->v[place];
	const real *mean;

	if (place == PLACE_grad && p->agreed) { /* the first of its parts has brought all */
		p->agreed++;
		return 0;
	}
	if (!c || p->applying || !v)
		return err_set(e, ERR_CORRUPT, "a mean is taken that nobody has committed");
	/* running on from w to the optimizer's vectors, where these are averaged, too */
	if (v->bytes < r->given * sizeof(real) && !(r->s->mode.both && place == PLACE_w))
		return err_set(e, ERR_CORRUPT, "a mean of %zu elements goes to %s", r->given,
			ref_name(json_object_get(j, "out"), 0));
	rc = replay_mean(r, c->round, &mean, e);
	if (rc)
		return rc;
	list_del(&c->link);
	p->agreed += place == PLACE_grad;
	p->applying = c;
	p->taken = c->epoch;
	if (c->flew)
		p->flight.out = false;
	memcpy(v->p, mean, r->given * sizeof(real));
	v->writes++;
	v->program = p->program;
	v->key = json_integer_value(json_array_get(json_array_get(json_object_get(j, "out"), 0), 1));
	if (place == PLACE_w)
		v->epoch = c->epoch;
	return 0;
}

/* A VEC has ended: of a gradient in parts the step is made with all, each of which was made and agreed on. */
static int parts_there(struct peer *p, const struct begun *op, const json_t *j, struct err *e)
{
	p->made += !strcmp(replay_text(j, "fn"), "bucket");
	if (!strcmp(replay_text(j, "fn"), "opt") && op->parts && (p->made != op->parts || p->agreed != op->parts))
		return err_set(e, ERR_CORRUPT, "a step with %u parts of a gradient, of which %u were made and %u are means",
			op->parts, p->made, p->agreed);
	return 0;
}

static int take_end(struct replayer *r, struct peer *p, const json_t *j, const char *kind, struct err *e)
{
	uint64_t i = replay_number(j, "i");
	struct begun *op = &p->op[i % REPLAY_OPS];
	int64_t index = json_integer_value(json_object_get(j, "index"));
	struct micro *m = &p->micro[(uint64_t)index % REPLAY_LOADS];
	int rc = 0;

	/* a micro-batch that was summed while its program was cut short counts, without a start of its own */
	if (!strcmp(kind, "COMMIT") && (!op->there || op->op != i) && m->index == index && m->summed)
		return count(r, p, j, e);
	if (!op->there || op->op != i || replay_number(j, "program") != p->program || op->vec != !strcmp(kind, "VEC"))
		return err_set(e, ERR_CORRUPT, "an instruction has ended that had not begun");
	if (!strcmp(kind, "LOAD"))
		rc = take_load(p, j, e);
	else if (!strcmp(kind, "COMMIT") && op->batch)
		rc = count(r, p, j, e);
	else if (!strcmp(kind, "SUM"))
		rc = deliver(r, p, j, e);
	else if (!strcmp(kind, "VEC") && strcmp(replay_text(j, "fn"), "loss"))
		rc = parts_there(p, op, j, e) < 0 ? -1 : replay_vec(r, p, op, j, e);
	else if (!strcmp(kind, "VEC") && m->n && m->index == index)
		rc = replay_loss(m, op, j, e);
	op->there = rc == REPLAY_WAITS;
	return rc;
}

/* --- rounds */

static int numbers(const struct replayer *r, const json_t *j, double hyper[OPTIM_KEYS_MAX], double *ret_clip,
	struct err *e)
{
	const json_t *v = json_object_get(j, "hyper");

	if (json_array_size(v) != (size_t)r->s->optim->nkeys)
		return err_set(e, ERR_CORRUPT, "%zu hyperparameters; %s has %d", json_array_size(v), r->s->optim->name,
			r->s->optim->nkeys);
	for (int i = 0; i < r->s->optim->nkeys; i++) {
		const char *s = json_string_value(json_array_get(v, (size_t)i));

		hyper[i] = s ? strtod(s, NULL) : 0;
	}
	*ret_clip = strtod(replay_text(j, "clip_norm"), NULL);
	return 0;
}

static int take_contribute(struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	uint64_t samples = replay_number(j, "samples"), here = p->flight.out ? p->flight.samples : p->samples;
	uint64_t epoch = replay_number(j, "epoch") + 1;
	int place = replay_place(p->sum);
	struct gift *g;

	if (!samples)
		return 0;
	if (samples != here)
		return err_set(e, ERR_CORRUPT, "%llu samples are given to epoch %llu, and %llu are in the log",
			(unsigned long long)samples, (unsigned long long)epoch, (unsigned long long)here);
	if (place < 0 || (p->v[place].bytes < r->given * sizeof(real) && !(r->s->mode.both && place == PLACE_w)))
		return err_set(e, ERR_CORRUPT, "%s is given to epoch %llu", *p->sum ? p->sum : "nothing",
			(unsigned long long)epoch);
	g = gift_to(p, epoch);
	if (!g || g->past) {
		real *x = big_alloc(r->given * sizeof(real));

		if (!x)
			return err_set(e, ERR_NOMEM, "no memory for what is given to epoch %llu (%zu bytes)",
				(unsigned long long)epoch, r->given * sizeof(real));
		g = xcalloc(1, sizeof(*g));
		*g = (struct gift){ .epoch = epoch, .x = x };
		list_push(&p->gifts, &g->link);
	}
	g->samples = samples;
	memcpy(g->x, p->v[place].p, r->given * sizeof(real));
	return 0;
}

/* Where the epoch's sums go: the trainer's commit_new. */
static int decide(struct replayer *r, struct peer *p, struct told *c, struct err *e)
{
	struct gift *g = gift_to(p, c->epoch);

	if (c->flew && (!p->flight.out || p->flight.version != c->version))
		return err_set(e, ERR_CORRUPT, "epoch %llu: what flew was made with epoch %llu, and in the log it is %llu",
			(unsigned long long)c->epoch, (unsigned long long)c->version,
			p->flight.out ? (unsigned long long)p->flight.version : (unsigned long long)p->epoch);
	if (r->strategy->needs_swarm && c->samples && (!g || g->samples != c->samples))
		return err_set(e, ERR_CORRUPT, "epoch %llu: %llu samples were counted, and %llu were given",
			(unsigned long long)c->epoch, (unsigned long long)c->samples, g ? (unsigned long long)g->samples : 0ull);
	if (!r->strategy->needs_swarm && c->samples != p->samples)
		return err_set(e, ERR_CORRUPT, "epoch %llu: %llu samples were counted and %llu are in the log",
			(unsigned long long)c->epoch, (unsigned long long)c->samples, (unsigned long long)p->samples);
	if (g) {
		g->to = c->round;
		g->past = true;
		g->counted = c->samples > 0;
	}
	if (c->flew && c->samples && c->version < c->epoch - 1) {
		r->ret->stale++;
		if (c->epoch - 1 - c->version > r->ret->stale_most)
			r->ret->stale_most = c->epoch - 1 - c->version;
	}
	if (!c->flew && !r->s->mode.any)
		p->samples = p->growing = 0;
	return 0;
}

static int take_commit(struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	uint64_t epoch = replay_number(j, "epoch");
	struct round *said = p->in[epoch % REPLAY_TOLD];
	struct round *round = said && said->epoch == epoch ? said : replay_round(r, epoch, "", e);
	struct told *c = round ? xcalloc(1, sizeof(*c)) : NULL;

	if (!c)
		return -1;
	*c = (struct told){ .round = round, .epoch = epoch, .samples = replay_number(j, "samples"),
		.target = replay_number(j, "target"), .version = replay_number(j, "flew"),
		.flew = json_object_get(j, "flew") != NULL };
	c->batch = json_object_get(j, "batch") ? replay_number(j, "batch") : c->target;
	if (numbers(r, j, c->hyper, &c->clip_norm, e) < 0 || decide(r, p, c, e) < 0) {
		free(c);
		return -1;
	}
	list_push(&p->commits, &c->link);
	if (c->epoch != p->committed + 1)
		return err_set(e, ERR_CORRUPT, "epoch %llu is committed behind epoch %llu", (unsigned long long)c->epoch,
			(unsigned long long)p->committed);
	p->committed = c->epoch;
	memcpy(p->hyper, c->hyper, sizeof(p->hyper));
	p->clip_norm = c->clip_norm;
	p->target = json_object_get(j, "then") ? replay_number(j, "then") : c->target;
	if (r->strategy->needs_swarm)
		return 0;
	list_del(&c->link);                     /* of its own: it is behind it already */
	free(p->applying);
	p->applying = c;
	p->taken = c->epoch;
	r->ret->samples += c->samples;
	r->ret->contributions++;
	return 0;
}

/* In a history or another. */
static bool reached(const struct replayer *r, uint64_t epoch)
{
	const struct round *round = r->round[epoch - 1];

	while (round && !round->applied)
		round = round->next;
	return round;
}

static int take_applied(struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	struct told *c = p->applying;
	uint64_t epoch = replay_number(j, "epoch");
	char hex[2 * STATE_DIGEST + 1];

	if (!c || c->epoch != epoch)
		return err_set(e, ERR_CORRUPT, "epoch %llu is reached, and it has not been committed",
			(unsigned long long)epoch);
	(void)text_hex(p->digest, STATE_DIGEST, hex);
	if (strcmp(hex, replay_text(j, "digest")))
		return err_set(e, ERR_MISMATCH, "epoch %llu: the parameters are %s here and were %s",
			(unsigned long long)epoch, hex, replay_text(j, "digest"));
	r->ret->epochs += !reached(r, epoch);
	c->round->applied = true;
	p->epoch = epoch;
	p->applying = NULL;
	free(c);
	return 0;
}

/* Who was in a round, with how many samples, in the order of their sum. */
static int take_round(struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	const json_t *shares = json_object_get(j, "shares");
	struct round *round = replay_round(r, replay_number(j, "epoch"), replay_text(j, "id"), e);
	uint32_t n = (uint32_t)json_array_size(shares);
	bool known;

	if (!round)
		return -1;
	if (!n || n > REPLAY_SHARES)
		return err_set(e, ERR_CORRUPT, "a round of %u", n);
	if (n > r->s->group_size && !(r->s->topology && !strcmp(r->s->topology->name, "flat")))
		return err_set(e, ERR_INVALID, "epoch %llu: %u members, more than averaging.group_size (%u), average in rows, "
			"which is not replayed", (unsigned long long)round->epoch, n, r->s->group_size);
	known = round->n > 0;
	if (!known)
		round->share = xcalloc(n, sizeof(*round->share));
	for (uint32_t k = 0; k < n; k++) {
		const json_t *one = json_array_get(shares, k);
		const char *id = json_string_value(json_array_get(one, 0));
		uint64_t samples = (uint64_t)json_integer_value(json_array_get(one, 1));
		struct share *s = &round->share[k];

		if (known && (n != round->n || !id || strcmp(s->id, id) || s->samples != samples))
			return err_set(e, ERR_CORRUPT, "epoch %llu: another log tells of another round",
				(unsigned long long)replay_number(j, "epoch"));
		(void)snprintf(s->id, sizeof(s->id), "%s", id ? id : "");
		s->samples = samples;
	}
	round->n = n;
	p->in[round->epoch % REPLAY_TOLD] = round;
	return 0;
}

/* --- the state as a whole */

static void forget(struct peer *p)
{
	list_each_safe(it, &p->commits)
		free(list_entry(it, struct told, link));
	list_init(&p->commits);
	free(p->applying);
	p->applying = NULL;
	p->samples = p->growing = 0;
	p->renewed = p->flight.out = false;
	list_each(it, &p->gifts)                /* it may be of another history now */
		list_entry(it, struct gift, link)->past = true;
}

static int take_copied(struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	bool wanted = false;

	for (size_t i = 0; i < r->npeers; i++)
		for (size_t k = r->peer[i].adopted; k < r->peer[i].nadopts; k++)
			wanted = wanted || r->peer[i].adopts[k] == p->epoch;
	return wanted ? replay_keep(r, &p->shard, replay_number(j, "epoch"), e) : 0;
}

static int take_adopted(struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	uint64_t epoch = replay_number(j, "epoch");
	struct image *found = NULL;
	char hex[2 * STATE_DIGEST + 1];

	p->committed = p->taken = epoch;        /* nothing before it is wanted, nor comes */
	list_each(it, &r->images) {
		struct image *i = list_entry(it, struct image, link);

		(void)text_hex(i->digest, STATE_DIGEST, hex);
		if (i->epoch == epoch && !strcmp(hex, replay_text(j, "state")))
			found = i;
	}
	p->begins = !found;
	if (!found)
		return REPLAY_WAITS;
	forget(p);
	if (numbers(r, j, p->hyper, &p->clip_norm, e) < 0)
		return -1;
	p->target = replay_number(j, "target");
	p->epoch = epoch;
	p->adopted++;
	memcpy(p->shard.block, found->block, p->shard.bytes);
	p->scale = shard_scale(&p->shard);
	for (int k = 0; k < PLACES; k++) {
		p->v[k].writes++;
		p->v[k].program = 0;
		p->v[k].epoch = epoch;
	}
	return 0;
}

/* What the one before was making for a round, it has not given. */
static void begin_program(struct peer *p, const json_t *j)
{
	p->program = replay_number(j, "number");
	p->samples -= p->growing;
	p->growing = p->made = p->agreed = 0;
}

int replay_line(struct replayer *r, struct peer *p, const json_t *j, struct err *e)
{
	const char *ev = replay_text(j, "ev"), *kind = replay_text(j, "kind");

	if (!strcmp(ev, "start"))
		return take_start(r, p, j, kind, e);
	if (!strcmp(ev, "end"))
		return take_end(r, p, j, kind, e);
	if (!strcmp(ev, "contribute"))
		return take_contribute(r, p, j, e);
	if (!strcmp(ev, "commit"))
		return take_commit(r, p, j, e);
	if (!strcmp(ev, "applied"))
		return take_applied(r, p, j, e);
	if (!strcmp(ev, "round"))
		return take_round(r, p, j, e);
	if (!strcmp(ev, "adopted"))
		return take_adopted(r, p, j, e);
	if (!strcmp(ev, "copied"))
		return take_copied(r, p, j, e);
	if (!strcmp(ev, "quiet"))
		forget(p);
	else if (!strcmp(ev, "program") && strcmp(replay_text(j, "strategy"), r->s->strategy))
		return err_set(e, ERR_CORRUPT, "a program of strategy %s", replay_text(j, "strategy"));
	else if (!strcmp(ev, "program"))
		begin_program(p, j);
	else if (!strcmp(ev, "dropped") && replay_number(j, "samples") != p->samples)
		return err_set(e, ERR_CORRUPT, "%llu samples were dropped, and %llu were there",
			(unsigned long long)replay_number(j, "samples"), (unsigned long long)p->samples);
	else if (!strcmp(ev, "dropped"))
		p->samples = 0;
	return 0;
}

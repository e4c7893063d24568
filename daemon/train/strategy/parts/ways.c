/* The search for the best way (ways.h). Every way is cut and predicted as it would run, by the same code; what could
 * not be the fastest even if nobody ever waited is left out. Plain arithmetic in a fixed order: every member finds the
 * same one. What copies of the state cost the network is not counted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "common/text.h"
#include "train/strategy/parts/said.h"
#include "train/strategy/parts/seats.h"
#include "train/strategy/parts/units.h"
#include "train/strategy/parts/ways_int.h"

bool ways_open(const json_t *values)
{
	return said_auto(values, "stages") || said_auto(values, "micro_batch_size") || said_remat(values) == REMAT_AUTO;
}

uint32_t ways_batch(const json_t *values)
{
	return (uint32_t)json_integer_value(json_object_get(values, "micro_batch_size"));
}

/* --- what there is to choose among */

struct found { struct way way; double least_us; uint32_t number; };
struct search {
	const struct view *v;
	uint32_t nsizes; struct profile size[24];       /* of each size of micro-batches, the greatest first */
	uint32_t n; struct found *found;
};

static void sizes_of(struct search *s)
{
	uint32_t batch = 1, said = ways_batch(s->v->values);

	while (batch * 2 <= SAMPLES_MAX && batch * 2 <= s->v->target_batch)
		batch *= 2;
	if (!said_auto(s->v->values, "micro_batch_size"))
		batch = said ? said : s->v->profile->batch;
	for (; batch; batch /= 2) {
		profile_at(s->v->profile, batch, &s->size[s->nsizes++]);
		if (!said_auto(s->v->values, "micro_batch_size"))
			break;
	}
}

static void search_close(struct search *s)
{
	for (uint32_t k = 0; k < s->nsizes; k++)
		profile_free(&s->size[k]);
	free(s->found);
}

/* Values in which nothing is open: a new reference. */
static json_t *values_of(const struct view *v, const struct way *way)
{
	json_t *o = json_copy((json_t *)v->values);

	if (way->stages)
		(void)json_object_set_new(o, "stages", json_integer(way->stages));
	(void)json_object_set_new(o, "replicas", json_integer(way->units));
	(void)json_object_set_new(o, "micro_batch_size", json_integer(way->batch));
	(void)json_object_set_new(o, "remat", json_string(way->remat ? "boundary" : "none"));
	return o;
}

/* The view that has been made for one way, and its seats. */
struct trial { struct view v; json_t *values; struct pipe x; };

static void trial_of(struct trial *t, const struct search *s, const struct way *way)
{
	*t = (struct trial){ .v = *s->v, .values = values_of(s->v, way) };
	t->v.values = t->values;
	for (uint32_t k = 0; k < s->nsizes; k++)
		if (s->size[k].batch == way->batch)
			t->v.profile = &s->size[k];
}

/* Seats for exactly so many pipelines. */
static int trial_seats(struct trial *t, uint32_t units, struct err *e)
{
	if (seats_find(&t->x, &t->v, e) < 0)
		return -1;
	return t->x.units == units ? 0 : err_set(e, ERR_INVALID, "%u pipelines side by side, and there are members and "
		"micro-batches for %u", units, t->x.units);
}

/* If nobody ever waited: the time of the pipeline that has most to do for what it can. Passes are of whole us. */
static double least_us(const struct trial *t)
{
	const struct profile *m = t->v.profile;
	double work = 0, most = 0;

	for (uint32_t o = 0; o < m->nops; o++)
		work += (double)(m->op[o].variant[0].fwd_us + m->op[o].variant[0].bwd_us);
	for (uint32_t u = 0; u < t->x.units; u++) {
		double speed = 0, us;

		for (uint32_t k = 0; k < t->x.members; k++)
			speed += ways_speed(&t->v, u * t->x.members + k);
		us = (double)units_share(&t->x, &t->v, u).n * (work / speed - 1);
		most = us > most ? us : most;
	}
	return most;
}

static void add(struct search *s, const struct way *way, uint32_t *number)
{
	struct trial t;
	struct err e;

	trial_of(&t, s, way);
	++*number;
	if (trial_seats(&t, way->units, &e) == 0) {
		s->found = xrealloc(s->found, (s->n + 1) * sizeof(*s->found));
		s->found[s->n++] = (struct found){ *way, least_us(&t), *number };
	}
	json_decref(t.values);
}

static void list(struct search *s)
{
	const json_t *stages = json_object_get(s->v->values, "stages");
	bool open = said_auto(s->v->values, "stages"), again = said_remat(s->v->values) == REMAT_AUTO;
	uint32_t from = open ? 1 : json_is_array(stages) ? 0 : (uint32_t)json_integer_value(stages), to = from, number = 0;

	if (open)
		to = s->v->nmembers < STAGES_MAX ? s->v->nmembers : STAGES_MAX;
	for (uint32_t d = from; d <= to && d <= s->v->profile->nops; d++)
		for (uint32_t w = 1; w * (d ? d : 1) <= s->v->nmembers && w <= units_most(s->v); w++)
			for (uint32_t b = 0; b < s->nsizes; b++)
				for (int r = 0; r < 2; r++)
					if (again || r == (said_remat(s->v->values) == REMAT_BOUNDARY))
						add(s, &(struct way){ w, d, s->size[b].batch, r }, &number);
}

/* --- the best of them */

static int by_promise(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->least_us < y->least_us ? -1 : x->least_us > y->least_us ? 1 : x->number < y->number ? -1 : 1;
}

struct best { const struct found *found; double us; uint64_t bytes, has; };

static void look(const struct search *s, const struct found *f, struct best *best)
{
	struct trial t;
	struct err e;
	uint64_t bytes, has;
	double us;

	trial_of(&t, s, &f->way);
	t.x.quiet = true;
	if (trial_seats(&t, f->way.units, &e) == 0 && seats_cut(&t.x, f->way.units, &e) == 0) {
		bytes = seats_bytes(&t.x, &has);        /* with the greatest share of any pipeline, as it was cut */
		us = ways_epoch(&t.x, &e);
		if (us >= 0 && (!best->found || us < best->us || (!(us > best->us) && f->number < best->found->number))) {
			best->found = f;
			best->us = us;
			best->bytes = bytes;
			best->has = has;
		}
	}
	json_decref(t.values);
}

/* With so many bytes more for every member: can it be? */
static bool fits(const struct search *s, const struct way *way, uint64_t more, bool quiet, uint64_t *lacks,
	struct err *e)
{
	struct trial t;
	bool ok;

	trial_of(&t, s, way);
	ok = trial_seats(&t, way->units, e) == 0;
	t.x.quiet = quiet;
	t.x.more = more;
	ok = ok && seats_cut(&t.x, way->units, e) == 0;
	if (lacks)
		*lacks = t.x.lacks;
	json_decref(t.values);
	return ok;
}

static const char *way_text(const struct way *w, char out[120])
{
	char stages[24];

	(void)snprintf(stages, sizeof(stages), w->stages ? "%u" : "the", w->stages);
	(void)snprintf(out, 120, "%u pipeline%s of %s stage%s, micro-batches of %u, %s recomputing", w->units,
		w->units == 1 ? "" : "s", stages, w->stages == 1 ? "" : "s", w->batch, w->remat ? "with" : "without");
	return out;
}

/* Which lacks least, and how much. What cannot be for another reason never will: the first such reason is told, too. */
static int none(const struct search *s, struct err *e)
{
	const struct way *nearest = NULL;
	uint64_t least = UINT64_MAX, lacks;
	struct err other = { 0 }, x;
	char text[120];

	for (uint32_t k = 0; k < s->n; k++) {
		const struct way *w = &s->found[k].way;

		if (nearest && !fits(s, w, least - least / 100 - 1, true, NULL, &x) && x.code == ERR_LIMIT)
			continue;
		if (fits(s, w, 0, false, &lacks, &x))
			continue;               /* it fits, and cannot be predicted */
		if (!lacks && !other.text[0])
			other = x;
		nearest = lacks && lacks < least ? w : nearest;
		least = lacks && lacks < least ? lacks : least;
	}
	if (!nearest && other.text[0])
		return err_set(e, other.code, "%s", other.text);
	if (!nearest)
		return err_set(e, ERR_INVALID, "%u members, and there is no way to lay a pipeline over them: more members, or "
			"fewer stages", s->v->nmembers);
	return err_set(e, ERR_LIMIT, "of %u ways to lay a pipeline over %u members none fits: the nearest, %s, lacks %llu "
		"bytes on a member; more memory would help, more members%s%s%s%.400s", s->n, s->v->nmembers,
		way_text(nearest, text), (unsigned long long)least, said_auto(s->v->values, "micro_batch_size") ? "" :
		", micro_batch_size auto", said_remat(s->v->values) == REMAT_NONE ? ", remat auto" : "",
		other.text[0] ? "; others cannot be: " : "", other.text);
}

static void tell(const struct search *s, const struct best *b, json_t *values)
{
	const struct way *w = &b->found->way;
	double rate = b->us > 0 ? (double)s->v->target_batch * 1e6 / b->us : 0;
	char text[300], way[120], bytes[32], has[32], fast[60] = "no time that could be predicted";
	json_t *o = json_pack("{s:I,s:I,s:s,s:f,s:I,s:I,s:I}", "replicas", (json_int_t)w->units, "micro_batch_size",
		(json_int_t)w->batch, "remat", w->remat ? "boundary" : "none", "samples_per_s", rate, "bytes",
		(json_int_t)b->bytes, "memory_bytes", (json_int_t)b->has, "ways", (json_int_t)s->n);

	if (rate > 0)
		(void)snprintf(fast, sizeof(fast), "predicted %.6g samples/s", rate);
	(void)snprintf(text, sizeof(text), "chosen: %s: %s, %s of %s", way_text(w, way), fast,
		text_print_size(b->bytes, bytes, sizeof(bytes)), b->has ? text_print_size(b->has, has, sizeof(has)) :
		"memory that nobody has stated");
	(void)json_object_set_new(o, "stages", json_integer(w->stages ? w->stages :
		(json_int_t)json_array_size(json_object_get(values, "stages"))));
	(void)json_object_set_new(o, "text", json_string(text));
	(void)json_object_set_new(values, PLANNER_CHOSEN, o);
}

int ways_choose(const struct view *v, json_t **ret, struct err *e)
{
	const struct view begins = ways_begins(v);
	struct search s = { .v = &begins };
	struct best best = { 0 };
	int rc = 0;

	sizes_of(&s);
	list(&s);
	if (s.n)
		qsort(s.found, s.n, sizeof(*s.found), by_promise);
	for (uint32_t k = 0; k < s.n && (!best.found || s.found[k].least_us <= best.us); k++)
		look(&s, &s.found[k], &best);
	if (best.found) {
		*ret = values_of(v, &best.found->way);
		tell(&s, &best, *ret);
	} else {
		rc = none(&s, e);
	}
	search_close(&s);
	return rc;
}

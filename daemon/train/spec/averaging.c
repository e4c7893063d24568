/* "averaging" in a spec: what every swarm can be told, and the numbers of its strategy, which the strategy itself
 * declares (plan/planner.h) and judges. */
#include <stdio.h>
#include <string.h>
#include "train/spec/int.h"
#include "train/strategy.h"

#define COMMON 8

uint64_t spec_epoch_samples(const struct spec *s, uint64_t target_batch)
{
	return s->mode.targets > 1 ? (uint64_t)((double)target_batch * s->mode.targets) : target_batch;
}

/* A key that another strategy knows: say which. */
static int foreign(const json_t *o, const struct place *at, const struct planner_ops *own, struct err *e)
{
	for (int i = 0; strategy_at(i); i++) {
		const struct planner_ops *p = strategy_at(i);

		for (uint32_t k = 0; k < p->nkeys; k++) {
			const struct place key = place_key(at, p->key[k].name);
			bool mine = false;

			for (uint32_t n = 0; n < own->nkeys; n++)
				mine = mine || !strcmp(own->key[n].name, p->key[k].name);
			if (!mine && json_object_get(o, p->key[k].name))
				return place_err(&key, e, "belongs to strategy %s, and this run's strategy is %s", p->name, own->name);
		}
	}
	return 0;
}

static int read_key(struct spec *s, const json_t *o, const struct place *at, const struct planner_key *k, struct err *e)
{
	struct plan_result *r = &s->setting[s->nsettings++];
	uint64_t count = (uint64_t)k->def;
	bool flag = k->def > 0;

	(void)snprintf(r->name, sizeof(r->name), "%s", k->name);
	r->value = k->def;
	if (!o)
		return 0;
	if (k->kind == PLANNER_NUMBER)
		return read_real(o, at, k->name, k->min, k->max, &r->value, e) < 0 ? -1 : 0;
	if (k->kind == PLANNER_FLAG ? read_bool(o, at, k->name, &flag, e) < 0 :
	    read_u64(o, at, k->name, (uint64_t)k->min, (uint64_t)k->max, &count, e) < 0)
		return -1;
	r->value = k->kind == PLANNER_FLAG ? flag : (double)count;
	return 0;
}

/* How vectors travel between members. */
static int read_wire(struct spec *s, const json_t *o, const struct place *at, struct err *e)
{
	const json_t *robust = json_object_get(o, "robust");

	s->codec = json_object_get(o, "codec");
	if (s->codec && coding_check(s->codec, e) < 0)
		return -1;
	if (robust && robust_parse(json_string_value(robust), &s->robust, e) < 0)
		return -1;
	return read_bool(o, at, "error_feedback", &s->error_feedback, e) < 0 ? -1 : 0;
}

/* Would any tensor travel with less than its floats? */
static bool leaves_out(const json_t *codec)
{
	const uint64_t big = 1ull << 40;
	struct avg_tensor t[2 * AVG_ROLES];
	struct coding c;

	for (int i = 0; i < 2 * AVG_ROLES; i++)
		t[i] = (struct avg_tensor){ .len = i < AVG_ROLES ? 1 : big, .role = (enum avg_role)(i % AVG_ROLES) };
	if (!codec || coding_make(&c, codec, t, 2 * AVG_ROLES, AVG_ROLES * (big + 1), NULL) < 0)
		return false;
	bool plain = coding_plain(&c, 0, AVG_ROLES * (big + 1));
	coding_free(&c);
	return !plain;
}

/* Means that are not the same bytes everywhere are agreed anew from time to time. */
static int read_apart(struct spec *s, const json_t *o, const struct place *at, struct err *e)
{
	const struct place key = place_key(at, "agree_every"), shape = place_key(at, "topology");
	bool apart = s->topology && s->topology->apart;

	s->agree_every = AVG_AGREE_EVERY;
	if (json_object_get(o, "agree_every") && !apart)
		return place_err(&key, e, "is for topology moshpit, whose means differ in the last bits; with any other all "
			"agree in every epoch");
	if (apart && leaves_out(s->codec))
		return place_err(&shape, e, "\"%s\" does not go with a codec that leaves something out: members would be "
			"apart by that, not only by the rounding of sums; codec none, or topology two_level", s->topology->name);
	return read_u32(o, at, "agree_every", 1, 1000000, &s->agree_every, e) < 0 ? -1 : 0;
}

int spec_topology_fits(const struct spec *s, struct planner_mode *mode, struct err *e)
{
	if (!s->topology || !s->topology->apart)
		return 0;
	if (!mode->loose)
		return err_set(e, ERR_INVALID, "topology \"%s\" leaves members with means that differ in the last bits, and "
			"with these settings their parameters must be equal; it is for parameters that are averaged and taken as "
			"they come: strategy hivemind with local_updates and without delay_state, allreduce with sync_every of 2 "
			"or more", s->topology->name);
	mode->equality = "in swarms above group_size parameters are within 1e-6 of each other right after an averaging in "
		"the grid, and equal right after every one that agrees anew (averaging.agree_every)";
	return 0;
}

int spec_scale_wire(const struct spec *s, const json_t *codec, enum robust robust, struct err *e)
{
	if (!s->scale_interval || s->mode.local)
		return 0;
	if (leaves_out(codec))
		return err_set(e, ERR_INVALID, "codec: precision fp16 needs codec none, by which a gradient that overflowed is "
			"seen by all members; precision bf16 goes with any");
	if (robust != ROBUST_NONE)
		return err_set(e, ERR_INVALID, "robust: \"%s\" takes a gradient that overflowed for nonsense, and precision "
			"fp16 needs it to be seen by all members; precision bf16 goes with any", robust_name(robust));
	return 0;
}

int spec_scale_fits(const struct spec *s, const struct planner_mode *mode, struct err *e)
{
	if (!s->scale_interval)
		return 0;
	if (strategy_find(s->strategy)->crew)
		return err_set(e, ERR_INVALID, "precision fp16 does not go with strategy %s: a member alone cannot tell that "
			"another member's part of the gradient has overflowed; precision bf16 does", s->strategy);
	if (mode->grows)
		return err_set(e, ERR_INVALID, "bucket_bytes does not go with precision fp16: parts of a gradient are given "
			"before it is known whether it overflowed; precision bf16 does");
	return 0;
}

int spec_track_fits(const struct spec *s, const struct planner_mode *mode, struct err *e)
{
	if (!s->schedule.track)
		return 0;
	if (!strategy_find(s->strategy)->needs_swarm)
		return err_set(e, ERR_INVALID, "schedule.track: with strategy %s nobody comes or goes", s->strategy);
	if (mode->local)
		return err_set(e, ERR_INVALID, "schedule.track: does not go with steps of each peer's own: none of them is of "
			"all that a commit counts; scale their rate by \"target_batch\" (track \"target\"), or average gradients");
	return 0;
}

/* Who sums what for whom; guarded means want every contribution at one place. */
static int read_topology(struct spec *s, const json_t *o, const struct place *at, struct err *e)
{
	const json_t *v = json_object_get(o, "topology");
	const struct place key = place_key(at, "topology");
	const char *name = json_string_value(v);
	char names[80];

	if (!v || (name && !strcmp(name, "auto")))
		return 0;
	s->topology = topo_find(name);
	if (!s->topology)
		return place_err(&key, e, "%s%.40s%s is none of: %s", name ? "\"" : "", name ? name : "what is there",
			name ? "\"" : "", topo_names(names, sizeof(names)));
	if (s->robust != ROBUST_NONE && !s->topology->robust)
		return place_err(&key, e, "\"%s\" does not go with robust \"%s\", which needs every contribution at its "
			"reducer: auto or flat", name, robust_name(s->robust));
	return 0;
}

int spec_read_averaging(struct spec *s, const json_t *shared, struct err *e)
{
	const struct place top = { "" }, at = place_key(&top, "averaging");
	const json_t *o = json_object_get(shared, "averaging");
	const struct planner_ops *p = strategy_find(s->strategy);
	const char *known[PLANNER_KEYS_MAX + COMMON + 1] = { NULL };
	struct err why;
	uint32_t n = 0;

	s->group_max = 1024;
	s->group_size = 64;
	s->minority_wait = 3;
	s->error_feedback = true;
	for (; n < p->nkeys; n++)
		known[n] = p->key[n].name;
	known[n++] = "group_max";
	known[n++] = "group_size";
	known[n++] = "topology";
	known[n++] = "agree_every";
	known[n++] = "minority_wait";
	known[n++] = "codec";
	known[n++] = "robust";
	known[n] = "error_feedback";
	if (o && (read_object(o, &at, e) < 0 || foreign(o, &at, p, e) < 0 || read_known(o, &at, known, e) < 0 ||
	    read_wire(s, o, &at, e) < 0 ||
	    read_u32(o, &at, "group_max", 2, 1024, &s->group_max, e) < 0 ||
	    read_u32(o, &at, "group_size", 2, 256, &s->group_size, e) < 0 || read_topology(s, o, &at, e) < 0 ||
	    read_apart(s, o, &at, e) < 0 ||
	    read_real(o, &at, "minority_wait", 0, 1000, &s->minority_wait, e) < 0))
		return -1;
	for (uint32_t k = 0; k < p->nkeys; k++)
		if (read_key(s, o, &at, &p->key[k], e) < 0)
			return -1;
	s->mode = (struct planner_mode){ .equality = "alone" };
	if (p->mode && p->mode(&(struct plan_results){ s->nsettings, s->setting }, s->plan, &s->mode, &why) < 0)
		return place_err(&at, e, "%s", why.text);
	if (spec_track_fits(s, &s->mode, e) < 0)
		return -1;
	return spec_topology_fits(s, &s->mode, &why) < 0 || spec_scale_fits(s, &s->mode, &why) < 0 ||
		spec_scale_wire(s, s->codec, s->robust, &why) < 0 ? place_err(&at, e, "%s", why.text) : 0;
}

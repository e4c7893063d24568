/* The plans of all members of an offer: computed, checked together, timed, and what they say of who holds what. Pure,
 * and run in a lane: nothing here sees a crew. */
#ifndef CREW_PLANS_H
#define CREW_PLANS_H
#include "crew/wire.h"
#include "plan/predict.h"

/* A piece of the state, and the ranks that hold it: equal names are the same value. */
struct shard { char name[PLAN_NAME]; uint64_t bytes; uint8_t holder[CREW_MEMBERS_MAX / 8]; };
struct shards { uint32_t n; struct shard *v; };
static inline bool shard_holds(const struct shard *s, uint32_t rank) { return s->holder[rank / 8] >> rank % 8 & 1; }
void shards_free(struct shards *s);
/* Bytes of the pieces that nobody holds of whom `there` (by rank) is true. */
uint64_t shards_missing(const struct shards *s, const bool *there);

/* list: those of the step, of all n members, and behind them, where data are held out, those of validation; nlist in
 * all (plan/planner.h: view.held). */
struct plans { uint32_t n, nlist; struct plan *v; const struct plan **list; json_t *values /* settled; or NULL */; };
void plans_free(struct plans *p);
/* The offer's members as a planner sees them; the result is freed. */
struct view_member *view_members(const struct offer *o);
struct view view_of(const struct view *usual, const struct offer *o, const struct view_member *m, uint32_t me);
/* 0, or -1 and why: the planner's error. Not checked yet. */
int plans_make(struct plans *ret, const struct planner_ops *s, const struct view *usual, const struct offer *o,
	struct err *e);
/* All of them together, then whose they are and what they hold. */
int plans_check(const struct plans *p, const struct view *usual, const struct offer *o, struct err *e);
void plans_shards(const struct plans *p, struct shards *ret);

/* What they come to: the digest that all agree on, who holds what, by rank whose unit a member is in (PLAN_NO_UNIT: it
 * is a spare), and the values as the planner has settled them, or NULL. */
struct found { uint8_t digest[CREW_DIGEST]; struct shards shards; uint32_t *unit; json_t *values; };
void plans_find(const struct plans *p, const struct planner_ops *s, const struct view *usual, const struct offer *o,
	struct found *ret);
void found_free(struct found *f);               /* {0} is fine; leaves {0} */
/* Whose unit each of the offer's members is in; values NULL: those of the usual view. */
void plans_units(const struct planner_ops *s, const struct view *usual, const struct offer *o, const json_t *values,
	uint32_t *ret);

/* What the plans take: time as predicted, and the work that is done in it, in us of a peer of speed 1. */
struct pace { double us, work; };
int plans_pace(const struct plans *p, const struct view *usual, const struct offer *o, struct pace *ret, struct err *e);
/* Until everybody of `to` holds its part, who were `from` before: the slowest of them, us. Zero of `from`: nobody holds
 * anything yet, and nothing moves. */
double plans_move_us(const struct plans *from, const struct offer *of, const struct plans *to, const struct offer *ot);

#endif

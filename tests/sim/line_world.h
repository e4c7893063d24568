/* Strategy pipeline in whole nodes, beside one peer alone that learns the same and that nothing disturbs: what its
 * members hold must have the bits that that one has. */
#ifndef TESTS_SIM_LINE_WORLD_H
#define TESTS_SIM_LINE_WORLD_H
#include "node_world.h"

/* One pipeline, however many members there are; and as many as there can be. */
#define PIPELINE UNITS ", \"replicas\": 1"
#define UNITS ", \"stages\": 3, \"micro_batches\": 4"

bool line_seated(struct node_world *w, int i);          /* it has a stage, with all of its values */
int line_seats(struct node_world *w);                    /* so many have */
bool line_all_seated(struct sim *s, void *line);        /* so many as there are stages have */
int line_any_seated(struct node_world *w);              /* by chance */

struct alone { struct sim *s; struct node_world *w; char spec[1400]; };
struct line { struct sim *s; struct node_world *w; struct alone a; char spec[1400];
	int stages;                                     /* 3 */
	uint32_t copies;                                /* 6: of parts, all that are held by them */
	double rounded;                                 /* by so much may numbers differ; several add in another order */
};

/* A pipeline of n peers that has begun, and the one alone; more: further keys of its spec, a comma before each. */
struct line *line_begin(struct sim *s, const char *more, int n);
/* It has not begun: nobody has been asked to start it yet. */
struct line *line_ready(struct sim *s, const char *more, int n);
/* With other norms than batch norms, whose running statistics go by the order of micro-batches. */
struct line *line_of(struct sim *s, const char *norm, const char *more, int n);
/* Of schedule 2bw, and one alone whose gradients are one step late, too (test_pipeline_on_real: that it is). */
struct line *line_late(struct sim *s, const char *more, int n);
/* As line_of, or, norm NULL, as line_late; both: further keys of either spec. */
struct line *line_both(struct sim *s, const char *norm, const char *more, const char *both, int n);
/* Of a model whose first layer and last layer have the same parameters, beside a pipeline of two that nothing disturbs;
 * late: of schedule 2bw. */
struct line *line_tied(struct sim *s, bool late, const char *more, int n);
bool line_is_at(const struct run *r, uint64_t epoch);   /* its state is that of this epoch */
void line_end(struct line *l);                          /* it has learned what the one alone has */
/* All who hold a part at an epoch that comes soon hold the same bits of it; so many have been looked at. */
void line_same_among(struct line *l, int least);
void line_free(struct line *l);                         /* whatever it has learned */
void line_goes_on(struct line *l, uint64_t epochs);
int line_pick(struct line *l, uint64_t us);             /* who has a stage, at most that long after all have a member */
int line_kill_any(struct line *l, uint64_t us);         /* at most that long after all stages have a member; whom */

/* What members of any pipeline of one unit go through; then it is held against the one alone, and freed. */
/* One after the other, anybody who has a stage, at any moment; the dead come back as spares. Four peers. */
void line_killed(struct line *l);
/* With three copies two may die between two COMMITs: a stage, and as soon as somebody sits there the next, perhaps a
 * spare that is being given its part, or who gives it. Seven. */
void line_in_a_row(struct line *l);
/* A stage dies and is back at once, the same peer with nothing in hand, before there could be a COMMIT without it: it
 * is there for those who need it. Three. */
void line_back_at_once(struct line *l);

#endif

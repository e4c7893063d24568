/* Says what is on a picture, with a copy of a run's weights. Everything it touches is its own or counted, so a job of
 * any lane may run it. */
#ifndef TRAIN_CLASSIFIER_H
#define TRAIN_CLASSIFIER_H
#include "train/data/data.h"
#include "train/trainer.h"

#define CLASSIFIER_TOP 5
#define CLASSIFIER_FILE_MAX ((int64_t)1 << 26)

struct guess { int32_t label; double probability; };
struct classifier;
/* NULL and e when the run's model is no classifier of pictures. Keeps references to data and weights. On the loop. */
struct classifier *classifier_new(const struct spec *s, struct data *d, const struct par *par, struct snapshot *weights,
	struct err *e);
void classifier_free(struct classifier *c);     /* on the loop; NULL is fine */
/* The most likely classes first; *ret_n of them. Blocking: reads the file; in a lane. */
int classifier_look(struct classifier *c, struct files *f, const char *path, struct guess ret[CLASSIFIER_TOP],
	int *ret_n, struct err *e);
const char *classifier_name(const struct classifier *c, int32_t label);         /* NULL: classes have no names */

#endif

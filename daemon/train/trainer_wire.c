/* What of a contribution is what, for its encoding on the wire: the model's parameters, its running statistics, the
 * optimizer's vectors. */
#include "common/mem.h"
#include "train/trainer_int.h"

struct avg_tensor *trainer_roles(const struct trainer *t, size_t *ret_n)
{
	size_t stats = t->model->nbuffer, states = t->s->mode.both ? (size_t)t->nused : 0, n = 0;
	struct avg_tensor *v = xcalloc((size_t)t->model->nparams + states + 2, sizeof(*v));

	if (t->s->mode.parts > 1)               /* another piece of the parameters in each round: all alike */
		v[n++] = (struct avg_tensor){ trainer_contribution_len(t) - stats, AVG_MATRIX };
	for (int i = 0; i < t->model->nparams && t->s->mode.parts <= 1; i++) {
		const struct model_param *p = &t->model->param[i];

		v[n++] = (struct avg_tensor){ p->count, p->shape.nd > 1 ? AVG_MATRIX : AVG_VECTOR };
	}
	if (stats)
		v[n++] = (struct avg_tensor){ stats, AVG_EXACT };
	for (size_t i = 0; i < states; i++)
		v[n++] = (struct avg_tensor){ t->model->nparam, AVG_STATE };
	*ret_n = n;
	return v;
}

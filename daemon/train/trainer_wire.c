/* What of a contribution is what, for its encoding on the wire: the model's tensors, then the optimizer's vectors. */
#include "common/mem.h"
#include "train/trainer_int.h"

struct avg_tensor *trainer_roles(const struct trainer *t, size_t *ret_n)
{
	size_t states = trainer_contribution_len(t) / t->model->nparam - 1, n = 0;
	struct avg_tensor *v = xcalloc((size_t)t->model->nparams + states + 1, sizeof(*v));

	for (int i = 0; i < t->model->nparams; i++) {
		const struct model_param *p = &t->model->param[i];

		v[n++] = (struct avg_tensor){ p->count, p->shape.nd > 1 ? AVG_MATRIX : AVG_VECTOR };
	}
	for (size_t i = 0; i < states; i++)
		v[n++] = (struct avg_tensor){ t->model->nparam, AVG_STATE };
	*ret_n = n;
	return v;
}

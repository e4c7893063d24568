/* Parts of a state in words: as members tell each other of them, and as checkpoints have them. */
#include <stdlib.h>
#include "common/mem.h"
#include "run/mover.h"

json_t *mover_part_json(struct extent param, struct extent stat)
{
	return json_pack("[I,I,I,I]", (json_int_t)param.lo, (json_int_t)param.hi, (json_int_t)stat.lo, (json_int_t)stat.hi);
}

json_t *mover_parts_json(const struct shard_part *v, uint32_t n)
{
	json_t *list = json_array();
	for (uint32_t k = 0; k < n; k++)
		json_array_append_new(list, mover_part_json(v[k].param, v[k].stat));
	return list;
}

int mover_part_within(struct shard_part *ret, uint64_t params, uint64_t stats, const json_t *j, struct err *e)
{
	uint64_t v[4];
	for (size_t i = 0; i < 4; i++) {
		const json_t *x = json_array_get(j, i);
		if (!json_is_integer(x) || json_integer_value(x) < 0)
			return err_set(e, ERR_PROTOCOL, "a part is [lo, hi, stat lo, stat hi]");
		v[i] = (uint64_t)json_integer_value(x);
	}
	if (v[0] > v[1] || v[1] > params || v[2] > v[3] || v[3] > stats)
		return err_set(e, ERR_PROTOCOL, "a part from %llu to %llu of %llu parameters, %llu to %llu of %llu statistics",
			(unsigned long long)v[0], (unsigned long long)v[1], (unsigned long long)params,
			(unsigned long long)v[2], (unsigned long long)v[3], (unsigned long long)stats);
	*ret = (struct shard_part){ { v[0], v[1] }, { v[2], v[3] } };
	return 0;
}

int mover_part_read(struct shard_part *ret, const struct layout *l, const json_t *j, struct err *e)
{
	if (mover_part_within(ret, l->params, l->stats, j, e))
		return -1;
	if (shard_may_cut(l, ret->param.lo) && shard_may_cut(l, ret->param.hi))
		return 0;
	return err_set(e, ERR_PROTOCOL, "a part from %llu to %llu of the parameters, which are not cut there",
		(unsigned long long)ret->param.lo, (unsigned long long)ret->param.hi);
}

struct shard_part *mover_parts_read(uint32_t *ret_n, const struct layout *l, const json_t *list, struct err *e)
{
	size_t n = json_array_size(list);
	if (!json_is_array(list) || n > MOVER_PARTS) {
		err_set(e, ERR_PROTOCOL, "parts of a state are a list, of at most %d", MOVER_PARTS);
		return NULL;
	}
	struct shard_part *v = xcalloc(n + 1, sizeof *v);
	for (size_t k = 0; k < n; k++)
		if (mover_part_read(&v[k], l, json_array_get(list, k), e)) {
			free(v);
			return NULL;
		}
	*ret_n = (uint32_t)n;
	return v;
}

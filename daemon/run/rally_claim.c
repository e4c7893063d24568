/* What a peer says it has of one epoch of the state, and how the words of others are read. */
#include <stdlib.h>
#include "common/jrpc.h"
#include "run/mover.h"
#include "run/rally.h"

json_t *claim_pack(uint64_t epoch, const uint8_t prev[DIGEST], bool file, json_t *parts /* taken */)
{
	return json_pack("{s:I,s:o,s:b,s:o}", "epoch", (json_int_t)epoch, "prev", json_hex(prev, DIGEST), "file", file,
		"parts", parts);
}

json_t *claim_json(const struct claim *c)
{
	return claim_pack(c->epoch, c->prev, c->file, mover_parts_json(c->v, c->n));
}

int claim_read(struct claim *ret, const struct layout *l, const json_t *j, struct err *e)
{
	*ret = (struct claim){ .file = json_is_true(json_object_get(j, "file")) };
	if (json_get_u64(j, "epoch", &ret->epoch, e) || json_get_hex(j, "prev", ret->prev, DIGEST, e))
		return -1;
	ret->v = mover_parts_read(&ret->n, l, json_object_get(j, "parts"), e);
	return ret->v ? 0 : -1;
}

void claim_free(struct claim *c)
{
	free(c->v);
	c->v = NULL;
	c->n = 0;
}

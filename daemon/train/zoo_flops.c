/* hivectl flops: how many operations a model takes, forward and backward, layer by layer (kernels/cost.h says what
 * counts). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "common/buf.h"
#include "common/mem.h"
#include "common/reply.h"
#include "kernels/cost.h"
#include "train/zoo.h"

static char *text_of(const struct model *m, size_t batch)
{
	struct cost fwd = cost_of(m, 0, m->nops, batch, false, false), bwd = cost_of(m, 0, m->nops, batch, true, false);
	struct buf b = { 0 };
	char *text;
	int wide = 5;

	for (int i = 0; i < m->nops; i++)
		wide = (int)strlen(m->op[i].name) > wide ? (int)strlen(m->op[i].name) : wide;
	buf_printf(&b, "%-*s  %-17s  %16s  %16s\n", wide, "layer", "type", "multiply-adds", "operations");
	for (int i = 0; i < m->nops; i++) {
		struct cost c = cost_of(m, i, i + 1, batch, false, false);

		buf_printf(&b, "%-*s  %-17s  %16" PRIu64 "  %16" PRIu64 "\n", wide, m->op[i].name, m->op[i].ops->name, c.macs,
			cost_flops(&c));
	}
	buf_printf(&b, "\nbatch %zu\nforward:  %" PRIu64 " multiply-adds, %" PRIu64 " operations\n", batch, fwd.macs,
		cost_flops(&fwd));
	buf_printf(&b, "backward: %" PRIu64 " multiply-adds, %" PRIu64 " operations\n", bwd.macs, cost_flops(&bwd));
	buf_printf(&b, "training: %" PRIu64 " operations without the optimizer's\n", cost_flops(&fwd) + cost_flops(&bwd));
	text = xstrdup((const char *)b.p);
	buf_free(&b);
	return text;
}

void zoo_flops(void *arg, const json_t *params, struct reply *r)
{
	const char *name = json_string_value(json_object_get(params, "model"));
	json_t *layers = json_array();
	struct err e;
	size_t batch;
	struct model *m = zoo_asked(params, NULL, &batch, &e);

	if (!m) {
		json_decref(layers);
		reply_fail(r, &e);
		return;
	}
	struct cost fwd = cost_of(m, 0, m->nops, batch, false, false), bwd = cost_of(m, 0, m->nops, batch, true, false);
	char *text = text_of(m, batch);

	for (int i = 0; i < m->nops; i++) {
		struct cost c = cost_of(m, i, i + 1, batch, false, false);

		(void)json_array_append_new(layers, json_pack("{s:s,s:s,s:I,s:I}", "name", m->op[i].name, "type",
			m->op[i].ops->name, "macs", (json_int_t)c.macs, "flops", (json_int_t)cost_flops(&c)));
	}
	reply_ok(r, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:s}", "name", name ? name : "spec", "batch",
		(json_int_t)batch,
		"macs", (json_int_t)fwd.macs, "flops", (json_int_t)cost_flops(&fwd), "backward_macs", (json_int_t)bwd.macs,
		"backward_flops", (json_int_t)cost_flops(&bwd), "step_flops", (json_int_t)(cost_flops(&fwd) + cost_flops(&bwd)),
		"layers", layers, "text", text));
	free(text);
	model_free(m);
}

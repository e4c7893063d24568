/* A memory pass in words and as JSON: segments, what is kept, what is computed twice. */
#include "common/text.h"
#include "train/memory.h"

static const char *size(uint64_t bytes, char out[32])
{
	return text_print_size(bytes, out, 32);
}

/* The forward passes in their order; FWD that keeps all, of a last segment or again, is F^e. */
static json_t *segments(const struct profile *m, const struct passes *s, struct buf *text)
{
	json_t *list = json_array();
	char in[32], all[32];

	buf_printf(text, "%7s  %8s  %6s  %12s  %12s  layers\n", "segment", "forward", "layers", "flows in", "needed back");
	for (uint32_t k = 0; k < s->n && s->v[k].kind == PLAN_FWD; k++) {
		const struct pass *x = &s->v[k];
		bool again = x->keep != PLAN_KEEP_ALL;
		struct piece_need need = x->need;

		(void)json_array_append_new(list, json_pack("{s:s,s:s,s:I,s:b,s:I,s:I}", "first_layer", m->op[x->a].name,
			"last_layer", m->op[x->b].name, "layers", (json_int_t)(x->b - x->a + 1), "twice", again, "input_bytes",
			(json_int_t)need.x, "needed_bytes", (json_int_t)need.saved));
		buf_printf(text, "%7u  %8s  %6u  %12s  %12s  %s to %s\n", k, again ? "twice" : "once", x->b - x->a + 1,
			size(need.x, in), size(need.saved, all), m->op[x->a].name, m->op[x->b].name);
	}
	return list;
}

json_t *memory_json(const struct profile *m, const struct memory_pass *how, struct buf *text)
{
	uint32_t n = m->nops, units = memory_units(m, 0, n - 1, how);
	uint64_t kept, kept_plain, peak, peak_plain;
	struct passes s;
	char a[32], b[32], c[32];
	json_t *o;

	if (!how->ops->counts && !how->ops->marks)
		return NULL;
	memory_passes(m, 0, n - 1, how, &s);
	peak = passes_peak(&s, 0, &kept);
	peak_plain = memory_peak(m, NULL, &kept_plain);
	buf_printf(text, "remat %s: %u segment%s of at most %u; forward runs %u layers for %u (%.2f times)\n",
		how->ops->name, memory_segments(units, how), memory_segments(units, how) == 1 ? "" : "s", units,
		passes_forward_ops(&s), n, (double)passes_forward_ops(&s) / n);
	buf_printf(text, "activations, their gradients and scratch: at most %s, %s when all is kept; %s wait for "
		"backward\n", size(peak, a), size(peak_plain, b), size(kept, c));
	o = json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "policy", how->ops->name, "segments",
		(json_int_t)memory_segments(units, how), "segments_most", (json_int_t)units, "layers", (json_int_t)n,
		"forward_layers", (json_int_t)passes_forward_ops(&s), "kept_bytes", (json_int_t)kept, "most_bytes",
		(json_int_t)peak, "most_bytes_plain", (json_int_t)peak_plain);
	(void)json_object_set_new(o, "list", segments(m, &s, text));
	buf_printf(text, "\n");
	passes_free(&s);
	return o;
}

/* The model zoo: networks as short JSON files with parameters (train/zoo/NAME.json, built into the program and
 * installed beside it). A spec says "model": "resnet18", or {"zoo": "resnet18", "classes": 10, "stem": "cifar"};
 * expanding gives the array of layers that the spec then holds, so that peers with another zoo still agree on it.
 *
 * A file is {"help", "parameters": {NAME: DEFAULT}, "choices": {NAME: [...]}, "input": [...], "model": [...]}, or
 * {"help", "base": OTHER, "parameters": {...}}: that one with other defaults. The elements of "model" are layers, or
 *   {"for": "i", "count": N, "do": [...]}            i from 0 to N - 1
 *   {"if": X, "then": [...], "else": [...]}
 *   {"let": {"c": X, ...}}                           from here on
 *   {"mark": "x"}                                    "inputs": ["x"] is the layer before from here on
 * A text that begins with = is an expression: numbers, 'texts', parameters, + - * / % ^ == != < <= > >= && || !,
 * a ? b : c, list[i], len(list), sqrt(x). {x} inside of other texts is the value of x. */
#ifndef TRAIN_ZOO_H
#define TRAIN_ZOO_H
#include <jansson.h>
#include "common/err.h"
#include "kernels/model.h"

struct reply;
struct zoo_entry { const char *name, *text; };
extern const struct zoo_entry zoo_entries[];            /* made from the files; ends with name NULL */

/* The file of an entry, its base's parts under its own defaults. New reference. */
json_t *zoo_entry_json(const char *name, struct err *e);
/* Expands an entry with these parameters (an object, or NULL; the key "zoo" is left out) into its input shape and its
 * layers: new references. */
int zoo_expand(const char *name, const json_t *given, json_t **ret_input, json_t **ret_model, struct err *e);
/* The value of an expression over the variables of an object; numbers, texts and lists. New reference; NULL and e. */
json_t *zoo_value(const char *expression, const json_t *vars, struct err *e);
/* In the shared part of a spec: a "model" that names an entry becomes its layers, and "input" its shape when there is
 * none. */
int zoo_resolve(json_t *shared, struct err *e);

/* What `model show`, `model profile` and `flops` are asked about: {model, with?} or {spec}, and batch? (1). host may be
 * NULL when nobody waits in sleep layers. NULL and e. */
struct model *zoo_asked(const json_t *params, const struct layer_host *host, size_t *ret_batch, struct err *e);
/* A layer of `model show`, at this batch: {name, type, inputs, shape, parameters, weight_bytes, shares?, macs, bytes:
 * of its output, saved_bytes: kept for backward beside its input}. New reference. */
json_t *zoo_layer_json(const struct model *m, int i, size_t batch);
/* hivectl flops: {model?, with?, spec?, batch?} -> {name, macs, flops, backward_macs, backward_flops, step_flops,
 * layers, text} */
void zoo_flops(void *arg, const json_t *params, struct reply *r);
/* hivectl model show: api_fn of control/api.h. {model: name or array, with?: {..}, spec?: object, batch?: n} ->
 * {name, input, layers: [..], parameters, macs, ...} */
void zoo_show(void *arg, const json_t *params, struct reply *r);
void zoo_list(void *arg, const json_t *params, struct reply *r);        /* model list: {models: [{name, ..}]} */

#endif

/* A history that has lost a fork (amendments C3): its epochs and changes of hyperparameters are recorded as discarded,
 * never mixed into the winner's, and whoever asked for a change is told in the log that it does not hold. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "run_int.h"

#define CHANGES_MAX 1000

static void tell_change(struct run *r, const json_t *row, uint64_t common)
{
	const char *state = json_string_value(json_object_get(row, "state"));
	const char *author = json_string_value(json_object_get(row, "author"));
	const char *key = json_string_value(json_object_get(row, "key"));
	const char *value = json_string_value(json_object_get(row, "new_value"));
	uint64_t epoch = (uint64_t)json_integer_value(json_object_get(row, "epoch"));
	char self[ID_HEX];
	if (!state || !key || !value || epoch <= common || (strcmp(state, "applied") && strcmp(state, "proposed")))
		return;
	id_hex(net_self(r->rs->ctx.net), self);
	bool mine = author && !strcmp(author, self);
	run_log(r, mine ? LOG_WARN_ : LOG_INFO_, "set.discarded", "%s=%s from epoch %llu on, asked for %s%.8s, is "
		"discarded: it belongs to a history that lost to a longer one; ask again if it is still wanted", key, value,
		(unsigned long long)epoch, mine ? "on this peer, " : "by ", author ? author : "?");
}

void run_discard(struct run *r, uint64_t common)
{
	struct store *s = r->rs->ctx.store;
	uint64_t last = r->point.epoch;
	json_t *rows, *row;
	size_t i;
	if (last > common)
		run_log(r, LOG_WARN_, "fork.discarded", "epochs %llu to %llu of this peer are discarded: another history of "
			"the run has more samples since epoch %llu", (unsigned long long)common + 1, (unsigned long long)last,
			(unsigned long long)common);
	if (!s)
		return;
	rows = store_list(s, STORE_PARAMS, r->hex, CHANGES_MAX);
	json_array_foreach(rows, i, row)
		tell_change(r, row, common);
	json_decref(rows);
	store_epoch_discard(s, r->hex, common + 1);
	store_param_discard(s, r->hex, common + 1, "of a history that lost a fork");
}

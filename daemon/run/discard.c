/* A history that has lost a fork: its epochs and changes of hyperparameters are recorded as discarded,
 * never mixed into the winner's, and whoever asked for a change is told in the log that it does not hold. */
#include <math.h>
#include <string.h>
#include "run/int.h"

#define CHANGES_MAX 1000

static void tell_change(struct run *r, const json_t *row, uint64_t common, uint64_t last)
{
	const char *state = json_string_value(json_object_get(row, "state"));
	const char *author = json_string_value(json_object_get(row, "author"));
	const char *key = json_string_value(json_object_get(row, "key"));
	const char *value = json_string_value(json_object_get(row, "new_value"));
	uint64_t epoch = (uint64_t)json_integer_value(json_object_get(row, "epoch"));
	char self[ID_HEX];
	if (!state || !key || !value || epoch <= common || epoch > last ||
			(strcmp(state, "applied") && strcmp(state, "proposed")))
		return;
	id_hex(net_self(r->rs->ctx.net), self);
	bool mine = author && !strcmp(author, self);
	run_log(r, mine ? LOG_WARN_ : LOG_INFO_, "set.discarded", "%s=%s from epoch %llu on, asked for %s%.8s, is "
		"discarded: it belongs to a history that lost to a longer one; ask again if it is still wanted", key, value,
		(unsigned long long)epoch, mine ? "on this peer, " : "by ", author ? author : "?");
}

void run_discard(struct run *r, uint64_t common, uint64_t last)
{
	struct store *s = r->rs->ctx.store;
	uint64_t made = last < INT64_MAX ? last : r->point.epoch;       /* the point may be an earlier one again */
	json_t *rows, *row;
	size_t i;
	if (made > common)
		run_log(r, LOG_WARN_, "fork.discarded", "epochs %llu to %llu of this peer are discarded: another history of "
			"the run has more samples since epoch %llu", (unsigned long long)common + 1, (unsigned long long)made,
			(unsigned long long)common);
	if (made > common && (!r->lost_from || common < r->lost_from))
		r->lost_from = common + 1;
	if (!s)
		return;
	rows = store_list(s, STORE_PARAMS, r->hex, CHANGES_MAX);
	json_array_foreach(rows, i, row)
		tell_change(r, row, common, last);
	json_decref(rows);
	/* commits whose step is still to be made have taken their samples, too */
	for (uint64_t e = (r->recorded > common ? r->recorded : common) + 1; e <= made; e++)
		if (r->commits[e % RUN_POINTS].epoch == e && run_point_at(r, e))
			run_put_epoch(r, &(struct trainer_applied){ .epoch = e, .loss = NAN }, true);
	store_epoch_discard(s, r->hex, common + 1, last);
	store_param_discard(s, r->hex, common + 1, last, "of a history that lost a fork");
}

void run_given(struct run *r, const struct avg_point *p)
{
	uint64_t common;
	if (avg_given(r->avg, p, &common))
		run_discard(r, common, INT64_MAX);
}

/* What memory the runs of this machine may take, and whether there is room for one more; how fast it computes. */
#include "common/text.h"
#include "run/int.h"

/* What a run takes when it trains: state, gradients, a micro-batch, batches ahead, batches held out. */
static uint64_t taken(const struct trainer *t)
{
	struct trainer_view v;
	trainer_view(t, &v);
	return (v.arena_predicted_bytes > v.state_bytes ? v.arena_predicted_bytes : v.state_bytes) + v.loader_bytes +
		v.held_bytes;
}

/* What it may take by compute.memory_max, or by what the machine has; 0: not known. */
static uint64_t most_of(const struct runs *rs, bool *ret_stated)
{
	uint64_t stated = (uint64_t)conf_int(rs->ctx.conf, "compute", "memory_max");
	*ret_stated = stated != 0;
	return stated ? stated : rs->ctx.memory_bytes;
}

static uint64_t held_by_others(const struct runs *rs, const struct trainer *t)
{
	uint64_t held = rs->measuring;
	list_each(it, &rs->list) {
		struct run *r = list_entry(it, struct run, link);
		if (r->trainer && r->trainer != t)
			held += taken(r->trainer);
	}
	return held;
}

uint64_t run_room(const struct runs *rs, const struct trainer *t)
{
	bool stated;
	uint64_t most = most_of(rs, &stated), held = held_by_others(rs, t);
	return !most ? 0 : most > held ? most - held : 1;
}

int run_admit(const struct runs *rs, struct trainer *t, const char *name, struct err *e)
{
	bool stated;
	uint64_t most = most_of(rs, &stated), held = held_by_others(rs, t), wanted = taken(t);
	char need[32], have[32], max[32], fits[TRAINER_FITS];
	if (!most || held + wanted <= most)
		return 0;
	return err_set(e, ERR_LIMIT, "run %s needs %llu bytes (%s), other runs hold %s, and %s %s: %s", name,
		(unsigned long long)wanted, text_print_size(wanted, need, sizeof need),
		text_print_size(held, have, sizeof have), stated ? "compute.memory_max is" : "this machine has",
		text_print_size(most, max, sizeof max),
		trainer_fits_text(t, most > held ? most - held : 0, fits, sizeof fits));
}

/* Multiply-adds per us that the matrix products were measured at; the predictor's yardstick for `run plan`. */
double run_macs_per_us(const struct compute *c)
{
	json_t *d = c->describe ? c->describe(c->arg) : NULL;
	double gflops = json_number_value(json_object_get(d, "gflops"));
	json_decref(d);
	return gflops * 1e3 / 2;
}

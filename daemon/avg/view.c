/* What an operator may see of the averager. */
#include <stdio.h>
#include <string.h>
#include "avg/grid_flow.h"
#include "avg/ledger.h"
#include "common/jrpc.h"

#define ANEW_US (5 * SECOND)

static const char *state_name(const struct avg *a)
{
	if (a->state == AVG_IN && (a->me->flags & MATE_FOLLOWER))
		return "following";
	if (a->state != AVG_IN)
		return "joining";
	return a->recover ? "recovering" : a->round ? "averaging" : "accumulating";
}

void avg_view(struct avg *a, struct avg_view *ret)
{
	*ret = (struct avg_view){ .epoch = a->point.epoch, .term = a->term, .in_round = a->round != NULL,
		.target = progress_goal(a),
		.state = state_name(a), .rounds_done = a->rounds_done, .rounds_without = a->rounds_without,
		.rounds_failed = a->rounds_failed,
		.last_round_us = a->last_round_us, .bytes_out = a->bytes_out, .bytes_in = a->bytes_in,
		.residuals_dropped = a->res_dropped, .alone = roster_others(a, false) == 0,
		.last_members = a->n_last, .behind = (uint32_t)commits_missed(a),
		.following = a->state == AVG_IN && (a->me->flags & MATE_FOLLOWER) };
	if (a->leader)
		ret->leader = a->leader->id;
	/* Who has missed a commit leaves and follows anew; nobody is to go away between the two. */
	ret->followers = a->follower_left_us && now_of(a) - a->follower_left_us < ANEW_US;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		ret->followers += m != a->me && m->member && m->live && (m->flags & MATE_FOLLOWER);
		if (m != a->me && !(m->member && m->live && !(m->flags & (MATE_FOLLOWER | MATE_HOLD))))
			continue;
		ret->rate_total += m == a->me ? a->rate : m->rate;
		if (m == a->me)
			ret->total_samples += a->samples;
		else if (same_point(a, m->epoch, m->prev))
			ret->total_samples += m->samples;
	}
	if (!is_leader(a) && a->leader && a->point.epoch && ret->rate_total > 0 && a->rate > 0) {
		/* Members do not hear of each other's samples: what the rates make of ours. */
		uint64_t guess = (uint64_t)((double)a->samples * ret->rate_total / a->rate);
		if (guess > ret->total_samples)
			ret->total_samples = guess;
	}
	uint64_t left = ret->total_samples < ret->target ? ret->target - ret->total_samples : 0;
	ret->eta_us = ret->rate_total > 0 ? (uint64_t)((double)left / ret->rate_total * 1e6) : 0;
}

size_t avg_members(struct avg *a, struct avg_member *out, size_t max)
{
	size_t n = 0;
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		if (n < max) {
			struct avg_member *o = &out[n];
			bool here = same_point(a, m->epoch, m->prev);
			*o = (struct avg_member){ .id = m->id, .samples = m == a->me ? a->samples : here ? m->samples : 0,
				.epoch = m->member ? a->point.epoch : m->epoch,
				.rate = m == a->me ? a->rate : m->rate, .leader = m == a->leader, .live = m->member && m->live,
				.follower = m->flags & MATE_FOLLOWER, .hold = m->flags & MATE_HOLD, .client = m->flags & MATE_CLIENT,
				.aux = m->flags & MATE_AUX, .gone = !m->live, .odd = m->odd };
			snprintf(o->absent, sizeof o->absent, "%s", m->absent[0] ? m->absent : m->member ? "" :
				m->live ? "not in the last commit known here" : "not in this run now");
		}
		n++;
	}
	return n;
}

bool avg_lives(const struct avg *a, const struct id *id)
{
	const struct mate *m = mate_find(a, id);
	return m && m->member && m->live;
}

/* Who brought which positions into the last commit, and who has which next; null before the first one here. */
static json_t *last_commit_json(const struct avg *a)
{
	struct body b;
	char hex[ID_HEX];
	if (!a->last_commit.len || body_read(&b, a->last_commit.p, a->last_commit.len, NULL))
		return json_null();
	json_t *members = json_array();
	for (size_t i = 0; i < b.n; i++) {
		id_hex(&b.m[i].id, hex);
		json_array_append_new(members, json_pack("{s:s,s:I,s:o,s:o}", "peer", hex, "samples",
			(json_int_t)(b.m[i].flags & MATE_IN ? b.m[i].samples : 0), "contributed", ranges_json(&b.m[i].claimed),
			"given_next", ranges_json(&b.m[i].grant)));
	}
	json_t *o = json_pack("{s:I,s:I,s:o}", "epoch", (json_int_t)b.epoch, "weight", (json_int_t)b.weight, "members",
		members);
	body_free(&b);
	return o;
}

/* ---- rows ---- */

static json_t *bridges_json(const struct body *b, const struct tree *t, size_t row)
{
	json_t *list = json_array();
	char name[9];
	for (size_t i = 0; i < t->n; i++) {
		uint64_t sums = 0, owns = 0;
		for (size_t p = 0; p < t->parts; p++) {
			sums += tree_sums(t, p, i) ? b->part[p].len : 0;
			owns += t->owner[p] == i ? b->part[p].len : 0;
		}
		if (t->row[i] == row && sums)
			json_array_append_new(list, json_pack("{s:s,s:f,s:f}", "peer", id_short(&b->m[i].id, name), "sums",
				(double)sums / (double)b->len, "owns", (double)owns / (double)b->len));
	}
	return list;
}

static json_t *rows_json(const struct body *b, const struct tree *t)
{
	json_t *rows = json_array();
	char name[9];
	for (size_t r = 0; r < t->rows; r++) {
		json_t *peers = json_array(), *row = json_pack("{s:o}", "peers", peers);
		for (size_t i = 0; i < t->n; i++)
			if (t->rows == 1 || t->row[i] == r)
				json_array_append_new(peers, json_string(id_short(&b->m[i].id, name)));
		if (t->rows > 1)
			json_object_set_new(row, "bridges", bridges_json(b, t, r));
		json_array_append_new(rows, row);
	}
	return rows;
}

/* The lines of the last phase: who has the same bytes. */
static json_t *lines_json(const struct grid *g, const struct body *b)
{
	json_t *lines = json_array();
	char name[9];
	for (size_t k = 0; k < grid_lines(g, (unsigned)g->dims - 1); k++) {
		json_t *peers = json_array();
		for (size_t i = 0; i < g->n; i++)
			if (grid_last_line(g, i) == k)
				json_array_append_new(peers, json_string(id_short(&b->m[i].id, name)));
		json_array_append_new(lines, json_pack("{s:o}", "peers", peers));
	}
	return lines;
}

json_t *avg_shape(const struct avg *a)
{
	struct body b;
	struct tree t;
	if (!a->last_commit.len || body_read(&b, a->last_commit.p, a->last_commit.len, NULL))
		return json_null();
	body_tree(&b, b.n, &t);
	const struct topo_ops *topo = b.grid.dims ? &topo_moshpit : t.rows > 1 ? &topo_two_level : &topo_flat;
	json_t *o = json_pack("{s:s,s:I,s:o}", "topology", topo->name, "group_size", (json_int_t)a->conf.group_size, "rows",
		b.grid.dims ? lines_json(&b.grid, &b) : rows_json(&b, &t)), *sizes = json_array();
	for (size_t k = 0; k < b.grid.dims; k++)
		json_array_append_new(sizes, json_integer(b.grid.size[k]));
	if (b.grid.dims)
		json_object_set_new(o, "grid", sizes);
	else
		json_decref(sizes);
	tree_free(&t);
	body_free(&b);
	return o;
}

json_t *avg_point_ledger(const struct avg_point *p, uint64_t data_samples)
{
	return json_pack("{s:I,s:I,s:o,s:o,s:o,s:I}", "epoch", (json_int_t)p->epoch, "samples", (json_int_t)p->samples,
		"chain", json_hex(p->prev, DIGEST), "committed", ranges_json(&p->done), "proof",
		ledger_proof(&p->done, p->samples, data_samples), "data_samples", (json_int_t)data_samples);
}

json_t *avg_ledger(struct avg *a)
{
	json_t *granted = json_object(), *ret = avg_point_ledger(&a->point, a->conf.data_samples);
	char hex[ID_HEX];
	list_each(it, &a->mates) {
		struct mate *m = list_entry(it, struct mate, link);
		id_hex(&m->id, hex);
		if (m->grant.n)
			json_object_set_new(granted, hex, ranges_json(&m->grant));
	}
	json_object_set_new(ret, "granted", granted);
	json_object_set_new(ret, "claimed_here", ranges_json(&a->claimed));
	json_object_set_new(ret, "last_commit", last_commit_json(a));
	json_object_set_new(ret, "violations", json_integer((json_int_t)a->violations));
	return ret;
}

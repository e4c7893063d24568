/* Who is near whom: with READY every member says how far each other member is for it; the leader of a round in rows
 * puts neighbours together for the next one, when that shortens the ways within rows by a fourth, and names the new
 * rows in COMMIT. Seldom: when somebody has no row yet, and every so many epochs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg/lead.h"
#include "avg/near.h"
#include "avg/rows.h"
#include "common/jrpc.h"

#define EVERY 16                                /* epochs; of few members 4: it costs nothing */
#define FEW_MEMBERS 128
#define HANDED 65536.0                          /* bytes: far is who takes long to be handed so many */
#define STEPS 8.0                               /* of a distance's code, an octave */

static uint8_t code_of(double us)
{
	double c = us < 1 ? 1 : 1 + round(STEPS * log2(us));
	return (uint8_t)(c > 255 ? 255 : c);
}

static uint32_t us_of(uint8_t code)
{
	return code ? (uint32_t)exp2((code - 1) / STEPS) : 0;
}

void near_codes(const struct round *r, uint8_t *ret)
{
	struct peer_info info;
	for (size_t i = 0; i < r->b.n; i++) {
		ret[i] = 0;
		if ((int)i != r->me && net_peer(r->a->net, &r->b.m[i].id, &info) && info.rtt_us)
			ret[i] = code_of((double)info.rtt_us + (info.bandwidth_bps ? HANDED * 1e6 / (double)info.bandwidth_bps :
				0));
	}
}

json_t *near_json(const struct round *r)
{
	if (r->tree.rows < 2)
		return NULL;
	uint8_t *v = xcalloc(r->b.n, 1);
	near_codes(r, v);
	json_t *o = json_pack("{s:o}", "near", json_hex(v, r->b.n));
	free(v);
	return o;
}

void near_take(struct round *r, size_t i, const json_t *ready)
{
	struct lead *l = r->lead;
	size_t n = r->b.n;
	if (r->tree.rows < 2)
		return;
	if (!l->near)
		l->near = xcalloc(n * n, 1);
	if ((int)i == r->me)
		near_codes(r, l->near + i * n);
	else if (json_get_hex(ready, "near", l->near + i * n, n, NULL))
		memset(l->near + i * n, 0, n);          /* says nothing, or nonsense */
}

void near_rows(struct round *r, uint16_t *ret_next)
{
	size_t n = r->b.n;
	bool due = r->b.epoch % (n > FEW_MEMBERS ? EVERY : 4) == 0;
	for (size_t i = 0; i < n; i++) {
		const struct mate *m = mate_find(r->a, &r->b.m[i].id);
		ret_next[i] = r->tree.row[i];
		due = due || (m && m->row == NO_ROW);
	}
	if (!due || !r->lead->near)
		return;
	uint32_t *d = xcalloc(n * n, sizeof *d);
	uint16_t *row = xcalloc(n, sizeof *row);
	for (size_t i = 0; i < n * n; i++)
		d[i] = us_of(r->lead->near[i]);
	if (rows_better(n, r->a->conf.group_size, d, ret_next, row))
		memcpy(ret_next, row, n * sizeof *row);
	free(d);
	free(row);
}

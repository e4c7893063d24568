/* Means of a part that few members cannot move, and who is far from all others. Coordinates are sorted by rows: a round
 * of neighbours that swap is a minimum and a maximum of two vectors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "avg/robust.h"
#include "common/mem.h"

static const char *const names[] = { "none", "clip", "median", "trimmed" };

int robust_parse(const char *name, enum robust *ret, struct err *e)
{
	for (int i = 0; name && i < 4; i++)
		if (!strcmp(name, names[i])) {
			*ret = (enum robust)i;
			return 0;
		}
	return err_set(e, ERR_INVALID, "averaging.robust: %s%.40s is none of: none clip median trimmed", name ? "" :
		"what is there", name ? name : "");
}

const char *robust_name(enum robust r)
{
	return names[r];
}

/* Odd-even transposition: as many rounds as rows. */
static void sort_rows(float *const *row, size_t rows, size_t n)
{
	for (size_t round = 0; round < rows; round++)
		for (size_t i = round % 2; i + 1 < rows; i += 2) {
			float *a = row[i], *b = row[i + 1];
			for (size_t k = 0; k < n; k++) {
				float lo = a[k] < b[k] ? a[k] : b[k], hi = a[k] < b[k] ? b[k] : a[k];
				a[k] = lo;
				b[k] = hi;
			}
		}
}

static void mean_of_rows(float *const *row, size_t from, size_t to, size_t n, float *out)
{
	float by = 1 / (float)(to - from);
	memset(out, 0, n * sizeof *out);
	for (size_t i = from; i < to; i++)
		for (size_t k = 0; k < n; k++)
			out[k] += row[i][k] * by;
}

static void middle(float *const *row, size_t rows, size_t n, float *out)
{
	mean_of_rows(row, (rows - 1) / 2, rows / 2 + 1, n, out);
}

struct room { float *all, **row; double *apart; size_t terms; };

static void room_new(struct room *m, size_t terms)
{
	m->terms = terms;
	m->all = xcalloc((terms + 2) * CODEC_BLOCK_MAX, sizeof *m->all);
	m->row = xcalloc(terms, sizeof *m->row);
	m->apart = xcalloc(2 * terms, sizeof *m->apart);
	for (size_t i = 0; i < terms; i++)
		m->row[i] = m->all + (i + 2) * CODEC_BLOCK_MAX;
}

static void room_free(struct room *m)
{
	free(m->all);
	free(m->row);
	free(m->apart);
}

static double apart(const float *x, const float *y, size_t n)
{
	double sum = 0;
	for (size_t k = 0; k < n; k++)
		sum += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
	return sum;
}

/* One block: what the coordinates' order gives into out, squared distances from the median into m->apart. */
static void block(struct room *m, const struct blocks *b, struct reduce_term *t, enum robust robust, float *out)
{
	float *scratch = m->all, *centre = m->all + CODEC_BLOCK_MAX;
	size_t cut = (m->terms - 1) / 4 > 1 ? (m->terms - 1) / 4 : 1;
	for (size_t i = 0; i < m->terms; i++) {
		const float *x = blocks_of(b, &t[i], scratch);
		memcpy(m->row[i], x, b->len * sizeof *x);
	}
	sort_rows(m->row, m->terms, b->len);
	middle(m->row, m->terms, b->len, centre);
	if (robust == ROBUST_TRIMMED)
		mean_of_rows(m->row, cut, m->terms - cut, b->len, out + b->at);
	else
		memcpy(out + b->at, centre, b->len * sizeof *centre);
	for (size_t i = 0; i < m->terms; i++)
		m->apart[i] += apart(blocks_of(b, &t[i], scratch), centre, b->len);
}

static int ascending(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;
	return a < b ? -1 : a > b;
}

/* The distances themselves into m->apart; their median. */
static double radius(struct room *m)
{
	double *sorted = m->apart + m->terms;
	for (size_t i = 0; i < m->terms; i++)
		sorted[i] = m->apart[i] = sqrt(m->apart[i]);
	qsort(sorted, m->terms, sizeof *sorted, ascending);
	return sorted[m->terms / 2];
}

/* out holds the centre; the weighted mean of the contributions, each at most r away from it, takes its place. */
static void clip(struct room *m, const struct coding *c, uint64_t off, size_t n, struct reduce_term *t, uint64_t total,
	double r, float *out)
{
	float *scratch = m->all, *sum = m->all + CODEC_BLOCK_MAX;
	struct blocks b;
	blocks_begin(&b, c, off, n);
	while (blocks_next(&b)) {
		float *centre = out + b.at;
		memset(sum, 0, b.len * sizeof *sum);
		for (size_t i = 0; i < m->terms; i++) {
			const float *x = blocks_of(&b, &t[i], scratch);
			double pull = m->apart[i] > r ? r / m->apart[i] : 1;
			float by = (float)((double)t[i].weight / (double)total * pull);
			for (size_t k = 0; k < b.len; k++)
				sum[k] += (x[k] - centre[k]) * by;
		}
		for (size_t k = 0; k < b.len; k++)
			centre[k] += sum[k];
	}
}

int robust_part(const struct coding *c, uint64_t off, size_t n, struct reduce_term *t, size_t terms, uint64_t total,
	enum robust robust, float *out)
{
	struct room m;
	struct blocks b;
	bool bad = false;
	room_new(&m, terms);
	blocks_begin(&b, c, off, n);
	while (blocks_next(&b))
		block(&m, &b, t, robust, out);
	for (size_t i = 0; i < terms; i++)
		bad = bad || t[i].bad;
	double r = radius(&m);
	for (size_t i = 0; i < terms && !bad; i++)
		t[i].odd = m.apart[i] > REDUCE_ODD * r && m.apart[i] > 0;
	if (robust == ROBUST_CLIP && !bad)
		clip(&m, c, off, n, t, total, r, out);
	room_free(&m);
	return bad ? -1 : 0;
}

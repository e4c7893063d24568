/* Places the blocks of a pool by their lifetimes, largest first. Of a thousand ops in a row each lives together with a
 * few: only those are looked at. */
#include <stdint.h>
#include "kernels/piece.h"

#define NOWHERE SIZE_MAX
enum { END = -1 };

/* Does block a come before b: by its offset when they are placed, else the larger one? Of equals the first does. */
static bool comes_first(const struct block *v, int a, int b, bool placed)
{
	if (placed && v[a].offset != v[b].offset)
		return v[a].offset < v[b].offset;
	if (!placed && v[a].bytes != v[b].bytes)
		return v[a].bytes > v[b].bytes;
	return a < b;
}

/* Takes n blocks from the list *from; returns them in order. */
static int in_order(struct block *v, int *from, int n, bool placed)
{
	int first = *from, *link = &first, a, b;

	if (n < 2) {
		if (n) {
			*from = v[first].next;
			v[first].next = END;
		}
		return n ? first : END;
	}
	a = in_order(v, from, n / 2, placed);
	b = in_order(v, from, n - n / 2, placed);
	while (a != END && b != END) {
		int *next = comes_first(v, a, b, placed) ? &a : &b;

		*link = *next;
		link = &v[*link].next;
		*next = *link;
	}
	*link = a != END ? a : b;
	return first;
}

static bool overlap(const struct block *v, int a, int b)
{
	return v[a].begin <= v[b].end && v[b].begin <= v[a].end;
}

/* Blocks come by the op that they begin with, or backwards by that they end with (else SCATTERED): from one on all
 * behind block i begin when it is over, or are over when it begins. */
enum walk { SCATTERED, FORWARD, BACKWARD };

static enum walk walk_of(const struct block *v, int n)
{
	bool forward = true, backward = true;

	for (int i = 0, before = END; i < n; i++) {
		if (!v[i].bytes)
			continue;
		forward = forward && (before == END || v[before].begin <= v[i].begin);
		backward = backward && (before == END || v[before].end >= v[i].end);
		before = i;
	}
	return forward ? FORWARD : backward ? BACKWARD : SCATTERED;
}

/* Block j is over before i begins, or begins when i is over, in the order of the walk. */
static bool before(const struct block *v, int j, int i, enum walk w)
{
	return w == FORWARD ? v[j].end < v[i].begin : w == BACKWARD && v[j].begin > v[i].end;
}

static bool behind(const struct block *v, int j, int i, enum walk w)
{
	return w == FORWARD ? v[j].begin > v[i].end : w == BACKWARD && v[j].end < v[i].begin;
}

/* Unplaced all, as a list; none that lives together with block i stands before v[i].low. */
static int unplaced(struct block *v, int n, enum walk w, int *ret_first)
{
	int *link = ret_first, count = 0;

	for (int i = 0, low = 0; i < n; i++) {
		if (!v[i].bytes)
			continue;
		while (low < i && (!v[low].bytes || before(v, low, i, w)))
			low++;
		v[i].low = low;
		v[i].offset = NOWHERE;
		*link = i;
		link = &v[i].next;
		count++;
	}
	*link = END;
	return count;
}

/* The lowest offset at which block i fits among those placed. */
static size_t lowest_gap(struct block *v, int n, int i, enum walk w)
{
	int first = END, *link = &first, last = END, count = 0;
	bool sorted = true;
	size_t at = 0;

	for (int j = v[i].low; j < n; j++) {
		if (!v[j].bytes)
			continue;
		if (j > i && behind(v, j, i, w))
			break;
		if (v[j].offset == NOWHERE || !overlap(v, j, i))
			continue;
		sorted = sorted && (last == END || v[last].offset <= v[j].offset);
		last = *link = j;
		link = &v[j].next;
		count++;
	}
	*link = END;
	for (int k = sorted ? first : in_order(v, &first, count, true); k != END; k = v[k].next) {
		if (v[k].offset >= at && v[k].offset - at >= v[i].bytes)
			break;
		if (v[k].offset + v[k].bytes > at)
			at = v[k].offset + v[k].bytes;
	}
	return at;
}

size_t pool_place(struct block *v, int n)
{
	const enum walk w = walk_of(v, n);
	int first = END, count = unplaced(v, n, w, &first);
	size_t peak = 0;

	for (int i = in_order(v, &first, count, false), after; i != END; i = after) {
		after = v[i].next;
		v[i].offset = lowest_gap(v, n, i, w);
		if (v[i].offset + v[i].bytes > peak)
			peak = v[i].offset + v[i].bytes;
	}
	return peak;
}

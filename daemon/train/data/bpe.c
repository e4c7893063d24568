/* Encoding: added tokens are cut out first, then words, and of each word the pair of the lowest rank is merged, the
 * leftmost first, as long as there is one. Words that come again are remembered. */
#include <stdlib.h>
#include <string.h>
#include "common/mem.h"
#include "train/data/bpe_int.h"

#define WORD_KEPT 64                            /* longer words are not remembered */
#define WORDS_MAX ((size_t)1 << 18)

struct symbol { int32_t id; int32_t before, next; };    /* id -1: it has been merged away */
struct pair { uint32_t rank; int32_t at, id; };
struct word { uint32_t at, len, ids; uint32_t n; };     /* in the memory's text and ids; len 0: the slot is free */
struct encode {
	const struct bpe *b;
	struct ids *out;
	struct symbol *s; size_t cap;
	struct pair *heap; size_t nheap, heap_cap;
	struct word *word; size_t nwords, slots;        /* slots: a power of two */
	char *text; size_t ntext, text_cap;
	struct ids kept;
};

void ids_put(struct ids *l, int32_t id)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 256;
		l->v = xrealloc(l->v, l->cap * sizeof(*l->v));
	}
	l->v[l->n++] = id;
}

static uint64_t mix(uint64_t h)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdull;
	return h ^ h >> 29;
}

struct merge *bpe_merge(const struct bpe *b, int32_t left, int32_t right)
{
	size_t i = (size_t)mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right) & b->mask;

	while (b->merge[i].left >= 0 && (b->merge[i].left != left || b->merge[i].right != right))
		i = (i + 1) & b->mask;
	return &b->merge[i];
}

/* --- the heap of pairs: lowest rank, then leftmost */

static bool before(const struct pair *a, const struct pair *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void offer(struct encode *x, int32_t at)
{
	const struct symbol *s = at < 0 ? NULL : &x->s[at];
	const struct merge *m = !s || s->next < 0 ? NULL : bpe_merge(x->b, s->id, x->s[s->next].id);
	size_t i;

	if (!m || m->left < 0)
		return;
	if (x->nheap == x->heap_cap) {
		x->heap_cap = x->heap_cap ? 2 * x->heap_cap : 256;
		x->heap = xrealloc(x->heap, x->heap_cap * sizeof(*x->heap));
	}
	x->heap[i = x->nheap++] = (struct pair){ m->rank, at, m->id };
	for (; i && before(&x->heap[i], &x->heap[(i - 1) / 2]); i = (i - 1) / 2) {
		struct pair swap = x->heap[i];

		x->heap[i] = x->heap[(i - 1) / 2];
		x->heap[(i - 1) / 2] = swap;
	}
}

static struct pair take(struct encode *x)
{
	struct pair top = x->heap[0], last = x->heap[--x->nheap];
	size_t i = 0, k;

	while ((k = 2 * i + 1) < x->nheap) {
		if (k + 1 < x->nheap && before(&x->heap[k + 1], &x->heap[k]))
			k++;
		if (!before(&x->heap[k], &last))
			break;
		x->heap[i] = x->heap[k];
		i = k;
	}
	x->heap[i] = last;
	return top;
}

/* A pair may have become another since it was offered: what counts is what would be made of it now. */
static void merge_all(struct encode *x)
{
	while (x->nheap) {
		struct pair p = take(x);
		struct symbol *s = &x->s[p.at], *gone;
		const struct merge *m = s->id < 0 || s->next < 0 ? NULL : bpe_merge(x->b, s->id, x->s[s->next].id);

		if (!m || m->left < 0 || m->id != p.id)
			continue;
		gone = &x->s[s->next];
		s->id = m->id;
		s->next = gone->next;
		if (gone->next >= 0)
			x->s[gone->next].before = p.at;
		gone->id = -1;
		offer(x, s->before);
		offer(x, p.at);
	}
}

static void merge_word(struct encode *x, const char *p, size_t n)
{
	if (n > x->cap) {
		x->cap = 2 * n + 64;
		x->s = xrealloc(x->s, x->cap * sizeof(*x->s));
	}
	for (size_t i = 0; i < n; i++)
		x->s[i] = (struct symbol){ x->b->byte_id[(uint8_t)p[i]], (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1 };
	x->nheap = 0;
	for (size_t i = 0; i + 1 < n; i++)
		offer(x, (int32_t)i);
	merge_all(x);
	for (int32_t i = 0; i >= 0; i = x->s[i].next)
		ids_put(x->out, x->s[i].id);
}

/* --- words that come again */

static struct word *slot_of(struct encode *x, const char *p, size_t n)
{
	uint64_t h = n;
	size_t i;

	for (size_t k = 0; k < n; k++)
		h = (h ^ (uint8_t)p[k]) * 0x100000001b3ull;
	for (i = (size_t)mix(h) & (x->slots - 1); x->word[i].len; i = (i + 1) & (x->slots - 1))
		if (x->word[i].len == n && !memcmp(x->text + x->word[i].at, p, n))
			break;
	return &x->word[i];
}

static void grow(struct encode *x)
{
	struct word *old = x->word;
	size_t n = x->slots;

	x->slots = n ? 2 * n : 1024;
	x->word = xcalloc(x->slots, sizeof(*x->word));
	for (size_t i = 0; i < n; i++)
		if (old[i].len)
			*slot_of(x, x->text + old[i].at, old[i].len) = old[i];
	free(old);
}

static void remember(struct encode *x, const char *p, size_t n, size_t from)
{
	struct word *w = slot_of(x, p, n);

	if (x->ntext + n > x->text_cap) {
		x->text_cap = 2 * (x->ntext + n) + 4096;
		x->text = xrealloc(x->text, x->text_cap);
	}
	memcpy(x->text + x->ntext, p, n);
	*w = (struct word){ (uint32_t)x->ntext, (uint32_t)n, (uint32_t)x->kept.n, (uint32_t)(x->out->n - from) };
	x->ntext += n;
	for (; from < x->out->n; from++)
		ids_put(&x->kept, x->out->v[from]);
	x->nwords++;
}

static void word(struct encode *x, const char *p, size_t n)
{
	size_t from = x->out->n;

	if (n == 1) {
		ids_put(x->out, x->b->byte_id[(uint8_t)*p]);
		return;
	}
	if (n <= WORD_KEPT) {
		const struct word *w;

		if (2 * x->nwords >= x->slots && x->nwords < WORDS_MAX)
			grow(x);
		w = slot_of(x, p, n);
		for (uint32_t i = 0; i < w->n && w->len; i++)
			ids_put(x->out, x->kept.v[w->ids + i]);
		if (w->len)
			return;
	}
	merge_word(x, p, n);
	if (n <= WORD_KEPT && x->nwords < WORDS_MAX)
		remember(x, p, n, from);
}

/* --- text between added tokens */

static void plain(struct encode *x, const char *p, size_t n)
{
	char *prefixed = NULL;

	if (x->b->prefix_space && n && *p != ' ') {
		prefixed = xmalloc(n + 1);
		prefixed[0] = ' ';
		memcpy(prefixed + 1, p, n++);
		p = prefixed;
	}
	for (size_t at = 0; at < n; ) {
		size_t len = x->b->whole ? n : bpe_word(p + at, n - at);

		word(x, p + at, len);
		at += len;
	}
	free(prefixed);
}

/* The longest added token that begins here. */
static const struct added *added_at(const struct bpe *b, const char *p, size_t n, bool second)
{
	const struct added *best = NULL;

	if (!b->starts[(uint8_t)*p])
		return NULL;
	for (size_t i = 0; i < b->nadded; i++) {
		const struct added *a = &b->added[i];

		if (a->second == second && a->n <= n && !memcmp(a->text, p, a->n) && (!best || a->n > best->n))
			best = a;
	}
	return best;
}

/* First those that look at the text as it is, then in what is left those that look at the normalized text. */
static void cut(struct encode *x, const char *p, size_t n, bool second)
{
	size_t from = 0;

	for (size_t at = 0; at < n; ) {
		const struct added *a = added_at(x->b, p + at, n - at, second);
		size_t begin = at, end;

		if (!a) {
			at++;
			continue;
		}
		end = at += a->n;
		if (a->lstrip)
			begin -= bpe_blanks_before(p + from, begin - from);
		if (a->rstrip)
			end += bpe_blanks(p + end, n - end);
		if (begin > from && second)
			plain(x, p + from, begin - from);
		else if (begin > from)
			cut(x, p + from, begin - from, true);
		ids_put(x->out, a->id);
		from = end;
		at = end > at ? end : at;
	}
	if (from < n && second)
		plain(x, p + from, n - from);
	else if (from < n)
		cut(x, p + from, n - from, true);
}

void bpe_encode(const struct bpe *b, const char *text, size_t n, struct ids *out)
{
	struct encode x = { .b = b, .out = out };

	grow(&x);
	cut(&x, text, n, false);
	free(x.s);
	free(x.heap);
	free(x.word);
	free(x.text);
	free(x.kept.v);
}

size_t bpe_size(const struct bpe *b)
{
	return b->size;
}

const char *bpe_piece(const struct bpe *b, int32_t id, size_t *ret_n)
{
	*ret_n = id >= 0 && (size_t)id < b->size ? b->at[id + 1] - b->at[id] : 0;
	return *ret_n ? b->bytes + b->at[id] : NULL;
}

bool bpe_special(const struct bpe *b, int32_t id)
{
	for (size_t i = 0; i < b->nadded; i++)
		if (b->added[i].id == id)
			return b->added[i].special;
	return false;
}

int32_t bpe_find(const struct bpe *b, const char *added)
{
	for (size_t i = 0; i < b->nadded; i++)
		if (!strcmp(b->added[i].text, added))
			return b->added[i].id;
	return -1;
}

/* Words as GPT-2 cuts them before pairs are merged:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
#include <string.h>
#include "train/data/bpe.h"
#include "train/data/classes.h"

enum class { OTHER, LETTER, NUMBER, BLANK };

/* One code point; 1 byte and 0xffffffff for what is no UTF-8. */
static size_t point(const uint8_t *p, size_t n, uint32_t *ret)
{
	size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t c = p[0];

	*ret = c;
	if (len == 1)
		return 1;
	*ret = UINT32_MAX;
	if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
		return 1;
	c &= 0x7fu >> len;
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 1;
		c = c << 6 | (p[i] & 0x3fu);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 1;
	*ret = c;
	return len;
}

static bool within(const uint32_t (*v)[2], size_t n, uint32_t c)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (c > v[mid][1])
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && c >= v[lo][0];
}
#define WITHIN(table, c) within(table, sizeof(table) / sizeof(*(table)), c)

static enum class class_of(const uint8_t *p, size_t n, size_t *ret_len)
{
	uint32_t c;

	*ret_len = point(p, n, &c);
	if (c < 0x80)
		return (c | 0x20) - 'a' < 26 ? LETTER : c - '0' < 10 ? NUMBER : c == ' ' || c - 9 < 5 ? BLANK : OTHER;
	if (c == UINT32_MAX)
		return OTHER;
	if (WITHIN(class_letters, c))
		return LETTER;
	return WITHIN(class_numbers, c) ? NUMBER : WITHIN(class_blanks, c) ? BLANK : OTHER;
}

/* Bytes of one class from p on. */
static size_t run(const uint8_t *p, size_t n, enum class class, size_t *ret_last)
{
	size_t at = 0, len;

	while (at < n && class_of(p + at, n - at, &len) == class) {
		*ret_last = at;
		at += len;
	}
	return at;
}

size_t bpe_blanks(const char *text, size_t n)
{
	size_t last;

	return run((const uint8_t *)text, n, BLANK, &last);
}

size_t bpe_blanks_before(const char *text, size_t n)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t at = n, len;

	while (at > 0) {
		size_t k = at - 1;

		while (k > 0 && at - k < 4 && (p[k] & 0xc0) == 0x80)
			k--;
		if (class_of(p + k, at - k, &len) != BLANK || len != at - k)
			break;
		at = k;
	}
	return n - at;
}

/* 's 't 're 've 'm 'll 'd; 0: none of them */
static size_t clitic(const uint8_t *p, size_t n)
{
	if (n < 2 || p[0] != '\'')
		return 0;
	if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd')
		return 2;
	if (n < 3)
		return 0;
	return (p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') || (p[1] == 'l' && p[2] == 'l') ? 3 : 0;
}

size_t bpe_word(const char *text, size_t n)
{
	const uint8_t *p = (const uint8_t *)text;
	size_t at = p[0] == ' ' && n > 1 ? 1 : 0, len, last = 0;
	enum class class;

	if ((len = clitic(p, n)))
		return len;
	class = class_of(p + at, n - at, &len);
	if (class != BLANK)
		return at + run(p + at, n - at, class, &last);
	len = run(p, n, BLANK, &last);
	return len == n || !last ? len : last;          /* the last blank goes with the word behind it */
}

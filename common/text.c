/* Text of numbers, durations, sizes and addresses. Nothing here depends on the locale. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "common/text.h"

struct unit { const char *name; uint64_t scale; };

static const struct unit durations[] = {
	{ "us", 1 }, { "ms", 1000 }, { "s", 1000000 }, { "m", 60000000 }, { "min", 60000000 },
	{ "h", 3600000000u }, { "d", 86400000000u }, { "w", 604800000000u }, { NULL, 0 },
};
static const struct unit sizes[] = {
	{ "B", 1 }, { "K", 1u << 10 }, { "KiB", 1u << 10 }, { "KB", 1000 }, { "M", 1u << 20 }, { "MiB", 1u << 20 },
	{ "MB", 1000000 }, { "G", 1u << 30 }, { "GiB", 1u << 30 }, { "GB", 1000000000 }, { "T", (uint64_t)1 << 40 },
	{ "TiB", (uint64_t)1 << 40 }, { "TB", 1000000000000u }, { NULL, 0 },
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* One "12.5unit" at *s: adds its value to *sum. 0, or -1 when it is no number, -2 no such unit, -3 too large. */
static int quantity(const char **s, const struct unit *units, uint64_t bare, bool fold, uint64_t *sum)
{
	const char *p = *s, *u;
	unsigned __int128 whole = 0, frac = 0, ten = 1, v;
	uint64_t scale = 0;
	char name[8] = "";

	if (!is_digit(*p))
		return -1;
	for (; is_digit(*p); p++)
		if ((whole = whole * 10 + (unsigned)(*p - '0')) > UINT64_MAX)
			return -3;
	if (*p == '.') {
		if (!is_digit(*++p))
			return -1;
		for (; is_digit(*p); p++)
			if (ten < 1000000000000u) {         /* finer than a microsecond of a week: dropped */
				frac = frac * 10 + (unsigned)(*p - '0');
				ten *= 10;
			}
	}
	while (*p == ' ')
		p++;
	for (u = p; is_alpha(*p); p++)
		;
	if ((size_t)(p - u) >= sizeof name)
		return -2;
	memcpy(name, u, (size_t)(p - u));
	for (const struct unit *x = units; x->name; x++)
		if (!(fold ? strcasecmp(x->name, name) : strcmp(x->name, name)))
			scale = x->scale;
	if (!name[0])
		scale = bare;
	if (!scale)
		return -2;
	v = whole * scale + (frac * scale + ten / 2) / ten + *sum;
	if (v > INT64_MAX)
		return -3;
	*sum = (uint64_t)v;
	*s = p;
	return 0;
}

int text_duration(const char *s, uint64_t *ret_us, struct err *e)
{
	const char *p = s;
	uint64_t sum = 0;
	int parts = 0, rc = 0;

	do
		rc = quantity(&p, durations, parts ? 0 : 1000000, false, &sum);
	while (!rc && ++parts && *p && is_alpha(p[-1]));        /* "2m05s": a following part needs its unit */
	if (rc == -3)
		return err_set(e, ERR_INVALID, "duration \"%.40s\" is too long: at most 292 000 years", s);
	if (rc || *p)
		return err_set(e, ERR_INVALID,
			"\"%.40s\" is not a duration: a number and one of us ms s m h d w, as 250ms or 1m30s", s);
	*ret_us = sum;
	return 0;
}

int text_size(const char *s, uint64_t *ret_bytes, struct err *e)
{
	const char *p = s;
	uint64_t sum = 0;
	int rc = quantity(&p, sizes, 1, true, &sum);

	if (rc == -3)
		return err_set(e, ERR_INVALID, "size \"%.40s\" is too large: at most 8 EiB", s);
	if (rc || *p)
		return err_set(e, ERR_INVALID,
			"\"%.40s\" is not a size: a number and one of B K KB KiB M MB MiB G GB GiB T TB TiB, as 64KiB", s);
	*ret_bytes = sum;
	return 0;
}

const char *text_print_duration(uint64_t us, char *out, size_t cap)
{
	uint64_t s = us / 1000000;

	if (us < 1000)
		snprintf(out, cap, "%uus", (unsigned)us);
	else if (us < 10000)
		snprintf(out, cap, "%u.%ums", (unsigned)(us / 1000), (unsigned)(us / 100 % 10));
	else if (us < 1000000)
		snprintf(out, cap, "%ums", (unsigned)(us / 1000));
	else if (s < 60)
		snprintf(out, cap, "%u.%us", (unsigned)s, (unsigned)(us / 100000 % 10));
	else if (s < 3600)
		snprintf(out, cap, "%um%02us", (unsigned)(s / 60), (unsigned)(s % 60));
	else if (s < 86400)
		snprintf(out, cap, "%uh%02um", (unsigned)(s / 3600), (unsigned)(s / 60 % 60));
	else
		snprintf(out, cap, "%llud%02uh", (unsigned long long)(s / 86400), (unsigned)(s / 3600 % 24));
	return out;
}

const char *text_print_size(uint64_t bytes, char *out, size_t cap)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned u = 0;
	uint64_t tenths = 0, v = bytes;

	for (; v >= 1024; u++, v /= 1024)
		tenths = v % 1024 * 10 / 1024;
	if (u && v < 100)
		snprintf(out, cap, "%u.%u %s", (unsigned)v, (unsigned)tenths, units[u]);
	else
		snprintf(out, cap, "%u %s", (unsigned)v, units[u]);
	return out;
}

const char *text_print_time(uint64_t wall_ms, char *out, size_t cap)
{
	time_t s = (time_t)(wall_ms / 1000);
	struct tm tm;
	char day[40];

	if (!gmtime_r(&s, &tm) || !strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm))
		snprintf(day, sizeof day, "?");
	snprintf(out, cap, "%s.%03uZ", day, (unsigned)(wall_ms % 1000));
	return out;
}

int text_u64(const char *s, uint64_t *ret, struct err *e)
{
	uint64_t v = 0;

	for (const char *p = s; *p; p++) {
		unsigned d = (unsigned)(*p - '0');

		if (!is_digit(*p))
			return err_set(e, ERR_INVALID, "\"%.40s\" is not a whole number without a sign", s);
		if (v > (UINT64_MAX - d) / 10)
			return err_set(e, ERR_INVALID, "\"%.40s\" is too large: at most 18446744073709551615", s);
		v = v * 10 + d;
	}
	if (!*s)
		return err_set(e, ERR_INVALID, "empty: expected a whole number");
	*ret = v;
	return 0;
}

int text_double(const char *s, double *ret, struct err *e)
{
	locale_t c;
	double v = 0;
	char *end = NULL;

	if (*s && strspn(s, "0123456789+-.eE") == strlen(s)) {  /* no hexadecimal, no "inf", no leading blank */
		c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
		v = c ? strtod_l(s, &end, c) : 0;
		if (c)
			freelocale(c);
	}
	if (!end || *end || end == s)
		return err_set(e, ERR_INVALID, "\"%.40s\" is not a number such as 0.01 or 1e-3", s);
	if (!isfinite(v))
		return err_set(e, ERR_INVALID, "\"%.40s\" is too large for a number", s);
	*ret = v;
	return 0;
}

int text_bool(const char *s, bool *ret, struct err *e)
{
	static const char *const words[] = { "no", "yes", "false", "true", "off", "on", "0", "1" };

	for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
		if (!strcasecmp(words[i], s)) {
			*ret = i % 2;
			return 0;
		}
	return err_set(e, ERR_INVALID, "\"%.40s\" is neither yes nor no", s);
}

/* Splits s into host and port text. 0, or -1 when the shape is wrong. */
static int split_host(const char *s, char *host, size_t cap, const char **ret_port)
{
	const char *colon = strrchr(s, ':'), *from = s, *to = colon;
	static const char name_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
	static const char v6_chars[] = "0123456789abcdefABCDEF:.%abcdefghijklmnopqrstuvwxyz";
	bool v6 = *s == '[';

	if (!colon || colon == s)
		return -1;
	if (v6) {
		from = s + 1;
		to = colon - 1;
		if (*to != ']' || to <= from)
			return -1;
	}
	if ((size_t)(to - from) >= cap || strspn(from, v6 ? v6_chars : name_chars) != (size_t)(to - from))
		return -1;
	memcpy(host, from, (size_t)(to - from));
	host[to - from] = 0;
	*ret_port = colon + 1;
	return v6 && !strchr(host, ':') ? -1 : 0;
}

int text_hostport(const char *s, char *host, size_t cap, uint16_t *ret_port, struct err *e)
{
	const char *port;
	uint64_t v;

	if (split_host(s, host, cap, &port)) {
		if (cap)
			host[0] = 0;
		return err_set(e, ERR_INVALID, "\"%.80s\" is not an address: HOST:PORT or [IPv6]:PORT", s);
	}
	if (!strcmp(port, "auto")) {
		*ret_port = 0;
		return 0;
	}
	if (text_u64(port, &v, NULL) || v < 1 || v > 65535)
		return err_set(e, ERR_INVALID, "\"%.80s\": port \"%.10s\" is neither 1 to 65535 nor \"auto\"", s, port);
	*ret_port = (uint16_t)v;
	return 0;
}

#define WORD_MAX 48
#define BEGINS_MIN 3

/* Edit distance with swaps of neighbours (optimal string alignment). */
static unsigned distance(const char *a, size_t n, const char *b, size_t m)
{
	unsigned d[WORD_MAX + 1][WORD_MAX + 1];

	for (size_t i = 0; i <= n; i++)
		for (size_t j = 0; j <= m; j++) {
			unsigned best = (unsigned)(i + j);

			if (i && j) {
				best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
				best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
				best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
			}
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	return d[n][m];
}

/* The one that begins with word; NULL when there are two. The same name may be there many times. */
static const char *begins_with(const char *word, size_t n, const char *const *list)
{
	const char *found = NULL;

	for (; *list; list++)
		if (!strncmp(word, *list, n)) {
			if (found && strcmp(found, *list))
				return NULL;
			found = *list;
		}
	return found;
}

const char *text_nearest(const char *word, const char *const *list)
{
	const char *found = NULL, *const *all = list;
	size_t n = strlen(word);
	unsigned best = 4;

	for (; n <= WORD_MAX && *list; list++) {
		size_t m = strlen(*list), longer = n > m ? n : m;
		unsigned d = m <= WORD_MAX ? distance(word, n, *list, m) : 4;

		if (d < best && 2 * d <= longer) {          /* half of a short word is another word */
			best = d;
			found = *list;
		}
	}
	return found || n < BEGINS_MIN ? found : begins_with(word, n, all);
}

const char *text_hex(const void *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[b[i] >> 4];
		out[2 * i + 1] = digits[b[i] & 15];
	}
	out[2 * n] = 0;
	return out;
}

bool text_name_ok(const char *s)
{
	static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

	return s[0] && s[0] != '.' && strspn(s, ok) == strlen(s);
}

/* Bytes of the UTF-8 character at p, or 0 when it is not one (Unicode 15, table 3-7). */
static size_t utf8_char(const unsigned char *p, size_t n)
{
	unsigned char c = p[0], lo = 0x80, hi = 0xbf;
	size_t k = c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;

	if (c == 0xe0)
		lo = 0xa0;
	else if (c == 0xed)
		hi = 0x9f;
	else if (c == 0xf0)
		lo = 0x90;
	else if (c == 0xf4)
		hi = 0x8f;
	if (k > n || (k > 1 && (p[1] < lo || p[1] > hi)))
		return 0;
	for (size_t i = 2; i < k; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return k;
}

bool text_utf8_ok(const char *s, size_t n)
{
	for (size_t i = 0, k; i < n; i += k)
		if (!(k = utf8_char((const unsigned char *)s + i, n - i)))
			return false;
	return true;
}

void text_clean(char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0, k; i < n; i += k) {
		unsigned char c = (unsigned char)s[i];

		k = utf8_char((const unsigned char *)s + i, n - i);
		if (!k || c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)s[i + 1] < 0xa0)) {
			for (size_t j = 0; j < (k ? k : 1); j++)
				s[i + j] = '?';
			k = k ? k : 1;
		}
	}
}

/* 256-bit ids: comparison, XOR distance, hexadecimal text. */
#include <string.h>
#include "common/hash.h"
#include "common/id.h"
#include "common/text.h"

bool id_eq(const struct id *a, const struct id *b)
{
	return !memcmp(a->b, b->b, sizeof a->b);
}

int id_cmp(const struct id *a, const struct id *b)
{
	return memcmp(a->b, b->b, sizeof a->b);
}

bool id_zero(const struct id *a)
{
	static const struct id zero;

	return id_eq(a, &zero);
}

void id_xor(const struct id *a, const struct id *b, struct id *ret)
{
	for (int i = 0; i < 32; i++)
		ret->b[i] = a->b[i] ^ b->b[i];
}

int id_closer(const struct id *target, const struct id *a, const struct id *b)
{
	for (int i = 0; i < 32; i++)
		if (a->b[i] != b->b[i])
			return (a->b[i] ^ target->b[i]) < (b->b[i] ^ target->b[i]) ? -1 : 1;
	return 0;
}

int id_prefix_bits(const struct id *a, const struct id *b)
{
	for (int i = 0; i < 32; i++)
		if (a->b[i] != b->b[i])
			return 8 * i + __builtin_clz((unsigned)(a->b[i] ^ b->b[i])) - 24;
	return 256;
}

void id_hex(const struct id *a, char out[ID_HEX])
{
	(void)text_hex(a->b, sizeof a->b, out);
}

const char *id_short(const struct id *a, char out[9])
{
	char hex[ID_HEX];

	id_hex(a, hex);
	memcpy(out, hex, 8);
	out[8] = 0;
	return out;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int id_parse(struct id *ret, const char *hex64, struct err *e)
{
	struct id out;
	size_t n = strlen(hex64);

	if (n != 64)
		return err_set(e, ERR_INVALID, "id \"%.70s\" has %zu characters: an id is 64 hexadecimal digits", hex64, n);
	for (int i = 0; i < 32; i++) {
		int hi = digit(hex64[2 * i]), lo = digit(hex64[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return err_set(e, ERR_INVALID, "id \"%s\": character %d is not a hexadecimal digit",
				hex64, hi < 0 ? 2 * i + 1 : 2 * i + 2);
		out.b[i] = (uint8_t)(hi << 4 | lo);
	}
	*ret = out;
	return 0;
}

void id_of(struct id *ret, const void *p, unsigned long n)
{
	sha256_of(p, n, ret->b);
}

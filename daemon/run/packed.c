/* Specifications in records of the DHT: a large model has hundreds of layers that are alike. */
#include "run/packed.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "common/mem.h"

#define PACKED_JSON ((struct json_limits){ PACKED_MOST, 16, 131072 })

static json_t *deflated(const char *text, size_t n)
{
	uLongf len = compressBound(n);
	Bytef *out = xmalloc(len);
	json_t *j = NULL;
	if (n <= PACKED_MOST && compress2(out, &len, (const Bytef *)text, n, Z_BEST_COMPRESSION) == Z_OK)
		j = json_pack("{s:o}", "deflated", json_hex(out, len));
	free(out);
	return j;
}

json_t *spec_packed(const json_t *shared, size_t most, size_t *ret_bytes)
{
	char *text = json_line(shared, ret_bytes);
	json_t *j = *ret_bytes <= most ? json_incref((json_t *)shared) : deflated(text, *ret_bytes);
	const char *hex = json_string_value(json_object_get(j, "deflated"));
	free(text);
	if (!j || !hex || strlen(hex) + 32 <= most)
		return j;
	json_decref(j);
	return NULL;
}

json_t *spec_unpacked(const json_t *packed, struct err *e)
{
	const json_t *hex = json_object_get(packed, "deflated");
	if (!hex)
		return json_incref((json_t *)packed);
	size_t n = json_is_string(hex) ? json_string_length(hex) / 2 : 0;
	Bytef *in = xmalloc(n + 1), *out = NULL;
	uLongf len = PACKED_MOST;
	json_t *j = NULL;
	if (!n || json_object_size(packed) != 1)
		err_set(e, ERR_PROTOCOL, "a deflated specification is {\"deflated\": hex digits}");
	else if (!json_get_hex(packed, "deflated", in, n, e)) {
		out = xmalloc(PACKED_MOST);
		if (uncompress(out, &len, in, n) != Z_OK)
			err_set(e, ERR_PROTOCOL, "a specification that cannot be inflated, or has more than %u bytes", PACKED_MOST);
		else
			j = json_read((const char *)out, len, PACKED_JSON, e);
	}
	free(in);
	free(out);
	return j;
}

/* JSON-RPC lines and JSON under the limits of the wire: whatever parses must print and parse again to
 * the same value. */
#include <stdlib.h>
#include <string.h>
#include "common/jrpc.h"
#include "common/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void same_again(const json_t *j)
{
	struct json_limits wide = { SIZE_MAX, 64, SIZE_MAX };
	size_t n;
	char *line = json_line(j, &n);
	struct err e;
	json_t *k;

	check(line && !strchr(line, '\n') && text_utf8_ok(line, n));
	k = json_read(line, n, wide, &e);
	check(k && json_equal(j, k));
	json_decref(k);
	free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jrpc m;
	struct err e = {0};
	json_t *j = json_read((const char *)data, size, JSON_WIRE, &e);

	check(j || e.code == ERR_PARSE || e.code == ERR_LIMIT);
	check(j || (e.text[0] && text_utf8_ok(e.text, strlen(e.text))));
	if (j)
		same_again(j);
	json_decref(j);
	if (jrpc_parse(&m, (const char *)data, size, &e)) {
		check(!m.root && e.text[0]);
		return 0;
	}
	check(m.kind == JRPC_NOTE || m.id);
	check((m.kind != JRPC_REQUEST && m.kind != JRPC_NOTE) || m.method);
	same_again(m.root);
	jrpc_done(&m);
	return 0;
}

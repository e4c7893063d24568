/* Errors: filling, wrapping and naming struct err. Texts may quote bytes from the network, so they are cleaned here,
 * once: whatever reads them later (a log, a terminal, JSON) gets printable UTF-8 on one line. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "common/err.h"
#include "common/text.h"

static const char *const names[ERR_COUNT_] = {
	[ERR_NONE] = "none", [ERR_INVALID] = "invalid", [ERR_PARSE] = "parse", [ERR_NO_METHOD] = "no_method",
	[ERR_NOT_FOUND] = "not_found", [ERR_EXISTS] = "exists", [ERR_IO] = "io", [ERR_NOMEM] = "nomem",
	[ERR_TIMEOUT] = "timeout", [ERR_REFUSED] = "refused", [ERR_UNREACHABLE] = "unreachable",
	[ERR_PROTOCOL] = "protocol", [ERR_VERSION] = "version", [ERR_AUTH] = "auth", [ERR_STATE] = "state",
	[ERR_LIMIT] = "limit", [ERR_CORRUPT] = "corrupt", [ERR_CANCELLED] = "cancelled", [ERR_BUSY] = "busy",
	[ERR_FORK] = "fork", [ERR_MISMATCH] = "mismatch", [ERR_FULL] = "full", [ERR_NONFINITE] = "nonfinite",
	[ERR_INTERNAL] = "internal",
};

static const int jrpc_codes[ERR_COUNT_] = {
#define X(name, jrpc) [ERR_##name] = jrpc,
	ERR_LIST(X)
#undef X
};

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
	char text[sizeof e->text];              /* so that an argument may be e->text itself */
	va_list ap;

	if (!e)
		return -1;
	e->code = code;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	text_clean(text);
	memcpy(e->text, text, sizeof text);
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char text[sizeof e->text];
	size_t n;
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	n = strlen(text);
	snprintf(text + n, sizeof text - n, ": %.*s", (int)(sizeof text - n), e->text);
	text_clean(text);
	memcpy(e->text, text, sizeof text);
	return -1;
}

const char *err_name(enum err_code code)
{
	return (unsigned)code < ERR_COUNT_ && names[code] ? names[code] : "internal";
}

enum err_code err_from_name(const char *name)
{
	for (int i = 0; name && i < ERR_COUNT_; i++)
		if (names[i] && !strcmp(names[i], name))
			return (enum err_code)i;
	return ERR_INTERNAL;
}

enum err_code err_from_jrpc(int jrpc)
{
	for (int i = 0; i < ERR_COUNT_; i++)
		if (jrpc_codes[i] == jrpc)
			return (enum err_code)i;
	return ERR_INTERNAL;
}

int err_jrpc(enum err_code code)
{
	return (unsigned)code < ERR_COUNT_ ? jrpc_codes[code] : jrpc_codes[ERR_INTERNAL];
}

/* Errors: one code, one line of text, no allocation. Functions that can fail return 0 or -1
 * and fill a caller's struct err; the text says what was wrong, where, and what would be right. */
#ifndef COMMON_ERR_H
#define COMMON_ERR_H

/* X(NAME, JSON-RPC code). Append only: names travel on the wire and in SQLite. */
#define ERR_LIST(X) \
	X(NONE, 0) X(INVALID, -32602) X(PARSE, -32700) X(NO_METHOD, -32601) X(NOT_FOUND, -32001) \
	X(EXISTS, -32002) X(IO, -32003) X(NOMEM, -32004) X(TIMEOUT, -32005) X(REFUSED, -32006) \
	X(UNREACHABLE, -32007) X(PROTOCOL, -32008) X(VERSION, -32009) X(AUTH, -32010) X(STATE, -32011) \
	X(LIMIT, -32012) X(CORRUPT, -32013) X(CANCELLED, -32014) X(BUSY, -32015) X(FORK, -32016) \
	X(MISMATCH, -32017) X(FULL, -32018) X(NONFINITE, -32019) X(INTERNAL, -32603)

enum err_code {
#define X(name, jrpc) ERR_##name,
	ERR_LIST(X)
#undef X
	ERR_COUNT_
};

struct err {
	enum err_code code;
	char text[320];
};

/* Fills *e (may be NULL) and returns -1, so that "return err_set(e, ERR_IO, ...)" works. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the text that is there and returns -1; keeps the code. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *err_name(enum err_code code);       /* "not_found"; never NULL */
enum err_code err_from_name(const char *name);  /* unknown or NULL: ERR_INTERNAL */
int err_jrpc(enum err_code code);
enum err_code err_from_jrpc(int jrpc);        /* unknown: ERR_INTERNAL */

#endif

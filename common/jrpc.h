/* JSON-RPC 2.0, one object per line, named parameters only, and strict JSON reading with limits. */
#ifndef COMMON_JRPC_H
#define COMMON_JRPC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "common/err.h"
#include "common/hash.h"

struct json_limits { size_t bytes, depth, values; };                /* checked before jansson sees a byte */
#define JSON_WIRE ((struct json_limits){ 8192, 8, 1024 })           /* control frames */
#define JSON_BULK ((struct json_limits){ 65536, 8, 4096 })          /* frames of the rooms that need more */
#define JSON_SOCK ((struct json_limits){ 65536, 16, 16384 })        /* the Unix socket */
#define JSON_FILE ((struct json_limits){ 4194304, 32, 262144 })     /* specs */
#define JSON_RECORD ((struct json_limits){ 16384, 8, 4096 })        /* the value of a DHT record */
#define JSON_POINT ((struct json_limits){ 262144, 8, 131072 })       /* where a run stands, with its ledger */
/* How many values it has; -1 and e when it is beyond a limit. Whether it is JSON is not looked at. */
int json_count(const char *p, size_t n, struct json_limits lim, size_t *ret, struct err *e);
/* Strict: UTF-8, no duplicate keys, whole input, limits. Errors say line and column. New reference. */
json_t *json_read(const char *p, size_t n, struct json_limits lim, struct err *e);
/* The same for what may be a bare number, string, or word. */
json_t *json_any(const char *p, size_t n, struct json_limits lim, struct err *e);
/* compact, keys in insertion order, reals with 17 digits; free() it */
char *json_line(const json_t *j, size_t *ret_len);

enum jrpc_kind { JRPC_REQUEST, JRPC_NOTE, JRPC_RESULT, JRPC_ERROR };
struct jrpc { enum jrpc_kind kind; json_t *id; const char *method; json_t *params, *result, *error; json_t *root; };
int jrpc_parse(struct jrpc *ret, const char *line, size_t n, struct err *e);  /* owns root; jrpc_done frees */
void jrpc_done(struct jrpc *m);
json_t *jrpc_request(int id, const char *method, json_t *params);   /* steals params */
json_t *jrpc_note(const char *method, json_t *params);
json_t *jrpc_result(json_t *id, json_t *result);                    /* borrows id (may be NULL), steals result */
json_t *jrpc_error(json_t *id, const struct err *e, json_t *data);  /* steals data (may be NULL) */

/* Field access with errors that name the place: "lr: expected a number, found a string". */
int json_get_u64(const json_t *o, const char *key, uint64_t *ret, struct err *e);
int json_get_i64(const json_t *o, const char *key, int64_t *ret, struct err *e);
int json_get_f64(const json_t *o, const char *key, double *ret, struct err *e);   /* integer or real, finite */
int json_get_str(const json_t *o, const char *key, const char **ret, struct err *e);
int json_get_bool(const json_t *o, const char *key, bool *ret, struct err *e);
int json_get_hex(const json_t *o, const char *key, void *out, size_t bytes, struct err *e);
json_t *json_hex(const void *p, size_t bytes);
/* "hashes" (hash.h): not said when it is the first. Read: the newest that is said and known here, too. */
void json_put_hashes(json_t *o, enum hashes by);
enum hashes json_get_hashes(const json_t *o, enum hashes mine);
/* a string of bytes that may be anything: cleaned by text_clean */
json_t *json_text(const char *s);
/* 0 when every key of o is in known[] (NULL-terminated); else the error names the unknown and the nearest. */
int json_only(const json_t *o, const char *const *known, const char *where, struct err *e);

#endif

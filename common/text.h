/* Text of durations, sizes, addresses: parse and print. Printing never needs a locale. */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/err.h"

/* "250ms" "1.5s" "2m" "1h" "3d" "10us"; a bare number is seconds */
int text_duration(const char *s, uint64_t *ret_us, struct err *e);
int text_size(const char *s, uint64_t *ret_bytes, struct err *e);   /* "64KiB" "1MB" "2G" (=GiB) "123" */
const char *text_print_duration(uint64_t us, char *out, size_t cap);/* "1.5s", "2m05s" */
const char *text_print_size(uint64_t bytes, char *out, size_t cap); /* "1.5 MiB" */
const char *text_print_time(uint64_t wall_ms, char *out, size_t cap); /* RFC 3339, UTC, ms */
int text_u64(const char *s, uint64_t *ret, struct err *e);          /* whole string, no sign */
int text_double(const char *s, double *ret, struct err *e);         /* whole string, '.' only, finite */
int text_bool(const char *s, bool *ret, struct err *e);             /* yes no true false on off 1 0 */
/* "host:port", "[v6]:port"; port may be "auto" (then 0). */
int text_hostport(const char *s, char *host, size_t cap, uint16_t *ret_port, struct err *e);
/* The name of list[] (NULL-terminated) nearest to word by edit distance (at most 3), else the only one that begins with
 * word (of at least 3 letters), or NULL: for "did you mean". */
const char *text_nearest(const char *word, const char *const *list);
const char *text_hex(const void *p, size_t n, char *out);           /* 2 n small digits and NUL; out */
/* A name that may be one in a folder: letters, digits, - _ . ; not empty, no leading point. */
bool text_name_ok(const char *s);
bool text_utf8_ok(const char *s, size_t n);
/* In place: control bytes and broken UTF-8 (a cut tail too) become '?', so that s may be logged, shown
 * or put in JSON. */
void text_clean(char *s);

#endif

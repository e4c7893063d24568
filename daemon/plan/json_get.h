/* Inside the room: reading one JSON object, every key once, first error kept. */
#ifndef PLAN_JSON_GET_H
#define PLAN_JSON_GET_H
#include "plan/plan.h"

#define GET_BIG ((uint64_t)1 << 62)
#define GET_KEYS 32
#define COUNT(v) (sizeof (v) / sizeof *(v))

struct get {
	const json_t *o;
	char where[64];                 /* "buffers[3]" */
	struct err *e;
	const char *asked[GET_KEYS];
	unsigned nasked;
	bool bad;
};
struct get get_of(const json_t *o, struct err *e, const char *table, size_t at);
void get_fail(struct get *g, enum err_code code, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
json_t *get_key(struct get *g, const char *key);
/* Absent: usual, 0, false, "". */
uint64_t get_u(struct get *g, const char *key, uint64_t usual, uint64_t max);
int64_t get_i(struct get *g, const char *key, int64_t max);
bool get_b(struct get *g, const char *key);
void get_name(struct get *g, const char *key, bool must, char out[PLAN_NAME]);
unsigned get_enum(struct get *g, const char *key, const char *const *names, unsigned n);
const json_t *get_array(struct get *g, const char *key, size_t max);
/* Element i of the array x, a number of 0..max; errors name key. */
uint64_t get_at(struct get *g, const char *key, const json_t *x, size_t i, uint64_t max);
int get_end(struct get *g);             /* -1 when anything was wrong or a key was not asked for */

int plan_read_instr(struct plan *p, const json_t *o, enum plan_section s, size_t at, struct err *e);

#endif

/* Jobs that end after trainer_free find nobody who listens: their owner may be gone. */
#include "train/trainer_int.h"

static void no_progress(void *arg, const struct trainer_progress *p) { (void)arg; (void)p; }
static void no_contribute(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed)
{
	(void)arg; (void)epoch; (void)x; (void)samples; (void)claimed;
}
static void no_part(void *arg, uint64_t epoch, const real *x, uint64_t samples, const struct ranges *claimed,
	size_t lo, size_t hi)
{
	(void)arg; (void)epoch; (void)x; (void)samples; (void)claimed; (void)lo; (void)hi;
}
static void no_applied(void *arg, const struct trainer_applied *a) { (void)arg; (void)a; }
static void no_validated(void *arg, const struct trainer_validated *v) { (void)arg; (void)v; }
static void no_idle(void *arg) { (void)arg; }
static void no_broken(void *arg, const struct err *e) { (void)arg; (void)e; }
static void no_event(void *arg, enum log_level level, const char *code, const char *text)
{
	(void)arg; (void)level; (void)code; (void)text;
}
static void no_log(void *arg, const char *line, size_t len) { (void)arg; (void)line; (void)len; }
const struct trainer_cb trainer_nobody = { no_progress, no_contribute, no_part, no_applied, no_validated, no_idle,
	no_broken, no_event, no_log };     /* the others may be NULL */

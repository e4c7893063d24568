/* Values of tier file: one file of the executor's folder, which nobody else can see (it has no name once it is open)
 * and which is gone with the process. A value has a place in it as long as it lives; the file is sparse, and freed
 * places are used again, the lowest first. What follows "in a lane" blocks; the rest is for the loop. */
#ifndef EXEC_SPILL_H
#define EXEC_SPILL_H
#include "env.h"

struct spill;
struct spill *spill_new(struct files *f, const char *folder);   /* touches nothing yet */
void spill_free(struct spill *s);               /* nothing is open; NULL is fine */
uint64_t spill_take(struct spill *s, uint64_t bytes);           /* a place for so many */
void spill_give(struct spill *s, uint64_t at, uint64_t bytes);
/* Who needs the file first opens it in its lane: begin before, opened after it (fd -1: it has failed, and the next one
 * tries again; or it was closed). Others wait while it is opening. */
int spill_fd(const struct spill *s);            /* -1: not open */
bool spill_opening(const struct spill *s);
void spill_begin(struct spill *s);
void spill_opened(struct spill *s, int fd);

/* --- in a lane; at: place in the file */
int spill_open(const struct spill *s, struct err *e);           /* its descriptor; makes the folder */
void spill_close(const struct spill *s, int fd);        /* to give back what a large file takes is work, too */
int spill_read(const struct spill *s, int fd, void *p, size_t bytes, uint64_t at, struct err *e);
int spill_write(const struct spill *s, int fd, const void *p, size_t bytes, uint64_t at, struct err *e);
/* For SAVE: the file `name` of the folder, written beside it and put in its place when all of it is safe. */
struct spill_out { const struct spill *s; char *path, *tmp; int fd; uint64_t at; };
int spill_out_open(struct spill_out *o, const struct spill *s, const char *name, struct err *e);
int spill_out_put(struct spill_out *o, const void *p, size_t bytes, struct err *e);
/* rc: what has come of it so far; -1 gives it up, and what had the name before stays. Returns what has come of it. */
int spill_out_close(struct spill_out *o, int rc, struct err *e);

#endif

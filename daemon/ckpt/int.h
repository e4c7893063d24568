/* Inside of the checkpoints: ckpt*.c only. */
#ifndef DAEMON_CKPT_INT_H
#define DAEMON_CKPT_INT_H
#include "ckpt/ckpt.h"

const char *ckpt_dtype_name(enum ckpt_dtype t);
int ckpt_head_of(struct ckpt_head *h, struct files *f, int fd, uint64_t file_bytes, struct err *e);
int ckpt_open_read(struct files *f, const char *path, uint64_t *ret_bytes, struct err *e);   /* fd or -1 */

#endif

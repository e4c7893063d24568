/* Memory: small things abort when there is none left, user-sized things return NULL. */
#ifndef COMMON_MEM_H
#define COMMON_MEM_H
#include <stddef.h>

void *xmalloc(size_t n);                    /* aborts on failure */
void *xcalloc(size_t count, size_t size);   /* zeroed; overflow-checked; aborts */
void *xrealloc(void *p, size_t n);          /* aborts */
char *xstrdup(const char *s);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *xmemdup(const void *p, size_t n);
/* 64-byte aligned, zeroed pages; NULL on failure; huge pages advised over 4 MiB */
void *big_alloc(size_t bytes);
void big_free(void *p, size_t bytes);       /* same size as asked; NULL is fine */

/* What is freed stays here for the next use, up to 32 MiB (blocks over 1 MiB go back at once): frames of 512 KiB come
 * and go, and a fresh page costs more than what is copied into it. For the whole process; once is enough. */
void mem_keep(void);
void mem_give_back(void);                   /* what mem_keep kept, while nothing comes and goes */

/* Test hook: when set, called before each allocation; returning non-zero makes it fail. Never set in production. */
typedef int mem_fault_fn(void *arg, size_t bytes, int big);
void mem_set_fault(mem_fault_fn *fn, void *arg);

#endif

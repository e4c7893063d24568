/* Memory: small allocations abort when there is none left, user-sized ones fail cleanly. The fault hook is the one
 * mutable file-scope variable of the project (tests/tidy knows it by name): an allocator has no context to carry it. */
#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "common/mem.h"
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define BIG_MMAP_MIN ((size_t)1 << 20)      /* below this a heap block is cheaper than a mapping */
#define BIG_HUGE_MIN ((size_t)4 << 20)
#define BIG_ALIGN 64u
#define KEEP_BLOCK (1 << 20)
#define KEEP_BYTES (32 << 20)

#if defined(__SANITIZE_ADDRESS__)
#define BIG_USES_MMAP 0                     /* so that an overrun lands in a red zone */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BIG_USES_MMAP 0
#endif
#endif
#ifndef BIG_USES_MMAP
#define BIG_USES_MMAP 1
#endif

static struct { mem_fault_fn *fn; void *arg; } mem_fault;

static int faulted(size_t bytes, int big)
{
	return mem_fault.fn && mem_fault.fn(mem_fault.arg, bytes, big);
}

static void *checked(void *p, size_t n)
{
	if (!p) {
		fprintf(stderr, "out of memory: %zu bytes\n", n);
		abort();
	}
	return p;
}

void mem_set_fault(mem_fault_fn *fn, void *arg)
{
	mem_fault.fn = fn;
	mem_fault.arg = arg;
}

void *xmalloc(size_t n)
{
	return checked(faulted(n, 0) ? NULL : malloc(n ? n : 1), n);
}

void *xcalloc(size_t count, size_t size)
{
	if (size && count > SIZE_MAX / size)
		return checked(NULL, SIZE_MAX);
	return checked(faulted(count * size, 0) ? NULL : calloc(count ? count : 1, size ? size : 1), count * size);
}

void *xrealloc(void *p, size_t n)
{
	return checked(faulted(n, 0) ? NULL : realloc(p, n ? n : 1), n);
}

void *xmemdup(const void *p, size_t n)
{
	void *q = xmalloc(n);

	if (n)
		memcpy(q, p, n);
	return q;
}

char *xstrdup(const char *s)
{
	return xmemdup(s, strlen(s) + 1);
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	assert(fmt);
	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return checked(NULL, 0);
	s = xmalloc((size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(s, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return s;
}

void mem_keep(void)
{
#ifdef __GLIBC__
	(void)mallopt(M_MMAP_THRESHOLD, KEEP_BLOCK);
	(void)mallopt(M_TRIM_THRESHOLD, KEEP_BYTES);
#endif
}

void mem_give_back(void)
{
#ifdef __GLIBC__
	(void)malloc_trim(0);
#endif
}

void *big_alloc(size_t bytes)
{
	size_t n;
	void *p;

	if (bytes > SIZE_MAX / 2 || faulted(bytes, 1))
		return NULL;
	if (BIG_USES_MMAP && bytes >= BIG_MMAP_MIN) {
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return NULL;
		if (bytes >= BIG_HUGE_MIN)
			(void)madvise(p, bytes, MADV_HUGEPAGE);     /* a hint: kernels without it say EINVAL */
		return p;
	}
	n = (bytes + BIG_ALIGN - 1) / BIG_ALIGN * BIG_ALIGN;
	p = aligned_alloc(BIG_ALIGN, n ? n : BIG_ALIGN);
	return p ? memset(p, 0, n ? n : BIG_ALIGN) : NULL;
}

void big_free(void *p, size_t bytes)
{
	if (!p)
		return;
	if (BIG_USES_MMAP && bytes >= BIG_MMAP_MIN)
		munmap(p, bytes);
	else
		free(p);
}

/* Teams, slices, the choice of the instruction set, shapes and error texts: what all kernels share. */
#include "kernels/par.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include "kernels/isa.h"

int kerr_set(struct kerr *e, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return -1;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof e->text, fmt, ap);
	va_end(ap);
	return -1;
}

size_t shape_count(const struct shape *s)
{
	size_t n = 1;

	for (int i = 0; i < s->nd; i++)
		n *= s->d[i];
	return n;
}

const char *shape_text(const struct shape *s, char *out, size_t cap)
{
	size_t at = 0;

	assert(cap > 0);
	out[0] = 0;
	for (int i = 0; i < s->nd && at < cap; i++)
		at += (size_t)snprintf(out + at, cap - at, "%s%zu", i ? ", " : "[", s->d[i]);
	if (at < cap)
		snprintf(out + at, cap - at, s->nd ? "]" : "[]");
	return out;
}

static enum cpu cpu_best(void)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return CPU_AVX512;
	if (__builtin_cpu_supports("avx2"))
		return CPU_AVX2;
#endif
	return CPU_PLAIN;
}

const char *cpu_name(enum cpu cpu)
{
	return cpu == CPU_AVX512 ? "avx512" : cpu == CPU_AVX2 ? "avx2" : "plain";
}

int cpu_pick(const char *limit, enum cpu *ret_cpu, struct kerr *e)
{
	enum cpu best = cpu_best();

	*ret_cpu = best;
	if (!limit || !*limit || !strcmp(limit, "auto"))
		return 0;
	for (enum cpu c = CPU_PLAIN; c <= CPU_AVX512; c++)
		if (!strcmp(limit, cpu_name(c))) {
			*ret_cpu = c < best ? c : best;
			return 0;
		}
	return kerr_set(e, "instruction set '%.40s' is unknown: auto, avx512, avx2 or plain", limit);
}

#ifdef __x86_64__
#define GET_TILES 0x1023                        /* ARCH_REQ_XCOMP_PERM */
#define TILES 18                                /* XFEATURE_XTILEDATA */

static enum dot dot_best(void)
{
	unsigned a, b, c, d, a1, b1, c1, d1;

	if (cpu_best() != CPU_AVX512 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
	    !__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1))
		return DOT_NONE;
	if ((d >> 22 & 1) && (d >> 24 & 1) && syscall(SYS_arch_prctl, GET_TILES, TILES) == 0)
		return DOT_AMX;
	return a1 >> 5 & 1 ? DOT_AVX512 : DOT_NONE;
}
#else
static enum dot dot_best(void) { return DOT_NONE; }
#endif

enum dot dot_pick(const char *limit)
{
	return !limit || !*limit || !strcmp(limit, "auto") ? dot_best() : DOT_NONE;
}

const char *dot_name(enum dot dot)
{
	return dot == DOT_AMX ? "amx" : dot == DOT_AVX512 ? "avx512_bf16" : dot == DOT_TWIN ? "twin" : "none";
}

struct par par_serial(enum cpu cpu, const struct blas *blas)
{
	return (struct par){ .n = 1, .cpu = cpu, .blas = blas };
}

void par_run(const struct par *par, void (*fn)(void *arg, int part, int parts), void *arg)
{
	assert(par->n >= 1);
	if (par->run && par->n > 1) {
		par->run(par, fn, arg);
		return;
	}
	for (int i = 0; i < par->n; i++)
		fn(arg, i, par->n);
}

void par_slice(size_t n, size_t grain, int part, int parts, size_t *ret_lo, size_t *ret_hi)
{
	size_t units = n / grain + (n % grain != 0), p = (size_t)part, q = (size_t)parts;
	size_t each = units / q, rest = units % q;
	size_t lo = p * each + (p < rest ? p : rest), hi = lo + each + (p < rest);

	*ret_lo = lo * grain < n ? lo * grain : n;
	*ret_hi = hi * grain < n ? hi * grain : n;
}

struct isa_job { void (*fn)(const void *args, size_t lo, size_t hi); const void *args; size_t n, grain; };

static void isa_part(void *arg, int part, int parts)
{
	const struct isa_job *j = arg;
	size_t lo, hi;

	par_slice(j->n, j->grain, part, parts, &lo, &hi);
	if (lo < hi)
		j->fn(j->args, lo, hi);
}

void isa_run(const struct par *par, const struct isa *k, const void *args, size_t n, size_t grain, size_t serial_max)
{
	struct isa_job j = { k->fn[par->cpu], args, n, grain };

	if (n == 0)
		return;
	if (par->n == 1 || n <= serial_max)
		j.fn(args, 0, n);
	else
		par_run(par, isa_part, &j);
}

/* The step arena: bump allocation under a budget, exact peak, poisoned outside what is handed out. */
#include "kernels/arena.h"
#include <assert.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define POISONING 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONING 1
#endif
#endif

#ifdef POISONING
#include <sanitizer/asan_interface.h>
#define RED_ZONE ARENA_ALIGN
#define PIECES_MAX 65536        /* room for red zones beside the budget */
#else
#define RED_ZONE 0
#define PIECES_MAX 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

int arena_init(struct arena *a, size_t budget, struct kerr *e)
{
	size_t cap;

	*a = (struct arena){ .budget = budget };
	if (budget > SIZE_MAX / 4)
		return kerr_set(e, "an arena of %zu bytes is larger than the address space", budget);
	cap = arena_round(budget) + RED_ZONE * (size_t)PIECES_MAX;
	a->base = aligned_alloc(ARENA_ALIGN, cap ? cap : ARENA_ALIGN);
	if (!a->base)
		return kerr_set(e, "the arena of %zu bytes does not fit into memory: lower the batch size or the "
			"memory budget", budget);
	a->cap = cap ? cap : ARENA_ALIGN;
	ASAN_POISON_MEMORY_REGION(a->base, a->cap);
	return 0;
}

void arena_done(struct arena *a)
{
	if (a->base)
		ASAN_UNPOISON_MEMORY_REGION(a->base, a->cap);
	free(a->base);
	*a = (struct arena){ 0 };
}

void *arena_alloc(struct arena *a, size_t bytes, const char *what, struct kerr *e)
{
	size_t room = a->budget - a->used, piece = arena_round(bytes);
	unsigned char *p;

	if (bytes > room || piece > arena_round(room)) {
		kerr_set(e, "%.80s needs %zu bytes, but of the budget of %zu bytes only %zu are left", what, bytes,
			a->budget, room);
		return NULL;
	}
	/* The last piece may fill a budget that is no multiple of the alignment. */
	a->used += piece <= room ? piece : room;
	assert(a->top + piece + RED_ZONE <= a->cap || RED_ZONE == 0);
	p = a->base + a->top;
	a->top += piece + RED_ZONE;
	if (a->used > a->peak)
		a->peak = a->used;
	ASAN_UNPOISON_MEMORY_REGION(p, bytes);
	return p;
}

struct arena_mark arena_mark(const struct arena *a)
{
	return (struct arena_mark){ a->used, a->top };
}

void arena_release(struct arena *a, struct arena_mark m)
{
	assert(m.used <= a->used && m.top <= a->top);
	ASAN_POISON_MEMORY_REGION(a->base + m.top, a->top - m.top);
	a->used = m.used;
	a->top = m.top;
}

void arena_reset(struct arena *a)
{
	arena_release(a, (struct arena_mark){ 0, 0 });
}

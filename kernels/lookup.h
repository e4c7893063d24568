/* LOOKUP(kind): kind_at, kind_find and kind_names of a file's list `all` of struct kind_ops, which have names. */
#ifndef KERNELS_LOOKUP_H
#define KERNELS_LOOKUP_H
#include <assert.h>
#include <stdio.h>
#include <string.h>

#define LOOKUP(kind) \
	const struct kind##_ops *kind##_at(int i) \
	{ \
		return i >= 0 && i < (int)(sizeof(all) / sizeof(*all)) ? all[i] : NULL; \
	} \
	\
	const struct kind##_ops *kind##_find(const char *name) \
	{ \
		for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) \
			if (!strcmp(all[i]->name, name)) \
				return all[i]; \
		return NULL; \
	} \
	\
	const char *kind##_names(char *out, size_t cap) \
	{ \
		size_t at = 0; \
		\
		assert(cap > 0); \
		out[0] = 0; \
		for (size_t i = 0; i < sizeof(all) / sizeof(*all) && at < cap; i++) \
			at += (size_t)snprintf(out + at, cap - at, "%s%s", i ? " " : "", all[i]->name); \
		return out; \
	} \
	struct kind##_ops

#endif

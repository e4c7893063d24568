/* Fail points by name, of test builds (--failpoint): those that rooms pass, and those of the process itself: mem.small
 * and mem.big (allocations: common/mem.h), file.open, file.write, file.fsync, file.rename. The latter strike on any
 * thread, so their counts are atomic; the list is complete before the first lane works. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/mem.h"
#include "common/text.h"
#include "loop/files.h"
#include "loop/int.h"

enum fate { FATE_KILL, FATE_STOP, FATE_ERROR };
struct point { struct list link; char name[96]; enum fate fate; atomic_ullong left; };
/* The real files with some calls in front of them. */
struct faulty { struct files files; struct files *real; struct loop *loop; };

int loop_point(struct loop *l, const char *name)
{
	list_each(i, &l->points) {
		struct point *p = list_entry(i, struct point, link);
		unsigned long long left = strcmp(p->name, name) ? 0 : atomic_load(&p->left);

		while (left && !atomic_compare_exchange_weak(&p->left, &left, left - 1))
			;
		if (left != 1)
			continue;
		if (p->fate == FATE_ERROR)
			return -1;
		kill(getpid(), p->fate == FATE_KILL ? SIGKILL : SIGSTOP);
	}
	return 0;
}

#ifdef FAILPOINTS
static int starve(void *arg, size_t bytes, int big)
{
	return loop_point(arg, big ? "mem.big" : "mem.small");
}

static struct faulty *faulty_of(struct files *f) { return container_of(f, struct faulty, files); }

static int struck(struct files *f, const char *point, struct err *e)
{
	if (!loop_point(faulty_of(f)->loop, point))
		return 0;
	return err_set(e, ERR_IO, "fail point %s", point);
}

static int faulty_open(struct files *f, const char *path, int flags, int mode, struct err *e)
{
	struct files *own = faulty_of(f)->real;
	return struck(f, "file.open", e) ? -1 : own->open(own, path, flags, mode, e);
}

static int faulty_pwrite(struct files *f, int fd, const void *buf, size_t n, uint64_t at, struct err *e)
{
	struct files *own = faulty_of(f)->real;
	return struck(f, "file.write", e) ? -1 : own->pwrite(own, fd, buf, n, at, e);
}

static int faulty_fsync(struct files *f, int fd, struct err *e)
{
	struct files *own = faulty_of(f)->real;
	return struck(f, "file.fsync", e) ? -1 : own->fsync(own, fd, e);
}

static int faulty_rename(struct files *f, const char *from, const char *to, struct err *e)
{
	struct files *own = faulty_of(f)->real;
	return struck(f, "file.rename", e) ? -1 : own->rename(own, from, to, e);
}

/* The other calls of the real table look at nothing of it, so they may as well be called with this one. */
static void files_faulty(struct loop *l)
{
	struct faulty *f = xcalloc(1, sizeof *f);

	f->loop = l;
	f->real = files_real();
	f->files = *f->real;
	f->files.open = faulty_open;
	f->files.pwrite = faulty_pwrite;
	f->files.fsync = faulty_fsync;
	f->files.rename = faulty_rename;
	l->faulty = f;
	l->env.files = &f->files;
}
#endif

static int add_point(struct loop *l, const char *word, struct err *e)
{
	static const char *const fates[] = { "kill", "stop", "error", NULL };
	const char *eq = strchr(word, '='), *colon = eq ? strchr(eq, ':') : NULL;
	struct point *p;
	uint64_t left = 1;
	size_t len;

	if (!eq || eq == word || (size_t)(eq - word) >= sizeof(p->name))
		return err_set(e, ERR_INVALID, "fail point '%s': expected NAME=kill|stop|error[:N]", word);
	p = xcalloc(1, sizeof(*p));
	list_push(&l->points, &p->link);
	memcpy(p->name, word, (size_t)(eq - word));
	if (colon && (text_u64(colon + 1, &left, e) || !left))
		return err_set(e, ERR_INVALID, "fail point '%s': after ':' stands the count, from 1", word);
	atomic_init(&p->left, left);
	len = colon ? (size_t)(colon - eq - 1) : strlen(eq + 1);
	for (int k = 0; fates[k]; k++)
		if (strlen(fates[k]) == len && !strncmp(fates[k], eq + 1, len)) {
			p->fate = (enum fate)k;
			return 0;
		}
	return err_set(e, ERR_INVALID, "fail point '%s': expected kill, stop or error after '='", word);
}

int loop_failpoints(struct loop *l, const char *text, struct err *e)
{
	char word[160];

	while (*text) {
		size_t n = strcspn(text, ",");
		if (n >= sizeof(word))
			return err_set(e, ERR_INVALID, "fail point '%.40s...': too long", text);
		memcpy(word, text, n);
		word[n] = 0;
		if (n && add_point(l, word, e))
			return -1;
		text += n + (text[n] == ',');
	}
#ifdef FAILPOINTS
	list_each(i, &l->points) {
		const char *name = list_entry(i, struct point, link)->name;
		if (!strncmp(name, "mem.", 4))
			mem_set_fault(starve, l);
		if (!strncmp(name, "file.", 5) && !l->faulty)
			files_faulty(l);
	}
#endif
	return 0;
}

void loop_points_free(struct loop *l)
{
	struct list *i;

	while ((i = list_pop(&l->points))) {
		struct point *p = list_entry(i, struct point, link);
		if (!strncmp(p->name, "mem.", 4))
			mem_set_fault(NULL, NULL);
		free(p);
	}
	free(l->faulty);
}

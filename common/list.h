/* Intrusive doubly linked list: the node lives in its owner, nothing is allocated. Header only. */
#ifndef COMMON_LIST_H
#define COMMON_LIST_H
#include <stdbool.h>
#include <stddef.h>

struct list { struct list *next, *prev; };
#define LIST_INIT(l) { &(l), &(l) }
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_each(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
/* safe against removal of *it */
#define list_each_safe(it, head) \
	for (struct list *it = (head)->next, *it##_n = it->next; it != (head); it = it##_n, it##_n = it->next)

static inline void list_init(struct list *l) { l->next = l->prev = l; }
static inline bool list_empty(const struct list *l) { return l->next == l; }
static inline void list_insert_(struct list *n, struct list *p, struct list *x)
{
	n->prev = p;
	n->next = x;
	p->next = n;
	x->prev = n;
}

/* At the tail. */
static inline void list_push(struct list *head, struct list *n) { list_insert_(n, head->prev, head); }
static inline void list_push_front(struct list *head, struct list *n) { list_insert_(n, head, head->next); }

/* Idempotent after list_init. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	n->next = n->prev = n;
}

static inline struct list *list_pop(struct list *head)
{
	struct list *n = head->next;

	if (n == head)
		return NULL;
	list_del(n);
	return n;
}

/* All of them, to the tail of the other. */
static inline void list_move(struct list *from, struct list *to)
{
	struct list *n;

	while ((n = list_pop(from)))
		list_push(to, n);
}

static inline size_t list_len(const struct list *head)
{
	size_t k = 0;

	for (const struct list *i = head->next; i != head; i = i->next)
		k++;
	return k;
}

#endif

/* A peer that speaks the wire by hand, for attack.c and forge.c. */
#ifndef TESTS_ATTACK_WIRE_H
#define TESTS_ATTACK_WIRE_H
#include <jansson.h>
#include "common/buf.h"
#include "net/session.h"

extern const char *host;
extern int port, in;                    /* the daemon's control port; our mailbox */
extern uint64_t boot;                   /* each run is a daemon that has just started */
extern uint8_t swarm[32], priv[32];
extern struct signer me;
extern struct session *s;
extern struct id daemon_id;

void die(const char *what) __attribute__((noreturn));
int dial(void);
void give(int fd, const void *p, size_t len);
void listen_somewhere(void);
size_t hear(unsigned kind, uint8_t *out, size_t cap, int wait_ms);     /* 0: nothing of that kind came */
void make_m1(struct buf *b, uint64_t boot_id, const uint8_t key[32]);
void hello(int fd);
size_t seal(uint8_t *out, enum kind k, uint64_t request, const char *json, const struct id *sender, bool m3);
size_t seal_blob(uint8_t *out, enum kind k, uint64_t request, const char *json, const void *blob, size_t len,
	const struct id *sender, bool m3);
size_t ping(int fd, uint8_t *sent, uint8_t *answer, size_t cap);
int ask(int fd, enum kind k, json_t *json /* stolen */, struct buf *blob /* emptied; or NULL */, json_t **ret);

/* forge.c: as a member of the run of that id. */
void forge(int fd, const char *run);
void forge_signed(int fd, const char *run);

#endif

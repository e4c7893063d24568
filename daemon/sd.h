/* What systemd hears from the daemon (sd_notify(3)): one datagram per message, no library. */
#ifndef DAEMON_SD_H
#define DAEMON_SD_H
#include <stdint.h>

struct sd { int fd; char path[108]; unsigned len; uint64_t watchdog_us; };     /* fd -1: nobody listens */
void sd_init(struct sd *s);             /* reads NOTIFY_SOCKET and WATCHDOG_USEC once */
void sd_done(struct sd *s);
/* "READY=1\nSTATUS=..." */
void sd_say(const struct sd *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif

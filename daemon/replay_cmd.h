/* hivemindd --replay: run logs are run again in this process; no daemon, socket or state folder is needed. */
#ifndef DAEMON_REPLAY_CMD_H
#define DAEMON_REPLAY_CMD_H

/* argv[0] is "--replay". The exit status: 0 all is equal, 1 it is not or cannot be replayed, 3 usage. */
int replay_cmd(int argc, char **argv);

#endif

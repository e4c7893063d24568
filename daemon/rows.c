/* The table of settings: one row gives a key its type, default, range, reload rule and help; man page and example file
 * are checked against it. */
#include "rows.h"

#include <stddef.h>

#define SECOND 1e6
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define MIB 1048576.0
#define GIB (1024 * MIB)

const struct conf_row conf_rows[] = {
	{ "network", "listen", CONF_LIST, "127.0.0.1:auto", 0, 0, false,
		"numeric address and port of the control mailbox; bulk and door are the next two ports; auto looks for free "
			"ones; further addresses have the same ports" },
	{ "network", "advertise", CONF_LIST, "", 0, 0, false,
		"host, or host:port, that other peers dial, when it differs from listen (for 0.0.0.0: the first address that "
			"is not loopback); further ones are tried when it does not answer" },
	{ "network", "join", CONF_LIST, "", 0, 0, false, "addresses of other peers, host:port; tried for ever with "
		"back-off" },
	{ "network", "client", CONF_BOOL, "no", 0, 0, false, "only dial out: for peers that nobody can reach" },
	{ "network", "swarm_key_file", CONF_STR, "", 0, 0, false,
		"file with the swarm's key, mode 0600; without one only loopback addresses are listened on" },
	{ "network", "rate_limit_up", CONF_SIZE, "0", 0, 0, true,
		"bytes a second to other peers, all together; bulk waits, control does not; 0: no limit" },
	{ "network", "rate_limit_down", CONF_SIZE, "0", 0, 0, true,
		"bytes a second from other peers, all together; 0: no limit" },
	{ "network", "allow", CONF_LIST, "", 0, 0, true,
		"ids of the only peers that may talk to this one; empty: everybody who has the swarm key" },
	{ "network", "peer_frames_max", CONF_INT, "50000", 0, 1e9, true,
		"frames a second that one peer may send unasked; more is dropped, and the peer banned if it goes on; "
			"0: no limit" },
	{ "dht", "replicas", CONF_INT, "8", 1, 64, false, "peers that hold each record" },
	{ "dht", "records_max", CONF_INT, "100000", 100, 1e8, false, "records that this peer holds for others" },
	{ "control", "socket", CONF_STR, "", 0, 0, false,
		"Unix socket for hivectl (default: control.sock in the runtime or state directory)" },
	{ "control", "status_socket", CONF_STR, "", 0, 0, false,
		"second socket that only answers reading commands (default: status.sock beside socket; none: no such socket)" },
	{ "control", "group", CONF_STR, "", 0, 0, false, "group that may use socket" },
	{ "control", "status_group", CONF_STR, "", 0, 0, false, "group that may use status_socket" },
	{ "store", "keep", CONF_DURATION, "30d", HOUR, 36500 * DAY, false,
		"epochs and rounds older than this are thinned to every 100th" },
	{ "store", "keep_size", CONF_SIZE, "1GiB", MIB, 1024 * GIB, false, "above this the oldest rows go" },
	{ "checkpoint", "keep", CONF_INT, "3", 1, 1000, true, "newest checkpoints of a run that stay" },
	{ "checkpoint", "every_epochs", CONF_INT, "0", 0, 1e9, true, "write one every so many epochs; 0: by time only" },
	{ "checkpoint", "every", CONF_DURATION, "1m", 0, 365 * DAY, true,
		"write one at least this often while epochs are committed; 0: never" },
	{ "checkpoint", "free_min", CONF_SIZE, "1GiB", 0, 1024 * GIB, true,
		"no checkpoint when less would be free after it" },
	{ "compute", "threads", CONF_INT, "0", 0, 64, false, "threads of the train lane; 0: processors less one, at "
		"least one" },
	{ "compute", "data_threads", CONF_INT, "1", 1, 64, false, "threads that read and prepare data" },
	{ "compute", "memory_max", CONF_SIZE, "0", 0, 1048576 * MIB, true,
		"runs that would need more are refused; 0: what the machine has" },
	{ "compute", "cpu", CONF_STR, "auto", 0, 0, false,
		"instruction set of the kernels: auto, avx512, avx2, plain; auto alone uses AMX and AVX512-BF16" },
	{ "data", "dir", CONF_STR, "", 0, 0, true, "folder below which data names of specs are looked up" },
	{ "data", "cache", CONF_STR, "", 0, 0, true,
		"folder of prepared data (materialize_after), shared by the machine's daemons; empty: in the state folder" },
	{ "data", "cache_max", CONF_SIZE, "64GiB", 0, 0, true,
		"most that prepared data may take for a run that another peer has started; 0: what the disk has" },
	{ "data", "*", CONF_STR, "", 0, 0, true, "NAME = KIND:PATH, a data set of this machine that specs name" },
	{ "log", "level", CONF_STR, "info", 0, 0, true, "debug, info, warn or error" },
	{ "log", "lines", CONF_INT, "2000", 10, 1e6, false, "recent lines kept in memory for hivectl log" },
	{ "daemon", "stop_timeout", CONF_DURATION, "30s", SECOND, HOUR, true, "longest time that stopping may take" },
	{ NULL, NULL, 0, NULL, 0, 0, false, NULL }
};

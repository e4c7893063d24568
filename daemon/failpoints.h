/* Every fail point of the daemon, one a line: FP("room.what.before"). `hivemindd --list-failpoints` prints them. */
FP("store.commit.before")
FP("ckpt.done.before")

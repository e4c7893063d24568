/* Every message kind, one a line: KIND(NAME, number, who). Numbers are the wire's: append, never reuse.
 * who: 'p' plain (before a session exists), 's' sealed. REPLY answers a call; REFUSE answers it with an error. */
KIND(HELLO1, 1, 'p')            /* the first of three messages */
KIND(HELLO2, 2, 'p')            /* M2; M3 rides in front of the first sealed frame */
KIND(RESET, 3, 'p')             /* "I do not know this session": a hint to say HELLO again */
KIND(TOO_OLD, 4, 'p')           /* refusal readable by any version */
KIND(REPLY, 8, 's')
KIND(REFUSE, 9, 's')
KIND(PING, 10, 's')
KIND(GOODBYE, 11, 's')          /* this peer leaves the network in an orderly way */
KIND(VIEW, 12, 's')             /* how do you see me, and which swarm key do you have */
KIND(CHUNK, 16, 's')            /* a piece of a transfer (net/chunk.h) */
KIND(CHUNK_WANT, 17, 's')       /* receiver: resume at / I am ready now */
KIND(DHT_FIND, 32, 's')
KIND(DHT_STORE, 33, 's')
KIND(DHT_GET, 34, 's')
KIND(AVG_JOIN, 48, 's')         /* to the leader: prev, epoch; answer: members, ranges, or REDIRECT, or FORK */
KIND(AVG_PROGRESS, 49, 's')
KIND(AVG_BEGIN, 50, 's')
KIND(AVG_ATTEMPT, 51, 's')
KIND(AVG_MISSING, 52, 's')
KIND(AVG_ACK, 53, 's')
KIND(AVG_COMMIT, 54, 's')
KIND(AVG_RECOVER, 55, 's')
KIND(AVG_LEAVE, 56, 's')
KIND(AVG_PROPOSE, 57, 's')
KIND(AVG_GRANT, 58, 's')       /* member to leader: more positions */
KIND(AVG_REDIRECT, 59, 's')    /* to who reported to the wrong peer, or is not where the swarm is: JOIN that one */
KIND(AVG_SHOW, 60, 's')        /* where do you stand, and what is signed for it */
KIND(AVG_PROOF, 61, 's')       /* one leader has signed two COMMITs of one epoch */
KIND(AVG_SENT, 62, 's')        /* hashes of all pieces that a member brings, signed */
KIND(AVG_AUDIT, 63, 's')       /* what has been summed, with those signatures: to who looks at it again */
KIND(RUN_STATE, 64, 's')        /* ask a member for parameters, optimizer state, ledger */
KIND(RUN_CTL, 65, 's')          /* signed swarm-wide pause, resume, stop */
KIND(RUN_DATA, 66, 's')         /* hashes of stretches of a member's data manifest */
KIND(AVG_WRONG, 67, 's')       /* a part's owner has not summed what was sent to it: ask this peer for what shows it */
KIND(RUN_SHARD, 68, 's')        /* a part of the state of a run whose members hold parts (run/mover.h) */
KIND(RUN_SAVED, 69, 's')        /* what a checkpoint has of a run whose members hold parts (run/saved.h) */
KIND(PLAN_DATA, 72, 's')        /* a RECV of any asks a sender: what have you for me */
KIND(CREW_PROPOSE, 73, 's')     /* a generation of a crew: what are its plans, and do you promise it */
KIND(CREW_GO, 74, 's')          /* all have promised the same one: begin */
KIND(CREW_ASK, 75, 's')         /* what are you, and how far is the crew */
KIND(CREW_SHOW, 76, 's')        /* the go of a generation, again */

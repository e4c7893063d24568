STRATEGY(hivemind)
STRATEGY(single)
STRATEGY(allreduce)
STRATEGY(diloco)

SCHEDULE(naive)
SCHEDULE(gpipe)
SCHEDULE(one_f_one_b)
SCHEDULE(two_bw)

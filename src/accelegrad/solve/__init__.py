"""Running a rule on a problem: the loop, the certificate, checkpoints and the result."""

"""What others can see of calls: the audit, metrics, traces, the log of refusals."""

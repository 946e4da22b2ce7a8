"""What the service, its clients and the workers share: ids, column types, the log. It imports nothing else of ours."""

"""One file's replay as a task and a stream of events, the same in this process and in another."""

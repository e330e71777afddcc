"""What a run folder is: checkpoints, records, log, incidents, loading."""

"""Normal and log-normal regression of one outcome."""

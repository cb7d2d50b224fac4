"""What pages and figures of releases, comparisons and studies share."""

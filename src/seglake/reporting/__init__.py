"""Reports on a lake: figures, alerts, an HTML page, metrics and lineage."""

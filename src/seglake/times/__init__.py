"""Convert the times of events, callers and consumers to milliseconds since the epoch, and back."""

"""What an erasure finds and removes: keys, records, rejects, and the objects that had them."""

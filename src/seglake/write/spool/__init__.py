"""Keep blobs between map and reduce: store, pack and order them."""

"""Run the reduce tasks, which merge blobs and write segments."""

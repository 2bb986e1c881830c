"""Examples of each command, which stand at the end of its help."""

EXAMPLES = {
    "demo": ("seglake demo ./lake",),
    "init": ("seglake init logs/*.jsonl", "seglake init s3://bucket/raw/ --topic web -o web.toml"),
    "check": ("seglake check --conf-file web.toml --sample 5",),
    "warm": ("seglake warm",),
    "help": ("seglake help --all",),
    "ingest": (
        "seglake ingest --conf-file web.toml --local",
        "seglake ingest --conf-file web.toml --run-id 2026-11-20T10 --source h10/",
    ),
    "redrive": ("seglake redrive --run-id 2026-11-20T10 --conf-file mended.toml --local",),
    "undo": ("seglake undo ./lake web --run-id 2026-11-20T10 --dry-run",),
    "jobs": ("seglake jobs", "seglake jobs ingest > ingest.py"),
    "run-status": ("seglake run-status ./lake web --run-id 2026-11-20T10",),
    "quarantine": (
        "seglake quarantine ./lake web --run-id 2026-11-20T10",
        "seglake quarantine ./lake web --json > rejects.json",
    ),
    "topics": ("seglake topics ./lake", "seglake topics s3://bucket/lake --json"),
    "segments": ("seglake segments ./lake web --partition 0",),
    "offsets": (
        "seglake offsets ./lake web --time 2026-11-20T10:00:00Z",
        "seglake offsets ./lake web --time latest",
    ),
    "read": (
        "seglake read ./lake web --last 1h --format table",
        "seglake read ./lake web --start 2026-11-20T10:00Z --end 2026-11-20T11:00Z",
        "seglake read ./lake web --partition 0 --offset 10 --format csv",
    ),
    "find": (
        "seglake find ./lake web --key u140030",
        "seglake find ./lake web --key u140030 --last 1h --newest 10 --format table",
        "seglake find ./lake web --key u140030 --explain",
    ),
    "dump": ("seglake dump topics/web-0/00000000000000000000.log --deep",),
    "history": ("seglake history ./lake --topic web", "seglake history ./lake --failed"),
    "report": ("seglake report ./lake", "seglake report ./lake web -o report.html"),
    "metrics": ("seglake metrics ./lake -o /var/lib/node_exporter/seglake.prom",),
    "describe": ("seglake describe ./lake web",),
    "alter": ("seglake alter ./lake web retention.ms=7d cleanup.policy=delete",),
    "maintain": ("seglake maintain ./lake --dry-run",),
    "retain": ("seglake retain ./lake web --dry-run",),
    "compact": ("seglake compact ./lake users --dry-run",),
    "delete-records": (
        "seglake delete-records ./lake web --before-time 2026-11-01T00:00Z",
        "seglake delete-records ./lake web --partition 0 --before-offset 1000",
    ),
    "erase": (
        "seglake erase ./lake web --key ann --dry-run",
        "seglake erase ./lake web --keys-from keys.txt --vacuum",
    ),
    "merge": ("seglake merge ./lake web --dry-run",),
    "tag": (
        "seglake tag ./lake",
        "seglake tag ./lake before-may --version 7 --until 2027-06-01",
        "seglake tag ./lake q3-train --delete",
    ),
    "verify": ("seglake verify ./lake", "seglake verify ./lake --topic web --deep"),
    "repair": ("seglake repair ./lake --dry-run", "seglake repair ./lake --catalog"),
    "reindex": ("seglake reindex ./lake web --index-interval-bytes 4096",),
    "vacuum": ("seglake vacuum ./lake --dry-run",),
    "serve": (
        "seglake serve ./lake",
        "seglake serve s3://bucket/lake --conf-file server.toml --topics web,users",
        "seglake serve ./lake --list web.v12 --list 'web.q3-*'",
    ),
    "import": ("seglake import /var/kafka-logs --root ./lake --topic web",),
    "attach": ("seglake attach s3://bucket/tiered --root ./lake --dry-run",),
    "archive": (
        "seglake archive ./lake web users --bootstrap broker:9092",
        "seglake archive ./lake web --bootstrap broker:9092 --group billing",
    ),
    "export": ("seglake export ./lake web ./kafka-logs --start 2026-11-20T10:00Z",),
    "replay": (
        "seglake replay ./lake web --to broker:9092 --last 1h --speed 10",
        "seglake replay ./lake web --to broker:9092 --last 1h --group billing",
    ),
}


def epilog(command: str) -> str:
    """The end of a command's help: its examples, each in a line of its own."""
    examples = EXAMPLES[command]
    return "\n\n".join([f"Example{'s' * (len(examples) > 1)}:", *examples])

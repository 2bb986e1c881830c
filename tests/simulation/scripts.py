"""A scripted history for each planted fault: it fails with the fault, and not without it."""

from collections.abc import Callable
from typing import NamedTuple

from tests.simulation import stage
from tests.simulation.deeds import Deed
from tests.simulation.faults import put_back
from tests.simulation.inputs import BINARY, FOLDER, KEYS
from tests.simulation.judge import Broken
from tests.simulation.script import Script

ALL = tuple(sorted(key.encode() for key in KEYS))
SOME, OTHERS = ALL[:3], ALL[3:]


def ingest(run_id: str, *numbers: int) -> Deed:
    """An ingest of some files that the lake does not have yet; the lake has 0, 1 and 2."""
    return Deed("ingest", run_id, tuple(f"{FOLDER}/{number}.jsonl" for number in numbers))


ERASE_ALL = Deed("erase", keys=ALL)
ERASE_AND_DELETE = Deed("erase", keys=ALL, flag=True)
REINDEX = Deed("reindex", number=1)
VACUUM = Deed("vacuum", grace_hours=0)
EXPIRE = Deed("vacuum", grace_hours=0, flag=True)
MERGE = Deed("merge")
REBUILD = Deed("rebuild")
PUBLISH = Deed("publish")
UNDO = Deed("undo", "run 1", flag=True)


def last_timestamp_is_read(s: Script) -> None:
    s.run(Deed("import", number=12))
    s.read(s.newest)


def two_reindexes_then_an_erasure(s: Script) -> None:
    s.begin("first", REINDEX, before="commit")
    s.run(REINDEX)
    s.go_on("first")
    s.run(ERASE_ALL)


def commit_arrives_after_the_end(s: Script) -> None:
    s.begin("reindex", REINDEX, lost="commit")
    s.arrive()
    s.run(VACUUM)


def tagged_version_read_by_number(s: Script) -> None:
    version = s.newest
    s.run(Deed("tag", "a"), ERASE_ALL)
    s.read(version)
    s.run(Deed("delete-tag", "a"))
    s.read(version)


def tag_takes_the_version_after_an_erasure(s: Script) -> None:
    s.begin("tagger", Deed("tag", "a"), before="commit")
    s.run(ERASE_ALL)
    s.go_on("tagger")


def index_of_a_tag_is_damaged(s: Script) -> None:
    s.run(Deed("tag", "a"))
    old = {key for key in s.play.bucket.objects if key.endswith(".timeindex")}
    s.run(MERGE)
    s.damage(old)
    s.run(Deed("repair"))


def erasure_killed_before_its_rejects(s: Script) -> None:
    s.begin("killed", Deed("erase", keys=SOME), before="commit of rejects")
    s.kill("killed")
    s.wait(26)
    s.run(Deed("erase", keys=OTHERS))
    for run_id in ("run 0", "run 1"):
        s.begin(run_id, Deed("redrive", run_id, flag=True))


def vacuum_after_tombstones(s: Script) -> None:
    s.run(ingest("run 2", 3), MERGE, ingest("run 3", 4), MERGE, VACUUM)
    version = s.newest
    s.run(ingest("run 4", 5), MERGE, VACUUM)
    s.read(version)


def merge_ends_during_an_erasure_that_changes_nothing(s: Script) -> None:
    s.run(ERASE_ALL)
    s.begin("eraser", ERASE_AND_DELETE, before="look")
    s.go_on("eraser", before="look")
    s.go_on("eraser", before="look")
    s.run(ingest("run 2", 3))
    s.begin("merger", MERGE, before="commit")
    s.go_on("eraser", before="commit")
    s.go_on("merger")
    s.go_on("eraser")


def undone_again(s: Script) -> None:
    s.run(UNDO, UNDO)


def abandoned_before_its_claim(s: Script) -> None:
    s.begin("ingest", ingest("run 2", 3), before="claim")
    s.wait(1)
    s.run(VACUUM)
    s.go_on("ingest", ends="AttemptAbandoned")


def abandoned_before_its_commit(s: Script) -> None:
    s.begin("ingest", ingest("run 2", 3), before="commit")
    s.wait(1)
    s.run(VACUUM)
    s.go_on("ingest", ends="AttemptAbandoned")


def abandoned_by_a_vacuum_that_dies(s: Script) -> None:
    again = ERASE_ALL._replace(grace_hours=0)
    s.run(again)
    s.begin("ingest", Deed("frame", "frame"), before="commit")
    s.wait(1)
    s.begin("vacuum", VACUUM, before="commit")
    s.kill("vacuum")
    s.run(again)
    s.go_on("ingest", ends="AttemptAbandoned")


def loses_twice(s: Script) -> None:
    s.begin("first", ingest("run 2", 3), before="commit")
    s.run(ingest("run 3", 4))
    s.go_on("first", before="commit")
    s.run(ingest("run 4", 5))
    s.go_on("first")
    s.run(ERASE_ALL)


def undone_before_a_merge_commits(s: Script) -> None:
    s.begin("merger", MERGE, before="commit")
    # The second ingest merges the files with the rows of run 1, and the undo writes the rest again.
    s.run(ingest("run 2", 3), ingest("run 3", 4), UNDO)
    s.go_on("merger")


def pauses_between_row_files(s: Script) -> None:
    s.begin("merger", MERGE, before="row file")
    s.go_on("merger", before="row file")
    # The rows of segments are older than the grace period now. The row of maintenance is not.
    s.wait(25)
    s.go_on("merger", before="manifest")
    s.run(Deed("vacuum"))
    s.go_on("merger", ends="AttemptAbandoned")


def undone_before_a_compaction_commits(s: Script) -> None:
    s.run(Deed("alter", number=1))
    s.begin("compactor", Deed("compact"), before="commit")
    s.run(Deed("undo", "run 1", flag=True))
    s.go_on("compactor")


def undone_before_a_redrive_commits(s: Script) -> None:
    s.begin("redrive", Deed("redrive", "run 0", flag=True), before="commit")
    s.run(Deed("undo", "run 0", flag=True))
    s.go_on("redrive", ends="UsageError")


def erased_before_an_ingest_writes(s: Script) -> None:
    s.begin("ingest", ingest("run 2", 3), before="input")
    s.run(ERASE_ALL, ends="UsageError")
    s.go_on("ingest")


def erased_before_a_reindex_writes(s: Script) -> None:
    s.run(Deed("index-keys", flag=True))
    s.begin("reindex", REINDEX, before="log file")
    s.run(ERASE_AND_DELETE, ends="UsageError")
    s.go_on("reindex")


def tagged_after_an_erasure(s: Script) -> None:
    s.run(ERASE_ALL, MERGE)
    s.run(Deed("tag", "a", number=2), ends="UsageError")


def binary_keys_in_rejects(s: Script) -> None:
    s.run(Deed("ingest", "run bin", (f"{FOLDER}/8.parquet", f"{FOLDER}/9.parquet")))
    s.run(Deed("erase", keys=BINARY, flag=True))


def key_indexes_of_erased_logs(s: Script) -> None:
    s.run(Deed("index-keys", flag=True), REINDEX, ERASE_AND_DELETE)


def tagged_while_a_vacuum_fences(s: Script) -> None:
    s.run(MERGE)
    s.begin("vacuum", EXPIRE, before="deletion of rows")
    s.run(Deed("tag", "a", number=2))
    s.go_on("vacuum")


def tag_commits_while_segments_go(s: Script) -> None:
    s.run(MERGE)
    s.begin("vacuum", EXPIRE, before="deletion of rows")
    s.begin("tagger", Deed("tag", "a", number=2), before="commit")
    s.go_on("vacuum", before="deletion of logs")
    s.go_on("tagger", ends="VersionExpired")
    s.go_on("vacuum")


def ingest_begins_after_the_look(s: Script) -> None:
    s.begin("eraser", ERASE_ALL, before="commit")
    s.begin("ingest", ingest("run 2", 3), before="log file")
    s.go_on("eraser", exits=1)
    s.go_on("ingest")


def rejects_named_after_the_attempt_was_abandoned(s: Script) -> None:
    s.begin("ingest", ingest("run 2", 3, 4, 5, 6, 7), before="commit of rejects")
    s.wait(1)
    s.run(VACUUM)
    s.go_on("ingest", ends="AttemptAbandoned")


def abandoned_and_continued_after_an_erasure(s: Script) -> None:
    s.begin("ingest", ingest("run 2", 3, 4, 5, 6, 7), before="log file")
    s.wait(1)
    s.run(ERASE_AND_DELETE._replace(grace_hours=0))
    s.go_on("ingest", ends="MissingObject")


def archived_manifests(s: Script) -> None:
    s.run(ingest("run 2", 3), MERGE, ingest("run 3", 4), MERGE)
    s.wait(30 * 24)
    s.run(VACUUM)


def manifest_of_a_lost_race_is_late(s: Script) -> None:
    s.begin("first", ingest("run 2", 3), doubled="manifest")
    s.go_on("first", before="commit")
    s.run(ingest("run 3", 4))
    s.go_on("first")
    s.arrive()
    s.run(MERGE)


def ingest_writes_rows_during_a_look(s: Script) -> None:
    s.begin("eraser", ERASE_AND_DELETE, before="look")
    s.go_on("eraser", before="look")
    s.go_on("eraser", before="list of rows")
    s.begin("ingest", ingest("run 2", 3), before="commit")
    s.go_on("eraser", exits=1)
    s.go_on("ingest")


def commit_arrives_after_a_rebuild(s: Script) -> None:
    s.run(ingest("run 2", 3), MERGE)
    s.begin("ingest", ingest("run 3", 4), lost="commit")
    s.run(REBUILD)
    s.arrive()
    s.wait(30 * 24)
    s.run(VACUUM)


def checkpoint_of_a_rebuild_is_late(s: Script) -> None:
    s.begin("rebuild", REBUILD, lost="checkpoint", tries=1)
    s.arrive()
    s.read(s.newest)


def published_after_an_undo(s: Script) -> None:
    s.run(PUBLISH, UNDO, PUBLISH)


def log_start_moves_into_a_published_segment(s: Script) -> None:
    s.run(MERGE, PUBLISH, Deed("delete-records", number=1), PUBLISH)


def table_published_while_a_publisher_paused(s: Script) -> None:
    s.run(PUBLISH, ingest("run 2", 3))
    s.begin("paused", PUBLISH, before="commit of a table")
    s.wait(25)
    s.run(ERASE_ALL)
    s.go_on("paused", ends="AttemptAbandoned")
    s.run(PUBLISH)


def lake_changes_before_the_table_is_read(s: Script) -> None:
    s.run(PUBLISH, ingest("run 2", 3))
    s.begin("paused", PUBLISH, before="read of a table")
    s.run(UNDO, PUBLISH)
    s.go_on("paused")


def publisher_dies_before_a_checkpoint(s: Script) -> None:
    s.run(PUBLISH)
    for number in (3, 4, 5):
        s.run(ingest(f"run {number}", number), PUBLISH)
    s.run(MERGE)
    s.begin("dies", PUBLISH, before="checkpoint of a table")
    s.kill("dies")
    s.run(UNDO, PUBLISH)


class Planned(NamedTuple):
    """A script, and the pool of input files with which it finds the fault."""

    script: Callable[[Script], None]
    pool: int = 1
    keyed: bool = False

    def problem(self, fault: str | None = None) -> Broken | None:
        """Play the script, with a fault if one is named. Return what was wrong first."""
        stage.install()
        with put_back(fault):
            played = Script(self.pool, keyed=self.keyed)
            try:
                self.script(played)
                return played.end()
            finally:
                stage.play(None)


SCRIPTS: dict[str, Planned] = {
    "an attempt that ends without a commit leaves its claim": Planned(
        two_reindexes_then_an_erasure
    ),
    "a publish names no version of the lake": Planned(published_after_an_undo),
    "a publish does not remove files of removed segments": Planned(published_after_an_undo),
    "a publish adds the file of a segment again": Planned(published_after_an_undo),
    "a publish overlooks a log start in a segment": Planned(
        log_start_moves_into_a_published_segment
    ),
    "a publish confuses partitions": Planned(published_after_an_undo),
    "an erasure does not fence tables": Planned(table_published_while_a_publisher_paused),
    "a publisher reads the lake before the table": Planned(lake_changes_before_the_table_is_read),
    "a reader of a table relies on every checkpoint": Planned(publisher_dies_before_a_checkpoint),
    "an attempt deletes its files before a fence": Planned(commit_arrives_after_the_end),
    "a read without an end leaves out the largest timestamp": Planned(last_timestamp_is_read),
    "a number reads the object of a tag": Planned(tagged_version_read_by_number),
    "an erasure hides what another one left": Planned(erasure_killed_before_its_rejects, 9),
    "a vacuum reads no commit since the removed-files list": Planned(vacuum_after_tombstones, 3),
    "an erasure deletes by a look from before its last commit": Planned(
        merge_ends_during_an_erasure_that_changes_nothing
    ),
    "a tag that loses to an erasure keeps to its version": Planned(
        tag_takes_the_version_after_an_erasure
    ),
    "a repair leaves what only a tag names": Planned(index_of_a_tag_is_damaged),
    "an undo that was done is an error": Planned(undone_again),
    "an abandoned attempt commits": Planned(abandoned_before_its_claim),
    "a vacuum makes no fence": Planned(abandoned_before_its_commit),
    "a claim that a dead vacuum overruled is not fenced": Planned(abandoned_by_a_vacuum_that_dies),
    "a merge replaces segments that changed after its plan": Planned(undone_before_a_merge_commits),
    "a refresh takes moved rows twice": Planned(undone_before_a_merge_commits),
    "a vacuum takes who paused between rows for committed": Planned(pauses_between_row_files),
    "a compaction replaces segments that changed after its plan": Planned(
        undone_before_a_compaction_commits
    ),
    "a redrive is committed although its run was undone": Planned(undone_before_a_redrive_commits),
    "an attempt does not announce itself": Planned(erased_before_an_ingest_writes),
    "a reindex that hashes keys does not announce itself": Planned(
        erased_before_a_reindex_writes, keyed=True
    ),
    "ids of a try that lost count as running": Planned(loses_twice),
    "an erasure passes tags by": Planned(tagged_version_read_by_number),
    "an erasure and a tag pass each other": Planned(tag_takes_the_version_after_an_erasure),
    "a version from before an erasure gets a tag": Planned(tagged_after_an_erasure),
    "rejects with an erased binary key stay": Planned(binary_keys_in_rejects),
    "an erasure leaves old key indexes": Planned(key_indexes_of_erased_logs, keyed=True),
    "a vacuum does not read the tags again": Planned(tagged_while_a_vacuum_fences),
    "a vacuum makes no fence before segments go": Planned(tag_commits_while_segments_go),
    "an erasure does not look again": Planned(ingest_begins_after_the_look),
    "a commit names files of the quarantine that a vacuum deleted": Planned(
        rejects_named_after_the_attempt_was_abandoned, 0
    ),
    "an abandoned attempt leaves what it wrote": Planned(abandoned_and_continued_after_an_erasure),
    "a rebuild does not read manifest archives": Planned(archived_manifests, 3),
    "the late manifest of a lost race counts": Planned(manifest_of_a_lost_race_is_late),
    "an erasure takes who writes rows for committed": Planned(ingest_writes_rows_during_a_look),
    "a commit that arrives after a rebuild counts": Planned(commit_arrives_after_a_rebuild),
    "a late write replaces the checkpoint of a rebuild": Planned(checkpoint_of_a_rebuild_is_late),
}

"""Consumer groups in what commands print."""

from collections.abc import Mapping


def print_groups(groups: Mapping[str, Mapping[int, int]]) -> None:
    """A line for each group that says where it goes on, by partition."""
    for group, offsets in groups.items():
        stands = ", ".join(f"{partition}: {offset}" for partition, offset in offsets.items())
        words = f"goes on at (partition: offset) {stands}" if stands else "stays where it is"
        print(f"Group {group} {words}")

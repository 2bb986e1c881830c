"""The APIs of Kafka's protocol that the server has, each from its lowest to its highest version.

A client asks for them first (`reads/greeting`). kafka-python decodes and encodes each of them;
the module that answers an API says what differs between its versions.
"""

VERSIONS = {
    # for everybody, before a login too
    "ApiVersions": (0, 4),
    "SaslHandshake": (0, 1),
    "SaslAuthenticate": (0, 2),
    # reads
    "Metadata": (0, 13),
    "DescribeCluster": (0, 2),
    "DescribeTopicPartitions": (0, 0),
    "DescribeConfigs": (1, 4),
    "DescribeLogDirs": (1, 4),
    "ListOffsets": (1, 11),
    "OffsetForLeaderEpoch": (2, 4),
    "Fetch": (4, 18),
    # groups
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "SyncGroup": (0, 5),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "OffsetCommit": (2, 9),
    "OffsetFetch": (1, 9),
    "OffsetDelete": (0, 0),
    "ListGroups": (0, 5),
    "DescribeGroups": (0, 6),
    "DeleteGroups": (0, 2),
    # answered with a refusal, because nothing is written here
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "Produce": (0, 9),
    "InitProducerId": (0, 5),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "CreatePartitions": (0, 3),
    "DeleteRecords": (0, 2),
    "AlterConfigs": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
}

"""Which files an archive has, from the log of Spark's file sink: pure."""

from __future__ import annotations

import pytest

from tidelog.jobs.archive_files import path_below

FILE = "topic=orders/date=2024-05-01/part-0.zstd.parquet"


@pytest.mark.parametrize(
    "place",
    [
        "file:///data/archive/",
        "file:///data/topic=orders/",
        "file:///topic=a/date=2024-01-01/",
        "file:///topic=a/date=2024-01-01/malformed=true/",
        "s3a://bucket/topic=orders%20of%20all/x%25y/",
        "",
    ],
)
def test_the_path_below_an_archive_does_not_depend_on_its_place(place: str) -> None:
    assert path_below(place + FILE) == FILE
    parsed = FILE.replace("/part", "/malformed=true/part")
    assert path_below(place + parsed) == parsed


def test_the_path_is_that_of_the_file_system() -> None:
    """The log has URIs. A record without a time lies in the directory of a null date."""
    name = f"topic={'x' * 249}/date=__HIVE_DEFAULT_PARTITION__/part 0%.parquet"
    assert path_below("file:/data/" + name.replace("%", "%25").replace(" ", "%20")) == name


@pytest.mark.parametrize("path", ["file:/data/part-0.parquet", "file:/topic=a/part-0", "file:/topic=a/date=b/c/d"])
def test_a_path_that_no_archive_has_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not below the directories of a topic and a date"):
        path_below(path)

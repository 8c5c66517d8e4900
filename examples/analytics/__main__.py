"""Analyse log lines as they come: `python -m examples.analytics [--bootstrap HOST:PORT] [--input FILE]`.

Start a cluster first: `tidelog up`. With `--input`, the lines of a file are written to the topic before. The counts go
to the topic `TOPIC-counts`, the lines to Parquet, tables to the console and a picture to `analytics-out/analytics.png`.
Run it again after more lines came: topic and Parquet continue where they stopped. This needs Java 17, the wheel with
its extra (README.md: `make wheel`, then `pip install 'dist/tidelog-….whl[spark]'`) and matplotlib.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import tidelog
from examples.analytics import findings, picture, streams
from tidelog.errors import TidelogError, TopicExists


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    places = streams.Places(
        options.bootstrap, options.topic, f"{options.topic}-counts", options.out.resolve(), options.window
    )
    try:
        asyncio.run(_prepare(places, options.input))
    except (TidelogError, OSError) as cause:
        print(f"analytics: {cause}", file=sys.stderr)
        return 1
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.appName("log analytics")
        .master("local[2]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    try:
        show(spark, places, continuous=options.continuous)
    finally:
        spark.stop()
    return 0


def show(spark: SparkSession, places: streams.Places, *, continuous: bool) -> None:
    """Run the queries to their end, then print what they found and draw it."""
    queries = streams.start_queries(spark, places, continuous=continuous)
    try:
        for query in queries:
            query.awaitTermination()
    except KeyboardInterrupt:
        print("analytics: interrupted; the next run continues", file=sys.stderr)
        for query in queries:
            query.stop()
    found = findings.find(spark, streams.late_lines(queries))
    for title, columns, rows in found.tables():
        print(f"\n{title}")
        print("  ".join(name.lstrip(">") for name in columns))
        for row in rows:
            print("  ".join(str(value) for value in row))
    places.directory.mkdir(parents=True, exist_ok=True)
    picture.draw(found, places.directory / "analytics.png")
    print(f"\n{places.directory / 'analytics.png'}, {places.parquet} and topic {places.counts!r} have the results")


async def _prepare(places: streams.Places, source: Path | None) -> None:
    """Create the topics; write the lines of the file."""
    async with tidelog.Admin(places.bootstrap) as admin:
        for topic, configs in ((places.lines, {}), (places.counts, {"cleanup.policy": "compact"})):
            try:
                await admin.create_topic(topic, partitions=4, configs=configs)
            except TopicExists:
                print(f"topic {topic!r} is there already", file=sys.stderr)
    if source is None:
        return
    async with tidelog.Producer(places.bootstrap, compression="zstd") as producer:
        with source.open("rb") as lines:
            for line in lines:
                await producer.enqueue(places.lines, line.rstrip(b"\r\n"))
        await producer.flush()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.analytics", description="Analyse log lines as they come.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9192", metavar="HOST:PORT", help="nodes (127.0.0.1:9192)")
    parser.add_argument("--topic", default="logs", help="topic of the lines (logs)")
    parser.add_argument("--input", type=Path, metavar="FILE", help="write the lines of this file to the topic first")
    parser.add_argument("--window", default="10 seconds", help="length of the windows (10 seconds)")
    parser.add_argument("--out", type=Path, default=Path("analytics-out"), help="for results (analytics-out)")
    parser.add_argument("--continuous", action="store_true", help="run until interrupted")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Topics that a command reads or describes: by name, or by regular expressions over whole names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tidelog.cli.argument_values import WrongUsage
from tidelog.client.admin import Admin, TopicDescription
from tidelog.errors import UnknownTopicOrPartition
from tidelog.types import INTERNAL_TOPICS


def patterns_of(texts: Iterable[str]) -> list[re.Pattern[str]]:
    """Compile regular expressions. Raises WrongUsage."""
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise WrongUsage(f"{text!r} is not a regular expression ({error})") from None
    return patterns


async def topics_of(admin: Admin, names: Sequence[str], *, are_patterns: bool) -> list[TopicDescription]:
    """The topics of these names, in their order; or those whose names a pattern matches, without internal ones. Raises
    UnknownTopicOrPartition if a name or all patterns match nothing."""
    if not are_patterns:
        return [await admin.describe_topic(name) for name in dict.fromkeys(names)]
    patterns = patterns_of(names)
    found = [
        topic
        for topic in await admin.list_topics()
        if topic.name not in INTERNAL_TOPICS and any(pattern.fullmatch(topic.name) for pattern in patterns)
    ]
    if not found:
        raise UnknownTopicOrPartition(f"no topic matches {' or '.join(names)}: `tidelog topic list` shows all")
    return found

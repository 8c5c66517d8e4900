"""`tidelog quota set|list|remove`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tidelog.cli.cluster_command import CommandCall, ValidateOnly, cluster_command
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.client.admin import Admin
from tidelog.errors import InvalidConfig
from tidelog.types import QuotaEntity, QuotaType

app = CommandGroup()


@dataclass(frozen=True, slots=True)
class EntityOptions:
    """The entity that has the quotas: a user, a client id, or a client id of a user."""

    user: Annotated[str | None, Option("--user", "-u", help="Name of a user, without `User:`.")] = None
    client_id: Annotated[str | None, Option("--client-id", "-i", help="A client id.")] = None
    default_user: Annotated[bool, Option("--default-user", help="Every user without a quota of its own.")] = False
    default_client_id: Annotated[
        bool, Option("--default-client-id", help="Every client id without a quota of its own.")
    ] = False

    def entity(self) -> QuotaEntity:
        """The entity that the options name. Raises InvalidConfig."""
        user, client_id = self.user, self.client_id
        if (self.default_user and user is not None) or (self.default_client_id and client_id is not None):
            raise InvalidConfig(
                "name a user or client id, or use --default-user or --default-client-id for it, not both"
            )
        if "" in (user, client_id):  # it would mean the default
            raise InvalidConfig(
                "a user or client id is empty: use --default-user or --default-client-id for the default"
            )
        entity = QuotaEntity("" if self.default_user else user, "" if self.default_client_id else client_id)
        if entity == QuotaEntity(None, None):
            raise InvalidConfig("whose quotas? Pass --user, --client-id, --default-user or --default-client-id")
        return entity


_KEYS = ", ".join(quota.value for quota in QuotaType)


@cluster_command(app, "set")
def set_(
    call: CommandCall,
    of: EntityOptions,
    quotas: Annotated[list[str], Argument(help=f"KEY=LIMIT; keys: {_KEYS}.")],
    validate_only: ValidateOnly = False,
) -> None:
    """Set quotas of a user, a client id, or a client id of a user. Each node applies them by itself, at once."""
    entity = of.entity()
    limits = dict(map(_limit, quotas))
    call.query(lambda admin: admin.alter_client_quotas({entity: limits}, validate_only=validate_only))
    document = {"entity": entity, "quotas": limits, "set": not validate_only}
    text = f"quotas of {entity} {'can be set like this' if validate_only else 'set'}"
    call.report(document, text)


@cluster_command(app)
def remove(
    call: CommandCall,
    of: EntityOptions,
    quotas: Annotated[list[str] | None, Argument(help="Keys; without any: all.")] = None,
) -> None:
    """Remove quotas of a user, a client id, or a client id of a user."""
    entity = of.entity()
    keys = quotas or [quota.value for quota in QuotaType]

    async def change(admin: Admin) -> dict[str, float]:
        found = await admin.describe_client_quotas(user=entity.user, client_id=entity.client_id)
        await admin.alter_client_quotas({entity: dict.fromkeys(keys)})
        return found.get(entity, {})

    limits = call.query(change)
    removed = [key for key in keys if key in limits]
    without = [key for key in quotas or () if key not in limits]
    text = f"quotas of {entity} removed: {', '.join(removed)}" if removed else f"no quota of {entity} was removed"
    if without:
        text += f"; not set: {', '.join(without)}"
    elif not removed:
        text += ": none is set"
    call.report({"entity": entity, "removed": removed}, text)


@cluster_command(app, "list")
def list_(call: CommandCall) -> None:
    """List all quotas."""
    found = call.query(lambda admin: admin.describe_client_quotas())
    document = [{"entity": entity, "quotas": limits} for entity, limits in found.items()]
    rows = [
        (_shown(entity.user), _shown(entity.client_id), key, f"{limit:.15g}")
        for entity, limits in found.items()
        for key, limit in limits.items()
    ]
    call.show(document, "quotas", ("user", "client id", "quota", "limit"), rows)


def _limit(given: str) -> tuple[str, float]:
    key, separator, value = given.partition("=")
    try:
        return key, float(value)
    except ValueError:
        example = f"write KEY=LIMIT, for example {QuotaType.PRODUCER_BYTE_RATE.value}=1048576"
        raise InvalidConfig(f"{given!r} is not a quota{'' if separator else ' (no =)'}: {example}") from None


def _shown(name: str | None) -> str:
    return "any" if name is None else name or "(default)"

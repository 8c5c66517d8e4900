"""How a change is made: it is described first, with what will happen, and made once that is confirmed.

A change is a form (`ask`), a description of what the filled form would do (`plan`), and the work (`carry_out`). The
confirmation carries what was described, so that nothing else is done: the topic id, not the name alone; and the
replicas or offsets that were there. If they are not there any more, nothing is changed (`changed_since`).
Not here: the single changes (topic_forms.py, group_forms.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog.console.html import Content, Html, element, items
from tidelog.console.layout import form, hidden, notice
from tidelog.console.page_call import PageCall, Shown
from tidelog.errors import InvalidRequest

CONFIRMED: Final = "confirmed"
"""The field that says that the visitor has read the description."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would happen."""

    title: str
    effects: Sequence[Content]
    """Sentences: what changes, what is lost, and what is not touched."""
    fields: Sequence[tuple[str, str]]
    """What is sent with the confirmation."""
    button: str
    more: Html | None = None
    """Further details, for example a table."""
    is_dangerous: bool = False
    """Something is lost for good."""
    must_type: str = ""
    """The visitor must type this name to confirm; empty: need not."""


class ConfirmedChange(Protocol):
    """One kind of change."""

    path: str
    """Of its page, to which all its forms are sent."""

    async def ask(self, call: PageCall) -> Shown | None:
        """The form to fill in; None if there is nothing to fill in."""

    async def plan(self, call: PageCall) -> Plan:
        """What the filled form would do. Nothing is changed."""

    async def carry_out(self, call: PageCall) -> Shown:
        """Do what was confirmed."""


async def serve(change: ConfirmedChange, call: PageCall) -> Shown:
    """The step of the change that the request is."""
    if call.request.form is None:
        asked = await change.ask(call)
        return asked if asked is not None else _confirmation(change, call, await change.plan(call))
    if call.request.text(CONFIRMED) != "yes":
        return _confirmation(change, call, await change.plan(call))
    wanted = call.request.exact("must_type")
    if wanted and call.request.text("typed") != wanted:
        raise InvalidRequest(f"nothing was changed: you did not type {wanted!r} to confirm. Go back to try again")
    return await change.carry_out(call)


def changed_since(what: str) -> InvalidRequest:
    """The refusal of a change whose description does not hold any more. what: is different now."""
    return InvalidRequest(
        f"nothing was changed: {what}. What you have confirmed does not hold any more: begin again, and look at what "
        "will happen now"
    )


def done(title: str, *content: Content) -> Shown:
    """The page after a change."""
    return Shown(title, [notice(element("p", "Done."), content)])


def _confirmation(change: ConfirmedChange, call: PageCall, plan: Plan) -> Shown:
    fields = [*plan.fields, (CONFIRMED, "yes"), *([("must_type", plan.must_type)] if plan.must_type else [])]
    typed = (
        element(
            "p",
            element("label", f"Type {plan.must_type} to confirm", for_="typed"),
            element("input", id="typed", name="typed", autocomplete="off", required=True),
        )
        if plan.must_type
        else None
    )
    return Shown(
        plan.title,
        [
            element("h2", "What will happen"),
            items(plan.effects),
            plan.more,
            form(change.path, call.visitor, hidden(fields), typed, button=plan.button, dangerous=plan.is_dangerous),
            element("p", "Nothing has been changed yet. Leave this page to change nothing."),
        ],
    )

"""Commands declared by the signatures of functions, for click.

A parameter `count: Annotated[int | None, Option("--count", "-n", help="...")] = None` is an option,
`name: Annotated[str, Argument(help="...")]` an argument; one of the type `click.Context` gets the context. A list is an
option that may be repeated, or all further arguments; a bool is a flag.

click alone is imported in a tenth of the time of libraries that read signatures: commands of scripts start often.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, Protocol, cast, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from tidelog.cli.interrupts import INTERRUPTED, quiet_interrupts

CONTEXT_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class Option:
    """An option. Without names: `--` and the name of the parameter."""

    def __init__(
        self,
        *names: str,
        help: str = "",  # noqa: A002 - the word of every library for command lines
        metavar: str | None = None,
        envvar: str | None = None,
        min: float | None = None,  # noqa: A002
        max: float | None = None,  # noqa: A002
        parser: Callable[[str], Any] | None = None,
        show_default: bool | str = True,
        is_global: bool = False,
        yields_to: tuple[str, ...] = (),
    ) -> None:
        """envvar: an environment variable with the same meaning. parser: makes the value of the text; raises
        WrongUsage. is_global: it may stand before the command too; what is nearest to the end counts. yields_to:
        parameters that contradict it: if one is given, the default that a profile has for this option does not
        count."""
        self.names, self.help, self.metavar, self.envvar = names, help, metavar, envvar
        self.min, self.max, self.parser = min, max, parser
        self.show_default, self.is_global, self.yields_to = show_default, is_global, yields_to


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument without a name; required if the parameter has no default."""

    help: str = ""
    metavar: str | None = None
    parser: Callable[[str], Any] | None = None


class ProfileDefaults(Protocol):
    """Defaults of options that a profile has; see tidelog/cli/profiles.py."""

    def __call__(self, ctx: click.Context) -> Mapping[str, Any]:
        """The values by the names of parameters, as on a command line. Raises WrongUsage."""
        ...


class _Parsed(click.ParamType[Any]):
    """The type of an option with a parser of its own."""

    name = "text"

    def __init__(self, parser: Callable[[str], Any]) -> None:
        self._parser = parser

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        return self._parser(value) if isinstance(value, str) else value


class _Argument(click.Argument):
    """An argument that the help explains."""

    def __init__(self, *arguments: Any, help: str, **options: Any) -> None:  # noqa: A002
        super().__init__(*arguments, **options)
        self._explanation = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self.make_metavar(ctx), self._explanation


class _Option(click.Option):
    """An option that may be global."""

    def __init__(self, *arguments: Any, is_global: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.is_global = is_global


class _Interruptible(click.Command):
    """A command that an interrupt ends in silence: click would print an empty line, and scripts read what is said."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None


class DeclaredCommand(_Interruptible):
    """A command whose help has a section for each kind of parameter."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Global options": []}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                kind = "Global options" if getattr(each, "is_global", False) else "Options"
                sections["Arguments" if isinstance(each, click.Argument) else kind].append(record)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class LazyCommand(click.Command):
    """Stands for a command whose module is imported when it is used: most commands need one module of all."""

    def __init__(self, name: str, place: str, help: str) -> None:  # noqa: A002
        """place: `module:attribute`, a CommandGroup or a function."""
        super().__init__(name, help=help)
        self._place = place

    def load(self) -> click.Command:
        """Return the command itself."""
        module, _, attribute = self._place.partition(":")
        with quiet_interrupts():
            found: click.Command = getattr(import_module(module), attribute)
        found.name = self.name
        if isinstance(found, CommandGroup):
            found.help = self.help
        return found


class CommandGroup(_Interruptible, click.Group):
    """A command with subcommands, in the order in which they were added."""

    def __init__(self, help: str | None = None, *, params: Iterable[click.Parameter] = ()) -> None:  # noqa: A002
        """params: without any, a group takes the global options of the one above it."""
        super().__init__(help=help, no_args_is_help=True, params=[*params], context_settings=dict(CONTEXT_SETTINGS))

    def add(self, name: str, function: Callable[..., None], help: str | None = None, **settings: Any) -> None:  # noqa: A002
        """Add a function as a command. help: default: its docstring."""
        self.commands[name] = declared_command(function, name, help, **settings)

    def add_lazy(self, name: str, place: str, help: str) -> None:  # noqa: A002
        """Add a command of another module; see LazyCommand."""
        self.commands[name] = LazyCommand(name, place, help)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)

    def loaded(self, name: str) -> click.Command | None:
        """Return a command itself, None if there is none of this name."""
        found = self.commands.get(name)
        return found.load() if isinstance(found, LazyCommand) else found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, LazyCommand):
            command = command.load()
        if isinstance(command, CommandGroup) and not command.params:
            command.params = [each for each in self.params if getattr(each, "is_global", False)]
        return name, command, rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            record
            for each in self.get_params(ctx)
            if (ctx.parent is None or not getattr(each, "is_global", False)) and (record := each.get_help_record(ctx))
        ]
        with formatter.section("Options"):
            formatter.write_dl(rows)
        self.format_commands(ctx, formatter)


def parameter(name: str, kind: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    """A parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def options_of(declared: type[Any]) -> list[inspect.Parameter]:
    """The fields of a dataclass that have an Option or an Argument, as parameters of a command."""
    options = []
    hints = get_type_hints(declared, include_extras=True)
    for field in dataclasses.fields(declared):
        if not hasattr(hints[field.name], "__metadata__"):
            continue  # no option or argument is declared for it: the program sets it
        default, factory = field.default, field.default_factory
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty if factory is dataclasses.MISSING else factory()
        options.append(parameter(field.name, hints[field.name], default))
    return options


def with_options(run: Callable[..., None], options: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """Give a function the signature of a command with these options."""
    declared = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    run.__dict__["__signature__"] = inspect.Signature(declared)
    return run


def declared_command(
    function: Callable[..., None],
    name: str,
    help: str | None = None,  # noqa: A002
    *,
    more: Iterable[inspect.Parameter] = (),
    defaults: ProfileDefaults | None = None,
    **settings: Any,
) -> DeclaredCommand:
    """The command that the signature of a function declares. more: options that are not passed to the function, which
    finds them in the context. defaults: of options that are not given. settings: of click's Command."""
    declared = list(inspect.signature(function, eval_str=True).parameters.values())
    options = [each for each in declared if each.annotation is not click.Context]

    def run(**given: Any) -> None:
        ctx = click.get_current_context()
        preset = defaults(ctx) if defaults is not None else {}
        values = {each.name: _value(ctx, each, given[each.name], preset) for each in options}
        function(**{each.name: values.get(each.name, ctx) for each in declared})

    context = {**CONTEXT_SETTINGS, **settings.pop("context_settings", {})}
    return DeclaredCommand(
        name,
        callback=run,
        params=[parameter_of(each) for each in (*options, *more)],
        help=help or inspect.getdoc(function),
        context_settings=context,
        **settings,
    )


def given_of(ctx: click.Context, name: str, *, reads_environment: bool = True) -> Any:
    """The value of a global option: the one nearest to the end of the command line, else that of its environment
    variable; None without any. An empty value before the command comes from an unset variable of a shell
    (`-b "$SERVERS"`): it counts as not given."""
    here: click.Context | None = ctx
    while here is not None:
        if here.params.get(name) not in (None, "") and here.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return here.params[name]
        here = here.parent
    is_of_environment = ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT
    return ctx.params.get(name) if reads_environment and is_of_environment else None


def _is_given(ctx: click.Context, name: str) -> bool:
    """Whether the command line, or an environment variable, has a value for a parameter."""
    own = ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
    return own or given_of(ctx, name) is not None


def _value(ctx: click.Context, declared: inspect.Parameter, given: Any, preset: Mapping[str, Any]) -> Any:
    """The value of a parameter as its function takes it."""
    default = None if declared.default is inspect.Parameter.empty else declared.default
    declaration = _declaration(declared)
    if getattr(declaration, "is_global", False):
        found = given_of(ctx, declared.name)
        return default if found is None else found
    is_given = _is_given(ctx, declared.name)
    contradicting = getattr(declaration, "yields_to", ())
    if not is_given and declared.name in preset and not any(_is_given(ctx, other) for other in contradicting):
        given, is_given = preset[declared.name], True
    if _kind(declared)[1]:
        return list(given) if is_given else default
    return given if is_given else default


def parameter_of(declared: inspect.Parameter) -> click.Parameter:
    """The option or argument of click that a parameter declares."""
    kind, is_list = _kind(declared)
    found = _declaration(declared)
    default = None if declared.default is inspect.Parameter.empty else declared.default
    is_required = declared.default is inspect.Parameter.empty
    if isinstance(found, Argument):
        return _Argument(
            [declared.name],
            type=_type(kind, found.parser),
            nargs=-1 if is_list else 1,
            required=is_required,
            metavar=found.metavar,
            help=found.help,
        )
    names = found.names or (f"--{declared.name.replace('_', '-')}",)
    common: dict[str, Any] = {"help": found.help, "envvar": found.envvar, "show_envvar": found.envvar is not None}
    if kind is bool:
        return _Option([*names, declared.name], is_flag=True, default=False, is_global=found.is_global, **common)
    shows = (
        found.show_default
        if isinstance(found.show_default, str)
        else default not in (None, "", []) and found.show_default
    )
    return _Option(
        [*names, declared.name],
        type=_type(kind, found.parser, found.min, found.max),
        multiple=is_list,
        default=None if is_list or found.is_global else default,
        show_default=str(default) if shows is True and found.is_global else shows,
        required=is_required,
        metavar=found.metavar,
        is_global=found.is_global,
        **common,
    )


def _declaration(declared: inspect.Parameter) -> Option | Argument:
    return cast("Option | Argument", declared.annotation.__metadata__[0])


def _kind(declared: inspect.Parameter) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    kind = declared.annotation.__origin__
    kinds = [each for each in get_args(kind) if each is not NoneType]
    if NoneType in get_args(kind):
        (kind,) = kinds
    return (get_args(kind)[0], True) if get_origin(kind) is list else (kind, False)


def _type(
    kind: Any, parser: Callable[[str], Any] | None, least: float | None = None, most: float | None = None
) -> click.ParamType[Any]:
    if parser is not None:
        return _Parsed(parser)
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is int:
        return click.INT if least is None and most is None else click.IntRange(least, most)  # type: ignore[arg-type]
    if kind is float:
        return click.FLOAT if least is None and most is None else click.FloatRange(least, most)
    return click.Path(path_type=Path) if kind is Path else click.STRING


def commands_below(group: click.Command) -> Iterator[click.Command]:
    """All commands of a group, with those of its groups, themselves."""
    yield group
    if isinstance(group, CommandGroup):
        for name in group.commands:
            found = group.loaded(name)
            assert found is not None, "the name is one of the group's"
            yield from commands_below(found)

"""Typed arguments: a frozen dataclass declares the options of a command, and click fills its fields.

`@arguments` makes such a class, `group(Class)` nests the class in another arguments class, and
`@takes(Class)` adds the options of the class to a command.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, dataclass_transform

import click
from click.core import ParameterSource

from sparta.base.errors import InputError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

HIGHEST_COUNT = 2**31 - 1
"""The highest number of passages that Lucene can count."""
HIGHEST_SEED = 2**32 - 1
"""The highest seed of NumPy."""

folder_type = click.Path(path_type=Path, file_okay=False)
file_type = click.Path(path_type=Path, dir_okay=False)
output_type = click.Path(path_type=Path, dir_okay=False)
"""A file to write."""


class Needs(NamedTuple):
    """Rule: some options have no effect without another option or setting.

    :param what: the option or setting that must be there, as the error names it, such as `--ray`
    :param names: the dependent options, by their names in Python
    :param has: returns whether the setting is there [default: looks up the option named in `what`]
    :param actual: what the error says is there instead
    """

    what: str
    names: tuple[str, ...]
    has: Callable[[Any], object] | None = None
    remedy: str = ""
    actual: str = "none"

    def check(self, values: Any) -> None:
        """Raise InputError if a dependent option was typed without the setting."""
        flag = self.what[2:].replace("-", "_")
        if not (self.has(values) if self.has else getattr(values, flag)) and (unused := typed(*self.names)):
            remedy = self.remedy or f"omit {unused[0]}"
            ending = "" if self.actual == "none" else f", found {self.actual}"
            raise InputError(f"{unused[0]} needs {self.what}{ending}", remedy=remedy)


class Excludes(NamedTuple):
    """Rule: options of the first and of the second group exclude each other."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    remedy: str = "omit one of these options"

    def check(self, values: Any) -> None:
        """Raise InputError if options of both groups were typed."""
        first, second = typed(*self.first), typed(*self.second)
        if first and second:
            message = f"{first[0]} cannot be combined with {' and '.join(second)}"
            raise InputError(message, remedy=self.remedy)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def arguments[T](kind: type[T]) -> type[T]:
    """Decorate an arguments class: return a frozen dataclass whose field defaults are decorators of click.

    The name of a field is the name of its parameter. The optional class attributes `RULES` and `SECTION` hold
    the constraints and the heading in the help. `__init__` and `__setattr__` are shared functions, because
    `dataclass` takes 0.6 ms per class to compile such methods.
    """
    kind.__doc__ = kind.__doc__ or kind.__name__  # else dataclass computes a signature for the docstring
    kind.__init__ = _hold  # type: ignore[method-assign]
    kind.__setattr__ = _refuse_change  # type: ignore[method-assign]
    return dataclass(init=False, eq=False, repr=False, match_args=False)(kind)


def _hold(self: object, **values: Any) -> None:
    """Store the values as attributes; the `__init__` of all arguments classes."""
    self.__dict__.update(values)


def _refuse_change(self: object, name: str, _: Any) -> None:
    """Raise FrozenInstanceError; the `__setattr__` of all arguments classes."""
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def group(kind: type[Any]) -> Any:
    """Return a decorator that adds all options of an arguments class to a command.

    As the default of a field, the decorator nests the class: the field then holds an instance of the class.
    """
    heading = getattr(kind, "SECTION", "")
    defaults: list[Any] = [field.default for field in fields(kind)]
    add_options = options(*defaults)

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        n_before = len(getattr(command, "__click_params__", ()))
        decorated: Callable[..., Any] = add_options(command)
        for parameter in getattr(decorated, "__click_params__", ())[n_before:]:
            parameter.section = getattr(parameter, "section", "") or heading
        return decorated

    decorator: Any = decorate
    decorator.kind = kind
    return decorator


class SectionedCommand(click.Command):
    """A command whose help lists its options under the headings of their argument classes."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options without a heading first, then each section in the order of its first option."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record:
                heading = getattr(parameter, "section", "") or "Options"
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


def command(name: str | None = None) -> Any:
    """Return the decorator that turns a function into a command."""
    return click.command(name, cls=SectionedCommand)


def takes[T](kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Return a decorator that adds the options of an arguments class and passes an instance of that class.

    The function runs only if the rules of the class hold.
    """

    def decorate(command: Callable[[T], None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            command(filled(kind, values))

        decorated: Callable[..., None] = group(kind)(run)
        return decorated

    return decorate


def filled[T](kind: type[T], values: Mapping[str, Any]) -> T:
    """Return an instance of an arguments class with the values of click's parameters.

    :raises InputError: a rule of the class, or of a nested group, is broken
    """
    instance = _built(kind, values)
    _check(instance)
    return instance


def _built[T](kind: type[T], values: Mapping[str, Any]) -> T:
    """Return an instance of an arguments class, with instances of its nested groups; check no rules."""
    field_values = {}
    for field in fields(kind):  # type: ignore[arg-type]
        nested_kind = getattr(field.default, "kind", None)
        field_values[field.name] = _built(nested_kind, values) if nested_kind else values[field.name]
    return kind(**field_values)


def _check(instance: object) -> None:
    """Check the rules of an instance and of its nested groups."""
    for rule in getattr(instance, "RULES", ()):
        rule.check(instance)
    for value in vars(instance).values():
        if is_dataclass(value):
            _check(value)


def made[T](kind: type[T], *sources: object, **changes: Any) -> T:
    """Return a dataclass of the library whose fields have the values of the arguments with the same names.

    :param sources: arguments, also nested in groups; later sources win
    :param changes: values of fields that override the arguments
    """
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    values = {name: value for source in sources for name, value in _values(source) if name in names}
    return kind(**{**values, **changes})


def _values(source: object) -> Iterator[tuple[str, Any]]:
    """Yield names and values of all arguments, nested groups included."""
    for name, value in vars(source).items():
        if is_dataclass(value):
            yield from _values(value)
        else:
            yield name, value


class Finite(click.FloatRange):
    """A finite number in a range. `click.FloatRange` alone accepts NaN and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail if it is not finite or out of range."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, found {value}.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class CountOption(click.Option):
    """An option whose help shows `x>=1` instead of Lucene's highest count as the upper bound."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return default and range, which the help shows in brackets."""
        extra = super().get_help_extra(ctx)
        extra["range"] = extra.get("range", "").replace(f"1<=x<={HIGHEST_COUNT}", "x>=1")
        return extra


class Text(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """Text of the command line; bytes that the locale cannot decode are decoded as UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return valid Unicode; undecodable bytes become U+FFFD."""
        return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Declared:
    """An option of a command. As a field of an arguments class, it takes flag, name and type from the field.

    :param text: the help
    :param flags: how the option is typed [default: the field's name with `--`]
    :param section: the heading under which the help lists the option [default: that of its class]
    """

    def __init__(self, text: str, *flags: str, section: str = "", **settings: Any) -> None:
        self._section = section
        has_default = settings.get("default") is not None and not settings.keys() & {"flag_value", "hidden"}
        self._flags, self._settings = flags, {"help": text, "show_default": has_default, **settings}

    def __set_name__(self, owner: type, name: str) -> None:
        flags = self._flags or ("--" + name.replace("_", "-"),)
        self._flags = flags if name in flags else (*flags, name)
        annotation = owner.__annotations__[name]
        if annotation.startswith("tuple"):
            self._settings.setdefault("multiple", True)
        if "Path" in annotation:
            self._settings.setdefault("type", click.Path(path_type=Path))

    def __call__(self, command: Callable[..., Any]) -> Callable[..., Any]:
        """Add the option to a command."""
        decorated: Any = click.option(*self._flags, **_completing_files(self._settings))(command)
        decorated.__click_params__[-1].section = self._section
        return decorated


_NAMES_FILES = re.compile(r"\b(FILE|PATH|FOLDER|DIR)\b")


def _completing_files(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a parameter; the shell completes files if its metavar names a file or folder.

    A parameter of click's type Path completes files in any case.
    """
    is_path = isinstance(settings.get("type"), click.Path)
    if is_path or not _NAMES_FILES.search(settings.get("metavar") or ""):
        return {**settings}
    return {"shell_complete": _complete_files, **settings}


def _complete_files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Tell the shell to complete the names of files and folders."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def option(text: str, *flags: str, **settings: Any) -> Any:
    """Declare an option of any type. The return type `Any` allows the option as default of a typed field."""
    return Declared(text, *flags, **settings)


def argument(*names: str, **settings: Any) -> Any:
    """Declare an argument. The return type `Any` allows the argument as default of a typed field."""
    return click.argument(*names, **_completing_files(settings))


def options(*decorators: Decorator) -> Any:
    """Return one decorator for several options; the help lists the options in this order."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


def whole(
    default: int, text: str, *flags: str, least: int = 1, most: int | None = None, section: str = ""
) -> Any:
    """Declare an option of a whole number from `least` to `most`."""
    number = click.IntRange(least, most)
    return Declared(text, *flags, cls=CountOption, type=number, default=default, section=section)


def real(default: float, text: str, *flags: str, least: float | None = 0, most: float | None = None) -> Any:
    """Declare an option of a finite number from `least` to `most`."""
    return Declared(text, *flags, type=Finite(least, most), default=default)


def one_of(values: Sequence[str], text: str, *flags: str) -> Any:
    """Declare an option whose value is one of `values`; the first is the default."""
    return Declared(text, *flags, type=click.Choice(values), default=values[0])


def flag(text: str, *flags: str, section: str = "") -> Any:
    """Declare an option without a value."""
    return Declared(text, *flags, is_flag=True, section=section)


def typed(*names: str) -> list[str]:
    """Return the flags (such as `--top-k`) of the named options that the user typed; ignore defaults."""
    context = click.get_current_context(silent=True)
    parameters = context.command.params if context else []
    return [
        parameter.opts[0]
        for parameter in parameters
        if context and parameter.name in names
        if context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def command_line(*without: str) -> str:
    """Return the running command with its typed options, in the order of its help.

    :param without: names of options to leave out
    """
    context = click.get_current_context()
    words = context.command_path.split()
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in without or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        is_flag = isinstance(parameter, click.Option) and parameter.is_flag
        for word in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0]] if is_flag else [parameter.opts[0], str(word)]
    return shlex.join(words)

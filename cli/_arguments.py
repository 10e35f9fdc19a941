"""Typed arguments: a frozen dataclass declares the options of a command, and click fills it.

`@arguments` makes the class, `group(Class)` nests it in another one, and `@takes(Class)` gives
a command its options.
"""

from __future__ import annotations

import math
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
    """Options that have no effect without something else.

    :param what: the thing that they need, as typed; a flag such as `--ray` is looked up among the values
    :param names: the options, by their names in Python
    :param has: returns whether the values have the thing, where `what` is more than a flag
    :param found: what is there in its place
    """

    what: str
    names: tuple[str, ...]
    has: Callable[[Any], object] | None = None
    remedy: str = ""
    found: str = "none"

    def check(self, values: Any) -> None:
        """Raise InputError if an option was typed without the thing."""
        flag = self.what[2:].replace("-", "_")
        if not (self.has(values) if self.has else getattr(values, flag)) and (unused := typed(*self.names)):
            remedy = self.remedy or f"leave {unused[0]} out"
            raise InputError(f"expected {self.what} with {unused[0]}, found {self.found}", remedy=remedy)


class Excludes(NamedTuple):
    """Options of which only one group may be typed."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    remedy: str = "leave one of them out"

    def check(self, values: Any) -> None:
        """Raise InputError if options of both groups were typed."""
        first, second = typed(*self.first), typed(*self.second)
        if first and second:
            message = f"expected {first[0]} or {' and '.join(second)}, found both"
            raise InputError(message, remedy=self.remedy)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def arguments[T](kind: type[T]) -> type[T]:
    """Make a frozen dataclass of a class whose defaults are decorators of click.

    The name of a field is the name of its parameter. `RULES`, if the class has it, are its constraints.
    The methods are ready-made: those that `dataclass` compiles take 0.6 ms a class, 30 ms of `sparta --help`.
    """
    kind.__doc__ = kind.__doc__ or kind.__name__  # without one, dataclass looks for a signature
    kind.__init__ = _hold  # type: ignore[method-assign]
    kind.__setattr__ = _refuse_change  # type: ignore[method-assign]
    return dataclass(init=False, eq=False, repr=False, match_args=False)(kind)


def _hold(self: object, **values: Any) -> None:
    self.__dict__.update(values)


def _refuse_change(self: object, name: str, _: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def group(kind: type[Any]) -> Any:
    """Return one decorator for all options of an arguments class; as a field, it holds an instance."""
    defaults: list[Any] = [field.default for field in fields(kind)]
    decorate = options(*defaults)
    decorate.kind = kind
    return decorate


def takes[T](kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Give a command the options of an arguments class, and call it with an instance whose rules hold."""

    def decorate(command: Callable[[T], None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            command(filled(kind, values))

        decorated: Callable[..., None] = group(kind)(run)
        return decorated

    return decorate


def filled[T](kind: type[T], values: Mapping[str, Any]) -> T:
    """Return an instance with the values of click's parameters; its rules are checked, then its groups'."""
    instance = _built(kind, values)
    _check(instance)
    return instance


def _built[T](kind: type[T], values: Mapping[str, Any]) -> T:
    chosen = {}
    for field in fields(kind):  # type: ignore[arg-type]
        inner = getattr(field.default, "kind", None)
        chosen[field.name] = _built(inner, values) if inner else values[field.name]
    return kind(**chosen)


def _check(instance: object) -> None:
    for rule in getattr(instance, "RULES", ()):
        rule.check(instance)
    for value in vars(instance).values():
        if is_dataclass(value):
            _check(value)


def made[T](kind: type[T], *sources: object, **changes: Any) -> T:
    """Return a dataclass of the library whose fields have the values of arguments of the same names."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    values = {name: value for source in sources for name, value in _values(source) if name in names}
    return kind(**{**values, **changes})


def _values(source: object) -> Iterator[tuple[str, Any]]:
    """Yield all names and values of arguments, also those of groups in them."""
    for name, value in vars(source).items():
        if is_dataclass(value):
            yield from _values(value)
        else:
            yield name, value


class Finite(click.FloatRange):
    """A number in a range; comparisons let NaN into every range, and infinity into those without an end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, found {value}.", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class CountOption(click.Option):
    """An option whose help does not show the highest number that Lucene counts to."""

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return what stands in brackets."""
        extra = super().get_help_extra(ctx)
        extra["range"] = extra.get("range", "").replace(f"1<=x<={HIGHEST_COUNT}", "x>=1")
        return extra


class Text(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    """Text from the command line, where bytes that the locale cannot read are read as UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return valid Unicode, whatever was typed."""
        return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Declared:
    """An option of a command. As a field of arguments, it takes flag, name and type from the field.

    :param text: the help
    :param flags: how it is typed, if not as the field is named
    """

    def __init__(self, text: str, *flags: str, **settings: Any) -> None:
        shown = settings.get("default") is not None and not settings.keys() & {"flag_value", "hidden"}
        self._flags, self._settings = flags, {"help": text, "show_default": shown, **settings}

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
        return click.option(*self._flags, **self._settings)(command)


def option(text: str, *flags: str, **settings: Any) -> Any:
    """Declare an option; it is typed as the value of its field."""
    return Declared(text, *flags, **settings)


def argument(*names: str, **settings: Any) -> Any:
    """Declare an argument; it is typed as the value of its field."""
    return click.argument(*names, **settings)


def options(*decorators: Decorator) -> Any:
    """Return one decorator for several options, in this order."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


def whole(default: int, text: str, *flags: str, least: int = 1, most: int | None = None) -> Any:
    """Declare an option of a whole number from `least` to `most`."""
    return Declared(text, *flags, cls=CountOption, type=click.IntRange(least, most), default=default)


def real(default: float, text: str, *flags: str, least: float | None = 0, most: float | None = None) -> Any:
    """Declare an option of a finite number from `least` to `most`."""
    return Declared(text, *flags, type=Finite(least, most), default=default)


def one_of(values: Sequence[str], text: str, *flags: str) -> Any:
    """Declare an option of one of some words, of which the first is the default."""
    return Declared(text, *flags, type=click.Choice(values), default=values[0])


def flag(text: str, *flags: str) -> Any:
    """Declare an option without a value."""
    return Declared(text, *flags, is_flag=True)


def typed(*names: str) -> list[str]:
    """Of these parameters, the options that stand on the command line itself, as they are spelled."""
    context = click.get_current_context(silent=True)
    known = context.command.params if context else []
    return [
        parameter.opts[0]
        for parameter in known
        if context and parameter.name in names
        if context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def command_line(*without: str) -> str:
    """Return the running command with the options that were typed, but for some, in the order of its help."""
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

"""Frozen dataclasses that cost next to nothing to declare, for what a device loads.

`dataclass`, `field` and `replace` mean here what they mean in `dataclasses`, for frozen classes.
That module writes and compiles six methods for each class as it is declared, and loads `inspect`
and `ast` to do so: half of what importing a device would take. Here all classes share their
methods, which read the fields from a table. Only `__init__` is written for each class, so that
Python itself checks arguments, and not before it is first used.

To everybody else such a class is a dataclass: `dataclasses.fields`, `replace` and `asdict` take it,
a dataclass may inherit from it, and a type checker is shown the originals.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, ItemsView
    from dataclasses import dataclass, field, replace
    from typing import Any, TypeVar

    Instance = TypeVar("Instance")

__all__ = ["dataclass", "field", "replace"]


class _None:
    """No default; `None` is one."""

    def __repr__(self) -> str:
        return "<factory>"  # as a signature shows that the default is made anew each time


_NONE = _None()


class _Field:
    """What is declared about a field; the arguments mean what those of `dataclasses.field` mean."""

    annotation = ""

    def __init__(
        self,
        *,
        default: object = _NONE,
        default_factory: object = _NONE,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        kw_only: bool = False,
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare, self.kw_only = init, repr, compare, kw_only

    def standard(self) -> Any:
        """Return the same as a field of `dataclasses`."""
        import dataclasses

        options = {name: value for name, value in vars(self).items() if value is not _NONE}
        options.pop("annotation")
        return dataclasses.field(**options)


def _dataclass(
    *, frozen: bool, repr: bool = True, eq: bool = True
) -> Callable[[type[Instance]], type[Instance]]:
    """Return what makes a class a frozen dataclass, as `dataclasses.dataclass` does."""
    assert frozen, "values do not change"

    def declare(cls: type[Instance]) -> type[Instance]:
        fields: dict[str, _Field] = dict(getattr(cls, "__shoal_fields__", {}))
        for name, annotation in cls.__annotations__.items():
            if not annotation.startswith("ClassVar"):
                fields[name] = _declared(cls, name, annotation)
        positional = [name for name, one in fields.items() if one.init and not one.kw_only]
        attributes: dict[str, object] = {
            "__shoal_fields__": fields,
            "__match_args__": tuple(positional),
            "__dataclass_fields__": _OnDemand(cls, "__dataclass_fields__", _standard_fields),
            "__dataclass_params__": _OnDemand(cls, "__dataclass_params__", _standard_parameters),
            "__init__": _OnDemand(cls, "__init__", _written_init),
            "__setattr__": _refuse_to_set,
            "__delattr__": _refuse_to_delete,
            **({"__repr__": _shown} if repr else {}),
            **({"__eq__": _equal, "__hash__": _hashed} if eq else {}),
        }
        for name, attribute in attributes.items():
            # What a class has of its own stays; with its own __eq__ it has the __hash__ None.
            if vars(cls).get(name) is None:
                setattr(cls, name, attribute)
        return cls

    return declare


def _declared(cls: type, name: str, annotation: str) -> _Field:
    """Return a class's own field; its attribute of this name becomes the default, or goes."""
    value = vars(cls).get(name, _NONE)
    declared = value if isinstance(value, _Field) else _Field(default=value)
    declared.annotation = annotation
    if declared.default is not _NONE:
        setattr(cls, name, declared.default)
    elif name in vars(cls):
        delattr(cls, name)
    return declared


class _OnDemand:
    """An attribute of a class that is made when somebody first asks for it, and then stays."""

    def __init__(self, cls: type, name: str, make: Callable[[type], Any]) -> None:
        self._cls, self._name, self._make = cls, name, make

    def __get__(self, instance: object, owner: type) -> Any:
        value = self._make(self._cls)
        setattr(self._cls, self._name, value)
        return value.__get__(instance, owner) if callable(value) else value


def _written_init(cls: Any) -> Callable[..., None]:
    """Write and compile a class's `__init__`."""
    fields: dict[str, _Field] = cls.__shoal_fields__
    scope: dict[str, Any] = {"_store_": object.__setattr__, "_none_": _NONE}
    positional, named, lines = ["self"], ["*"], []
    for name, one in fields.items():
        value, default = name, ""
        if one.default_factory is not _NONE:
            scope[f"_make_{name}_"] = one.default_factory
            value = f"_make_{name}_()" + f" if {name} is _none_ else {name}" * one.init
        if one.default is not _NONE or one.default_factory is not _NONE:
            scope[f"_default_{name}_"] = one.default
            default = f"=_default_{name}_"
        if one.init:
            (named if one.kw_only else positional).append(name + default)
        lines.append(f"    _store_(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    parameters = positional + (named if len(named) > 1 else [])
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *lines])
    exec(source, scope)  # noqa: S102  it is made of the names of the class's fields
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {name: one.annotation for name, one in fields.items() if one.init}
    init.__annotations__["return"] = None
    return init


def _standard(cls: Any) -> Any:
    """Return a class of `dataclasses` that has the same fields."""
    import dataclasses

    fields = [(name, one.annotation, one.standard()) for name, one in cls.__shoal_fields__.items()]
    return dataclasses.make_dataclass(cls.__name__, fields, frozen=True)


def _standard_fields(cls: type) -> Any:
    return _standard(cls).__dataclass_fields__


def _standard_parameters(cls: type) -> Any:
    return _standard(cls).__dataclass_params__


def _shown(self: Any) -> str:
    shown = [f"{name}={getattr(self, name)!r}" for name, one in _fields(self) if one.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _equal(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hashed(self: Any) -> int:
    return hash(_compared(self))


def _compared(instance: Any) -> tuple[object, ...]:
    return tuple(getattr(instance, name) for name, one in _fields(instance) if one.compare)


def _fields(instance: Any) -> ItemsView[str, _Field]:
    fields: dict[str, _Field] = instance.__shoal_fields__
    return fields.items()


def _refuse_to_set(self: object, name: str, value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _replace(instance: Instance, **changes: object) -> Instance:
    """Return a new instance with some fields changed, as `dataclasses.replace` does."""
    kept = {name: getattr(instance, name) for name, one in _fields(instance) if one.init}
    return type(instance)(**kept | changes)


if not TYPE_CHECKING:
    dataclass, field, replace = _dataclass, _Field, _replace

"""An experiment: settings and commands as data, which YAML files of recipes/ hold.

A file can include others, whose mappings it extends. Its keys:

    about       what it does, for --help
    work        the folder of its results, unless --work is given
    settings    what --set can change, with the default; {default, least, choices} limits values
    define      names for commands and other definitions
    names       patterns for the names in `systems`, which are numbers unless they are here
    systems     patterns of systems, such as <control>-<slots>[-<norm>], and what differs
    suffix      what is added to all patterns
    default     the systems that run unless --systems is given
    seeds       likewise (1, 2 and 3 unless they are here)
    checks      expressions that must hold
    needs       files and folders that must exist before a command runs
    code        Python files beside it, whose functions the expressions can call
    prepare     commands that run once
    stages      commands that run for each system and seed
    order       of the stages, where they do not run as they are defined
    columns     names for the numbers that a stage prints: the stage and a regular expression
    table       columns, paper (figures by system), compare (difference, quotient or none), name
    after       commands that run after the table

A text may have {expressions} of Python, which see all names above, the settings, `system`, `seed`,
`work`, `corpora`, `device` and, in a stage, its `folder`. A text with flags is a list of arguments;
a text that is one expression has its value. An experiment is trusted like a script: it names the
programs that run.
"""

import glob
import itertools
import re
import runpy
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
TRAININGS = ("fairseq-train", "fairseq-hydra-train")
EXPRESSION = re.compile(r"\{([^{}]*)\}")


class RecipeError(ValueError):
    """What a user can put right."""


class Stage(NamedTuple):
    """A command. `record` is what it is told apart by: without the device, and in any folder."""

    name: str
    folder: Path
    command: list[str]
    record: list[str]
    makes: list[str]

    @property
    def trains(self) -> bool:
        return self.command[0] in TRAININGS

    @property
    def output(self) -> Path:
        """What the command prints."""
        return self.folder / f"{self.name}.txt"


class Scope(dict):  # type: ignore[type-arg]
    """Names; a definition is evaluated when it is first asked for."""

    def __init__(self, definitions: Mapping[str, Any], functions: dict[str, Any], **given: Any):
        super().__init__(given)
        self.definitions, self.functions, self.given = definitions, functions, given

    def __missing__(self, name: str) -> Any:
        self[name] = value = self.evaluate(self.definitions[name])
        return value

    def child(self, given: Mapping[str, Any]) -> "Scope":
        """A scope in which what is defined here is evaluated again."""
        return Scope(self.definitions, self.functions, **{**self.given, **given})

    def evaluate(self, text: Any) -> Any:
        if isinstance(text, dict):
            return {key: self.evaluate(value) for key, value in text.items()}
        if isinstance(text, list):
            return [self.evaluate(value) for value in text]
        if not isinstance(text, str):
            return text
        if whole := EXPRESSION.fullmatch(text):
            return self.expression(whole[1])
        return self.words(text) if text.startswith("--") or " --" in text else self.filled(text)

    def expression(self, text: str) -> Any:
        return eval(text, self.functions, self)

    def filled(self, text: str) -> str:
        return EXPRESSION.sub(lambda found: str(self.expression(found[1])), text)

    def words(self, text: str) -> list[str]:
        """Arguments. An expression between spaces is as many as its value has, or none if empty."""
        expressions: list[str] = []

        def hide(found: re.Match[str]) -> str:
            expressions.append(found[0])
            return f"\0{len(expressions) - 1}\0"

        words: list[str] = []
        for hidden in shlex.split(EXPRESSION.sub(hide, text)):
            word = re.sub("\0(\\d+)\0", lambda found: expressions[int(found[1])], hidden)
            value = self.evaluate(word) if EXPRESSION.fullmatch(word) else self.filled(word)
            if isinstance(value, list):
                words += map(str, value)
            elif value not in (None, ""):
                words.append(str(value))
        return words


def one_file(pattern: str) -> str:
    """The only file of a pattern; the pattern where there are none or several."""
    found = glob.glob(pattern)
    return found[0] if len(found) == 1 else pattern


def named(systems: Sequence[str], folder: str, seed: int, file: str) -> list[str]:
    """SYSTEM=FILE of each, in the folder of its run."""
    return [f"{system}={folder}/{system}-{seed}/{file}" for system in systems]


def read(path: Path) -> dict[str, Any]:
    """A file with what it includes."""
    own = yaml.safe_load(path.read_text(encoding="utf-8"))
    own["code"] = [str((path.parent / name).resolve()) for name in own.get("code", [])]
    merged: dict[str, Any] = {}
    for part in [*(read(path.parent / name) for name in own.pop("include", [])), own]:
        lists = {
            key: merged.get(key, []) + part.get(key, []) for key in ("code", "checks", "needs")
        }
        merge(merged, part).update(lists)
    return merged


def merge(base: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A command that is a text is {run: command} where the other is a mapping."""
    for name, value in more.items():
        old = base.get(name)
        if isinstance(old, dict) and isinstance(value, str):
            value = {"run": value}
        if isinstance(value, dict) and isinstance(old, str):
            old = {"run": old}
        both = isinstance(old, dict) and isinstance(value, dict)
        base[name] = merge(dict(old), value) if both else value  # type: ignore[arg-type]
    return base


def paths() -> dict[str, Path]:
    """All experiments: FOLDER/NAME, or NAME where the folder has the same name."""
    found = {}
    for path in sorted(ROOT.glob("recipes/*/experiments/[!_]*.yaml")):
        folder = path.parents[1].name
        found[folder if path.stem == folder else f"{folder}/{path.stem}"] = path
    return found


class Experiment:
    """One of `paths()` with settings. Raises RecipeError for a wrong setting."""

    def __init__(self, name: str, given: Mapping[str, str], **places: Any):
        known = paths()
        if name not in known:
            raise RecipeError(f"there is no experiment {name}; there are {', '.join(known)}")
        self.name, self.data = name, read(known[name])
        self.functions: dict[str, Any] = {"one_file": one_file, "named": named}
        for path in self.data["code"]:
            self.functions |= runpy.run_path(path)
        self.settings = settings = {
            key: value if isinstance(value, dict) else {"default": value}
            for key, value in self.data["settings"].items()
        }
        unknown = [setting for setting in given if setting not in settings]
        if unknown:
            raise RecipeError(f"{name} has no setting {unknown[0]}; it has {', '.join(settings)}")
        self.given = {key: parse(key, text, **settings[key]) for key, text in given.items()}
        defaults = {key: setting["default"] for key, setting in settings.items()}
        self.definitions = {**self.data.get("define", {}), **defaults}
        self.places = {key: value for key, value in places.items() if value is not None}
        self.places.setdefault("work", self.data["work"])
        self.default_seeds: list[int] = self.data.get("seeds", [1, 2, 3])

    def scope(self, more: Mapping[str, Any] | None = None, **given: Any) -> Scope:
        given = {**self.places, **self.given, **given}
        return Scope({**self.definitions, **(more or {})}, self.functions, **given)

    def default_systems(self) -> list[str]:
        return list(self.scope().evaluate(self.data["default"]))

    def run_scope(self, system: str, seed: int) -> Scope:
        """Raises RecipeError for a system that no pattern matches, and where a check fails."""
        for pattern, differences in self.data["systems"].items():
            found = re.fullmatch(self.regex(pattern + self.data.get("suffix", "")), system)
            if found:
                groups = {key: number(value) for key, value in found.groupdict().items()}
                for key in self.definitions:
                    if groups.get(key, "") is None:
                        del groups[key]
                scope = self.scope(differences, **groups, system=system, seed=seed)
                self.check(scope)
                return scope
        patterns = ", ".join(
            pattern + self.data.get("suffix", "") for pattern in self.data["systems"]
        )
        raise RecipeError(f"{self.name} has no system {system}; its systems are {patterns}")

    def regex(self, pattern: str) -> str:
        names = self.data.get("names", {})
        text = re.escape(pattern).replace(r"\[", "(?:").replace(r"\]", ")?").replace(r"\-", "-")
        return re.sub("<(\\w+)>", lambda m: f"(?P<{m[1]}>{names.get(m[1], '[0-9]+')})", text)

    def check(self, scope: Scope) -> None:
        for condition in self.data.get("checks", []):
            try:
                holds = scope.expression(condition)
            except ValueError as error:
                raise RecipeError(f"{scope['system']}: {error}") from None
            if not holds:
                shown = {name: scope[name] for name in used(condition, scope)}
                values = ", ".join(f"{name} is {value}" for name, value in shown.items())
                raise RecipeError(f"{scope['system']}: {condition} must hold, but {values}")

    def prepare(self) -> list[Stage]:
        return list(self.stages(self.scope(), "prepare"))

    def run(self, system: str, seed: int) -> list[Stage]:
        """The stages of a system and a seed."""
        return list(self.stages(self.run_scope(system, seed), "stages"))

    def stages(self, scope: Scope, key: str) -> Iterator[Stage]:
        # In the record, folders have their names and the device is left out.
        anywhere = scope.child({"work": "WORK", "corpora": "DATA", "device": []})
        commands = self.data.get(key, {})
        for name in self.data.get("order", commands) if key == "stages" else commands:
            given = commands[name]
            given = {"run": given} if isinstance(given, str) else given
            loops = scope.evaluate(given.get("each", {}))
            for values in itertools.product(*loops.values()):
                loop = dict(zip(loops, values, strict=True))
                if not scope.child(loop).evaluate(given.get("when", True)):
                    continue
                here, there = (local(one.child(loop), given) for one in (scope, anywhere))
                makes = here.evaluate(given.get("makes", []))
                if isinstance(makes, str):
                    makes = [makes]
                command = here.words(given["run"])
                if command[0] in TRAININGS:
                    makes = [f"{here['folder']}/checkpoint_last.pt"]
                stage = str(here.evaluate(given.get("name", name)))
                yield Stage(stage, Path(here["folder"]), command, there.words(given["run"]), makes)

    def needs(self, scope: Scope) -> list[str]:
        return [path for path in scope.evaluate(self.data.get("needs", [])) if path]


def local(scope: Scope, given: Mapping[str, Any]) -> Scope:
    """The scope of a stage, whose own keys are evaluated outside of it."""
    given = {"folder": "{run}" if "seed" in scope.given else "{work}", **given}
    keys = [key for key in given if key not in ("name", "run", "each", "when", "makes")]
    return scope.child({key: scope.evaluate(given[key]) for key in keys})


def parse(name: str, text: str, default: Any, least: int = 1, choices: Sequence[str] = ()) -> Any:
    """A value of --set. Raises RecipeError for one that is not of the default's kind."""
    if isinstance(default, list):
        return [parse(name, word, default[0], least, choices) for word in text.split()]
    if isinstance(default, int):
        if not re.fullmatch("0|[1-9][0-9]*", text) or int(text) < least:
            raise RecipeError(f"{name} must be a whole number of {least} or more, but is {text}")
    elif choices and text not in choices:
        raise RecipeError(f"{name} must be one of {', '.join(choices)}, but is {text}")
    return number(text)


def number(text: str | None) -> int | str | None:
    return int(text) if text and re.fullmatch("0|[1-9][0-9]*", text) else text


def used(expression: str, scope: Scope) -> Sequence[str]:
    """The names of an expression that are no functions."""
    words = dict.fromkeys(re.findall(r"(?<!['\w.])[a-z_]\w*", expression))
    return [word for word in words if word in scope or word in scope.definitions]

"""One episode's process: forked from the zygote, filtered, then alone with the environment it serves over its channel.

Frames both ways: length (u32), sequence number (u32), payload, little endian. Requests: `C` compile; `R` + JSON
{"seed", "max_turns"}; `S` + action (UTF-8); `Q` inspect. Replies repeat the sequence number: `+` and a result, or `!`
and JSON {"reason", "detail", "trace", "output"}.

Once the environment's code has run, nothing here can be trusted any more: the host checks every reply anew and
enforces every limit itself. The checks here exist to say what is wrong with an honest mistake.

Standard library only: this runs inside the jail.
"""

from __future__ import annotations

import builtins
import marshal
import os
import struct
import sys
from _json import encode_basestring_ascii as quote
from types import ModuleType

TYPE_CHECKING = False  # as in typing, which would cost a cold jail three milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Never

    from .zygote import Limits

SITE = "/usr/lib/spade-site"
SYNTAX_TREE = 0x400  # ast.PyCF_ONLY_AST
NOT_ENVIRONMENTS = ("Env", "ToolUseBaseEnv")
STEP = 83  # the letter S
CHANNEL = 40  # away from 0, 1, 2 and from what a new descriptor gets
_MODULES = (
    *("itertools", "math", "random", "re", "json", "collections", "functools", "string", "copy", "heapq", "operator"),
    *("statistics", "typing"),
)
_NAMES = {
    "collections": ("deque", "defaultdict", "Counter", "OrderedDict", "namedtuple"),
    "itertools": ("combinations", "permutations", "product", "chain", "accumulate"),
    "functools": ("reduce", "lru_cache"),
    "copy": ("deepcopy",),
    "heapq": ("heappush", "heappop"),
    "typing": ("Any", "Callable", "Dict", "Iterable", "List", "Optional", "Sequence", "Set", "Tuple", "Union"),
}


def namespace(text: str) -> dict[str, Any]:
    """The names every environment finds without importing them, as published; only those that occur in its text."""
    found: dict[str, Any] = {}
    for name in _MODULES:
        if name in text:
            found[name] = __import__(name)
    for module, names in _NAMES.items():
        for name in names:
            if name in text:
                found[name] = getattr(__import__(module), name)
    if "numpy" in sys.modules:
        found["numpy"] = found["np"] = sys.modules["numpy"]
    return found


class OutputLimit(BaseException):
    """The environment printed more than it may; not an Exception, so that an ordinary handler lets it pass."""


class Refused(Exception):
    """A result that breaks the contract; the first argument is the reason, the second the detail."""


class Output:
    """Standard output and error of the environment: kept in memory, bounded, never a reply."""

    encoding, errors, closed, name, mode = "utf-8", "replace", False, "<output>", "w"

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self.kept: list[str] = []

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.size += len(text)
        if self.size > self.limit:
            raise OutputLimit
        self.kept.append(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("this output has no descriptor")

    def tail(self) -> str:
        return "".join(self.kept)[-500:]


def plain(value: Any, depth: int = 0) -> Any:
    """A JSON-safe picture of anything; sets are sorted so that hash order does not show."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if -(2**63) < value < 2**63 else str(value)
    if isinstance(value, float):
        value = float(value)
        return value if value - value == 0 else str(value)
    if depth > 8:
        return "..."
    if isinstance(value, dict):
        return {(k if isinstance(k, str) else repr(k)): plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, depth + 1) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(v, depth + 1) for v in value), key=repr)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return plain(item(), depth + 1)
    return f"<{type(value).__name__}>"


def checked_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise Refused("contract", f"{what} is {type(value).__name__}, expected str")
    return str.__str__(value)


def checked_info(value: object, what: str) -> str:
    if not isinstance(value, dict):
        raise Refused("contract", f"{what} info is {type(value).__name__}, expected dict")
    if not value:
        return "{}"
    import json

    try:
        return json.dumps(plain(value), allow_nan=False)
    except RecursionError:
        raise Refused("contract", f"{what} info refers to itself") from None


def docstring(node: Any) -> str:
    """The docstring of a syntax tree node with a body, or nothing."""
    first = node.body[0] if node.body else None
    value = getattr(first, "value", None)
    text = getattr(value, "value", None)
    return (
        text if type(first).__name__ == "Expr" and type(value).__name__ == "Constant" and isinstance(text, str) else ""
    )


def picture(node: Any, parts: list[str]) -> None:
    """Spell out a syntax tree without positions and docstrings (the ast module's own dump would cost its import)."""
    if isinstance(node, list):
        parts.append("[")
        for item in node:
            picture(item, parts)
        parts.append("]")
    elif hasattr(node, "_fields"):
        kind = type(node).__name__
        parts.append(kind + "(")
        skip = 1 if kind in ("Module", "ClassDef", "FunctionDef", "AsyncFunctionDef") and docstring(node) else 0
        for name in node._fields:
            value: Any = getattr(node, name, None)
            picture(value[skip:] if name == "body" and skip else value, parts)
        parts.append(")")
    else:
        parts.append(repr(node) + ",")


def about_arguments(error: TypeError) -> bool:
    """Whether a call made here was refused before it began: no frame below the caller's."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def signature(what: str, error: TypeError) -> Exception:
    """`error`, or the broken contract that it shows."""
    return Refused("contract", f"{what} cannot be called: {str(error)[:200]}") if about_arguments(error) else error


class Session:
    """State of one episode inside the child."""

    def __init__(self, text: bytes, is_source: bool, names: dict[str, Any], output: Output) -> None:
        self.text, self.is_source, self.names, self.output = text, is_source, names, output
        self.env: Any = None
        self.phase = "load"

    def compile(self) -> bytes:
        self.phase = "compile"
        sha256 = __import__("_sha256" if sys.version_info < (3, 12) else "_sha2").sha256
        source = self.text.decode("utf-8")
        tree = compile(source, "<environment>", "exec", SYNTAX_TREE, dont_inherit=True)
        code = marshal.dumps(compile(tree, "<environment>", "exec", dont_inherit=True, optimize=0))
        parts: list[str] = []
        picture(tree, parts)
        shape = sha256("".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        title = name = ""
        for node in tree.body:
            if type(node).__name__ == "ClassDef" and node.name.endswith("Env") and node.name not in NOT_ENVIRONMENTS:
                name, title = node.name, docstring(node).strip().split("\n")[0][:120]
                break
        facts = f'{{"shape": {quote(shape)}, "class_name": {quote(name)}, "title": {quote(title or name)}}}'
        return struct.pack("<I", len(facts)) + facts.encode("ascii") + code

    def load(self) -> Any:
        code = (
            compile(self.text, "<environment>", "exec", dont_inherit=True)
            if self.is_source
            else marshal.loads(self.text)
        )
        if "numpy" in sys.modules:  # its global generator was seeded before the fork; Python's own reseeds itself
            sys.modules["numpy"].random.seed()
        module = ModuleType("environment")
        names = module.__dict__
        names.update(self.names)
        names["__builtins__"] = builtins
        sys.modules["environment"] = module
        exec(code, names)  # the one place where generated code is loaded: inside a filtered process inside a jail
        for name, value in names.items():
            named = name.endswith("Env") and name not in NOT_ENVIRONMENTS and callable(value)
            if named and callable(getattr(value, "reset", None)) and callable(getattr(value, "step", None)):
                return value
        raise Refused("contract", "no class whose name ends in Env with reset and step")

    def reset(self, seed: int, budget: int) -> bytes:
        kind = self.load()
        try:
            env = kind()
        except TypeError as error:
            if not about_arguments(error):
                raise
            try:
                env = kind(max_turns=budget)
            except TypeError as second:
                raise signature("the constructor", second) from None
        self.env = env
        turns = getattr(env, "max_turns", None)
        if budget and turns is not None:
            valid = isinstance(turns, int) and not isinstance(turns, bool) and turns > 0
            turns = min(turns, budget) if valid else budget
            env.max_turns = turns
        elif not isinstance(turns, int):
            turns = None
        self.phase = "reset"
        try:
            result = env.reset(seed=seed)
        except TypeError as error:
            raise signature("reset", error) from None
        if isinstance(result, str):
            result = (result, {})
        if not isinstance(result, tuple) or len(result) != 2:
            raise Refused("contract", f"reset returned {type(result).__name__}, expected (str, dict) or str")
        observation = checked_text(result[0], "reset observation")
        if not observation.strip():
            raise Refused("contract", "reset observation is empty")
        limit = "null" if turns is None else str(int(turns))
        return f"[{quote(observation)}, {checked_info(result[1], 'reset')}, {limit}]".encode("ascii")

    def step(self, action: str) -> bytes:
        self.phase = "step"
        try:
            result = self.env.step(action)
        except TypeError as error:
            raise signature("step", error) from None
        if not isinstance(result, tuple) or len(result) != 5:
            size = f" of {len(result)}" if isinstance(result, tuple) else ""
            raise Refused("contract", f"step returned {type(result).__name__}{size}, expected a tuple of 5")
        observation, reward, terminated, truncated, info = result
        observation = checked_text(observation, "step observation")
        if not isinstance(reward, (int, float)):
            raise Refused("contract", f"reward is {type(reward).__name__}, expected int or float")
        try:
            reward = float(reward)
        except OverflowError:
            reward = float("inf")
        if reward - reward != 0:
            raise Refused("non_finite", f"reward is {reward!r}, expected a finite number")
        if type(terminated) is not bool or type(truncated) is not bool:
            kinds = f"{type(terminated).__name__}, {type(truncated).__name__}"
            raise Refused("contract", f"terminated and truncated are {kinds}, expected bool, bool")
        flags = ("true" if terminated else "false") + (",true" if truncated else ",false")
        told = "{}" if type(info) is dict and not info else checked_info(info, "step")
        return f"+[{quote(observation)},{reward!r},{flags},{told}]".encode("ascii")

    def inspect(self) -> bytes:
        self.phase = "inspect"
        import json

        solution = getattr(self.env, "solution", None)
        value = plain(solution()) if callable(solution) else None
        return json.dumps({"solution": value, "output": self.output.tail()}, allow_nan=False).encode("ascii")


def story(error: BaseException) -> tuple[str, str]:
    """(one line, the environment's own frames) of an exception; nothing of the exception's own code may escape."""
    try:
        text = str(error)[:300]
    except BaseException:
        text = "(its text cannot be read)"
    lines: list[str] = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename == "<environment>":
            lines.append(f"line {step.tb_lineno} in {code.co_name}")
        step = step.tb_next
    name = type(error).__name__
    return (f"{name}: {text}" if text else name), " > ".join(lines[-6:])[-600:]


def run(
    descriptor: int,
    text: bytes,
    is_source: bool,
    names: dict[str, Any],
    limits: Limits,
    preparations: list[Callable[[], None]],
) -> Never:
    """Serve one episode on `descriptor`, then end the process; never returns."""
    read, write, leave, unpack, pack = os.read, os.write, os._exit, struct.unpack_from, struct.pack
    try:
        os.dup2(descriptor, CHANNEL, inheritable=False)
        os.closerange(3, CHANNEL)
        os.closerange(CHANNEL + 1, 1024)
        for prepare in preparations:
            prepare()
    except BaseException:
        leave(97)
    output = Output(limits.output_bytes)
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        setattr(sys, name, output)
    reply_bytes = limits.reply_bytes
    session = Session(text, is_source, names, output)
    failures = {
        OutputLimit: "output",
        MemoryError: "memory",
        SystemExit: "exit",
        SyntaxError: "syntax",
        Refused: "",
    }

    def fail(error: BaseException) -> bytes:
        line, trace = story(error)
        reason = failures.get(type(error))
        if reason is None or (reason == "syntax" and session.phase != "compile"):
            reason = "load" if session.phase == "load" else "syntax" if session.phase == "compile" else "exception"
        if type(error) is Refused:
            reason, line = error.args
        elif type(error) is OutputLimit:
            line = f"printed more than {limits.output_bytes} characters"
        parts = [quote(part) for part in (reason, line, trace, output.tail())]
        return '!{{"reason": {}, "detail": {}, "trace": {}, "output": {}}}'.format(*parts).encode("ascii")

    def answer(order: int, body: bytes) -> bytes:
        if order == 82:  # R
            return b"+" + session.reset(*unpack("<qI", body))
        if order == 67:  # C
            return b"+" + session.compile()
        return b"+" + session.inspect()

    def take(size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = read(CHANNEL, size - len(data))
            if not piece:
                leave(0)
            data += piece
        return bytes(data)

    pending = b""
    try:
        while True:
            if len(pending) < 8:
                pending += read(CHANNEL, 65536) or leave(0)
                if len(pending) < 8:
                    pending += take(8 - len(pending))
            size, sequence = unpack("<II", pending)
            if len(pending) < 8 + size:
                pending += take(8 + size - len(pending))
            order, body, pending = pending[8], pending[9 : 8 + size], pending[8 + size :]
            try:
                reply = session.step(body.decode("utf-8", "replace")) if order == STEP else answer(order, body)
                if len(reply) > reply_bytes:
                    raise Refused("output", f"the reply has {len(reply)} bytes, at most {reply_bytes} are taken")
                if output.size > output.limit:
                    raise OutputLimit
            except BaseException as error:
                reply = fail(error)
            data = pack("<II", len(reply), sequence) + reply
            sent = write(CHANNEL, data)
            while sent < len(data):
                sent += write(CHANNEL, data[sent:])
    finally:  # whatever happened, this process never returns into the zygote's code
        leave(98)

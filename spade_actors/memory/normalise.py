"""When are two environments the same: exactly, or after renaming what a program names itself.

Normalisation parses the source and compares its tree with comments, layout, docstrings and annotations gone, and with
the program's own names replaced by numbers in order of appearance: variables, parameters, functions, classes, and
attributes the program itself assigns or defines. Names it does not define (builtins, imported modules and their
functions, methods of built-in types) and the contract's own (`reset`, `step`, `max_turns` ...) stay, and so do numbers
and strings. So renaming or reformatting gives a duplicate; another parameter or another word does not.
"""

import ast
import hashlib

CONTRACT = frozenset({"reset", "step", "close", "render", "solution", "max_turns", "seed", "action", "self"})


def exact_key(source: str) -> str:
    """Equal for equal texts, trailing white space aside."""
    text = "\n".join(line.rstrip() for line in source.strip().splitlines())
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def normalised_key(source: str) -> str:
    """Equal for sources that are the same up to the renaming described above; empty if it does not parse."""
    try:
        tree = ast.parse(source)
        defined = _Defined()
        defined.visit(tree)
        dump = ast.dump(_Rename(defined.names, defined.attributes).visit(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return hashlib.sha256(dump.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class _Defined(ast.NodeVisitor):
    """Collects what the program names itself."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self._imported: set[str] = set()

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self._imported |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}

    visit_ImportFrom = visit_Import

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            self.names.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.names.add(node.arg)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.names.add(node.name)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.names.add(node.name)
        self.attributes.add(node.name)
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names.add(node.name)
        for statement in node.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            self.attributes |= {target.id for target in targets if isinstance(target, ast.Name)}
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            self.attributes.add(node.attr)
        self.generic_visit(node)

    def visit(self, node: ast.AST) -> None:
        super().visit(node)
        if isinstance(node, ast.Module):
            self.names -= self._imported | CONTRACT
            self.attributes -= CONTRACT
            self.attributes = {name for name in self.attributes if not _dunder(name)}
            self.names = {name for name in self.names if not _dunder(name)}


class _Rename(ast.NodeTransformer):
    """Numbers the program's own names in order of appearance; drops docstrings and annotations."""

    def __init__(self, names: set[str], attributes: set[str]) -> None:
        self._own = names
        self._attributes = attributes
        self._numbers: dict[str, str] = {}

    def _name(self, name: str, own: set[str]) -> str:
        if name not in own:
            return name
        return self._numbers.setdefault(name, f"_{len(self._numbers)}")

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._name(node.id, self._own)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        node.attr = self._name(node.attr, self._attributes)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg, node.annotation = self._name(node.arg, self._own), None
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        self.generic_visit(node)
        if node.arg:
            node.arg = self._name(node.arg, self._own)
        return node

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.Global | ast.Nonlocal:
        node.names = [self._name(name, self._own) for name in node.names]
        return node

    visit_Nonlocal = visit_Global

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        if node.name:
            node.name = self._name(node.name, self._own)
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return ast.Assign(targets=[self.visit(node.target)], value=self.visit(node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.name = self._name(node.name, self._own)
        node.returns = None
        node.body = _without_docstring(node.body)
        self.generic_visit(node)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self._name(node.name, self._own)
        node.body = _without_docstring(node.body)
        self.generic_visit(node)
        return node

    def visit_Module(self, node: ast.Module) -> ast.AST:
        node.body = _without_docstring(node.body)
        self.generic_visit(node)
        return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:] or [ast.Pass()]
    return body


def _dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")

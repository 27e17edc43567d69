"""The base of the course's widgets: one module of JavaScript for a notebook and a static page.

In JupyterLab and Colab the widget is an anywidget: Python reads and sets its state.  Its output
also carries a form of its own in HTML, with the same module and the state at that moment, which
needs neither a kernel nor a network.  The built book shows that form.
"""

import hashlib
import html
import itertools
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, ClassVar

import anywidget
import traitlets

from llmcourse_classroom.look import widget_css

_IMPORT = re.compile(r'import \{.*\} from "\./(\w+\.js)";\n')
_TEXT = re.compile(r'import (\w+) from "\./([\w/]+\.js)" with \{ type: "text" \};\n')
_NOT_STATE = {"layout", "tabbable", "tooltip"}
_count = itertools.count(1)

_PAGE = """<div class="lc-host" id="{id}">{still}</div>
<style>{css}</style>
<script type="application/json" id="{id}-state">{payload}</script>
<script type="module">
{loader}
const host = document.getElementById("{id}");
const payload = document.getElementById("{id}-state");
if (host) live(host, JSON.parse(payload.textContent));
</script>"""


def source(name: str) -> str:
    """Return a file of the widgets' JavaScript or CSS, such as "kit.js"."""
    return resources.files("llmcourse_classroom").joinpath("js", name).read_text(encoding="utf8")


def styles() -> str:
    """Return the widgets' stylesheet: the course's colours, and what is made of them."""
    return widget_css() + source("kit.css")


def module(name: str) -> str:
    """Return a widget's whole module, with all that it imports; the toolkit is imported first.

    A page that is opened from a file may not import one module from another.  What is imported as
    text, for a thread of its own (`import NAME from "./folder/file.js" with { type: "text" };`),
    stands in a constant, with all that it imports.
    """
    first = _IMPORT.match(source(name))
    if not first or first[1] != "kit.js":
        raise ValueError(f'{name} must begin with one line: import {{ ... }} from "./kit.js";')
    return bundle(name)


def bundle(name: str) -> str:
    """Return a module with all that it imports from its folder, in one text without imports.

    A module stands after those that it imports, and once, so all share one scope: no two may
    declare the same name outside of their functions.
    """
    folder = name.rpartition("/")[0]
    texts: dict[str, str] = {}

    def add(path: str) -> None:
        text = source(path)
        for imported in _IMPORT.findall(text):
            near = f"{folder}/{imported}".removeprefix("/")
            if near not in texts:
                add(near)
        texts[path] = _TEXT.sub(
            lambda line: f"const {line[1]} = {json.dumps(bundle(line[2]))};\n",
            _IMPORT.sub("", text),
        )

    add(name)
    return "\n".join(texts.values())


def as_json(value: object) -> str:
    """Return JSON that may stand inside a script element of a page."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).replace("<", "\\u003c")


class Widget(anywidget.AnyWidget):
    """An interactive picture that lives in a notebook and in a static page.

    A subclass names its `script` (a file in the folder js), its state as traits, and `alt`, the
    text that stands where no script runs.

    Args:
        bounds: of parts of the state that hang on other arguments: the highest value of a number,
            or the names of a `Named`.
        state: values of the traits.
    """

    script: ClassVar[str]
    alt: ClassVar[str]

    limits = traitlets.Dict().tag(sync=True)
    note = traitlets.Unicode("").tag(sync=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "script" in vars(cls):
            cls._esm = module(cls.script)
            cls._css = styles()

    def __init__(self, *, bounds: Mapping[str, Any] | None = None, **state: Any) -> None:
        self.bounds = dict(bounds or {})
        traits = self.traits()
        unknown = sorted(set(state) - set(traits))
        if unknown:
            known = sorted(name for name in self.keys_of_state() if name not in ("limits", "note"))
            raise TypeError(f"{type(self).__name__} has no {unknown}; it has {known}")
        limits = {name: t.limits() for name, t in traits.items() if hasattr(t, "limits")}
        for name in limits.keys() & self.bounds.keys():
            limits[name]["high"] = self.bounds[name]
        super().__init__(**state, limits=limits)

    @classmethod
    def keys_of_state(cls) -> list[str]:
        """Return the names of the state that page and Python share."""
        synced = cls.class_trait_names(sync=True)
        return sorted(n for n in synced if not n.startswith("_") and n not in _NOT_STATE)

    def state(self) -> dict[str, Any]:
        """Return the state that page and Python share."""
        return {name: getattr(self, name) for name in self.keys_of_state()}

    def __repr__(self) -> str:
        state = self.state().items()
        shown = [f"{k}={v!r}" for k, v in state if isinstance(v, int | float | str) and v != ""]
        return f"{type(self).__name__}({', '.join(shown)})"

    def page(self) -> str:
        """Return the HTML that shows the widget without a kernel."""
        payload = as_json({"state": self.state(), "esm": self._module_text()})
        digest = hashlib.sha256(payload.encode()).hexdigest()[:10]
        return _PAGE.format(
            id=f"lc-{type(self).__name__.lower()}-{digest}-{next(_count)}",
            css=styles(),
            still=self.still(),
            payload=payload,
            loader=source("page.js").replace("export async", "async"),
        )

    def still(self) -> str:
        """Return the HTML that stands in the widget's place where no script runs."""
        return f'<p class="lc-still">{html.escape(self.alt)}</p>'

    @classmethod
    def _module_text(cls) -> str:
        return module(cls.script)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if bundle is not None else ({}, {})
        return {**data, "text/plain": repr(self), "text/html": self.page()}, metadata

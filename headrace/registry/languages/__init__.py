"""Schema languages: how each is parsed, written canonically and normalised."""

import importlib
from collections.abc import Iterator, Mapping
from typing import Final

from headrace.registry.language import Language

# A language's name, and the module that has it as LANGUAGE. A module is imported when its
# language is first used, so that a registry of Avro schemas does not load the others.
MODULES: Final = {
    "AVRO": "headrace.registry.languages.avro",
}


class _Languages(Mapping[str, Language]):
    """The languages by name."""

    def __init__(self) -> None:
        self._loaded: dict[str, Language] = {}

    def __getitem__(self, name: str) -> Language:
        if name not in self._loaded:
            self._loaded[name] = importlib.import_module(MODULES[name]).LANGUAGE
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


LANGUAGES: Mapping[str, Language] = _Languages()

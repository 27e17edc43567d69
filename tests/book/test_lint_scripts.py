"""JavaScript is linted where Node is there, and a machine without it goes on."""

import subprocess
from types import SimpleNamespace

import pytest

from tools.check import lint_scripts


def test_without_node_nothing_is_linted_and_it_is_said(monkeypatch, capsys):
    monkeypatch.setattr(lint_scripts.shutil, "which", lambda _: None)
    assert lint_scripts.main() == 0
    assert capsys.readouterr().out == "JavaScript: not linted, npx is not installed\n"


@pytest.mark.parametrize("late", [False, True])
def test_without_the_package_nothing_is_linted_and_it_is_said(monkeypatch, capsys, late):
    def run(command, **options):
        assert command[-2:] == [lint_scripts.BIOME, "--version"]
        if late:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(lint_scripts.shutil, "which", lambda _: "npx")
    monkeypatch.setattr(lint_scripts.subprocess, "run", run)
    assert lint_scripts.main() == 0
    assert "JavaScript: not linted, npx " in capsys.readouterr().out


def test_what_biome_finds_fails(monkeypatch):
    codes = iter([0, 1])
    monkeypatch.setattr(lint_scripts.shutil, "which", lambda _: "npx")
    found = lambda *_, **__: SimpleNamespace(returncode=next(codes))  # noqa: E731
    monkeypatch.setattr(lint_scripts.subprocess, "run", found)
    assert lint_scripts.main() == 1

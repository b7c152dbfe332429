"""The examples run, and the README shows the first of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent
EXAMPLES = PACKAGE / "examples"
README = PACKAGE.parent / "README.md"
# What only a source distribution has, where README.md is that of the package.
PKG_INFO = PACKAGE.parent / "PKG-INFO"

NEEDS = {
    "near_duplicates": ["scipy", "sklearn"],
    "point_cloud": ["pyarrow"],
    "stars": [],
}
SECONDS = 300
MOST_BYTES = 300_000
# ^ and $ are those of lines, and a dot is any character.
LINES = re.MULTILINE | re.DOTALL


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel python3 that is this interpreter, whatever others the user has."""
    kernelspec = pytest.importorskip("ipykernel.kernelspec")
    kernelspec.write_kernel_spec(str(tmp_path / "jupyter" / "kernels" / "python3"))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


def test_every_notebook_is_listed() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_notebook(name: str, tmp_path: Path, kernel: None) -> None:
    for module in ("matplotlib", "nbclient", *NEEDS[name]):
        pytest.importorskip(module)
    import nbclient
    import nbformat

    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    folder = tmp_path / "work"
    folder.mkdir()
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    assert not list(folder.iterdir()), "a notebook leaves no files"


@pytest.mark.parametrize("name", NEEDS)
def test_notebook_is_stored_with_its_outputs(name: str) -> None:
    nbformat = pytest.importorskip("nbformat")
    path = EXAMPLES / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < MOST_BYTES
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = [output.output_type for cell in code for output in cell.outputs]
    assert "display_data" in kinds and "error" not in kinds


def test_quickstart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    subprocess.run(
        [sys.executable, str(EXAMPLES / "quickstart.py")],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        check=True,
        timeout=SECONDS,
    )
    assert (tmp_path / "quickstart.png").read_bytes().startswith(b"\x89PNG")


def test_readme_shows_quickstart() -> None:
    if not README.exists() or PKG_INFO.exists():
        pytest.skip("the project's README is not here")
    text = README.read_text("utf-8")
    section = re.search(r"^## In Python\n(.*?)(?=^## |\Z)", text, LINES)
    assert section, "README.md has no section In Python"
    block = re.search(r"^```python\n(.*?)^```$", section[1], LINES)
    assert block, "the section In Python of README.md has no block of Python"
    assert block[1] == (EXAMPLES / "quickstart.py").read_text("utf-8")

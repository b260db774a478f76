"""What docs/reference says is what the code says."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def generator() -> object:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["attributes.md", "cli.md", "http.md", "job-files.md", "states.md"])
def test_the_reference_is_as_the_code_would_write_it(name: str) -> None:
    pages = generator().PAGES  # type: ignore[attr-defined]
    assert (ROOT / "docs" / "reference" / name).read_text() == pages[name](), "run `python docs/generate.py`"


@pytest.mark.parametrize("name", ["job", "flow"])
def test_the_schemas_that_are_shipped_are_as_the_code_would_write_them(name: str) -> None:
    shipped = ROOT / "src" / "tercel" / "schemas" / f"{name}.schema.json"
    assert shipped.read_text() == generator().schema(name), "run `python docs/generate.py`"  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", ["job-files.md", "graphs.md", "blocked.md", "data.md"])
def test_every_job_file_in_the_documents_can_be_submitted(page: str, tmp_path: Path) -> None:
    import re

    from tercel.sdk.files import is_job_file, read_file

    text = (ROOT / "docs" / "how-to" / page).read_text()
    blocks = re.findall(r"```(toml|bash|ini)\n(.*?)```", text, re.DOTALL)
    assert blocks
    for kind, block in blocks:
        path = tmp_path / {"toml": "job.toml", "bash": "job.sh", "ini": "job"}[kind]
        path.write_text(block)
        assert is_job_file(str(path))
        assert read_file(str(path))


def test_every_link_in_the_documents_leads_somewhere() -> None:
    import re

    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"

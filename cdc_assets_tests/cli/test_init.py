"""`cdc-assets init`: the files of a new project, which work as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cdc_assets.cdc.config import load_config
from cdc_assets.cli.app import app
from cdc_assets_tests.paths import REPOSITORY

FILES = ("cdc.yaml", "dagster.yaml", "workspace.yaml")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CDC_CONFIG", raising=False)
    monkeypatch.delenv("CDC_WAREHOUSE", raising=False)
    return tmp_path


def init(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments])


@pytest.mark.parametrize("name", ["dagster.yaml", "workspace.yaml"])
def test_a_project_has_dagsters_settings_of_this_repository(here: Path, name: str) -> None:
    init("new")
    assert (here / "new" / name).read_text() == (REPOSITORY / name).read_text()


def test_the_example_is_valid_and_its_landing_folder_is_there(here: Path) -> None:
    result = init("a project")
    assert result.exit_code == 0, result.output
    config = load_config(here / "a project" / "cdc.yaml")
    (source,) = config.sources.values()
    assert list(config.sources) == ["inventory"]
    assert Path(source.landing.files or "") == here / "a project" / "data/landing/inventory"
    assert Path(source.landing.files or "").is_dir()
    assert config.start_date == config.today()
    assert f"cd '{here / 'a project'}'" in result.stdout
    for step in ("cdc-assets doctor", "cdc-assets run --from", "dagster dev -w workspace.yaml"):
        assert step in result.stdout


def test_a_landing_folder_that_is_there_gives_the_first_day(here: Path) -> None:
    (here / "landed" / "2026-11-02").mkdir(parents=True)
    (here / "landed" / "2026-11-01").mkdir()
    (here / "landed" / "2026-99-99").mkdir()
    result = init("new", "--source", "shop", "--files", "landed", "--format-of", "lindorm")
    assert "cdc-assets run --from 2026-11-01\n" in result.stdout
    config = load_config(here / "new" / "cdc.yaml")
    assert str(config.start_date) == "2026-11-01"
    assert config.sources["shop"].format == "lindorm"
    assert config.sources["shop"].landing.files == str(here / "landed")


def test_a_source_in_kafka(here: Path) -> None:
    result = init("new", "--kafka", "broker:9092", "--topics", "shop.a, shop.b")
    assert result.exit_code == 0, result.output
    kafka = load_config(here / "new" / "cdc.yaml").sources["inventory"].landing.kafka
    assert kafka is not None
    assert (kafka.bootstrap_servers, kafka.topics) == ("broker:9092", ("shop.a", "shop.b"))
    assert not (here / "new" / "data").exists()


@pytest.mark.parametrize("name", FILES)
def test_what_is_there_is_never_overwritten(here: Path, name: str) -> None:
    (here / name).write_text("mine")
    result = init(".")
    assert result.exit_code == 2
    assert f"{here} holds {name} already; nothing was written" in result.stderr
    assert [path.name for path in here.iterdir()] == [name]
    assert (here / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--source", "a: b"), "letters, digits and _"),
        (("--format-of", "avro"), "sources.inventory.format: got 'avro'"),
        (("--format-of", "debezium\nx: y"), "sources.inventory.format: got"),
        (("--files", "x", "--kafka", "broker:9092"), "give one of --files, --landing"),
        (("--kafka", "broker:9092"), "belong together"),
        (("--kafka", "broker:9092", "--topics", "a,,b"), "holds an empty name"),
        (("--files", "${CDC_NO_SUCH_FOLDER}"), "CDC_NO_SUCH_FOLDER"),
    ],
)
def test_what_cdc_yaml_can_not_hold_is_refused(
    here: Path, arguments: tuple[str, ...], says: str
) -> None:
    result = init("new", *arguments)
    assert result.exit_code == 2, result.output
    assert says in " ".join(result.stderr.replace("│", " ").split())
    assert list(here.iterdir()) == []


def test_odd_names_stay_what_they_are(here: Path) -> None:
    odd = 'a "b": #c\n- d'
    result = init("new", "--files", odd)
    assert result.exit_code == 0, result.output
    assert load_config(here / "new" / "cdc.yaml").sources["inventory"].landing.files == str(
        here / odd
    )

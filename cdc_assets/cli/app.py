"""The command line `cdc-assets`: run days, show tables and lag, discover and inspect landings.

Exit codes: 0; 1 something failed; 2 wrong usage or configuration; 130 Ctrl-C. Heavy libraries are
imported by the commands that need them.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cdc_assets import __version__
from cdc_assets.cdc.config import Config, config_path, load_config
from cdc_assets.cdc.errors import CdcError, ConfigError
from cdc_assets.cli import output
from cdc_assets.orchestration.interrupts import interruptible

if TYPE_CHECKING:
    from cdc_assets.cli.inspect import Rules


class Commands(TyperGroup):
    """Turns the project's own errors into one readable message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CdcError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2 if _is_usage(error) else 1) from None
        except KeyboardInterrupt:
            typer.echo(_interrupted(ctx.invoked_subcommand), err=True)
            raise typer.Exit(_INTERRUPTED) from None


_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def _interrupted(command: str | None) -> str:
    if command not in ("run", "demo", "maintain"):
        return "interrupted"
    return "interrupted: what was finished is kept; the same command goes on where it stopped"


def _is_usage(error: CdcError) -> bool:
    from cdc_assets.cdc.lake.pyiceberg_reads import UnknownTableError

    return isinstance(error, (ConfigError, UnknownTableError))


app = typer.Typer(
    cls=Commands,
    help="Change events of Debezium, Lindorm and DataWorks as daily Iceberg tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _day(text: str) -> date:
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        try:
            return date.fromisoformat(text)
        except ValueError:
            pass
    raise typer.BadParameter(f"{text!r} is no day; write it as YYYY-MM-DD, such as 2026-11-05")


class Form(str, Enum):
    """How rows are printed."""

    table = "table"
    json = "json"
    csv = "csv"


ConfigFile = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="cdc.yaml [default: CDC_CONFIG, ./cdc.yaml]"),
]
Source = Annotated[str | None, typer.Option("--source", help="Only this source.")]
From = Annotated[
    date | None, typer.Option("--from", parser=_day, metavar="DAY", help="First day, YYYY-MM-DD.")
]
To = Annotated[
    date | None, typer.Option("--to", parser=_day, metavar="DAY", help="Last day, included.")
]
Format = Annotated[
    Form, typer.Option("--format", help="table, json (a line each) or csv.", show_default=True)
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Spark's and Dagster's logs on the terminal, too.")
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cdc-assets {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def _load(file: str | None) -> Config:
    """The configuration, which whatever is called from here finds, too."""
    os.environ["CDC_CONFIG"] = str(config_path(file))
    return load_config()


def _check_range(first: date | None, last: date | None) -> None:
    if first and last and last < first:
        raise typer.BadParameter(f"{last} is before --from {first}", param_hint="'--to'")


# --- demo and run


@app.command()
def demo(config_file: ConfigFile = None, verbose: Verbose = False) -> None:
    """Make all days that have landed, then print tables, lag and what was quarantined."""
    config = _load(config_file)
    first, last = config.start_date, _last_landed_day(config)
    from cdc_assets.cdc.spark import SHORT_RUN
    from cdc_assets.cli.demo import print_results

    _run(first, last, verbose=verbose, spark=SHORT_RUN)

    print_results(config, first, last)


def _last_landed_day(config: Config) -> date:
    from cdc_assets.cdc.config import local_path
    from cdc_assets.cdc.landing.files import day_of

    landings = [source.landing.files for source in config.sources.values()]
    if None in landings:
        return config.today()  # Kafka's open day
    days = []
    for files in filter(None, landings):
        folder = local_path(files)
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        days += [day for day in map(day_of, names) if day is not None]
    days = [day for day in days if config.start_date <= day <= config.today()]
    if not days:
        folders = ", ".join(filter(None, landings))
        raise ConfigError(
            [
                f"no landed day from start_date {config.start_date} on in {folders}; "
                "expected folders named YYYY-MM-DD"
            ]
        )
    return max(days)


@app.command()
def run(
    first: Annotated[
        date, typer.Option("--from", parser=_day, metavar="DAY", help="First day, YYYY-MM-DD.")
    ],
    last: Annotated[
        date | None,
        typer.Option(
            "--to", parser=_day, metavar="DAY", help="Last day, included [default: --from]"
        ),
    ] = None,
    source: Source = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Only this table, such as public.customers.")
    ] = None,
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss", help="Where records or files are gone for good, land what is left."
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Make again what is made already of the same.")
    ] = False,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Make some days in this process and one Spark session, recorded in Dagster."""
    _check_range(first, last)
    config = _load(config_file)
    days = {"--from": first, "--to": last}
    faults = {option: config.fault_of(day) for option, day in days.items() if day}
    if wrong := [f"{option} {days[option]} {fault}" for option, fault in faults.items() if fault]:
        raise ConfigError(wrong)
    last = last or first
    if source:
        config.source(source)
    if table:
        source, table = _state_table(config, table, source)
    _run(first, last, source, table, verbose, allow_loss, force)


def _state_table(config: Config, text: str, source: str | None) -> tuple[str, str]:
    from cdc_assets.cdc.lake.pyiceberg_reads import UnknownTableError, find_table

    found = find_table(config, text, source)
    if not found.is_state:
        raise UnknownTableError(text, "it is made with its source; leave --table out")
    return found.source, found.name


def _run(
    first: date,
    last: date,
    source: str | None = None,
    table: str | None = None,
    verbose: bool = False,
    allow_loss: bool = False,
    force: bool = False,
    spark: Mapping[str, str] | None = None,
) -> None:
    """Make days and show the progress; exit 1 where a step failed."""
    from cdc_assets.cdc.java import require_java

    require_java()
    home = Path(os.environ.get("DAGSTER_HOME") or Path.cwd()).absolute()
    log = None if verbose else home / ".dagster" / "spark.log"
    with output.own_stderr(log) as err, output.Progress(err) as shown:
        from cdc_assets.orchestration import progress
        from cdc_assets.orchestration import run_days as runs

        try:
            with progress.listen(shown):
                outcome = runs.run_days(
                    first,
                    last,
                    source=source,
                    table=table,
                    allow_loss=allow_loss,
                    force=force,
                    spark=spark,
                )
        except CdcError:
            raise
        except Exception as error:
            from cdc_assets.cdc.java_errors import root_cause

            traceback.print_exc()
            shown.line(f"error: {type(error).__name__}: {root_cause(error)}")
            _name_log(shown, log)
            raise typer.Exit(1) from error
        for failure in outcome.failures:
            shown.line(f"error: {failure}")
        span = str(first) if first == last else f"{first} to {last}"
        if outcome.ok:
            shown.line(f"made {span} in {outcome.seconds:.1f} s")
            return
        shown.line(f"{span}: {len(outcome.failures)} failed, after {outcome.seconds:.1f} s")
        _name_log(shown, log)
        raise typer.Exit(1)


def _name_log(shown: output.Progress, log: Path | None) -> None:
    if log:
        shown.line(f"Spark's and Dagster's logs: {log}")


# --- doctor and maintenance


class DoctorForm(str, Enum):
    """How the findings are printed."""

    table = "table"
    json = "json"


@app.command()
def doctor(
    quick: Annotated[
        bool, typer.Option("--quick", help="Start no Spark session, which is the true test.")
    ] = False,
    form: Annotated[
        DoctorForm, typer.Option("--format", help="table or json (a line each).", show_default=True)
    ] = DoctorForm.table,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Check Java, jars, packages, cdc.yaml, lake, landings, Kafka and Dagster; say what to mend.

    Exit code 1 where something is a problem.
    """
    from cdc_assets.cli import doctor as checks

    marks = {"ok": "ok     ", "warning": "WARNING", "problem": "PROBLEM"}
    problems = 0
    with _quiet(verbose):
        for line in checks.examine(config_file, quick):
            problems += line.status is checks.Status.problem
            row = {"check": line.check, "status": line.status.value, "found": line.found}
            if form is DoctorForm.json:
                output.print_rows((), [{**row, "remedy": line.remedy}], "json")
                continue
            typer.echo(f"{marks[row['status']]}  {line.check}: {output.printable(line.found)}")
            if line.remedy:
                typer.echo(f"         {output.printable(line.remedy)}")
    if problems:
        raise typer.Exit(1)


@app.command()
def maintain(
    source: Source = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, and say what would be done.")
    ] = False,
    form: Format = Form.table,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Compact the newest days; drop days, commits and files older than cdc.yaml keeps.

    Kept days read as before. Not beside a run of the same source: the second of them would fail.
    """
    config = _load(config_file)
    if source:
        config.source(source)
    from cdc_assets.cdc.lake.catalog import Lake
    from cdc_assets.cdc.lake.errors import one_line
    from cdc_assets.cdc.lake.maintenance import maintain_table, tables_of
    from cdc_assets.cdc.spark import build_session

    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    with _quiet(verbose, config) as log:
        spark = interruptible(build_session, config)
        try:
            lake = Lake(spark, config)
            for name in [source] if source else config.sources:
                for table in interruptible(tables_of, lake, name):
                    try:
                        figures = interruptible(maintain_table, lake, name, table, dry_run)
                        rows.append(figures.as_row())
                    except Exception as error:
                        traceback.print_exc()
                        failures.append(f"{name}.{table}: {one_line(error, config)}")
        finally:
            spark.stop()
        if failures:
            log.keep()
    output.print_rows(
        _MAINTENANCE if form is Form.table else list(rows[0] if rows else ()), rows, form.value
    )
    for failure in failures:
        typer.echo(f"error: {failure}", err=True)
    if not rows and not failures:
        typer.echo("nothing is in the lake yet", err=True)
    if failures:
        if log.file:
            typer.echo(f"Spark's log: {log.file}", err=True)
        raise typer.Exit(1)


_MAINTENANCE = (
    "table", "compacted_day", "data_files", "days_expired", "snapshots_expired", "orphan_files",
    "files_before", "files_after", "bytes_before", "bytes_after", "seconds",
)  # fmt: skip


# --- show and lag


@app.command()
def show(
    table: Annotated[
        str,
        typer.Argument(help="public.customers, inventory.public.customers, inventory.changes …"),
    ],
    as_of: Annotated[
        date | None,
        typer.Option(
            "--as-of",
            parser=_day,
            metavar="DAY",
            help="The table at the end of that day; of landing, changes … what landed on it.",
        ),
    ] = None,
    form: Format = Form.table,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, help="At most so many rows [default: 20 as a table, else all]"
        ),
    ] = None,
    config_file: ConfigFile = None,
) -> None:
    """Print the rows of a table, as of its newest day or another."""
    from cdc_assets.cdc.lake import pyiceberg_reads as reads

    config = _load(config_file)
    found = reads.find_table(config, table)
    _quick_arrow()
    if limit is None and form is Form.table:
        limit = 20
    rows = reads.read_rows(config, found, as_of, None if limit is None else limit + 1)
    more = limit is not None and rows.num_rows > limit
    shown = rows.slice(0, limit)
    is_messages = not found.is_state and found.name in ("landing", "quarantine")
    printed = output.print_rows(
        rows.column_names,
        reads.messages(shown, form is Form.json) if is_messages else reads.records(shown),
        form.value,
        fold=False,
    )
    if form is Form.table:
        known = reads.day_rows(config, found) if found.is_state else {}
        day = as_of or (max(known) if known else None)
        at = f"{found} at the end of {day}" if found.is_state else str(found)
        of = f" of {known[day]}" if day in known else ""
        typer.echo(f"{printed}{of} rows, {at}{'; --limit N for more' if more else ''}", err=True)


_LAG_COLUMNS = {
    "table_name": "table",
    "kind": "kind",
    "count": "count",
    "negative": "negative",
    "p50_ms": "p50",
    "p95_ms": "p95",
    "p99_ms": "p99",
    "max_ms": "max",
}


@app.command()
def lag(
    source: Source = None,
    first: From = None,
    last: To = None,
    hours: Annotated[bool, typer.Option("--hours", help="By hour of the source.")] = False,
    form: Format = Form.table,
    config_file: ConfigFile = None,
) -> None:
    """Print how late the changes came: per day and table, in ms.

    capture: the source changed until the producer met it; delivery: from there to Kafka;
    end_to_end: both.
    """
    from cdc_assets.cdc.lake import pyiceberg_reads as reads

    _check_range(first, last)
    config = _load(config_file)
    if source:
        config.source(source)
    _quick_arrow()
    names = [source] if source else list(config.sources)
    rows = [row for name in names for row in reads.lag_rows(config, name, first, last, hours)]
    if not rows:
        reads.require_made(config, "lag", names, first, last)
    if form is Form.table:
        columns = {"landing_date": "day", **({"hour": "hour"} if hours else {}), **_LAG_COLUMNS}
        short = [{**row, "table_name": f"{row['source']}.{row['table_name']}"} for row in rows]
        output.print_table(
            list(columns.values()), [{columns[c]: row[c] for c in columns} for row in short]
        )
    else:
        output.print_rows(["source", *reads.LAG_COLUMNS], rows, form.value)
    if not rows:
        typer.echo("these days are made, and no change in them has a lag", err=True)


# --- quarantine


@app.command()
def quarantine(
    source: Source = None,
    day: Annotated[
        date | None,
        typer.Option("--day", parser=_day, metavar="DAY", help="Only what landed on that day."),
    ] = None,
    first: From = None,
    last: To = None,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Only this reason, such as malformed_json.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, help="At most so many records [default: 20 as a table, else all]"
        ),
    ] = None,
    form: Format = Form.table,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the records as landed lines, to mend and land again; - for stdout.",
        ),
    ] = None,
    config_file: ConfigFile = None,
) -> None:
    """Print what could not be read: how much by day and reason, the messages, and what to do."""
    from cdc_assets.cli import quarantine as found

    _check_range(first, last)
    if day and (first or last):
        raise typer.BadParameter("give --day, or --from and --to", param_hint="'--day'")
    if reason and (fault := found.reason_fault(reason)):
        raise typer.BadParameter(fault, param_hint="'--reason'")
    if export is not None and (fault := found.export_fault(export)):
        raise typer.BadParameter(fault, param_hint="'--export'")
    if export and form is not Form.table:
        raise typer.BadParameter("give --export or --format, not both", param_hint="'--export'")
    config = _load(config_file)
    names = [source] if source else list(config.sources)
    if source:
        config.source(source)
    if export and len(names) > 1:
        raise typer.BadParameter(
            f"a source's records land again in that source; give --source {' | '.join(names)}",
            param_hint="'--export'",
        )
    _quick_arrow()
    selection = found.select(config, names, day or first, day or last, reason)
    if not selection.total:
        typer.echo(found.why_none(selection, reason), err=True)
    elif export:
        done = found.export(selection, export, limit)
        for line in found.advice(config, names[0], done, export):
            typer.echo(line, err=True)
    else:
        if limit is None and form is Form.table:
            limit = 20
        found.print_selection(selection, form.value, limit)


# --- discover and inspect


class DiscoverForm(str, Enum):
    """How what was found is printed."""

    yaml = "yaml"
    json = "json"


@app.command()
def discover(
    place: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE_OR_PATH",
            help="A source of cdc.yaml; or a landing folder, a day's folder or a landed file.",
        ),
    ],
    days: Annotated[
        int | None, typer.Option("--days", min=1, help="Read only the newest so many days.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Read only so many records.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="The source's name [default: the source's, or the folder's]"),
    ] = None,
    form: Annotated[
        DiscoverForm,
        typer.Option("--format", help="yaml, or json (a line a table).", show_default=True),
    ] = DiscoverForm.yaml,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Read landings and print a sources: block for cdc.yaml: format, tables, keys, types.

    Comments say by what each setting was judged, what could not be read, and what is left to
    decide. A path needs no cdc.yaml.
    """
    from cdc_assets.cli import discover as discovery
    from cdc_assets.cli import inspect as inspection

    found_place, config = discovery.resolve(place, config_file, name)
    with _quiet(verbose), inspection.session(config) as spark:
        found = interruptible(discovery.discover, spark, found_place, days, limit)
    if found_place.kafka is not None:
        bounds = [f"only the newest {discovery.KAFKA_RECORDS} offsets of each partition were read"]
    else:
        bounds = [f"only the newest {days} days were read"] if days else []
    bounds += [f"only {limit} records were read"] if limit else []
    if form is DiscoverForm.yaml:
        sys.stdout.write(discovery.as_yaml(found, found_place, bounds))
        return
    output.print_rows((), discovery.as_rows(found, found_place), form.value)
    for note in discovery.notes(found, found_place, bounds):
        typer.echo(note, err=True)


@app.command()
def inspect(
    file: Annotated[
        Path,
        typer.Argument(
            help="A landed file: .jsonl, .jsonl.gz or .parquet.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option("--source", help="Read it by this source's rules [default: by its folder]"),
    ] = None,
    format_of: Annotated[
        str | None,
        typer.Option(
            "--format-of",
            metavar="FORMAT",
            help="Read it without cdc.yaml: debezium, lindorm, dataworks …; no table configured.",
        ),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option("--offset", min=0, help="Only this offset, with the row images and times."),
    ] = None,
    form: Format = Form.table,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Read only the first so many records.")
    ] = None,
    config_file: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Print how each record of a landed file is understood: where it goes, and why.

    It is judged as if the file were all that has landed: a tombstone whose delete lies in
    another file counts as a lone one, and its explanation says so.
    """
    from cdc_assets.cli import inspect as inspection

    rules = _rules(file, source, format_of, config_file)
    with _quiet(verbose), inspection.session(rules.config) as spark:
        rows = interruptible(inspection.inspect_file, spark, file, rules, limit, offset)
    columns: tuple[str, ...] = inspection.COLUMNS
    whole: tuple[str, ...] = ("detail", "explanation")
    if offset is not None:
        columns = whole = (*columns, *inspection.DETAILS)
    output.print_rows(columns, rows, form.value, fold=False, whole=whole)
    if offset is not None and not rows:
        typer.echo(f"{file} has no record at offset {offset}", err=True)


class _Log:
    """Where Spark's logs of a command go, None for the terminal; removed unless it is kept."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.is_kept = file, False

    def keep(self) -> None:
        """Leave the file for the user, who is told of it."""
        self.is_kept = True


@contextmanager
def _quiet(verbose: bool, config: Config | None = None) -> Iterator[_Log]:
    """Spark's logs of a command that leaves nothing behind: kept away, or shown.

    Of an exception of Java the terminal gets one line, and its stack trace is in the log.
    """
    folder = None if verbose else Path(tempfile.mkdtemp(prefix="cdc-log-"))
    log = _Log(folder / "spark.log" if folder else None)
    try:
        with output.own_stderr(log.file):
            try:
                yield log
            except Exception as error:
                from cdc_assets.cdc.java_errors import JAVA_ERRORS
                from cdc_assets.cdc.lake.errors import one_line

                if not isinstance(error, JAVA_ERRORS):
                    raise
                traceback.print_exc()
                log.keep()
                at = f". Spark's log: {log.file}" if log.file else ""
                raise CdcError(f"{one_line(error, config)}{at}") from error
    finally:
        if folder and not log.is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _rules(file: Path, source: str | None, format_of: str | None, config_file: str | None) -> Rules:
    from cdc_assets.cli import inspect as inspection

    if source and format_of:
        raise typer.BadParameter("give --source or --format-of, not both")
    if format_of:
        return inspection.rules_of_format(format_of, file)
    config = _load(config_file)
    return inspection.rules_of_source(config, source, file)


# --- the process

_is_own_process = False


class _NoPandas:
    """Stands before the import system and says that there is no pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuse pandas, leave the rest to others."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _quick_arrow() -> None:
    """Import what reads Parquet without pandas, which pyarrow would look for.

    pandas takes as long to import as everything else that `show` does, and nothing of it is
    used. Only in a process of our own: pyarrow remembers the answer.
    """
    if not _is_own_process or "pandas" in sys.modules:
        return
    refusal: Any = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        importlib.import_module("pyarrow.dataset")
    finally:
        sys.meta_path.remove(refusal)


def main() -> None:
    """The entry point."""
    global _is_own_process
    _is_own_process = True
    try:
        app()
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            # At once: the thread that was interrupted still waits for the JVM, which ends with us.
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError):
                    stream.flush()
            os._exit(_INTERRUPTED)
        raise


if __name__ == "__main__":
    main()

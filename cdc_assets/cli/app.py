"""The command line `cdc-assets`: run days, show tables and lag, discover and inspect landings.

Exit codes: 0; 1 something failed; 2 wrong usage or configuration; 3 `verify` found a difference;
130 Ctrl-C. Heavy libraries are imported by the commands that need them, so that help is quick.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from cdc_assets import __version__
from cdc_assets.cdc.errors import CdcError, ConfigError, UnknownTableError
from cdc_assets.cli import imports
from cdc_assets.cli.commands.demo import demo
from cdc_assets.cli.commands.diff import diff
from cdc_assets.cli.commands.discover import discover
from cdc_assets.cli.commands.doctor import doctor
from cdc_assets.cli.commands.history import history
from cdc_assets.cli.commands.init import init
from cdc_assets.cli.commands.inspect import inspect
from cdc_assets.cli.commands.lag import lag
from cdc_assets.cli.commands.maintain import maintain
from cdc_assets.cli.commands.quarantine import quarantine
from cdc_assets.cli.commands.report import report
from cdc_assets.cli.commands.run import run
from cdc_assets.cli.commands.show import show
from cdc_assets.cli.commands.trace import trace
from cdc_assets.cli.commands.verify import verify
from cdc_assets.cli.terminal import Interrupted, echo

# In the order of the help.
COMMANDS = (
    init, demo, run, doctor, maintain, show, history, diff, lag, quarantine, report, discover,
    inspect, trace, verify,
)  # fmt: skip

_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class Commands(TyperGroup):
    """Turns the project's own errors into one readable message and an exit code."""

    def get_help_option(self, ctx: Any) -> Any:
        """The help option with a default: without one Typer imports pydantic."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CdcError as error:
            echo(f"error: {error}", err=True)
            is_usage = isinstance(error, (ConfigError, UnknownTableError))
            raise typer.Exit(2 if is_usage else 1) from None
        except KeyboardInterrupt as interrupt:
            terminal = interrupt.terminal if isinstance(interrupt, Interrupted) else sys.stderr
            echo(_interrupted(ctx.invoked_subcommand), file=terminal)
            raise typer.Exit(_INTERRUPTED) from None


def _interrupted(command: str | None) -> str:
    if command not in ("run", "demo", "maintain"):
        return "interrupted"
    return "interrupted: finished days are kept; run the same command again to continue"


app = typer.Typer(
    cls=Commands,
    help="Change events of Debezium, Canal, Maxwell and others as daily Iceberg tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"cdc-assets {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


class Command(TyperCommand):
    """Refuses an option that is given twice; click would use the last."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for parameter in given:
                is_once = parameter.nargs == 1 and not parameter.multiple
                if getattr(parameter, "is_flag", True) or not is_once:
                    continue
                if (count := given.count(parameter)) > 1:
                    raise typer.BadParameter(
                        f"it is given {count} times; give it once",
                        ctx=ctx,
                        param_hint=f"'{parameter.opts[0]}'",
                    )
        return super().parse_args(ctx, args)


for _command in COMMANDS:
    app.command(cls=Command)(_command)


def main() -> None:
    """The entry point."""
    imports.is_own_process = True
    try:
        app()
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            # At once: the interrupted thread still waits for the JVM, which ends with the process.
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError):
                    stream.flush()
            os._exit(_INTERRUPTED)
        raise


if __name__ == "__main__":
    main()

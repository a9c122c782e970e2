"""``python -m cdc_assets.cli``: the command line where its program is not on PATH."""

from cdc_assets.cli.app import main

main()

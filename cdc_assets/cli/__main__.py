"""``python -m cdc_assets.cli``, for when `cdc-assets` is not on PATH."""

from cdc_assets.cli.app import main

main()

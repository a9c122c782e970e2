"""The SHA-256 of the jars added to Spark, and its check."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from cdc_assets.cdc.errors import ConfigError

# By artifact and version, of the files in Maven repositories.
SHA256 = {
    "iceberg-spark-runtime-4.1_2.13-1.12.0": (
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"
    ),
    "sqlite-jdbc-3.53.2.0": "dc320e4102884c135ccc30c3c6fc3fb190b750e1586a100e3aba3be783cf33a9",
    "kafka-clients-3.9.1": "7568b998572d256f0b7bc0afdc1b7a2588b8b08415c62ce314c864a6851ae9d9",
    "commons-pool2-2.12.1": "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    "spark-token-provider-kafka-0-10_2.13-4.0.0": (
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767"
    ),
    "spark-sql-kafka-0-10_2.13-4.1.3": (
        "cb31ffd9c8f5527dba061db8af671d295562092e4f3f5ff42fc249fab8a8fde6"
    ),
    "delta-storage-4.3.1": "577c12c7e371be4c041714fb48e88ad86e3c3512beea2bdaffbe7a4debf79718",
    "delta-spark_4.1_2.13-4.3.1": (
        "ebf35a4383f0a653c3ee3c7882c0edcac2f846be31ac61af4b96ccfaaf36c171"
    ),
    "postgresql-42.7.14": "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
    "spark-avro_2.13-4.1.1": "6a19d90bc3b6e88d8db0fa36a19273aa10fea2dbd7a62bb60e4cedd73051b32d",
}


def artifact_of(package: str) -> str:
    """``artifact-version`` of a package ``organisation:artifact:version``."""
    _, artifact, version = package.split(":")
    return f"{artifact}-{version}"


def ivy_folder(spark: Mapping[str, str]) -> Path:
    """The folder of jars that Spark fetches, by the settings under `spark`."""
    own = spark.get("spark.jars.ivy") or spark.get("jars.ivy")
    return Path(own) if own else Path.home() / ".ivy2.5.2"


def fetched_jar(package: str, ivy: Path) -> Path:
    """The path of a package's jar in Ivy's folder."""
    organisation = package.split(":")[0]
    return ivy / "jars" / f"{organisation}_{artifact_of(package)}.jar"


def check_jars(files: Iterable[Path]) -> None:
    """Check the SHA-256 of known jars; others are the user's own.

    Raises:
        ConfigError: a file is damaged or replaced.
    """
    for file in files:
        # Ivy prefixes the organisation: <organisation>_<artifact>-<version>.jar.
        known = next((a for a in SHA256 if file.stem == a or file.stem.endswith(f"_{a}")), None)
        if known is None or not file.is_file():
            continue
        got = hashlib.sha256(file.read_bytes()).hexdigest()
        if got != SHA256[known]:
            raise ConfigError(
                [
                    f"{file}: its SHA-256 is {got}, expected {SHA256[known]}: it is not the "
                    f"released {known}.jar. Delete it and have it fetched again; if it comes "
                    "back so, see where it comes from"
                ]
            )

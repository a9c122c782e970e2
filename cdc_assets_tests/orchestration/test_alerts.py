"""Who is told of what, through real receivers, from the events of a real Dagster instance.

(Dagster reads the annotations of bodies as objects, so this module does not postpone them.)
"""

import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from cdc_assets.cdc.config import Config, load_config, parse_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.definitions import build_definitions
from cdc_assets.orchestration.automation import event_feed, senders
from cdc_assets.orchestration.automation.event_feed import Position, events_since
from cdc_assets.orchestration.execution.jobs import RANGE_END, RANGE_START
from cdc_assets_tests.lakes import source_config
from cdc_assets_tests.orchestration.receivers import (
    MailServer,
    WebServer,
    mail_server,
    web_server,
)
from cdc_assets_tests.paths import REPOSITORY

DAY = "2026-11-04"
CHANGES, QUARANTINE = dg.AssetKey(["shop", "changes"]), dg.AssetKey(["shop", "quarantine"])
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """One whose events are in one place, as in PostgreSQL."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def on_disk() -> Iterator[dg.DagsterInstance]:
    """One as dagster.yaml makes it: SQLite, a file a run."""
    with dg.instance_for_test() as found:
        yield found


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as found:
        yield found


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with mail_server() as found:
        yield found


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that is away is asked again at once."""
    monkeypatch.setattr(senders, "wait_exponential", lambda **_: lambda _: 0)


def config_of(alerts: Any, **sources: Any) -> Config:
    tables = {"public.customers": {"key": ["id"], "owners": ["bo@example.org"]}, "public.b": {}}
    shop = source_config("landed", tables=tables, owners=["team:data", "ann@example.org"])
    raw = {"start_date": DAY, "alerts": alerts, "sources": {"shop": shop, **sources}}
    return parse_config(raw, Path("/"))


def webhook(web: WebServer) -> dict[str, Any]:
    return {"url": f"{web.address}/hook/t0p-s3cret", "headers": {"X-Key": "k3y"}}


def mailing(mail: MailServer, **more: Any) -> dict[str, Any]:
    place = {"host": "127.0.0.1", "port": mail.port, "tls": "none"}
    return {**place, "from": "dagster@example.org", **more}


class Daemon:
    """Ticks of the sensor `alerts`, which go on from one another's cursor."""

    def __init__(self, instance: dg.DagsterInstance, config: Config) -> None:
        self.instance = instance
        self.cursor: str | None = None
        self.restart(config)

    def restart(self, config: Config) -> None:
        """A new process with the cursor that the instance has kept."""
        self.sensor = build_definitions(config).resolve_sensor_def("alerts")

    def tick(self) -> str:
        with dg.build_sensor_context(self.instance, cursor=self.cursor) as context:
            result = self.sensor.evaluate_tick(context)
        self.cursor = result.cursor
        return result.skip_message or ""


def evaluation(
    asset: dg.AssetKey, check: str, passed: bool, severity: Any = ERROR, **more: Any
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=asset, check_name=check, passed=passed, severity=severity, **more
    )


def run_of(
    instance: dg.DagsterInstance,
    *evaluations: dg.AssetCheckEvaluation,
    days: tuple[str, str] = (DAY, DAY),
    assets: Sequence[dg.AssetKey] = (CHANGES,),
    fails: str | None = None,
) -> str:
    """A run of the job `daily` that evaluates checks and, maybe, fails; returns its id."""
    partitions = dg.DailyPartitionsDefinition(start_date=DAY)

    @dg.multi_asset(
        name="shop__changes",
        specs=[dg.AssetSpec(key) for key in assets],
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def body(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        for found in evaluations:
            context.log_event(found)
        if fails:
            raise dg.Failure(fails, allow_retries=False)
        for key in assets:
            yield dg.MaterializeResult(asset_key=key)

    job = dg.define_asset_job("daily", selection=dg.AssetSelection.assets(*assets))
    made = dg.Definitions(assets=[body], jobs=[job]).resolve_job_def("daily")
    tags = {RANGE_START: days[0], RANGE_END: days[1]}
    result = made.execute_in_process(
        instance=instance, tags=tags, asset_selection=list(assets), raise_on_error=False
    )
    assert result.success == (fails is None)
    return result.run_id


def alerts_of(web: WebServer) -> list[dict[str, Any]]:
    """The alerts that a webhook got, in order; the server forgets them."""
    found = [alert for request in web.posted for alert in request.document["alerts"]]
    web.posted.clear()
    return found


def kinds(alerts: Sequence[dict[str, Any]]) -> list[str]:
    return [alert["kind"] for alert in alerts]


# -- what is said --------------------------------------------------------------------------------


def test_a_failed_check_is_told_once_and_once_more_when_it_is_well_again(
    instance: dg.DagsterInstance, web: WebServer
) -> None:
    config = config_of({"webhook": webhook(web), "dagster_url": "http://dagster.example:3000/"})
    daemon = Daemon(instance, config)
    daemon.tick()
    bad = evaluation(
        QUARANTINE,
        "records_readable",
        False,
        description="7 of 100 landed records (7 %) are in quarantine",
        partition=DAY,
    )
    run_id = run_of(instance, bad)
    daemon.tick()
    (request,) = web.posted
    assert request.headers["X-Key"] == "k3y"
    (alert,) = alerts_of(web)
    assert alert["kind"] == "check failed"
    assert alert["title"] == f"shop: records_readable of shop/quarantine failed on {DAY} (ERROR)"
    assert (alert["sources"], alert["asset"], alert["day"]) == (["shop"], "shop/quarantine", DAY)
    assert alert["got"] == "7 of 100 landed records (7 %) are in quarantine"
    assert alert["expected"] == "No landed record of the day is in quarantine."
    assert alert["run_id"] == run_id
    assert alert["link"] == (
        "http://dagster.example:3000/assets/shop/quarantine"
        "?view=checks&checkDetail=records_readable"
    )

    run_of(instance, bad)
    daemon.tick()
    daemon.tick()
    assert alerts_of(web) == [], "the same check of the same day stays bad"
    run_of(instance, evaluation(QUARANTINE, "records_readable", False, partition="2026-11-05"))
    daemon.tick()
    assert [a["day"] for a in alerts_of(web)] == ["2026-11-05"], "another day is another fault"

    run_of(instance, evaluation(QUARANTINE, "records_readable", True, partition=DAY))
    daemon.tick()
    (well,) = alerts_of(web)
    assert (well["kind"], well["day"], well["since"]) == ("resolved", DAY, alert["since"])
    run_of(instance, bad)
    daemon.tick()
    assert kinds(alerts_of(web)) == ["check failed"]


def test_warnings_are_not_told_but_a_source_without_new_data_is(
    instance: dg.DagsterInstance, web: WebServer
) -> None:
    daemon = Daemon(instance, config_of({"webhook": webhook(web)}))
    daemon.tick()
    run_of(instance, evaluation(CHANGES, "positions_in_order", False, WARN, partition=DAY))
    for check in ("fresh", "source_alive_now"):
        instance.report_runless_asset_event(
            evaluation(CHANGES, check, False, WARN, description="the newest record is of May")
        )
    daemon.tick()
    told = alerts_of(web)
    assert kinds(told) == ["not fresh", "silent"]
    assert told[0]["got"] == "the newest record is of May"
    instance.report_runless_asset_event(evaluation(CHANGES, "fresh", False, WARN))
    daemon.tick()
    assert alerts_of(web) == []
    instance.report_runless_asset_event(evaluation(CHANGES, "fresh", True, WARN))
    daemon.tick()
    assert [(a["kind"], a["check"]) for a in alerts_of(web)] == [("resolved", "fresh")]


def test_an_error_that_has_become_a_warning_is_told_as_well_again(
    instance: dg.DagsterInstance, web: WebServer
) -> None:
    daemon = Daemon(instance, config_of({"webhook": webhook(web)}))
    daemon.tick()
    for severity in (ERROR, WARN):
        run_of(instance, evaluation(QUARANTINE, "records_readable", False, severity, partition=DAY))
    daemon.tick()
    assert kinds(alerts_of(web)) == ["check failed", "resolved"]


def test_a_failed_run_is_told_and_the_run_that_makes_it_good(
    instance: dg.DagsterInstance, web: WebServer
) -> None:
    daemon = Daemon(instance, config_of({"webhook": webhook(web), "dagster_url": "http://d:1"}))
    daemon.tick()
    failed = run_of(instance, days=(DAY, "2026-11-06"), fails="notes.csv is not a landed file")
    daemon.tick()
    (alert,) = alerts_of(web)
    assert alert["title"] == f"shop: run failed ({DAY}…2026-11-06)"
    assert alert["got"] == "shop__changes: notes.csv is not a landed file"
    assert (alert["run_id"], alert["link"]) == (failed, f"http://d:1/runs/{failed}")

    run_of(instance, days=(DAY, DAY))
    run_of(instance, days=(DAY, "2026-11-06"), assets=[QUARANTINE])
    daemon.tick()
    assert alerts_of(web) == [], "neither made what the failed run was to make"
    again = run_of(instance, days=("2026-11-06", "2026-11-07"), assets=[CHANGES, QUARANTINE])
    daemon.tick()
    (well,) = alerts_of(web)
    assert (well["kind"], well["run_id"], well["since"]) == ("resolved", again, alert["since"])
    run_of(instance)
    daemon.tick()
    assert alerts_of(web) == []


def failing() -> dg.JobDefinition:
    """A job that fails, to be made in another process."""

    @dg.op(name="shop__landing")
    def op() -> None:
        raise dg.Failure("the folder can't be listed", allow_retries=False)

    @dg.job(name="daily", executor_def=dg.in_process_executor)
    def job() -> None:
        op()

    return job


@pytest.mark.slow
def test_a_run_of_another_process_is_told(tmp_path: Path, web: WebServer) -> None:
    """As `cdc-assets run` makes them: no code location has launched it."""
    code = (
        "import dagster as dg; from cdc_assets_tests.orchestration.test_alerts import failing; "
        "dg.execute_job(dg.reconstructable(failing), dg.DagsterInstance.get())"
    )
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        daemon = Daemon(instance, config_of({"webhook": webhook(web)}))
        daemon.tick()
        environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        daemon.tick()
    assert done.returncode == 0, done.stderr
    (alert,) = alerts_of(web)
    assert alert["got"] == "shop__landing: the folder can't be listed"
    assert alert["sources"] == ["shop"]


def test_many_faults_of_a_tick_are_one_message(
    instance: dg.DagsterInstance, web: WebServer, mail: MailServer
) -> None:
    slack = {"token": "xoxb-s3cret", "channel": "#data", "base_url": f"{web.address}/api"}
    alerts = {"slack": slack, "email": mailing(mail, to=["data@example.org"])}
    daemon = Daemon(instance, config_of(alerts))
    daemon.tick()
    days = [f"2026-11-{day:02}" for day in range(1, 31)]
    bad = [evaluation(CHANGES, "nothing_lost", False, partition=day) for day in days]
    run_of(instance, *bad, fails="boom")
    daemon.tick()
    (request,) = web.posted
    text = request.form["text"]
    assert text.startswith("1 run failed, 30 checks failed\n\nshop: run failed")
    assert len(text) < 4_000
    shown = [day for day in days if f"failed on {day}" in text]
    assert shown == days[: len(shown)]
    assert text.endswith(f"… and {30 - len(shown)} more, see Dagster")
    (got,) = [mail for to, mail in mail.mails if to == ["data@example.org"]]
    assert got["Subject"] == "[cdc-assets] 1 run failed, 30 checks failed"
    assert "… and 11 more" in got.get_content()


def test_events_of_other_projects_in_the_instance_are_not_told(
    instance: dg.DagsterInstance, web: WebServer
) -> None:
    daemon = Daemon(instance, config_of({"webhook": webhook(web)}))
    daemon.tick()
    other = dg.AssetKey(["other", "changes"])
    run_of(instance, evaluation(other, "nothing_lost", False), assets=[other], fails="boom")
    daemon.tick()
    assert alerts_of(web) == []


# -- who is told, and when a receiver is away -----------------------------------------------------


def test_a_receiver_that_was_away_loses_nothing_and_holds_up_no_other(
    on_disk: dg.DagsterInstance, web: WebServer, mail: MailServer
) -> None:
    instance = on_disk
    config = config_of({"webhook": webhook(web), "email": mailing(mail, to=["d@example.org"])})
    daemon = Daemon(instance, config)
    daemon.tick()
    web.statuses = [500] * 6
    for day in (DAY, "2026-11-05"):
        run_of(instance, evaluation(CHANGES, "nothing_lost", False, partition=day))
        said = daemon.tick()
        assert "webhook: " in said
        assert "not sent: the receiver answered 500" in said
    assert len([to for to, _ in mail.mails if to == ["d@example.org"]]) == 2
    assert len(web.posted) == 6, "three attempts a tick"
    web.posted.clear()
    mail.mails.clear()
    daemon.tick()
    (request,) = web.posted
    assert [a["day"] for a in request.document["alerts"]] == [DAY, "2026-11-05"]
    assert mail.mails == []
    daemon.restart(config)
    daemon.tick()
    assert len(web.posted) == 1, "said again after a restart"


def test_a_receiver_that_is_busy_for_a_moment_is_asked_again_in_the_tick(
    instance: dg.DagsterInstance, web: WebServer
) -> None:
    daemon = Daemon(instance, config_of({"webhook": webhook(web)}))
    daemon.tick()
    run_of(instance, evaluation(CHANGES, "nothing_lost", False, partition=DAY))
    web.statuses = [503]
    assert daemon.tick() == "webhook: 1 alerts sent"
    assert len(web.posted) == 2
    assert web.posted[0].document == web.posted[1].document


def test_a_new_channel_hears_of_sources_that_are_not_well_already_and_of_nothing_older(
    instance: dg.DagsterInstance, web: WebServer
) -> None:
    run_of(instance, evaluation(CHANGES, "nothing_lost", False, partition=DAY), fails="boom")
    instance.report_runless_asset_event(evaluation(CHANGES, "fresh", False, WARN))
    daemon = Daemon(instance, config_of({"webhook": webhook(web)}))
    web.statuses = [500] * 3
    daemon.tick()
    web.posted.clear()
    daemon.tick()
    assert kinds(alerts_of(web)) == ["not fresh"]
    daemon.tick()
    assert alerts_of(web) == []


@pytest.mark.parametrize("kind", ["instance", "on_disk"])
def test_what_a_long_run_evaluated_is_read_in_parts(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = request.getfixturevalue(kind)
    monkeypatch.setattr(event_feed, "EVENTS_AT_ONCE", 4)
    monkeypatch.setattr(event_feed, "RUNS_AT_ONCE", 2)
    position, found = Position.newest(instance), []
    days = [f"2026-11-{day:02}" for day in range(1, 11)]
    run_of(instance, *(evaluation(CHANGES, "a", False, partition=day) for day in days))
    for number in range(5):
        run_of(instance, fails="boom" if number % 2 else None)
    for day in days:
        instance.report_runless_asset_event(evaluation(CHANGES, "b", False, partition=day))
    for _ in range(20):
        part, position = events_since(instance, position)
        found += part
    checks = [
        (h.evaluation.check_name, h.evaluation.partition)
        for h in found
        if isinstance(h, event_feed.CheckEvaluated)
    ]
    assert sorted(checks) == [(check, day) for check in ("a", "b") for day in days]
    ended = [h.failed for h in found if isinstance(h, event_feed.RunEnded)]
    assert ended == [False, False, True, False, True, False]
    assert events_since(instance, position) == ([], position)


def test_owners_get_mails_of_what_they_own(instance: dg.DagsterInstance, mail: MailServer) -> None:
    other = source_config("landed", tables={"public.c": {}}, owners=["cy@example.org"])
    daemon = Daemon(instance, config_of({"email": mailing(mail)}, other=other))
    daemon.tick()
    table, second = (
        dg.AssetKey(["shop", "public", "customers"]),
        dg.AssetKey(["shop", "public", "b"]),
    )
    run_of(instance, evaluation(table, "keys_unique", False, partition=DAY))
    daemon.tick()
    assert sorted(to for to, _ in mail.mails) == [["ann@example.org"], ["bo@example.org"]]
    assert all(m["Subject"].startswith("[cdc-assets] shop: keys_unique") for _, m in mail.mails)
    mail.mails.clear()
    run_of(instance, evaluation(second, "keys_unique", False, partition=DAY))
    daemon.tick()
    assert [to for to, _ in mail.mails] == [["ann@example.org"]]
    mail.mails.clear()
    of_other = dg.AssetKey(["other", "changes"])
    run_of(instance, evaluation(of_other, "nothing_lost", False, partition=DAY))
    daemon.tick()
    assert [to for to, _ in mail.mails] == [["cy@example.org"]]


def test_a_refused_recipient_is_no_reason_to_mail_the_others_again(
    instance: dg.DagsterInstance, mail: MailServer
) -> None:
    mail.refuses = {"gone@example.org"}
    email = mailing(mail, to=["gone@example.org", "data@example.org"])
    daemon = Daemon(instance, config_of({"email": email}))
    daemon.tick()
    run_of(instance, evaluation(CHANGES, "nothing_lost", False, partition=DAY))
    for _ in range(2):
        daemon.tick()
    got = [to for to, _ in mail.mails if "ann@example.org" not in to]
    assert got == [["data@example.org"]]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.parametrize("way", ["starttls", "ssl"])
def test_mail_goes_through_tls_with_a_login(
    way: str, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    with mail_server(tls, at_once=way == "ssl") as mail:
        place = {"tls": way, "to": ["data@example.org"]}
        email = mailing(mail, user="cdc", password="m4il-s3cret", **place)
        daemon = Daemon(instance, config_of({"email": email}))
        daemon.tick()
        run_of(instance, evaluation(CHANGES, "nothing_lost", False, partition=DAY))
        said = daemon.tick()
        assert "CERTIFICATE_VERIFY_FAILED" in said, "a certificate that nobody vouches for"
        assert mail.logins == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        daemon.tick()
        assert ["data@example.org"] in [to for to, _ in mail.mails]
        assert set(mail.logins) == {(b"cdc", b"m4il-s3cret")}


def test_slack_gets_the_text_as_it_is(instance: dg.DagsterInstance, web: WebServer) -> None:
    slack = {"token": "xoxb-s3cret", "channel": "#data", "base_url": f"{web.address}/api/"}
    daemon = Daemon(instance, config_of({"slack": slack}))
    daemon.tick()
    run_of(instance, fails="value <!channel> & <http://evil.example|click>\x1b[2J\nnext line")
    daemon.tick()
    (request,) = web.posted
    assert request.headers["Authorization"] == "Bearer xoxb-s3cret"
    assert request.form["channel"] == "#data"
    text = request.form["text"]
    assert "&lt;!channel&gt; &amp; &lt;http://evil.example|click&gt; [2J next line" in text
    assert "<" not in text
    assert "\x1b" not in text


def test_slack_s_refusal_is_named(instance: dg.DagsterInstance, web: WebServer) -> None:
    web.tokens = set()
    slack = {"token": "xoxb-s3cret", "channel": "#data", "base_url": f"{web.address}/api/"}
    daemon = Daemon(instance, config_of({"slack": slack}))
    daemon.tick()
    run_of(instance, fails="boom")
    assert "Slack answered 'invalid_auth'" in daemon.tick()


def test_a_subject_is_one_line(instance: dg.DagsterInstance, mail: MailServer) -> None:
    message = senders.Message("a\r\nBcc: all@example.org", [("a", [])], [])
    config = config_of({"email": mailing(mail, to=["d@example.org"])})
    senders.build_channels(config)[0].send(message)
    ((to, got),) = mail.mails
    assert to == ["d@example.org"]
    assert got["Bcc"] is None
    assert got["Subject"] == "[cdc-assets] a Bcc: all@example.org"


# -- secrets and configuration --------------------------------------------------------------------


def test_secrets_are_in_no_message_cursor_or_text(
    instance: dg.DagsterInstance, caplog: pytest.LogCaptureFixture
) -> None:
    dead = "http://127.0.0.1:9"
    slack = {"token": "xoxb-s3cret", "channel": "#data", "base_url": dead}
    email = {"host": "127.0.0.1", "port": 9, "from": "d@example.org", "to": ["d@example.org"]}
    email |= {"user": "cdc", "password": "m4il-s3cret"}
    hook = {"url": f"{dead}/hook/t0p-s3cret", "headers": {"Authorization": "h34der-s3cret"}}
    config = config_of({"webhook": hook, "slack": slack, "email": email})
    daemon = Daemon(instance, config)
    said = [daemon.tick()]
    run_of(instance, fails="boom")
    said.append(daemon.tick())
    for channel in ("webhook", "slack", "email"):
        assert f"{channel}: 1 alerts not sent" in said[-1]
    texts = [*said, str(daemon.cursor), caplog.text, repr(config), str(config)]
    assert not [text for text in texts if "s3cret" in text]


def test_a_cursor_of_another_version_is_reset(instance: dg.DagsterInstance, web: WebServer) -> None:
    daemon = Daemon(instance, config_of({"webhook": webhook(web)}))
    for cursor in ("no json", json.dumps({"webhook": {"position": 7}}), "[]"):
        daemon.cursor = cursor
        daemon.tick()
        run_of(instance, fails="boom")
        daemon.tick()
        assert kinds(alerts_of(web)) == ["run failed"]


def test_without_a_channel_there_is_no_sensor_for_alerts() -> None:
    sensors = {s.name: s for s in build_definitions(config_of({})).sensors or []}
    assert "alerts" not in sensors
    hook = {"url": "http://127.0.0.1:9"}
    sensor = build_definitions(config_of({"webhook": hook})).resolve_sensor_def("alerts")
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING


def test_slack_without_its_package_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dagster_slack", None)
    config = config_of({"slack": {"token": "t", "channel": "#data"}})
    with pytest.raises(ConfigError, match=r"alerts\.slack: needs .* 'cdc-assets\[slack\]'"):
        build_definitions(config)


MAIL = {"host": "mail.example.org", "from": "d@example.org", "to": ["d@example.org"]}


@pytest.mark.parametrize(
    ("alerts", "says"),
    [
        ({"webhook": {"url": "ftp://x"}}, "alerts.webhook.url: not a web address; expected http"),
        ({"webhook": "http://x"}, "alerts.webhook: got 'http://x'; expected a mapping"),
        ({"webhok": {}}, "alerts.webhok: unknown key; did you mean webhook?"),
        ({"slack": {"token": "t"}}, "alerts.slack.channel: is missing"),
        ({"email": {**MAIL, "to": "d@example.org"}}, "alerts.email.to: got 'd@example.org'; expec"),
        ({"email": {**MAIL, "to": ["d"]}}, "alerts.email.to[0]: got 'd'; expected an e-mail"),
        ({"email": {**MAIL, "sender": "x"}}, "alerts.email.sender: unknown key"),
        ({"email": {**MAIL, "user": "u"}}, "alerts.email: got one of user and password"),
        ({"email": {**MAIL, "port": 0}}, "alerts.email.port: got 0; expected 1 or more"),
        ({"email": {**MAIL, "tls": "yes"}}, "alerts.email.tls: got 'yes'; expected 'starttls', 's"),
        (
            {"email": {**MAIL, "tls": "none", "user": "u", "password": "p4ss"}},
            "alerts.email: password: tls: none would send it in the clear",
        ),
    ],
)
def test_a_wrong_channel_is_named(alerts: Any, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(alerts)
    assert says in str(raised.value)
    assert "p4ss" not in str(raised.value)


def test_alerts_that_would_reach_nobody_are_an_error() -> None:
    lonely = source_config("landed", owners=["team:data"])
    email = {name: value for name, value in MAIL.items() if name != "to"}
    with pytest.raises(ConfigError, match=r"alerts\.email\.to: is empty.* no owner of lonely is"):
        config_of({"email": email}, lonely=lonely)
    hook = {"url": "http://127.0.0.1:9"}
    assert config_of({"email": email, "webhook": hook}, lonely=lonely).alerts.channels


def test_secrets_come_from_the_environment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack = {"token": "xoxb-s3cret", "channel": "#data"}
    raw = {"start_date": DAY, "sources": {"s": source_config("landed")}, "alerts": {"slack": slack}}
    file = tmp_path / "cdc.yaml"
    file.write_text(yaml.safe_dump(raw))
    with pytest.raises(
        ConfigError, match=r"alerts\.slack\.token: is written in the file"
    ) as raised:
        load_config(file)
    assert "s3cret" not in str(raised.value)
    slack["token"] = "${SLACK_TOKEN}"
    file.write_text(yaml.safe_dump(raw))
    monkeypatch.setenv("SLACK_TOKEN", "xoxb-s3cret")
    found = load_config(file).alerts.slack
    assert found is not None
    assert found.token == "xoxb-s3cret"

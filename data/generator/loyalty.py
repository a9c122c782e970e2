"""`loyalty`: members and their points, PostgreSQL through Debezium in Avro; one day."""

from __future__ import annotations

from .agenda import HOUR, MINUTE, Script, Source, clock, scene
from .avro import Registry
from .postgres import Column, Key, Postgres, Row, Table, decimal_column
from .wire import AWKWARD_TEXTS, decimal, epoch_days, random_uuid, zoned

DAY = 6
TIERS = ("blue", "silver", "gold")
NAMES = ("Ottilie", "Bram", "美玲", "Tariq", "Saoirse", "Zsófia", "نور", "O'Dowd")
SCENE_MEMBERS = 8
DATE, MICRO_TIMESTAMP = "io.debezium.time.Date", "io.debezium.time.MicroTimestamp"


class LoyaltyWork(Source):
    """The tables and the members' everyday life."""

    name = "loyalty"
    seed = 20261105

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.members = Table(
            "members",
            [
                Column("member_id", "int64", required=True),
                Column("name", "string", required=True),
                Column(
                    "tier",
                    "string",
                    "io.debezium.data.Enum",
                    required=True,
                    parameters=(("allowed", ",".join(TIERS)),),
                ),
                decimal_column("balance", 12, 2),
                Column("born", "int32", DATE),
                Column("newsletter", "boolean"),
                Column("joined_at", "int64", MICRO_TIMESTAMP, required=True),
                Column("seen_at", "string", "io.debezium.time.ZonedTimestamp"),
            ],
            key=("member_id",),
        )
        self.points = Table(
            "points",
            [
                Column("member_id", "int64", required=True),
                Column("entry_no", "int16", required=True),
                Column("points", "int32", required=True),
                Column("factor", "double"),
                Column("receipt", "string", "io.debezium.data.Uuid"),
                Column("reason", "string"),
                Column("booked_at", "int64", MICRO_TIMESTAMP, required=True),
            ],
            key=("member_id", "entry_no"),
            full_identity=True,
        )
        self.db = Postgres(self.kafka, self.rng, "loyalty", 3_200_000_000, "loyalty", self.registry)
        # Kafka Connect writes a header as the text of its struct, unless told otherwise.
        self.db.key_header_form = "struct"

    # -- rows

    def new_member(self, number: int) -> Row:
        rng = self.rng
        row = {
            "member_id": number,
            "name": rng.choice(NAMES),
            "tier": rng.choice(TIERS),
            "balance": rng.choice((None, decimal(f"{rng.randrange(-9_999, 10**7)}e-2", 2))),
            "born": rng.choice((None, rng.randrange(-9_000, 14_000))),
            "newsletter": rng.choice((None, True, False)),
            "joined_at": (self.now - rng.randrange(900 * 24 * HOUR)) * 1_000 + rng.randrange(1_000),
            "seen_at": rng.choice((None, zoned(self.now))),
        }
        return row | {c.name: None for c in self.members.columns if c.name not in row}

    def new_entry(self, member: int, number: int) -> Row:
        rng = self.rng
        return {
            "member_id": member,
            "entry_no": number,
            "points": rng.randrange(-200, 2_000),
            "factor": rng.choice((None, 1.0, 1.5, 0.1)),
            "receipt": rng.choice((None, random_uuid(rng))),
            "reason": rng.choice((None, *AWKWARD_TEXTS)),
            "booked_at": self.now * 1_000 + rng.randrange(1_000),
        }

    # -- the everyday work

    def background(self) -> list[tuple[int, Script]]:
        work: list[tuple[int, Script]] = [(clock(f"{DAY} 00:30"), self._snapshot)]
        work += [(at, self._work) for at in self.office_times(DAY, 40)]
        return work + [(clock(f"{DAY} {hour}:15"), self._heartbeat) for hour in range(4, 24, 4)]

    def _snapshot(self) -> None:
        for number in range(1, 21):
            self.members.rows[number,] = self.new_member(number)
            self.points.rows[number, 1] = self.new_entry(number, 1)
        tx_id, lsn = self.db.next_tx_id(), self.db.advance()
        self.db.snapshot((self.members, self.points), self.now, tx_id, lsn)

    def _heartbeat(self) -> None:
        self.db.heartbeat(self.now)

    def _work(self) -> None:
        kinds = (self._book, self._visit, self._correct)
        self.rng.choices(kinds, weights=(5, 4, 1))[0]()

    def _book(self) -> None:
        (member,) = self._any_member()
        number = 1 + max((n for m, n in self.points.rows if m == member), default=0)
        self._insert(self.points, self.new_entry(member, number))

    def _visit(self) -> None:
        self._update(self.members, self._any_member(), {"seen_at": zoned(self.now)})

    def _correct(self) -> None:
        key = self.rng.choice([key for key in self.points.rows if key[0] > SCENE_MEMBERS])
        self._update(self.points, key, {"points": 0, "reason": "corrected"})

    def _any_member(self) -> Key:
        return self.rng.choice([key for key in self.members.rows if key[0] > SCENE_MEMBERS])

    def _insert(self, table: Table, row: Row) -> None:
        tx = self.db.begin()
        tx.insert(table, row)
        self.db.commit(tx, self.now)

    def _update(self, table: Table, key: Key, new: Row) -> None:
        tx = self.db.begin()
        tx.update(table, key, new)
        self.db.commit(tx, self.now)


class Loyalty(LoyaltyWork):
    """The scenes; members 1 to 8 are changed here only."""

    @scene(
        "6 09:00",
        "R5",
        "Column referred_by is added: a second version of the schema within the day, member 1 "
        "in both",
    )
    def added_column(self) -> None:
        # R5
        self._update(self.members, (1,), {"newsletter": True})
        self.members.columns.append(Column("referred_by", "int64"))
        for row in self.members.rows.values():
            row["referred_by"] = None
        self.now += MINUTE
        self._update(self.members, (1,), {"referred_by": 2**53 + 1})

    @scene("6 10:00", "D11", "Member 2 is deleted; the tombstone has an Avro key and no value")
    def delete(self) -> None:
        # D11
        tx = self.db.begin()
        tx.delete(self.members, (2,))
        self.db.commit(tx, self.now)

    @scene("6 11:00", "D9", "Member 3 becomes 33 (headers: Struct{member_id=…})")
    def update_of_the_key(self) -> None:
        # D9
        tx = self.db.begin()
        tx.rekey(self.members, (3,), {"member_id": 33})
        self.db.commit(tx, self.now)

    @scene("6 12:00", "R3", "Member 4: null in all columns that may be; member 5: extremes")
    def nulls_and_extremes(self) -> None:
        # R3
        optional = [c.name for c in self.members.columns if not c.required]
        self._update(self.members, (4,), dict.fromkeys(optional))
        extreme = {
            "balance": decimal("-9999999999.99", 2),
            "born": epoch_days("0001-01-01"),
            "joined_at": -1,
            "referred_by": -(2**63),
        }
        self._update(self.members, (5,), extreme)

    @scene("6 15:00", "O1", "The connector sends two updates of member 6 again")
    def redelivery(self) -> None:
        # O1
        changes = []
        for tier in ("silver", "gold"):
            tx = self.db.begin()
            tx.update(self.members, (6,), {"tier": tier})
            changes += self.db.commit(tx, self.now)
        self.now += MINUTE
        for change in changes:
            self.db.send(change, self.now)

    @scene("6 16:00", "D1", "A record in JSON with its schema, between those in Avro: member 7")
    def json_in_between(self) -> None:
        # D1
        self.db.registry = None
        self._update(self.members, (7,), {"tier": "gold"})
        self.db.registry = self.registry

    # -- records that must be quarantined

    @scene(
        "6 17:00",
        "D17 registry_encoded",
        "A schema id that the registry does not have; a value that is cut off",
    )
    def not_decoded(self) -> None:
        # D17
        key = self.db.key(self.members, (8,))
        value = self.db.wrap(self.db.value_schema(self.members), self._payload_of(8) | {"op": "u"})
        topic = self.db.topic(self.members)
        unknown = b"\0" + (4_711).to_bytes(4, "big")
        self.kafka.produce(topic, key, unknown + value[5:], self.now + 60)
        self.kafka.produce(topic, key, value[:-2], self.now + 61)

    def _payload_of(self, member: int) -> Row:
        row = self.members.rows[member,]
        change = self.db.read(self.members, (member,), row, self.now, "false")
        return self.db.payload(change, self.now + 30)

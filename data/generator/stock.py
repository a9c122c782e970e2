"""`stock`: articles and stock levels of the shops, a MySQL database through Canal; one day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .agenda import HOUR, MINUTE, SECOND, Script, Source, clock, day_of, scene
from .kafka import Json
from .wire import AWKWARD_TEXTS, zoned

Row = dict[str, str | None]  # as Canal writes values
Key = tuple[str | None, ...]

DAY = 5
TOPIC = "stock"
SITES = ("Ghent", "Malmö", "神戸")
KINDS = ("BOLT", "HINGE", "SAW", "ROPE", "GLUE", "LADDER")
SCENE_ARTICLES = 8
# java.sql.Types
JDBC = {
    "varchar": 12, "decimal": 3, "double": 8, "tinyint": -6, "bigint": -5, "int": 4, "date": 91,
    "datetime": 93, "timestamp": 93, "varbinary": 2004, "text": 2005,
}  # fmt: skip


class Table:
    """A table; `types` are MySQL's, as Canal writes them beside the rows."""

    def __init__(self, name: str, key: tuple[str, ...], types: dict[str, str]) -> None:
        self.name, self.key, self.types = name, key, types
        self.rows: dict[Key, Row] = {}

    def key_of(self, row: Row) -> Key:
        return tuple(row[c] for c in self.key)


class StockWork(Source):
    """The tables, Canal's messages and the warehouses' everyday work."""

    name = "stock"
    seed = 20261104

    def __init__(self) -> None:
        super().__init__()
        self.articles = Table(
            "articles",
            ("sku",),
            {
                "sku": "varchar(24)",
                "title": "varchar(120)",
                "price": "decimal(10,2)",
                "weight_kg": "double",
                "is_sold": "tinyint(1)",
                "ean": "bigint(20) unsigned",
                "listed_on": "date",
                "changed_at": "datetime(3)",
                "label_bytes": "varbinary(8)",
                "note": "text",
            },
        )
        self.levels = Table(
            "levels",
            ("site", "sku"),
            {
                "site": "varchar(20)",
                "sku": "varchar(24)",
                "quantity": "int(11)",
                "reserved": "int(10) unsigned",
                "counted_at": "timestamp",
            },
        )
        self.carriers = Table("carriers", ("id",), {"id": "int(11)", "name": "varchar(40)"})
        self._message_id = 0

    # -- Canal

    def message(
        self,
        table: Table,
        op: str,
        rows: Sequence[Any] | None = None,
        old: Sequence[Row] | None = None,
        sql: str = "",
    ) -> Json:
        """A flat message. The binlog has whole seconds; a server numbers its messages."""
        self._message_id += 1
        types = table.types if rows is not None else None
        jdbc = {n: JDBC[t.partition("(")[0]] for n, t in table.types.items()}
        return {
            "data": rows,
            "database": "stock",
            "es": self.now // SECOND * SECOND,
            "gtid": "",
            "id": self._message_id,
            "isDdl": bool(sql),
            "mysqlType": types,
            "old": old,
            "pkNames": list(table.key) if rows is not None else None,
            "sql": sql,
            "sqlType": jdbc if rows is not None else None,
            "table": table.name,
            "ts": self.now + 120 + int(self.rng.expovariate(1 / 400)),
            "type": op,
        }

    def send(self, message: Json) -> Json:
        self.kafka.produce(TOPIC, None, message, self.now + 900 + self.rng.randrange(300))
        return message

    def insert(self, table: Table, *rows: Row) -> Json:
        table.rows |= {table.key_of(row): row for row in rows}
        return self.send(self.message(table, "INSERT", rows))

    def update(self, table: Table, new: dict[Key, Row]) -> Json:
        """One statement: rows as they are now, and the old values of what changed beside them."""
        rows, old = [], []
        for key, changed in new.items():
            before = table.rows.pop(key)
            row = before | changed
            table.rows[table.key_of(row)] = row
            rows.append(row)
            old.append({n: v for n, v in before.items() if v != row[n]})
        return self.send(self.message(table, "UPDATE", rows, old))

    def delete(self, table: Table, *keys: Key) -> Json:
        rows = [table.rows.pop(key) for key in keys]
        return self.send(self.message(table, "DELETE", rows))

    # -- rows

    def time(self, digits: int = 0) -> str:
        """The server's time, as MySQL prints it."""
        text = zoned(self.now).replace("T", " ")
        return text[: 19 + (digits + 1 if digits else 0)]

    def new_article(self, number: int, **given: str | None) -> Row:
        rng = self.rng
        row: Row = {
            "sku": sku(number),
            "title": f"{KINDS[number % len(KINDS)].title()} no. {number}",
            "price": f"{rng.randrange(50, 90_000) / 100:.2f}",
            "weight_kg": str(rng.randrange(1, 4_000) / 100),
            "is_sold": rng.choice("01"),
            # Beyond what a double holds exactly.
            "ean": str(2**53 + 2 * rng.randrange(10**6) + 1),
            "listed_on": day_of(self.now - rng.randrange(900) * 24 * HOUR),
            "changed_at": self.time(3),
            # Canal writes bytes as the characters of their numbers.
            "label_bytes": rng.choice((None, rng.randbytes(6).decode("latin-1"))),
            "note": rng.choice((None, *AWKWARD_TEXTS)),
        }
        if "shelf" in self.articles.types:
            row["shelf"] = rng.choice(("A1", "B2", "C3"))
        return row | given

    def new_level(self, site: str, article: str) -> Row:
        rng = self.rng
        return {
            "site": site,
            "sku": article,
            "quantity": str(rng.randrange(-3, 500)),
            "reserved": str(rng.randrange(20)),
            "counted_at": self.time(),
        }

    # -- the everyday work

    def background(self) -> list[tuple[int, Script]]:
        work: list[tuple[int, Script]] = [(clock(f"{DAY} 00:20"), self._fill)]
        return work + [(at, self._work) for at in self.office_times(DAY, 52)]

    def _fill(self) -> None:
        """Two full tables; a message has at most as many rows as one event of the binlog."""
        articles = [self.new_article(number) for number in range(1, 33)]
        for start in range(0, len(articles), 8):
            self.insert(self.articles, *articles[start : start + 8])
        for site in SITES:
            self.insert(self.levels, *(self.new_level(site, sku(n)) for n in range(1, 33)))

    def _work(self) -> None:
        kinds = (self._sell, self._reprice, self._list)
        self.rng.choices(kinds, weights=(6, 3, 1))[0]()

    def _sell(self) -> None:
        keys = self.rng.sample(self._free(self.levels), self.rng.randrange(1, 5))
        self.update(
            self.levels,
            {key: {"quantity": self._less(key), "counted_at": self.time()} for key in keys},
        )

    def _less(self, key: Key) -> str:
        return str(int(self.levels.rows[key]["quantity"] or 0) - self.rng.randrange(1, 9))

    def _reprice(self) -> None:
        keys = self.rng.sample(self._free(self.articles), self.rng.randrange(1, 4))
        price = f"{self.rng.randrange(50, 90_000) / 100:.2f}"
        self.update(self.articles, {k: {"price": price, "changed_at": self.time(3)} for k in keys})

    def _list(self) -> None:
        self.insert(self.articles, self.new_article(40 + len(self.articles.rows)))

    def _free(self, table: Table) -> list[Key]:
        scripted = {sku(number) for number in range(1, SCENE_ARTICLES + 1)}
        return [key for key in table.rows if scripted.isdisjoint(key)]


class Stock(StockWork):
    """The scenes; articles 1 to 8 (and 90 up) are changed here only."""

    @scene("5 06:00", "D12", "Stocktaking: levels is truncated and counted anew")
    def stocktaking(self) -> None:
        # D12
        self.levels.rows.clear()
        self.send(self.message(self.levels, "TRUNCATE", sql="TRUNCATE TABLE levels"))
        self.now += MINUTE
        for site in SITES:
            self.insert(self.levels, *(self.new_level(site, sku(n)) for n in range(1, 33)))

    @scene("5 09:00", "R5", "ALTER adds shelf; article 1 is the first to have it")
    def added_column(self) -> None:
        # R5
        self.articles.types["shelf"] = "varchar(8)"
        for row in self.articles.rows.values():
            row["shelf"] = None
        sql = "ALTER TABLE articles ADD COLUMN shelf VARCHAR(8)"
        self.send(self.message(self.articles, "ALTER", sql=sql))
        self.now += MINUTE
        self.update(self.articles, {(sku(1),): {"shelf": "A1"}})

    @scene("5 10:00", "old", "One UPDATE of articles 1 to 3: each row's `old` has other columns")
    def several_rows(self) -> None:
        self.update(
            self.articles,
            {
                (sku(1),): {"price": "0.05"},
                (sku(2),): {"note": "was: nothing or something", "is_sold": "2"},
                (sku(3),): {"note": None, "title": "送货前请打电话"},
            },
        )

    @scene("5 11:00", "D10", "An UPDATE whose `old` has the key: article 4 becomes 94")
    def update_of_the_key(self) -> None:
        # D10
        self.update(self.articles, {(sku(4),): {"sku": sku(94)}})

    @scene("5 11:30", "D8", "One DELETE of articles 5 and 6")
    def delete_of_two_rows(self) -> None:
        # D8
        self.delete(self.articles, (sku(5),), (sku(6),))

    @scene("5 13:00:02", "O9", "Two updates of article 7 in one second: the higher offset wins")
    def tie_in_a_second(self) -> None:
        # O9
        self.update(self.articles, {(sku(7),): {"title": "first of two"}})
        self.now += 300
        self.update(self.articles, {(sku(7),): {"title": "second of two"}})

    @scene("5 14:00", "R3", "Largest and smallest numbers, all bytes, article 8")
    def extremes(self) -> None:
        # R3
        extreme: Row = {
            "price": "-99999999.99",
            "ean": str(2**64 - 1),
            "weight_kg": "1.7976931348623157e308",
            "label_bytes": bytes((0, 1, 34, 92, 127, 128, 173, 255)).decode("latin-1"),
            "listed_on": "1969-12-31",
        }
        self.update(self.articles, {(sku(8),): extreme})

    @scene("5 14:30", "R4", "listed_on of article 8 is MySQL's zero date")
    def zero_date(self) -> None:
        # R4
        self.update(self.articles, {(sku(8),): {"listed_on": "0000-00-00"}})

    @scene(
        "5 16:00",
        "O1",
        "Canal restarts: two updates of article 7 are sent again, and its ids begin anew",
    )
    def restart(self) -> None:
        # O1
        stretch = [self.update(self.articles, {(sku(7),): {"title": text}}) for text in "AB"]
        self.now += 90 * SECOND
        self._message_id = 0
        for message in stretch:
            self._message_id += 1
            self.send(message | {"id": self._message_id, "ts": self.now})

    @scene("5 15:00", "D5", "Table stock.carriers, which is not configured")
    def table_not_configured(self) -> None:
        # D5
        self.insert(self.carriers, {"id": "1", "name": "Kestrel Freight"})

    # -- records that must be quarantined

    def _article(self, **given: str | None) -> Row:
        return self.new_article(900, **given)

    @scene("5 17:00", "missing_image", "One of three rows is null: it alone is quarantined")
    def row_that_is_none(self) -> None:
        good = [self.new_article(number) for number in (91, 92)]
        self.articles.rows |= {self.articles.key_of(row): row for row in good}
        self.send(self.message(self.articles, "INSERT", [good[0], None, good[1]]))

    @scene(
        "5 17:10", "malformed_key", "The sku of one of two rows is null: it alone is quarantined"
    )
    def row_without_key(self) -> None:
        good = self.new_article(93)
        self.articles.rows[self.articles.key_of(good)] = good
        self.send(self.message(self.articles, "INSERT", [self._article(sku=None), good]))

    @scene("5 17:20", "unknown_op", "`type` is REPLACE")
    def other_op(self) -> None:
        self.send(self.message(self.articles, "REPLACE", [self._article()]))

    @scene("5 17:30", "D19 malformed_json", "A message cut off")
    def not_json(self) -> None:
        # D19
        self.kafka.produce(TOPIC, None, '{"data":[{"sku":"BOLT-900","tit', self.now + 40)


def sku(number: int) -> str:
    """The article number of the nth article."""
    return f"{KINDS[number % len(KINDS)]}-{number:03}"

package cdcassets.json;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * What is wanted of documents, and the reading of it: one document in, one row out.
 *
 * A specification is a JSON list of lists of strings: the name of a column, what is wanted of a
 * member, and its path. [["lsn","text","source","lsn"],["after","json","after"]] gives rows of
 * `is_json`, `lsn` and `after`. Wanted may be
 *
 *   text    a string itself, of other values their JSON; of null nothing
 *   string  the text of a string; of other values nothing
 *   json    the canonical JSON of the value, also of null
 *   object  the canonical JSON of an object; of other values nothing
 *   raw     an object as it stands, not copied; of other values nothing
 *   kind    object, array, string, number, boolean or null: what the value is
 *   texts   the text of each item of a list
 *   items   the JSON of each item of a list
 *   names   the names of an object, as sent
 *   size    how many members an object has
 *   hash    SHA-256 of the canonical JSON of an object; of other values nothing
 */
final class Document {
    private static final String[] WANTS = {
        "text", "string", "json", "object", "kind", "texts", "items", "names", "size", "hash",
        "raw"};
    private static final int TEXT = 0, STRING = 1, JSON = 2, OBJECT = 3, KIND = 4, TEXTS = 5,
        ITEMS = 6, NAMES = 7, SIZE = 8, HASH = 9, RAW = 10;

    private static final UTF8String[] KINDS = {
        UTF8String.fromString("object"), UTF8String.fromString("array"),
        UTF8String.fromString("string"), UTF8String.fromString("boolean"),
        UTF8String.fromString("boolean"), UTF8String.fromString("null"),
        UTF8String.fromString("number")};

    // Objects whose hashes are kept, and the most bytes of one.
    private static final int MOST_HASHES = 32, LONGEST_HASHED = 1 << 20;

    final StructType type;
    private final int[] wants;
    private final Member[] wanted;
    private final Scanner scanner;
    private final Canonical canonical = new Canonical();
    private final byte[][] hashed = new byte[MOST_HASHES][];
    private final UTF8String[] hashes = new UTF8String[MOST_HASHES];
    private final Scanner inner = new Scanner(new Member(new byte[0], 0), 1);

    Document(String[][] specification) {
        Member root = new Member(new byte[0], 0);
        wants = new int[specification.length];
        wanted = new Member[specification.length];
        Member[] all = {root};
        StructType columns = new StructType().add("is_json", DataTypes.BooleanType, false);
        for (int i = 0; i < specification.length; i++) {
            String[] path = specification[i];
            wants[i] = Arrays.asList(WANTS).indexOf(path[1]);
            if (wants[i] < 0) {
                throw new IllegalArgumentException("nothing is known of " + path[1]);
            }
            Member member = root;
            for (int depth = 2; depth < path.length; depth++) {
                byte[] name = Text.bytes(path[depth]);
                Member child = member.child(name, 0, name.length, false);
                if (child == null) {
                    child = new Member(name, all.length);
                    member.add(child);
                    all = (Member[]) Arrays.copyOf(all, all.length + 1);
                    all[child.number] = child;
                }
                member = child;
            }
            wanted[i] = member;
            member.isCounted |= wants[i] == SIZE;
            member.isListed |= wants[i] == NAMES;
            columns = columns.add(path[0], typeOf(wants[i]), true);
        }
        type = columns;
        scanner = new Scanner(root, all.length);
    }

    private static DataType typeOf(int want) {
        if (want == TEXTS || want == ITEMS || want == NAMES) {
            return DataTypes.createArrayType(DataTypes.StringType);
        }
        return want == SIZE ? DataTypes.IntegerType : DataTypes.StringType;
    }

    /** A row of `is_json` and what is wanted; of bytes that are no document, nulls. */
    InternalRow read(byte[] document) {
        Object[] row = new Object[wants.length + 1];
        boolean isJson = scanner.read(document, 0, document.length);
        row[0] = Boolean.valueOf(isJson);
        if (isJson) {
            for (int i = 0; i < wants.length; i++) {
                if (scanner.starts[wanted[i].number] >= 0) {
                    row[i + 1] = value(wants[i], document, wanted[i].number);
                }
            }
        }
        return new GenericInternalRow(row);
    }

    private Object value(int want, byte[] b, int member) {
        int from = scanner.starts[member], to = scanner.ends[member], first = b[from];
        if (want == KIND) {
            return kind(first);
        }
        if (want == TEXT || (want == STRING && first == '"')) {
            return text(b, from, to);
        }
        if (want == JSON || (want == OBJECT && first == '{')) {
            return json(b, from);
        }
        if ((want == TEXTS || want == ITEMS) && first == '[') {
            return items(want, b, from, to);
        }
        if (want == NAMES && first == '{') {
            return names(b, scanner.listed[member]);
        }
        if (want == SIZE && first == '{') {
            return Integer.valueOf(scanner.counts[member]);
        }
        if (want == RAW && first == '{') {
            return UTF8String.fromBytes(b, from, to - from);
        }
        if (want == HASH && first == '{') {
            return hash(b, from, to);
        }
        return null;
    }

    /** The hash of an object, by its bytes: what has a schema has one of a few. */
    private UTF8String hash(byte[] b, int from, int to) {
        int at = 0;
        while (at < hashed.length - 1 && hashed[at] != null
            && !Arrays.equals(hashed[at], 0, hashed[at].length, b, from, to)) {
            at++;
        }
        byte[] text = hashed[at];
        UTF8String hash = hashes[at];
        if (text == null || !Arrays.equals(text, 0, text.length, b, from, to)) {
            byte[] json = canonical.textOf(b, from);
            hash = UTF8String.fromString(Text.sha256(json, 0, json.length));
            if (to - from > LONGEST_HASHED) {
                return hash;
            }
            text = Arrays.copyOfRange(b, from, to);
        }
        // The last one that was met is compared first.
        System.arraycopy(hashed, 0, hashed, 1, at);
        System.arraycopy(hashes, 0, hashes, 1, at);
        hashed[0] = text;
        hashes[0] = hash;
        return hash;
    }

    private static UTF8String kind(int first) {
        int at = "{[\"tfn".indexOf(first);
        return KINDS[at < 0 ? KINDS.length - 1 : at];
    }

    /** The text of a value: of a string itself, of null none, of all others their JSON. */
    private UTF8String text(byte[] b, int from, int to) {
        int first = b[from];
        if (first == '"') {
            return Text.text(b, from + 1, to - 1);
        }
        if (first == 'n') {
            return null;
        }
        if (first == 't' || first == 'f') {
            return UTF8String.fromBytes(b, from, to - from);
        }
        byte[] json = canonical.textOf(b, from);
        boolean isDigits = first != '{' && first != '[' && json[0] == '"';
        return isDigits ? UTF8String.fromBytes(json, 1, json.length - 2) : UTF8String.fromBytes(json);
    }

    private UTF8String json(byte[] b, int from) {
        return UTF8String.fromBytes(canonical.textOf(b, from));
    }

    private GenericArrayData items(int want, byte[] b, int from, int to) {
        Object[] found = new Object[8];
        int count = 0;
        inner.open(b, from + 1, to - 1);
        while (inner.place < inner.end) {
            int start = inner.place;
            inner.value(1);
            if (count == found.length) {
                found = Arrays.copyOf(found, 2 * count);
            }
            found[count++] = want == TEXTS ? (Object) text(b, start, inner.place) : json(b, start);
            inner.skipMark();
        }
        return new GenericArrayData(Arrays.copyOf(found, count));
    }

    private GenericArrayData names(byte[] b, int[] places) {
        Object[] found = new Object[places.length / 2];
        for (int i = 0; i < found.length; i++) {
            found[i] = text(b, places[2 * i] - 1, places[2 * i + 1] + 1);
        }
        return new GenericArrayData(found);
    }
}

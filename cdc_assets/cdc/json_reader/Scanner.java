package cdcassets.json;

import java.util.Arrays;

/**
 * Reads one JSON document of RFC 8259 out of UTF-8 bytes, strictly, and finds wanted members.
 *
 * Refused are: text before or behind the document, names that stand twice in an object, bytes that
 * are not UTF-8, and more than MOST_LEVELS levels. Nothing is copied; a member is the place of its
 * value. Never throws for data; all it keeps grows with the document, never with what it claims.
 */
final class Scanner {
    static final int MOST_LEVELS = 1000;
    // Starts of messages that are kept, and the most bytes of one.
    private static final int MOST_STARTS = 32, LONGEST_START = 1 << 20;
    private static final byte[] SCHEMA = Text.bytes("{\"schema\":{");
    private static final byte[] PAYLOAD = Text.bytes(",\"payload\":");
    // Nobody who writes documents can know which names have equal hashes.
    private static final int SEED = (int) (System.nanoTime() * 0x9E3779B97F4A7C15L >>> 32);

    byte[] bytes;
    int place, end;
    boolean isRefused;
    /** The places of the wanted values, by the number of their member; -1: it is not there. */
    int[] starts, ends;
    /** How many members the wanted objects have that are asked for it. */
    int[] counts;
    /** Of those that are asked for their names, where each begins and ends. */
    int[][] listed;

    private final Member root;
    private final boolean keepsStarts;
    private boolean isEscaped; // the string just read
    // Names of the objects that are open, as a stack: their places, and hashes.
    private int[] nameStarts = new int[64], nameEnds = new int[64], hashes = new int[64];
    private boolean[] escaped = new boolean[64];
    private int names;
    private long[] byHash = new long[64];
    private final Start[] known = new Start[MOST_STARTS];

    /** What a message begins with up to its payload: the same bytes in many of them. */
    private static final class Start {
        final byte[] bytes; // with the name of the payload
        final int schemaEnd;

        Start(byte[] bytes, int schemaEnd) {
            this.bytes = bytes;
            this.schemaEnd = schemaEnd;
        }
    }

    Scanner(Member root, int members) {
        this.root = root;
        this.starts = new int[members];
        this.ends = new int[members];
        this.counts = new int[members];
        this.listed = new int[members][];
        // A schema of which members are wanted is read each time.
        Member schema = root.child(SCHEMA, 2, 8, false);
        this.keepsStarts = schema == null || !schema.hasChildren();
    }

    /** Reads a document; true where it is one. */
    boolean read(byte[] document, int from, int to) {
        bytes = document;
        place = from;
        end = to;
        names = 0;
        isRefused = false;
        Arrays.fill(starts, -1);
        skipSpace();
        Start start = keepsStarts ? knownStart(from) : null;
        if (start != null) {
            message(from, start);
        } else {
            member(root, 1);
            if (keepsStarts && !isRefused) {
                keepStart(from);
            }
        }
        skipSpace();
        return !isRefused && place == end;
    }

    /** Goes to the first value or name of a part that was read before. */
    void open(byte[] document, int from, int to) {
        bytes = document;
        place = from;
        end = to;
        names = 0;
        isRefused = false;
        skipSpace();
    }

    /** Goes behind a colon or a comma, to what follows it. */
    void skipMark() {
        skipSpace();
        place++;
        skipSpace();
    }

    // --- starts of messages

    /** The start, if it was read before: comparing is faster than reading. */
    private Start knownStart(int from) {
        for (int i = 0; i < known.length && known[i] != null; i++) {
            byte[] begin = known[i].bytes;
            int after = from + begin.length;
            if (after < end && Arrays.equals(bytes, from, after, begin, 0, begin.length)) {
                Start start = known[i];
                // The last one that was met is compared first.
                System.arraycopy(known, 0, known, 1, i);
                known[0] = start;
                return start;
            }
        }
        return null;
    }

    /** Reads a message behind its start. */
    private void message(int from, Start start) {
        place = from + start.bytes.length;
        Member schema = root.child(SCHEMA, 2, 8, false);
        if (schema != null) {
            starts[schema.number] = from + SCHEMA.length - 1;
            ends[schema.number] = from + start.schemaEnd;
        }
        name(from + 2, from + 8, false);
        int payload = place - 9;
        name(payload, payload + 7, false);
        skipSpace();
        member(root.child(bytes, payload, payload + 7, false), 2);
        if (isRefused) {
            return;
        }
        skipSpace();
        if (closes(',')) {
            skipSpace();
            members(root, 1, 0);
        } else {
            leave(root, 0);
            eat('}');
        }
        if (!isRefused) {
            starts[root.number] = from;
            ends[root.number] = place;
        }
    }

    private void keepStart(int from) {
        int schemaEnd = startOf(from);
        if (schemaEnd < 0 || schemaEnd - from > LONGEST_START) {
            return;
        }
        int length = schemaEnd - from + PAYLOAD.length;
        System.arraycopy(known, 0, known, 1, known.length - 1);
        known[0] = new Start(Arrays.copyOfRange(bytes, from, from + length), schemaEnd - from);
    }

    /** Where the schema that a message begins with ends; -1 where it begins with none. */
    private int startOf(int from) {
        int object = from + SCHEMA.length;
        boolean begins = object < end && Text.startsWith(bytes, from, end, SCHEMA);
        if (!begins || bytes[object] == '}') {
            return -1;
        }
        int outer = place;
        place = object - 1;
        names = 0;
        value(2);
        int schemaEnd = place;
        place = outer;
        return Text.startsWith(bytes, schemaEnd, end, PAYLOAD) ? schemaEnd : -1;
    }

    // --- the grammar

    private void member(Member member, int level) {
        int from = place;
        if (member != null && member.isOpened() && place < end && bytes[place] == '{') {
            leave(member, names); // no members so far
            object(member, level);
        } else {
            value(level);
        }
        if (member != null && !isRefused) {
            starts[member.number] = from;
            ends[member.number] = place;
        }
    }

    private void object(Member wanted, int level) {
        place++;
        skipSpace();
        if (!isTooDeep(level) && !closes('}')) {
            members(wanted, level, names);
        }
    }

    /** The members of an object up to its end; its names are those from `base` on. */
    private void members(Member parent, int level, int base) {
        while (true) {
            int from = place + 1;
            string();
            if (isRefused) {
                return;
            }
            int to = place - 1;
            boolean isOdd = isEscaped;
            name(from, to, isOdd);
            skipSpace();
            if (!eat(':')) {
                return;
            }
            skipSpace();
            Member child = parent == null ? null : parent.child(bytes, from, to, isOdd);
            member(child, level + 1);
            if (isRefused) {
                return;
            }
            skipSpace();
            if (closes(',')) {
                skipSpace();
            } else {
                if (eat('}')) {
                    refuseEqualNames(base);
                }
                if (parent != null) {
                    leave(parent, base);
                }
                names = base;
                return;
            }
        }
    }

    /** Keeps what is asked of all members of an object: their names are those from `base` on. */
    private void leave(Member object, int base) {
        int count = names - base;
        counts[object.number] = count;
        if (object.isListed) {
            int[] places = new int[2 * count];
            for (int i = 0; i < count; i++) {
                places[2 * i] = nameStarts[base + i];
                places[2 * i + 1] = nameEnds[base + i];
            }
            listed[object.number] = places;
        }
    }

    void value(int level) {
        int first = place < end ? (int) bytes[place] : -1;
        if (first == '"') {
            string();
        } else if (first == '{') {
            object(null, level);
        } else if (first == '[') {
            place++;
            skipSpace();
            if (!isTooDeep(level) && !closes(']')) {
                items(level);
            }
        } else if (first == 't') {
            word("true");
        } else if (first == 'f') {
            word("false");
        } else if (first == 'n') {
            word("null");
        } else {
            number();
        }
    }

    private void items(int level) {
        while (true) {
            value(level + 1);
            if (isRefused) {
                return;
            }
            skipSpace();
            if (closes(',')) {
                skipSpace();
            } else {
                eat(']');
                return;
            }
        }
    }

    private void word(String word) {
        for (int i = 0; i < word.length(); i++) {
            if (!eat(word.charAt(i))) {
                return;
            }
        }
    }

    private void number() {
        if (place < end && bytes[place] == '-') {
            place++;
        }
        if (place < end && bytes[place] == '0') {
            place++;
        } else {
            digits();
        }
        if (place < end && bytes[place] == '.') {
            place++;
            digits();
        }
        if (place < end && (bytes[place] == 'e' || bytes[place] == 'E')) {
            place++;
            if (place < end && (bytes[place] == '+' || bytes[place] == '-')) {
                place++;
            }
            digits();
        }
    }

    private void digits() {
        int from = place;
        while (place < end && bytes[place] >= '0' && bytes[place] <= '9') {
            place++;
        }
        isRefused |= place == from;
    }

    void string() {
        isEscaped = false;
        if (!eat('"')) {
            return;
        }
        // Local variables: most of what is read goes through this loop.
        byte[] b = bytes;
        int i = place, to = end;
        while (i < to) {
            byte c = b[i];
            if (c == '"') {
                place = i + 1;
                return;
            }
            if (c == '\\') {
                isEscaped = true;
                int next = i + 1 < to ? (int) b[i + 1] : -1;
                i = next == '"' || next == '\\' ? i + 2 : escape(i + 1);
            } else if (c >= 0x20) {
                i++;
            } else {
                // A control character, or one beyond ASCII.
                int length = c >= 0 ? 0 : Text.lengthOfCharacter(b, i, to);
                if (length == 0) {
                    break;
                }
                i += length;
            }
        }
        place = i;
        isRefused = true;
    }

    /** Where an escape ends whose backslash stands before a place; the end, if it is none. */
    private int escape(int at) {
        int c = at < end ? (int) bytes[at] : -1;
        if (c != 'u') {
            return "/bfnrt".indexOf(c) < 0 ? end : at + 1;
        }
        for (int i = 1; i <= 4; i++) {
            if (at + i >= end || Character.digit(bytes[at + i], 16) < 0) {
                return end;
            }
        }
        return at + 5;
    }

    // --- names

    private void name(int from, int to, boolean isOdd) {
        if (names == hashes.length) {
            int more = 2 * names;
            nameStarts = Arrays.copyOf(nameStarts, more);
            nameEnds = Arrays.copyOf(nameEnds, more);
            hashes = Arrays.copyOf(hashes, more);
            escaped = Arrays.copyOf(escaped, more);
        }
        nameStarts[names] = from;
        nameEnds[names] = to;
        escaped[names] = isOdd;
        hashes[names++] = isOdd ? hashOf(Text.unescaped(bytes, from, to)) : hash(bytes, from, to);
    }

    private static int hashOf(byte[] name) {
        return hash(name, 0, name.length);
    }

    private static int hash(byte[] b, int from, int to) {
        int h = SEED;
        for (int i = from; i < to; i++) {
            h = (h ^ b[i]) * 0x01000193;
            h ^= h >>> 15;
        }
        return h;
    }

    private void refuseEqualNames(int base) {
        int count = names - base;
        if (count <= 12) {
            for (int i = base + 1; i < names; i++) {
                for (int j = base; j < i; j++) {
                    isRefused |= hashes[i] == hashes[j] && areEqual(i, j);
                }
            }
            return;
        }
        if (byHash.length < count) {
            byHash = new long[2 * count];
        }
        for (int i = 0; i < count; i++) {
            byHash[i] = (long) hashes[base + i] << 32 | base + i;
        }
        Arrays.sort(byHash, 0, count);
        for (int i = 1; i < count; i++) {
            for (int j = i - 1; j >= 0 && byHash[j] >> 32 == byHash[i] >> 32; j--) {
                isRefused |= areEqual((int) byHash[i], (int) byHash[j]);
            }
        }
    }

    private boolean areEqual(int i, int j) {
        if (!escaped[i] && !escaped[j]) {
            return Arrays.equals(
                bytes, nameStarts[i], nameEnds[i], bytes, nameStarts[j], nameEnds[j]);
        }
        return Arrays.equals(nameAt(i), nameAt(j));
    }

    private byte[] nameAt(int i) {
        return Text.unescaped(bytes, nameStarts[i], nameEnds[i]);
    }

    // --- steps

    private boolean isTooDeep(int level) {
        isRefused |= level > MOST_LEVELS;
        return isRefused;
    }

    private boolean closes(char c) {
        boolean is = place < end && bytes[place] == c;
        if (is) {
            place++;
        }
        return is;
    }

    private boolean eat(char c) {
        boolean is = closes(c);
        isRefused |= !is;
        return is;
    }

    void skipSpace() {
        while (place < end) {
            int c = bytes[place];
            if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
                return;
            }
            place++;
        }
    }
}

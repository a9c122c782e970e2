package cdcassets.json;

import java.util.Arrays;

/**
 * Writes a valid JSON value as its canonical text: names in order, no space, one form of a number.
 *
 * Numbers without an exponent stay as they are, up to 38 digits, without zeros that end a fraction;
 * others are written as Java writes the double. What no double holds, and integers of more
 * than 38 digits, become strings of their digits.
 */
final class Canonical {
    private static final int MOST_DIGITS = 38;

    private byte[] bytes;
    private int place;
    private final Buffer out = new Buffer(1024);
    private final Buffer spare = new Buffer(1024);
    // Members of the objects that are open, as a stack: where each, its name and its value end.
    private int[] starts = new int[64], nameEnds = new int[64], ends = new int[64];
    private int members;
    private int[] order = new int[64], merged = new int[64];

    /** The canonical text of the value at a place. */
    byte[] textOf(byte[] document, int from) {
        bytes = document;
        place = from;
        members = 0;
        out.length = 0;
        value();
        return out.toBytes();
    }

    private void value() {
        int first = bytes[place];
        if (first == '{') {
            object();
        } else if (first == '[') {
            array();
        } else if (first == '"') {
            string();
        } else if (first == '-' || (first >= '0' && first <= '9')) {
            int from = place;
            while (place < bytes.length && "+-.eE0123456789".indexOf(bytes[place]) >= 0) {
                place++;
            }
            number(out, bytes, from, place);
        } else {
            int length = first == 'f' ? 5 : 4;
            out.put(bytes, place, place + length);
            place += length;
        }
    }

    private void string() {
        byte[] b = bytes;
        int from = place + 1, to = from;
        boolean hasEscapes = false;
        while (b[to] != '"') {
            boolean isEscape = b[to] == '\\';
            hasEscapes |= isEscape;
            to += isEscape ? 2 : 1;
        }
        if (hasEscapes) {
            byte[] text = Text.unescaped(bytes, from, to);
            Text.putString(out, text, 0, text.length);
        } else {
            out.put(bytes, from - 1, to + 1);
        }
        place = to + 1;
    }

    private void array() {
        out.put('[');
        place++;
        skipSpace();
        while (bytes[place] != ']') {
            value();
            skipSpace();
            if (bytes[place] == ',') {
                out.put(',');
                place++;
                skipSpace();
            }
        }
        out.put(']');
        place++;
    }

    private void object() {
        int base = members;
        boolean inOrder = true;
        out.put('{');
        place++;
        skipSpace();
        while (bytes[place] != '}') {
            open();
            string();
            nameEnds[members - 1] = out.length;
            skipSpace();
            out.put(':');
            place++;
            skipSpace();
            int own = members - 1;
            value();
            ends[own] = out.length;
            inOrder = inOrder && (own == base || compare(own - 1, own) < 0);
            skipSpace();
            if (bytes[place] == ',') {
                out.put(',');
                place++;
                skipSpace();
            }
        }
        if (!inOrder) {
            arrange(base);
        }
        out.put('}');
        place++;
        members = base;
    }

    private void open() {
        if (members == starts.length) {
            starts = Arrays.copyOf(starts, 2 * members);
            nameEnds = Arrays.copyOf(nameEnds, 2 * members);
            ends = Arrays.copyOf(ends, 2 * members);
        }
        starts[members++] = out.length;
    }

    /** Puts the members from `base` on, as they were written, in the order of their names. */
    private void arrange(int base) {
        int count = members - base, from = starts[base];
        sort(base, count);
        spare.length = 0;
        for (int i = 0; i < count; i++) {
            if (i > 0) {
                spare.put(',');
            }
            spare.put(out.bytes, starts[order[i]], ends[order[i]]);
        }
        out.length = from;
        out.put(spare.bytes, 0, spare.length);
    }

    private void sort(int base, int count) {
        if (order.length < count) {
            order = new int[2 * count];
            merged = new int[2 * count];
        }
        for (int i = 0; i < count; i++) {
            order[i] = base + i;
        }
        for (int width = 1; width < count; width *= 2) {
            for (int low = 0; low < count; low += 2 * width) {
                merge(low, Math.min(low + width, count), Math.min(low + 2 * width, count));
            }
            int[] sorted = merged;
            merged = order;
            order = sorted;
        }
    }

    private void merge(int low, int middle, int high) {
        int left = low, right = middle;
        for (int i = low; i < high; i++) {
            boolean fromLeft = left < middle
                && (right >= high || compare(order[left], order[right]) <= 0);
            merged[i] = fromLeft ? order[left++] : order[right++];
        }
    }

    /** Compares the names of two members that are written. */
    private int compare(int one, int other) {
        byte[] b = out.bytes;
        int from = starts[one] + 1, to = nameEnds[one] - 1;
        int otherFrom = starts[other] + 1, otherTo = nameEnds[other] - 1;
        if (!Text.hasEscapes(b, from, to) && !Text.hasEscapes(b, otherFrom, otherTo)) {
            return Text.compare(b, from, to, b, otherFrom, otherTo);
        }
        byte[] name = Text.unescaped(b, from, to), last = Text.unescaped(b, otherFrom, otherTo);
        return Text.compare(name, 0, name.length, last, 0, last.length);
    }

    private void skipSpace() {
        while (bytes[place] == ' ' || bytes[place] == '\n' || bytes[place] == '\t'
            || bytes[place] == '\r') {
            place++;
        }
    }

    // --- numbers

    /** Writes the canonical text of a valid number. */
    static void number(Buffer out, byte[] b, int from, int to) {
        int point = -1, first = -1;
        boolean hasExponent = false;
        for (int i = from; i < to; i++) {
            int c = b[i];
            if (c == '.') {
                point = i;
            } else if (c == 'e' || c == 'E') {
                hasExponent = true;
                break;
            } else if (c > '0' && c <= '9' && first < 0) {
                first = i;
            }
        }
        if (hasExponent) {
            putDouble(out, b, from, to);
        } else if (point < 0) {
            integer(out, b, from, to);
        } else {
            fraction(out, b, from, to, point, first);
        }
    }

    private static void integer(Buffer out, byte[] b, int from, int to) {
        int digits = b[from] == '-' ? to - from - 1 : to - from;
        if (digits > MOST_DIGITS) {
            putDigits(out, b, from, to);
        } else if (digits == 1 && b[to - 1] == '0') {
            out.put('0'); // also of -0
        } else {
            out.put(b, from, to);
        }
    }

    private static void fraction(Buffer out, byte[] b, int from, int to, int point, int first) {
        int places = to - point - 1;
        int digits = first < 0 ? 1 : first < point ? to - first - 1 : to - first;
        if (places > MOST_DIGITS || digits > MOST_DIGITS) {
            putDouble(out, b, from, to);
            return;
        }
        int end = to;
        while (b[end - 1] == '0') {
            end--;
        }
        if (b[end - 1] == '.') {
            end--;
        }
        if (first < 0) {
            out.put('0');
        } else {
            out.put(b, from, end);
        }
    }

    private static void putDouble(Buffer out, byte[] b, int from, int to) {
        double number = Double.parseDouble(new String(b, 0, from, to - from));
        if (Double.isInfinite(number)) {
            putDigits(out, b, from, to);
        } else {
            byte[] text = Text.bytes(Double.toString(number));
            out.put(text, 0, text.length);
        }
    }

    private static void putDigits(Buffer out, byte[] b, int from, int to) {
        out.put('"');
        out.put(b, from, to);
        out.put('"');
    }
}

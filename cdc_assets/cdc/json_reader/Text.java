package cdcassets.json;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/** Bytes as JSON has them in its strings. */
final class Text {
    private static final String HEX = "0123456789ABCDEF";

    private Text() { }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static boolean startsWith(byte[] b, int from, int end, byte[] begin) {
        int to = from + begin.length;
        return to <= end && Arrays.equals(b, from, to, begin, 0, begin.length);
    }

    /** SHA-256 of some bytes in hexadecimal digits. */
    static String sha256(byte[] b, int from, int to) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(b, from, to - from);
            StringBuilder text = new StringBuilder();
            byte[] hash = digest.digest();
            for (int i = 0; i < hash.length; i++) {
                text.append(Character.forDigit(hash[i] >> 4 & 15, 16));
                text.append(Character.forDigit(hash[i] & 15, 16));
            }
            return text.toString();
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error); // each Java has it
        }
    }

    /** The length of a character beyond ASCII in UTF-8; 0 for bytes that are none. */
    static int lengthOfCharacter(byte[] b, int at, int end) {
        int first = b[at] & 0xFF, second = at + 1 < end ? b[at + 1] & 0xFF : 0;
        int length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
        // Longer forms than needed, halves of surrogates, and what is beyond the last character.
        int low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        int high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (at + length > end || second < low || second > high) {
            return 0;
        }
        for (int i = 2; i < length; i++) {
            if ((b[at + i] & 0xC0) != 0x80) {
                return 0;
            }
        }
        return length;
    }

    /** Where the characters of ASCII end that stand for themselves in a string. */
    static int endOfPlain(byte[] b, int from, int end) {
        int i = from;
        while (i < end && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\') {
            i++;
        }
        return i;
    }

    static boolean hasEscapes(byte[] b, int from, int to) {
        return nextEscape(b, from, to) < to;
    }

    /** The text of a valid string, without its quotes; half a surrogate pair becomes `?`. */
    static byte[] unescaped(byte[] b, int from, int to) {
        int first = nextEscape(b, from, to);
        return first == to ? Arrays.copyOfRange(b, from, to) : text(b, from, first, to).toBytes();
    }

    /** The same as Spark's text, of the bytes themselves where they have no escapes. */
    static UTF8String text(byte[] b, int from, int to) {
        int first = nextEscape(b, from, to);
        if (first == to) {
            return UTF8String.fromBytes(b, from, to - from);
        }
        Buffer out = text(b, from, first, to);
        return UTF8String.fromBytes(out.bytes, 0, out.length);
    }

    /** The text of a string whose first escape is at a place. */
    private static Buffer text(byte[] b, int from, int first, int to) {
        Buffer out = new Buffer(to - from);
        out.put(b, from, first);
        int i = first;
        while (i < to) {
            int c = b[i + 1];
            i += 2;
            if (c == 'u') {
                i = putUnit(out, b, i, to);
            } else {
                int at = "bfnrt".indexOf(c);
                out.put(at < 0 ? c : (int) "\b\f\n\r\t".charAt(at));
            }
            int next = nextEscape(b, i, to);
            out.put(b, i, next);
            i = next;
        }
        return out;
    }

    private static int nextEscape(byte[] b, int from, int to) {
        int i = from;
        while (i < to && b[i] != '\\') {
            i++;
        }
        return i;
    }

    /** Writes the character of the four digits at a place, or of a pair; returns what follows. */
    private static int putUnit(Buffer out, byte[] b, int at, int to) {
        int unit = unit(b, at), after = at + 4;
        if (!Character.isSurrogate((char) unit)) {
            putCharacter(out, unit);
            return after;
        }
        boolean isPair = Character.isHighSurrogate((char) unit) && after + 6 <= to
            && b[after] == '\\' && b[after + 1] == 'u'
            && Character.isLowSurrogate((char) unit(b, after + 2));
        if (!isPair) {
            out.put('?');
            return after;
        }
        putCharacter(out, Character.toCodePoint((char) unit, (char) unit(b, after + 2)));
        return after + 6;
    }

    private static int unit(byte[] b, int at) {
        int unit = 0;
        for (int i = 0; i < 4; i++) {
            unit = unit << 4 | Character.digit(b[at + i], 16);
        }
        return unit;
    }

    private static void putCharacter(Buffer out, int c) {
        if (c < 0x80) {
            out.put(c);
        } else if (c < 0x800) {
            out.put(0xC0 | c >> 6);
            out.put(0x80 | c & 0x3F);
        } else if (c < 0x10000) {
            out.put(0xE0 | c >> 12);
            out.put(0x80 | c >> 6 & 0x3F);
            out.put(0x80 | c & 0x3F);
        } else {
            out.put(0xF0 | c >> 18);
            out.put(0x80 | c >> 12 & 0x3F);
            out.put(0x80 | c >> 6 & 0x3F);
            out.put(0x80 | c & 0x3F);
        }
    }

    /** Writes a text as a JSON string, with no more escapes than it needs. */
    static void putString(Buffer out, byte[] text, int from, int to) {
        out.put('"');
        int i = from;
        while (i < to) {
            int end = endOfPlain(text, i, to);
            out.put(text, i, end);
            if (end == to) {
                break;
            }
            int c = text[end];
            i = end + 1;
            int at = "\"\\\b\f\n\r\t".indexOf(c);
            if (at >= 0) {
                out.put('\\');
                out.put("\"\\bfnrt".charAt(at));
            } else if (c >= 0 && c < 0x20) {
                out.put(bytes("\\u00"), 0, 4);
                out.put(HEX.charAt(c >> 4));
                out.put(HEX.charAt(c & 15));
            } else {
                out.put(c);
            }
        }
        out.put('"');
    }

    /** The order of names as Java and VARIANT compare them: by units of UTF-16. */
    static int compare(byte[] a, int aFrom, int aTo, byte[] b, int bFrom, int bTo) {
        int at = Arrays.mismatch(a, aFrom, aTo, b, bFrom, bTo);
        if (at < 0) {
            return 0;
        }
        if (aFrom + at == aTo || bFrom + at == bTo) {
            return (aTo - aFrom) - (bTo - bFrom);
        }
        int x = a[aFrom + at] & 0xFF, y = b[bFrom + at] & 0xFF;
        // Characters of four bytes are pairs of surrogates, which come before U+E000.
        boolean isSwapped = x >= 0xF0 ? y == 0xEE || y == 0xEF : y >= 0xF0 && (x == 0xEE || x == 0xEF);
        return isSwapped ? y - x : x - y;
    }
}

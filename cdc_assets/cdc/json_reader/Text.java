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
        byte[] text = Arrays.copyOfRange(b, from, to);
        return first == to ? text : Arrays.copyOf(text, unescape(b, from, first, to, text));
    }

    /** The same as Spark's text, of the bytes themselves where they have no escapes. */
    static UTF8String text(byte[] b, int from, int to) {
        int first = nextEscape(b, from, to);
        if (first == to) {
            return UTF8String.fromBytes(b, from, to - from);
        }
        byte[] text = new byte[to - from];
        System.arraycopy(b, from, text, 0, first - from);
        return UTF8String.fromBytes(text, 0, unescape(b, from, first, to, text));
    }

    /**
     * Writes the text of a string from its first escape on, behind what precedes it.
     *
     * No escape is shorter than its character. The loop goes byte by byte through local variables:
     * a landed event has an escape for each of its quotes, and copying what stands between two of
     * them takes longer.
     */
    private static int unescape(byte[] b, int from, int first, int to, byte[] text) {
        int length = first - from, i = first;
        while (i < to) {
            byte c = b[i++];
            if (c == '\\') {
                c = b[i++];
                if (c == 'u') {
                    int unit = unit(b, i);
                    i += 4;
                    if (isPair(b, i, to, unit)) {
                        unit = Character.toCodePoint((char) unit, (char) unit(b, i + 2));
                        i += 6;
                    }
                    length = putCharacter(text, length, unit);
                    continue;
                }
                int at = c == '"' || c == '\\' || c == '/' ? -1 : "bfnrt".indexOf(c);
                c = at < 0 ? c : (byte) "\b\f\n\r\t".charAt(at);
            }
            text[length++] = c;
        }
        return length;
    }

    /** Is a unit of UTF-16 the first half of a character whose second half is escaped at a place? */
    private static boolean isPair(byte[] b, int at, int to, int unit) {
        return Character.isHighSurrogate((char) unit) && at + 6 <= to && b[at] == '\\'
            && b[at + 1] == 'u' && Character.isLowSurrogate((char) unit(b, at + 2));
    }

    private static int nextEscape(byte[] b, int from, int to) {
        int i = from;
        while (i < to && b[i] != '\\') {
            i++;
        }
        return i;
    }

    private static int unit(byte[] b, int at) {
        int unit = 0;
        for (int i = 0; i < 4; i++) {
            unit = unit << 4 | Character.digit(b[at + i], 16);
        }
        return unit;
    }

    private static int putCharacter(byte[] out, int at, int c) {
        int i = at;
        if (c < 0x80) {
            out[i++] = (byte) c;
        } else if (c < 0x800) {
            out[i++] = (byte) (0xC0 | c >> 6);
            out[i++] = (byte) (0x80 | c & 0x3F);
        } else if (c >= 0xD800 && c < 0xE000) {
            out[i++] = '?';
        } else if (c < 0x10000) {
            out[i++] = (byte) (0xE0 | c >> 12);
            out[i++] = (byte) (0x80 | c >> 6 & 0x3F);
            out[i++] = (byte) (0x80 | c & 0x3F);
        } else {
            out[i++] = (byte) (0xF0 | c >> 18);
            out[i++] = (byte) (0x80 | c >> 12 & 0x3F);
            out[i++] = (byte) (0x80 | c >> 6 & 0x3F);
            out[i++] = (byte) (0x80 | c & 0x3F);
        }
        return i;
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

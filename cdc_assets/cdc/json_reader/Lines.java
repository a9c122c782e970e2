package cdcassets.json;

import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;

/** The lines of a stream; JSON objects that follow one another on a line count as lines, if asked. */
final class Lines extends Records {
    private final InputStream stream;
    private final long most;
    private final int kept;
    private final boolean joined;
    private final byte[] block = new byte[1 << 16];
    private int at;
    private int end;
    private byte[] line = new byte[1 << 12];
    private long size;
    // Of JSON on this line: open objects and lists, and whether a text, or what a \ escapes, is read.
    private int depth;
    private boolean inText;
    private boolean escaped;

    Lines(InputStream stream, long most, int kept, boolean joined) {
        this.stream = stream;
        this.most = most;
        this.kept = kept;
        this.joined = joined;
    }

    /** Read a line; the last one needs no break. */
    boolean next() throws IOException {
        size = 0;
        depth = 0;
        inText = false;
        escaped = false;
        while (fill()) {
            int from = at;
            boolean ends = joined ? scanJson() : scan();
            keep(from, at);
            if (ends) {
                if (joined && block[at - 1] != '\n') {
                    skipSpace();
                    return true;
                }
                size--;
                return true;
            }
        }
        return size > 0;
    }

    /** Go on to behind a line break, or to the end of the block. */
    private boolean scan() {
        while (at < end) {
            if (block[at++] == '\n') {
                return true;
            }
        }
        return false;
    }

    /** As `scan`; the end of an object that nothing holds ends the line as well. */
    private boolean scanJson() {
        while (at < end) {
            byte b = block[at++];
            if (b == '\n') {
                return true;
            }
            if (escaped) {
                escaped = false;
            } else if (inText) {
                escaped = b == '\\';
                inText = b != '"';
            } else if (b == '"') {
                inText = true;
            } else if (b == '{' || b == '[') {
                depth++;
            } else if (b == ']') {
                depth--;
            } else if (b == '}' && --depth == 0) {
                return true;
            }
        }
        return false;
    }

    /** What follows an object on its line, but for another object, is no line of its own. */
    private void skipSpace() throws IOException {
        while (fill()) {
            byte b = block[at];
            if (b != ' ' && b != '\t' && b != '\r' && b != '\n') {
                return;
            }
            at++;
            if (b == '\n') {
                return;
            }
        }
    }

    private boolean fill() throws IOException {
        if (at == end) {
            at = 0;
            end = Math.max(0, stream.read(block));
        }
        return at < end;
    }

    /** Add bytes of the block to the line, as far as they may be asked for. */
    private void keep(int from, int to) {
        if (size <= most) {
            int more = to - from;
            int needed = (int) size + more;
            if (needed > line.length) {
                line = (byte[]) Arrays.copyOf(line, (int) Math.max((long) needed, Math.min(needed * 2L, Integer.MAX_VALUE - 8L)));
            }
            System.arraycopy(block, from, line, (int) size, more);
        }
        size += to - from;
    }

    byte[] bytes() {
        return Arrays.copyOf(line, (int) (size > most ? Math.min(kept, size) : size));
    }

    long size() {
        return size;
    }

    byte[] schema() {
        return null;
    }

    void close() throws IOException {
        stream.close();
    }
}

package cdcassets.json;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** The members of one object, in the order in which they stand, with their values as they stand. */
final class Members {
    private final Scanner scanner = new Scanner(new Member(new byte[0], 0), 1);
    private byte[] bytes;
    private int[] names = new int[16], nameEnds = new int[16];
    private int[] values = new int[16], ends = new int[16];
    private int count;
    private boolean isInOrder;

    /** Reads an object; false where the text is none. */
    boolean read(UTF8String text) {
        bytes = text.getBytes();
        count = 0;
        isInOrder = true;
        if (!scanner.read(bytes, 0, bytes.length) || bytes[scanner.starts[0]] != '{') {
            return false;
        }
        scanner.open(bytes, scanner.starts[0] + 1, scanner.ends[0] - 1);
        while (scanner.place < scanner.end) {
            add();
            isInOrder = isInOrder && (count == 1 || compare(count - 2, count - 1) < 0);
        }
        return true;
    }

    private void add() {
        if (count == ends.length) {
            names = Arrays.copyOf(names, 2 * count);
            nameEnds = Arrays.copyOf(nameEnds, 2 * count);
            values = Arrays.copyOf(values, 2 * count);
            ends = Arrays.copyOf(ends, 2 * count);
        }
        names[count] = scanner.place + 1;
        scanner.string();
        nameEnds[count] = scanner.place - 1;
        scanner.skipMark();
        values[count] = scanner.place;
        scanner.value(1);
        ends[count++] = scanner.place;
        scanner.skipMark();
    }

    /** The values of these names; null where there is none. */
    ArrayData valuesAt(ArrayData wanted) {
        Object[] found = new Object[wanted.numElements()];
        for (int i = 0; i < found.length; i++) {
            int at = wanted.isNullAt(i) ? -1 : find(wanted.getUTF8String(i).getBytes());
            if (at >= 0) {
                found[i] = UTF8String.fromBytes(bytes, values[at], ends[at] - values[at]);
            }
        }
        return new GenericArrayData(found);
    }

    UTF8String overlaid(Members others) {
        Buffer out = new Buffer(bytes.length + others.bytes.length);
        out.put('{');
        for (int i = 0; i < count; i++) {
            if (i > 0) {
                out.put(',');
            }
            out.put(bytes, names[i] - 1, nameEnds[i] + 1);
            out.put(':');
            int at = others.find(name(i));
            if (at < 0) {
                out.put(bytes, values[i], ends[i]);
            } else {
                out.put(others.bytes, others.values[at], others.ends[at]);
            }
        }
        out.put('}');
        return UTF8String.fromBytes(out.bytes, 0, out.length);
    }

    /** The JSON without members of these names, or of names that begin so, and its size. */
    InternalRow without(ArrayData unwanted, UTF8String begin) {
        byte[][] dropped = new byte[unwanted.numElements()][];
        for (int i = 0; i < dropped.length; i++) {
            dropped[i] = unwanted.getUTF8String(i).getBytes();
        }
        byte[] first = begin == null ? null : begin.getBytes();
        Buffer out = new Buffer(bytes.length);
        int left = 0;
        out.put('{');
        for (int i = 0; i < count; i++) {
            byte[] own = name(i);
            boolean isDropped = first != null && Text.startsWith(own, 0, own.length, first);
            for (int j = 0; j < dropped.length && !isDropped; j++) {
                isDropped = Arrays.equals(own, dropped[j]);
            }
            if (!isDropped) {
                if (left++ > 0) {
                    out.put(',');
                }
                out.put(bytes, names[i] - 1, nameEnds[i] + 1);
                out.put(':');
                out.put(bytes, values[i], ends[i]);
            }
        }
        out.put('}');
        Object[] row = {UTF8String.fromBytes(out.bytes, 0, out.length), Integer.valueOf(left)};
        return new GenericInternalRow(row);
    }

    private int find(byte[] wanted) {
        int low = 0, high = count - 1;
        while (isInOrder && low < high) {
            int middle = (low + high) >>> 1;
            byte[] own = name(middle);
            if (Text.compare(own, 0, own.length, wanted, 0, wanted.length) < 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        for (int i = low; i <= high; i++) {
            if (Arrays.equals(name(i), wanted)) {
                return i;
            }
        }
        return -1;
    }

    private int compare(int one, int other) {
        byte[] name = name(one), last = name(other);
        return Text.compare(name, 0, name.length, last, 0, last.length);
    }

    private byte[] name(int i) {
        return Text.unescaped(bytes, names[i], nameEnds[i]);
    }
}

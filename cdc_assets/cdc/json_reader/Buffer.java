package cdcassets.json;

import java.util.Arrays;

/** Bytes that are written one behind the other. */
final class Buffer {
    byte[] bytes;
    int length;

    Buffer(int room) {
        bytes = new byte[Math.max(room, 16)];
    }

    void put(int b) {
        if (length == bytes.length) {
            bytes = Arrays.copyOf(bytes, 2 * length);
        }
        bytes[length++] = (byte) b;
    }

    void put(byte[] from, int start, int end) {
        int count = end - start;
        if (length + count > bytes.length) {
            bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, length + count));
        }
        System.arraycopy(from, start, bytes, length, count);
        length += count;
    }

    byte[] toBytes() {
        return Arrays.copyOf(bytes, length);
    }
}

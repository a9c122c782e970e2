package cdcassets.json;

import com.github.luben.zstd.ZstdInputStream;
import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.util.zip.GZIPInputStream;
import org.apache.hadoop.fs.FSDataInputStream;
import org.xerial.snappy.SnappyFramedInputStream;

/** The records of a stream, one at a time. */
abstract class Records {
    private static final int BUFFER = 1 << 16;
    private static final int LONGEST_MARK = 10;

    /** Read the next record; false at the end. */
    abstract boolean next() throws IOException;

    /** The record, or its beginning where it is too long to be held. */
    abstract byte[] bytes();

    /** How many bytes the record has. */
    abstract long size();

    /** Avro's schema of the records as JSON; null of lines. */
    abstract byte[] schema();

    abstract void close() throws IOException;

    /** Records of what the first bytes say: an Avro container, or lines, compressed or not. */
    static Records of(FSDataInputStream file, long fileSize, long most, int kept, boolean joined)
            throws IOException {
        byte[] first = new byte[LONGEST_MARK];
        int has = file.readNBytes(first, 0, first.length);
        if (begins(first, has, new int[] {'O', 'b', 'j', 1})) {
            file.seek(0);
            return new AvroRecords(file, fileSize, most, kept);
        }
        // Not by a seek to the start: an object store would be asked for the file once more.
        InputStream whole = new SequenceInputStream(new ByteArrayInputStream(first, 0, has), file);
        return new Lines(plain(new BufferedInputStream(whole, BUFFER), first, has), most, kept, joined);
    }

    private static InputStream plain(InputStream bytes, byte[] first, int has) throws IOException {
        if (begins(first, has, new int[] {0x1f, 0x8b})) {
            return new GZIPInputStream(bytes, BUFFER);
        }
        if (begins(first, has, new int[] {0x28, 0xb5, 0x2f, 0xfd})) {
            return new ZstdInputStream(bytes);
        }
        if (begins(first, has, new int[] {0xff, 6, 0, 0, 's', 'N', 'a', 'P', 'p', 'Y'})) {
            return new SnappyFramedInputStream(bytes);
        }
        return bytes;
    }

    private static boolean begins(byte[] bytes, int has, int[] with) {
        for (int i = 0; i < with.length; i++) {
            if (i >= has || (bytes[i] & 0xff) != with[i]) {
                return false;
            }
        }
        return true;
    }
}
